"""OpenAI's own client and its Responses API, against the server."""

from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai
import pytest
import trio
from pydantic import BaseModel

from memra.errors import BusyError, EngineFaultError
from memra.messages.generation import ReplyDelta, ReplyFinished, ToolCallDelta, Usage
from memra.types import StopCause

Start = Callable[..., Awaitable[Any]]
USAGE = Usage(3, 2, 1, 0.25)
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": False}
SCRIPT = [
    ReplyDelta("", (1,), reasoning="hm"),
    ReplyDelta("Hel", (2,)),
    ReplyDelta("lo", (3,)),
    ReplyDelta("", (4,), tool_calls=(ToolCallDelta(0, '{"a":', "call_1", "f"),)),
    ReplyDelta("", (5,), tool_calls=(ToolCallDelta(0, "1}"), ToolCallDelta(1, "{}", "call_2", "g"))),
]


class Person(BaseModel):
    name: str
    age: int


@pytest.fixture
def script(fake_house: Any) -> Any:
    return fake_house(script=SCRIPT, finish=ReplyFinished(StopCause.TOOL_CALLS, USAGE))


async def with_client(server: Any, work: Callable[[openai.OpenAI], Any]) -> Any:
    def run() -> Any:
        http = httpx.Client(trust_env=False)
        with openai.OpenAI(base_url=f"{server.url}/v1", api_key="key", max_retries=0, http_client=http) as client:
            return work(client)

    return await trio.to_thread.run_sync(run)


async def test_it_reads_a_whole_response(start: Start, script: Any):
    server = await start(script)
    response = await with_client(
        server, lambda client: client.responses.create(model="fake", input="hi", tools=[TOOL], store=False)
    )
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (response.output_text, response.status, response.usage.total_tokens) == ("Hello", "completed", 5)
    assert [(call.name, call.arguments) for call in response.output[2:]] == [("f", '{"a":1}'), ("g", "{}")]
    assert response.tools[0].name == "f"


async def test_it_puts_a_stream_together(start: Start, script: Any):
    def read(client: openai.OpenAI) -> tuple[list[Any], Any]:
        with client.responses.stream(model="fake", input="hi", tools=[TOOL]) as stream:
            return list(stream), stream.get_final_response()

    events, final = await with_client(await start(script), read)
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert ("".join(texts), final.output_text) == ("Hello", "Hello")
    arguments = [event.snapshot for event in events if event.type == "response.function_call_arguments.delta"]
    assert arguments == ['{"a":', '{"a":1}', "{}"]
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call", "function_call"]


async def test_it_parses_an_answer_of_a_class(start: Start, fake_house: Any):
    server = await start(fake_house(script=['{"name":"Ada",', '"age":36}']))

    def parse(client: openai.OpenAI) -> list[Any]:
        body: Any = {"model": "fake", "input": "hi", "text_format": Person}
        with client.responses.stream(**body) as stream:
            streamed = stream.get_final_response()
        return [client.responses.parse(**body), streamed]

    parsed = [answer.output_parsed for answer in await with_client(server, parse)]
    assert parsed == [Person(name="Ada", age=36)] * 2
    assert '"required":["name","age"]' in server.house.requests[0].grammar.source


async def test_its_items_go_back_as_they_came(start: Start, script: Any):
    server = await start(script)

    def talk(client: openai.OpenAI) -> None:
        first = client.responses.create(model="fake", input="hi")
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": "1"}
            for item in first.output
            if item.type == "function_call"
        ]
        client.responses.create(model="fake", input=[{"role": "user", "content": "hi"}, *first.output, *results])

    await with_client(server, talk)
    roles = [message["role"] for message in server.house.requests[1].prompt.messages]
    assert roles == ["user", "assistant", "tool", "tool"]


async def test_it_tells_of_an_answer_that_was_cut(start: Start, fake_house: Any):
    server = await start(fake_house(finish=ReplyFinished(StopCause.MAX_TOKENS, USAGE)))
    response = await with_client(server, lambda client: client.responses.create(model="fake", input="hi"))
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


async def test_it_raises_its_own_kinds_of_error(start: Start, fake_house: Any):
    def create(client: openai.OpenAI) -> None:
        with pytest.raises(openai.RateLimitError, match="Full"):
            client.responses.create(model="fake", input="hi")
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            client.responses.create(model="fake", input="hi", previous_response_id="resp_1")

    await with_client(await start(fake_house(refusal=BusyError("Full."))), create)


async def test_it_reads_a_failure_in_a_stream(start: Start, fake_house: Any):
    server = await start(fake_house(script=["Hel", EngineFaultError("The engine failed.")]))

    def read(client: openai.OpenAI) -> Any:
        *_, last = client.responses.create(model="fake", input="hi", stream=True)
        return last

    last = await with_client(server, read)
    assert (last.type, last.response.error.code) == ("response.failed", "server_error")
    assert last.response.output_text == "Hel"
