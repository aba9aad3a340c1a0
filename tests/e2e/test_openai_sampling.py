"""OpenAI's client asks a real model for several answers, log probabilities and biases, whole and streamed."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from memra.chat.tokenizer import build_tokenizer
from memra.loading.gguf_file import open_gguf
from tests.e2e.server_process import Server, Start

pytestmark = [pytest.mark.models, pytest.mark.timeout(600)]

MESSAGES: Any = [{"role": "user", "content": "Name three rivers, and say something about each of them in Greek."}]
LONG = "The quick brown fox jumps over the lazy dog, and then it sleeps under the old oak. " * 12


@pytest.fixture(scope="module")
def server(start: Start, smollm2_path: Path) -> Server:
    return start("-m", f"small={smollm2_path}", environ={"MEMRA_COMPAT": "openai"})


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[openai.OpenAI]:
    http = httpx.Client(trust_env=False, timeout=300)
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, http_client=http) as made:
        yield made


def chat(client: openai.OpenAI, **fields: Any) -> Any:
    return client.chat.completions.create(
        model="small", messages=MESSAGES, **{"max_tokens": 16, "temperature": 1.0, "seed": 7, **fields}
    )


def complete(client: openai.OpenAI, **fields: Any) -> Any:
    return client.completions.create(model="small", **{"max_tokens": 12, "temperature": 0, **fields})


def test_a_stream_of_several_choices_says_what_the_whole_answer_says(client: openai.OpenAI):
    fields: Any = {"n": 4, "logprobs": True, "top_logprobs": 3, "max_tokens": 24}
    whole = chat(client, **fields)
    texts: defaultdict[int, str] = defaultdict(str)
    entries: defaultdict[int, list[Any]] = defaultdict(list)
    finishes: dict[int, str] = {}
    *chunks, last = chat(client, **fields, stream=True, stream_options={"include_usage": True})
    for chunk in chunks:
        assert chunk.usage is None
        (choice,) = chunk.choices
        assert choice.index not in finishes, "something came after a choice's end"
        if choice.index not in texts:
            assert choice.delta.role == "assistant"
        texts[choice.index] += choice.delta.content or ""
        entries[choice.index] += choice.logprobs.content if choice.logprobs else []
        if choice.finish_reason:
            finishes[choice.index] = choice.finish_reason
    assert last.choices == []
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    for choice in whole.choices:
        assert texts[choice.index] == choice.message.content
        assert entries[choice.index] == choice.logprobs.content
        assert finishes[choice.index] == choice.finish_reason
    assert last.usage.completion_tokens == whole.usage.completion_tokens == 4 * 24
    assert len({choice.message.content for choice in whole.choices}) > 1


def test_choice_i_is_the_answer_with_seed_plus_i_and_shares_the_prompt(client: openai.OpenAI, server: Server):
    before = server.metrics()
    many = chat(client, n=3)
    alone = [chat(client, seed=7 + index) for index in range(3)]
    assert [choice.message.content for choice in many.choices] == [one.choices[0].message.content for one in alone]
    assert many.usage.prompt_tokens == alone[0].usage.prompt_tokens
    assert many.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone)
    server.wait_for_metrics(completed=before["completed"] + 6)


def test_the_bytes_of_the_tokens_are_the_content(client: openai.OpenAI):
    (choice,) = chat(client, logprobs=True, top_logprobs=20, max_tokens=40).choices
    said = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content)
    assert said.decode(errors="replace") == choice.message.content
    for entry in choice.logprobs.content:
        told = [candidate.logprob for candidate in entry.top_logprobs]
        assert len(told) == 20
        assert told == sorted(told, reverse=True)
        assert 0.0 >= told[0] >= entry.logprob


def test_a_stop_string_shows_in_neither_text_nor_tokens(client: openai.OpenAI):
    text = chat(client, temperature=0, max_tokens=40).choices[0].message.content
    stop = text[len(text) // 2 :][:4]
    (choice,) = chat(client, temperature=0, max_tokens=40, stop=[stop], logprobs=True).choices
    said = b"".join(bytes(entry.bytes) for entry in choice.logprobs.content).decode()
    assert choice.message.content == text[: text.index(stop)]
    assert said.startswith(choice.message.content)
    assert stop not in said


def test_a_bias_bans_and_forces(client: openai.OpenAI, smollm2_path: Path):
    checkpoint = open_gguf(smollm2_path)
    tokenizer = build_tokenizer(checkpoint.vocabulary)
    checkpoint.close()
    plain = complete(client, prompt="One, two, three,", max_tokens=1, logprobs=1).choices[0]
    (token_id,) = tokenizer.encode(plain.text, add_special=False, parse_special=False)
    bias: Any = {str(token_id): -100}
    assert complete(client, prompt="One, two, three,", max_tokens=1, logit_bias=bias).choices[0].text != plain.text
    forced: Any = {str(token_id): 100}
    assert complete(client, prompt="A cat sat", max_tokens=3, logit_bias=forced).choices[0].text == plain.text * 3


def test_many_prompts_are_answered_in_order(client: openai.OpenAI):
    prompts = ["The capital of France is", "Two and two make", "The sky is"]
    many = complete(client, prompt=prompts, n=2, seed=1, temperature=0.9)
    alone = [complete(client, prompt=prompt, n=2, seed=1, temperature=0.9) for prompt in prompts]
    assert [choice.index for choice in many.choices] == list(range(6))
    assert [choice.text for choice in many.choices] == [choice.text for one in alone for choice in one.choices]
    assert many.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)
    assert many.usage.completion_tokens == sum(one.usage.completion_tokens for one in alone)


def test_the_old_log_probabilities_have_their_shape_and_their_places(client: openai.OpenAI):
    whole = complete(client, prompt="Once upon a time", logprobs=2, max_tokens=20).choices[0]
    logprobs = whole.logprobs
    assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == 20
    assert "".join(logprobs.tokens) == whole.text
    for token, place, logprob, top in zip(
        logprobs.tokens, logprobs.text_offset, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
    ):
        assert whole.text[place:].startswith(token)
        assert top[token] == logprob
        assert len(top) in {2, 3}
    stream = complete(client, prompt="Once upon a time", logprobs=2, max_tokens=20, stream=True)
    parts = [chunk.choices[0] for chunk in stream]
    assert "".join(part.text for part in parts) == whole.text
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [value for part in parts if part.logprobs for value in getattr(part.logprobs, name)] == getattr(
            logprobs, name
        )


@pytest.mark.parametrize("is_stream", [False, True])
def test_an_echo_begins_with_the_prompt(client: openai.OpenAI, *, is_stream: bool):
    plain = complete(client, prompt="Once upon a time").choices[0].text
    for prompt in ("Once upon a time", ["Once upon a time"]):
        answer = complete(client, prompt=prompt, echo=True, stream=is_stream)
        choices = [chunk.choices[0] for chunk in answer] if is_stream else answer.choices
        assert "".join(choice.text for choice in choices) == "Once upon a time" + plain
    nothing = complete(client, prompt="Once", echo=True, max_tokens=0)
    assert (nothing.choices[0].text, nothing.usage.completion_tokens) == ("Once", 0)


def test_a_long_prompt_is_computed_once_for_all_its_choices(client: openai.OpenAI, server: Server):
    before = server.metrics()
    answer = complete(client, prompt=LONG, n=8, max_tokens=4, temperature=1.0, seed=1)
    server.wait_for_metrics(completed=before["completed"] + 8)
    after = server.metrics()
    num_computed = after["computed_tokens_in"] - before["computed_tokens_in"]
    assert after["prompt_tokens_in"] - before["prompt_tokens_in"] == 8 * answer.usage.prompt_tokens
    assert answer.usage.prompt_tokens <= num_computed < 1.6 * answer.usage.prompt_tokens


def test_a_client_that_leaves_leaves_no_row_behind(client: openai.OpenAI, server: Server):
    before = server.metrics()
    stream = chat(client, n=4, max_tokens=2000, logit_bias={"2": -100}, stream=True)
    next(iter(stream))
    stream.close()
    server.wait_for_metrics(active_sessions=0, admission_inflight=0, aborted=before["aborted"] + 4)


def test_more_choices_than_rows_take_turns(start: Start, smollm2_path: Path, client: openai.OpenAI):
    narrow = start("-m", f"small={smollm2_path}", environ={"MEMRA_COMPAT": "openai", "MEMRA_MAX_ROWS": "2"})
    with openai.OpenAI(base_url=f"{narrow.url}/v1", api_key="none", max_retries=0) as other:
        fields: Any = {"n": 8, "max_tokens": 6, "logprobs": True}
        told = [
            [(choice.message.content, choice.logprobs) for choice in chat(one, **fields).choices]
            for one in (client, other)
        ]
    assert told[0] == told[1]
