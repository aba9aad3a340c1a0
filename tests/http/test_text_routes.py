"""Embeddings, ranking, tokens and cancelling on the wire."""

import base64
import math
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from memra.errors import ContextLengthError, WrongTaskError
from memra.http.wire.embedding_request import MAX_INPUTS
from memra.http.wire.rerank import MAX_DOCUMENTS
from memra.messages.generation import ChatPrompt, TextPrompt, TokenPrompt
from memra.messages.texts import TextPair
from memra.types import Lane, ModelTask
from tests.http.test_openai_client import with_client

Start = Callable[..., Awaitable[Any]]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("a", (TextPrompt("a"),)),
        (["a", "b"], (TextPrompt("a"), TextPrompt("b"))),
        ([5, 6], (TokenPrompt((5, 6)),)),
        ([[5, 6], [7]], (TokenPrompt((5, 6)), TokenPrompt((7,)))),
        (["a", [5]], (TextPrompt("a"), TokenPrompt((5,)))),
    ],
)
async def test_texts_and_ids_come_alone_and_in_lists(start: Start, given: Any, meant: Any):
    server = await start()
    reply = await server.post("/v1/embeddings", {"model": "m", "input": given}, x_lane="judge")
    (request,) = server.house.texts
    assert (request.texts, request.task, request.param) == (meant, ModelTask.EMBED, "input")
    assert (request.lane, request.model) == (Lane.JUDGE, "m")
    body = reply.json()
    vectors = [[index * 3.0 % 4, 4.0, 3.0] for index in range(len(meant))]
    assert body == {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)],
        "model": "m",
        "usage": {"prompt_tokens": 7 * len(meant), "total_tokens": 7 * len(meant)},
    }
    assert reply.headers["x-request-id"] == request.request_id
    assert reply.headers["x-ratelimit-limit"] == "4"


async def test_base64_is_little_endian_float32(start: Start):
    server = await start()
    reply = await server.post("/v1/embeddings", {"model": "m", "input": ["a", "b"], "encoding_format": "base64"})
    found = [np.frombuffer(base64.b64decode(row["embedding"]), "<f4").tolist() for row in reply.json()["data"]]
    assert found == [[0.0, 4.0, 3.0], [3.0, 4.0, 3.0]]


async def test_fewer_dimensions_are_the_first_ones_at_norm_1(start: Start):
    server = await start()
    reply = await server.post("/v1/embeddings", {"model": "m", "input": ["a", "b"], "dimensions": 2})
    found = [row["embedding"] for row in reply.json()["data"]]
    assert found == [[0.0, 1.0], [pytest.approx(0.6), pytest.approx(0.8)]]
    assert math.fsum(value * value for value in found[1]) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [[1], []]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": [1, [2]]}, "input"),
        ({"input": [-1]}, "input"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"input": 5}, "input"),
        ({}, "input"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "dimensions": 4}, "dimensions"),
        ({"input": "a", "truncate_prompt_tokens": 5}, "truncate_prompt_tokens"),
        ({"input": "a", "timeout_ms": -1}, "timeout_ms"),
    ],
)
async def test_embedding_fields_that_cannot_be_are_refused_by_name(start: Start, fields: dict[str, Any], named: str):
    reply = await (await start()).post("/v1/embeddings", {"model": "m", **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, named)


async def test_the_largest_list_is_taken_and_written_in_a_thread(start: Start):
    server = await start()
    reply = await server.post("/v1/embeddings", {"model": "m", "input": ["a"] * MAX_INPUTS})
    assert len(reply.json()["data"]) == MAX_INPUTS


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ContextLengthError("`input[1]` has 600 tokens.", param="input"), "context_length_exceeded"),
        (WrongTaskError("It chats.", param="model"), "model_task_mismatch"),
    ],
)
async def test_refusals_of_the_house_keep_their_names(start: Start, fake_house: Any, error: Exception, code: str):
    server = await start(fake_house(refusal=error))
    reply = await server.post("/v1/embeddings", {"model": "m", "input": "a"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, code)


@pytest.mark.parametrize("form", ["base64", "float", None])
async def test_openais_client_reads_vectors(start: Start, form: str | None):
    server = await start()
    options = {} if form is None else {"encoding_format": form}

    def embed(client: Any) -> Any:
        return client.embeddings.create(model="m", input=["a", "b"], dimensions=3, **options)

    found = await with_client(server, embed)
    assert (found.usage.total_tokens, found.model) == (14, "m")
    if form == "base64":
        assert base64.b64decode(found.data[1].embedding) == np.array([3.0, 4.0, 3.0], "<f4").tobytes()
    else:
        assert [row.embedding for row in found.data] == [[0.0, 4.0, 3.0], [3.0, 4.0, 3.0]]


async def test_openais_client_reads_one_models_row(start: Start):
    server = await start()
    row = await with_client(server, lambda client: client.models.retrieve("org/other"))
    assert (row.id, row.object, row.owned_by) == ("org/other", "model", "memra")


@pytest.mark.parametrize("path", ["/v1/models/org/other", "/v1/models/org%2Fother"])
async def test_a_models_row_is_found_with_its_slash_raw_or_encoded(start: Start, fake_house: Any, path: str):
    tasks = {"org/other": ModelTask.EMBED, "fake": ModelTask.GENERATE}
    server = await start(fake_house(contexts={"org/other": 512}, tasks=tasks))
    row = (await server.get(path)).json()
    assert row == (await server.get("/v1/models")).json()["data"][1]
    assert (row["id"], row["type"], row["endpoints"]) == ("org/other", "embedding", ["/v1/embeddings"])
    assert (row["context_length"], row["embedding_length"]) == (512, 3)
    assert (await server.get("/v1/models/fake")).json()["type"] == "chat"


async def test_a_model_that_was_never_opened_says_nothing_of_its_trade(start: Start):
    row = (await (await start()).get("/v1/models/fake")).json()
    assert (row["type"], row["endpoints"], row["embedding_length"]) == (None, None, None)


async def test_an_unknown_models_row_is_not_found(start: Start):
    reply = await (await start()).get("/v1/models/gone/away")
    error = reply.json()["error"]
    assert (reply.status_code, error["code"], error["param"]) == (404, "model_not_found", "id")
    assert reply.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
async def test_documents_come_back_best_first(start: Start, path: str):
    server = await start()
    documents = ["a", {"text": "b"}, "c", {"text": "d", "id": 7}]
    reply = await server.post(path, {"model": "m", "query": "q", "documents": documents, "return_documents": True})
    (request,) = server.house.texts
    assert request.texts == tuple(TextPair("q", word) for word in "abcd")
    assert (request.task, request.param) == (ModelTask.RANK, "documents")
    assert reply.json() == {
        "id": request.request_id,
        "object": "list",
        "model": "m",
        "results": [
            {"index": 1, "relevance_score": 3.0, "document": {"text": "b"}},
            {"index": 2, "relevance_score": 2.0, "document": {"text": "c"}},
            {"index": 3, "relevance_score": 1.0, "document": {"text": "d"}},
            {"index": 0, "relevance_score": 0.0, "document": {"text": "a"}},
        ],
        "usage": {"prompt_tokens": 28, "total_tokens": 28},
    }


async def test_only_the_best_come_back_where_fewer_are_asked_for(start: Start):
    server = await start()
    reply = await server.post("/v1/rerank", {"model": "m", "query": "q", "documents": list("abcd"), "top_n": 2})
    assert reply.json()["results"] == [{"index": 1, "relevance_score": 3.0}, {"index": 2, "relevance_score": 2.0}]
    more = await server.post("/v1/rerank", {"model": "m", "query": "q", "documents": list("ab"), "top_n": 9})
    assert len(more.json()["results"]) == 2


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"documents": []}, "documents"),
        ({"documents": ["a"] * (MAX_DOCUMENTS + 1)}, "documents"),
        ({"documents": [{"title": "a"}]}, "documents"),
        ({"documents": "a"}, "documents"),
        ({"query": ""}, "query"),
        ({"top_n": 0}, "top_n"),
        ({"rank_fields": ["a"]}, "rank_fields"),
        ({"max_tokens_per_doc": 5}, "max_tokens_per_doc"),
        ({"max_chunks_per_doc": 5}, "max_chunks_per_doc"),
    ],
)
async def test_ranking_fields_that_cannot_be_are_refused_by_name(start: Start, fields: dict[str, Any], named: str):
    body = {"model": "m", "query": "q", "documents": ["a"], **fields}
    reply = await (await start()).post("/v1/rerank", body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, named)


@pytest.mark.parametrize("path", ["/v1/tokenize", "/tokenize"])
async def test_a_texts_tokens_are_counted_beside_the_context(start: Start, path: str):
    server = await start()
    reply = await server.post(path, {"model": "m", "prompt": "hello"})
    assert reply.json() == {"tokens": [5, 6, 7], "count": 3, "max_model_len": 4096}
    (wanted,) = server.house.tokenized
    assert (wanted.prompt, wanted.add_special, wanted.parse_special) == (TextPrompt("hello"), False, True)


async def test_a_text_is_tokenized_as_llama_cpps_and_vllms_clients_ask(start: Start):
    server = await start()
    await server.post("/tokenize", {"model": "m", "content": "", "add_special": True, "parse_special": False})
    await server.post("/tokenize", {"model": "m", "prompt": "a", "add_special_tokens": True})
    first, second = server.house.tokenized
    assert (first.prompt, first.add_special, first.parse_special) == (TextPrompt(""), True, False)
    assert second.add_special


async def test_a_chats_tokens_are_those_of_the_chat_route(start: Start):
    server = await start()
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    messages = [{"role": "developer", "content": [{"type": "text", "text": "hi"}]}]
    fields = {"messages": messages, "tools": [tool], "chat_template_kwargs": {"x": 1}}
    await server.post("/v1/tokenize", {"model": "m", **fields})
    await server.post("/v1/tokenize", {"model": "m", **fields, "add_generation_prompt": False})
    await server.post("/v1/chat/completions", {"model": "m", **fields})
    first, second = (wanted.prompt for wanted in server.house.tokenized)
    (chat,) = server.house.requests
    assert first == chat.prompt
    assert isinstance(second, ChatPrompt)
    assert (first.add_generation_prompt, second.add_generation_prompt) == (True, False)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "prompt"),
        ({"prompt": "a", "content": "b"}, "prompt"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "b"}]}, "prompt"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "a", "with_pieces": True}, "with_pieces"),
        ({"messages": [{"role": "nobody", "content": "b"}]}, "messages"),
    ],
)
async def test_token_fields_that_cannot_be_are_refused_by_name(start: Start, fields: dict[str, Any], named: str):
    reply = await (await start()).post("/v1/tokenize", {"model": "m", **fields})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, named)


@pytest.mark.parametrize("path", ["/v1/detokenize", "/detokenize"])
async def test_tokens_become_text(start: Start, path: str):
    server = await start()
    reply = await server.post(path, {"model": "m", "tokens": [104, 105]})
    assert reply.json() == {"prompt": "hi", "content": "hi", "text": "hi"}
    refused = await server.post(path, {"model": "m", "tokens": [-1]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tokens")


@pytest.mark.parametrize("field", ["id", "request_id"])
async def test_a_request_under_way_is_cancelled_by_its_id(start: Start, fake_house: Any, field: str):
    server = await start(fake_house(cancellable={"chatcmpl-1"}))
    reply = await server.post("/v1/cancel", {field: "chatcmpl-1"})
    assert (reply.status_code, reply.json()) == (200, {"id": "chatcmpl-1", "cancelled": True})


async def test_an_unknown_request_is_not_found_and_not_cancelled(start: Start):
    reply = await (await start()).post("/v1/cancel", {"id": "gone"})
    body = reply.json()
    assert (reply.status_code, body["id"], body["cancelled"]) == (404, "gone", False)
    assert body["error"]["code"] == "request_not_found"
    assert reply.headers["x-should-retry"] == "false"


async def test_cancelling_needs_an_id_and_the_key(start: Start, fake_house: Any):
    server = await start(fake_house(valid_key="k"))
    assert (await server.post("/v1/cancel", {"id": "a"})).status_code == 401
    assert (await server.post("/v1/cancel", {"id": "a"}, authorization="Bearer k")).status_code == 404
    assert [who.principal for who in server.house.cancelling] == ["k"]
    refused = await server.post("/v1/cancel", {}, authorization="Bearer k")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "id")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/rerank", "/v1/tokenize", "/v1/detokenize"])
async def test_no_body_is_read_without_the_key(start: Start, fake_house: Any, path: str):
    server = await start(fake_house(valid_key="k"))
    assert (await server.post(path, {"nonsense": 1})).status_code == 401
