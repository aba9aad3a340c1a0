"""Anthropic's own client against the server."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from pydantic import BaseModel

from memra.errors import BusyError, OverloadedError, UnknownModelError
from memra.messages.generation import ReplyDelta, ReplyFinished, ToolCallDelta, Usage
from memra.types import StopCause

anthropic = pytest.importorskip("anthropic")

Start = Callable[..., Awaitable[Any]]
USAGE = Usage(3, 2, 1, 0.25)
TOOL = {"name": "f", "input_schema": {"type": "object"}}
ASK = {"model": "fake", "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]}
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


async def with_client(server: Any, work: Callable[[Any], Any]) -> Any:
    def run() -> Any:
        http = anthropic.DefaultHttpxClient(trust_env=False)
        with anthropic.Anthropic(base_url=server.url, api_key="key", max_retries=0, http_client=http) as client:
            return work(client)

    return await trio.to_thread.run_sync(run)


async def test_it_reads_a_whole_message(start: Start, script: Any):
    server = await start(script)
    message = await with_client(server, lambda client: client.messages.create(**ASK, tools=[TOOL], system="be kind"))
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block.input for block in message.content[2:]] == [{"a": 1}, {}]
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 2)
    assert message._request_id == server.house.requests[0].request_id
    assert server.house.requests[0].identity.principal == "key"


async def test_it_puts_a_stream_together(start: Start, script: Any):
    def read(client: Any) -> tuple[str, Any]:
        with client.messages.stream(**ASK, tools=[TOOL]) as stream:
            return "".join(stream.text_stream), stream.get_final_message()

    server = await start(script)
    text, final = await with_client(server, read)
    whole = await with_client(server, lambda client: client.messages.create(**ASK, tools=[TOOL]))
    assert text == "Hello"
    assert [block.to_dict() for block in final.content] == [block.to_dict() for block in whole.content]
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)


async def test_its_blocks_go_back_as_they_came(start: Start, script: Any):
    server = await start(script)

    def talk(client: Any) -> None:
        first = client.messages.create(**ASK)
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": "1"}
            for block in first.content
            if block.type == "tool_use"
        ]
        turns = [{"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
        client.messages.create(**{**ASK, "messages": [*ASK["messages"], *turns]})

    await with_client(server, talk)
    roles = [message["role"] for message in server.house.requests[1].prompt.messages]
    assert roles == ["user", "assistant", "tool", "tool"]


@pytest.mark.parametrize(
    ("thinking", "wanted"),
    [({"type": "enabled", "budget_tokens": 1024}, True), ({"type": "disabled"}, False)],
)
async def test_it_asks_for_thoughts_and_reads_them_streamed(
    start: Start, script: Any, *, thinking: dict[str, Any], wanted: bool
):
    def read(client: Any) -> tuple[list[str], Any]:
        with client.messages.stream(**{**ASK, "max_tokens": 2048}, thinking=thinking) as stream:
            thoughts = [event.thinking for event in stream if event.type == "thinking"]
            return thoughts, stream.get_final_message()

    server = await start(script)
    thoughts, final = await with_client(server, read)
    assert thoughts == ["hm"]
    assert (final.content[0].type, final.content[0].thinking) == ("thinking", "hm")
    assert server.house.requests[0].prompt.template_options["enable_thinking"] is wanted


async def test_it_parses_an_answer_of_a_class(start: Start, fake_house: Any):
    server = await start(fake_house(script=['{"name":"Ada",', '"age":36}']))
    message = await with_client(server, lambda client: client.messages.parse(**ASK, output_format=Person))
    assert message.parsed_output == Person(name="Ada", age=36)
    assert '"required":["name","age"]' in server.house.requests[0].grammar.source


async def test_it_counts_tokens(start: Start):
    counted = await with_client(
        await start(), lambda client: client.messages.count_tokens(model="fake", messages=ASK["messages"])
    )
    assert counted.input_tokens == 3


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        (UnknownModelError("One sentence."), "NotFoundError"),
        (BusyError("One sentence."), "RateLimitError"),
        (OverloadedError("One sentence."), "OverloadedError"),
    ],
)
async def test_it_raises_its_own_kinds_of_error(start: Start, fake_house: Any, refusal: Exception, kind: str):
    server = await start(fake_house(refusal=refusal))

    def create(client: Any) -> Any:
        with pytest.raises(anthropic.APIStatusError, match=r"One sentence\.") as caught:
            client.messages.create(**ASK)
        return caught.value

    error = await with_client(server, create)
    assert (type(error).__name__, error.request_id) == (kind, server.house.requests[0].request_id)


async def test_it_raises_for_a_failure_in_a_stream(start: Start, fake_house: Any):
    server = await start(fake_house(script=["Hel", OverloadedError("Too much.")]))

    def read(client: Any) -> str:
        with pytest.raises(anthropic.APIError) as caught:
            list(client.messages.create(**ASK, stream=True))
        return str(caught.value)

    assert "Too much." in await with_client(server, read)
