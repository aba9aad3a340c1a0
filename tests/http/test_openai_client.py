"""OpenAI's own client, which most users bring, against the server."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import httpx
import openai
import pytest
import trio
from pydantic import BaseModel

from memra.errors import BusyError, EngineFaultError, UnknownModelError
from memra.types import ModelTask

Start = Callable[..., Awaitable[Any]]
MESSAGES = [{"role": "user", "content": "hi"}]


class Person(BaseModel):
    name: str
    age: int


async def with_client(server: Any, work: Callable[[openai.OpenAI], Any]) -> Any:
    def run() -> Any:
        http = httpx.Client(trust_env=False)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0, http_client=http) as client:
            return work(client)

    return await trio.to_thread.run_sync(run)


async def test_it_reads_a_whole_answer(start: Start):
    server = await start()
    chat = await with_client(server, lambda client: client.chat.completions.create(model="fake", messages=MESSAGES))
    assert (chat.choices[0].message.content, chat.choices[0].finish_reason) == ("Hello", "stop")
    assert (chat.usage.total_tokens, chat.usage.prompt_tokens_details.cached_tokens) == (5, 1)
    assert server.house.requests[0].identity.principal == "key"


async def test_it_reads_a_stream(start: Start):
    def read(client: openai.OpenAI) -> list[Any]:
        options = {"include_usage": True}
        return list(
            client.chat.completions.create(model="fake", messages=MESSAGES, stream=True, stream_options=options)
        )

    *chunks, usage = await with_client(await start(), read)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (usage.choices, usage.usage.total_tokens) == ([], 5)


async def test_it_reads_completions_whole_and_streamed(start: Start):
    server = await start()
    create = partial(with_client, server)
    whole = await create(lambda client: client.completions.create(model="fake", prompt="hi"))
    assert whole.choices[0].text == "Hello"
    parts = await create(lambda client: list(client.completions.create(model="fake", prompt="hi", stream=True)))
    assert "".join(part.choices[0].text for part in parts) == "Hello"


async def test_it_lists_the_models(start: Start):
    def read(client: openai.OpenAI) -> list[str]:
        return [*(model.id for model in client.models.list()), client.models.retrieve("org/other").id]

    assert await with_client(await start(), read) == ["fake", "org/other", "org/other"]


async def test_it_parses_an_answer_of_a_class(start: Start, fake_house: Any):
    server = await start(fake_house(script=['{"name":"Ada",', '"age":36}']))

    def parse(client: openai.OpenAI) -> list[Any]:
        body: Any = {"model": "fake", "messages": MESSAGES, "response_format": Person}
        with client.chat.completions.stream(**body) as stream:
            streamed = stream.get_final_completion()
        return [client.chat.completions.parse(**body), streamed]

    parsed = [answer.choices[0].message.parsed for answer in await with_client(server, parse)]
    assert parsed == [Person(name="Ada", age=36)] * 2
    assert '"required":["name","age"]' in server.house.requests[0].grammar.source


@pytest.mark.parametrize("encoding", ["float", "base64", openai.omit])
async def test_it_reads_vectors_however_they_are_written(start: Start, fake_house: Any, encoding: Any):
    server = await start(fake_house(tasks={"fake": ModelTask.EMBED}))
    made = await with_client(
        server,
        lambda client: client.embeddings.create(model="fake", input=["a", "b"], encoding_format=encoding),
    )
    rows = [row.embedding for row in made.data]
    if encoding == "base64":
        assert all(isinstance(row, str) for row in rows)
    else:
        assert rows == [[0.0, 4.0, 3.0], [3.0, 4.0, 3.0]]
    assert made.usage.prompt_tokens == 14


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (UnknownModelError("No such model.", param="model"), openai.BadRequestError),
        (BusyError("Full."), openai.RateLimitError),
        (EngineFaultError("Failed."), openai.InternalServerError),
    ],
)
async def test_it_raises_its_own_kinds_of_error(
    start: Start, fake_house: Any, refusal: Exception, kind: type[openai.APIStatusError]
):
    server = await start(fake_house(refusal=refusal))

    def create(client: openai.OpenAI) -> openai.APIStatusError:
        with pytest.raises(kind) as caught:
            client.chat.completions.create(model="fake", messages=MESSAGES)
        return caught.value

    error = await with_client(server, create)
    assert error.request_id == server.house.requests[0].request_id
    assert refusal.message in str(error)


async def test_it_raises_for_a_failure_in_a_stream(start: Start, fake_house: Any):
    server = await start(fake_house(script=["Hel", EngineFaultError("The engine failed.")]))

    def create(client: openai.OpenAI) -> str:
        with pytest.raises(openai.APIError) as caught:
            list(client.chat.completions.create(model="fake", messages=MESSAGES, stream=True))
        return str(caught.value)

    assert "The engine failed." in await with_client(server, create)
