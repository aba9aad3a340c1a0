"""What agents send by their defaults is read as what they mean: nothing that they add unasked is refused."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from memra.messages.generation import ReplyDelta, ReplyFinished, ToolCallDelta, Usage
from memra.types import StopCause

Start = Callable[..., Awaitable[Any]]
USAGE = Usage(3, 2, 1, 0.25)
CACHED = {"cache_control": {"type": "ephemeral"}}
SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"path": {"type": "string", "description": "An absolute path."}},
    "required": ["path"],
    "additionalProperties": False,
}
LONG_SYSTEM = [{"type": "text", "text": "You are an agent."}, {"type": "text", "text": "Be careful.", **CACHED}]

CODE_AGENT_OVER_MESSAGES = {
    "model": "fake",
    "max_tokens": 32000,
    "temperature": 1,
    "stream": True,
    "system": LONG_SYSTEM,
    "tools": [
        {"name": "Read", "description": "Reads a file.", "input_schema": SCHEMA, "eager_input_streaming": True},
        {"name": "Write", "description": "Writes a file.", "input_schema": SCHEMA, **CACHED},
    ],
    "metadata": {"user_id": '{"device_id":"' + "0" * 64 + '","account_uuid":"","session_id":"' + "1" * 190 + '"}'},
    "thinking": {"type": "enabled", "budget_tokens": 31999},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "max"},
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>Now.</system-reminder>"},
                {"type": "text", "text": "Read a and b."},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Two files.", "signature": ""},
                {"type": "text", "text": "I read them."},
                {
                    "type": "tool_use",
                    "id": "toolu_1",
                    "name": "Read",
                    "input": {"path": "/a"},
                    "caller": {"type": "direct"},
                },
                {"type": "tool_use", "id": "toolu_2", "name": "Read", "input": {"path": "/b"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
                },
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "No such file.",
                    "is_error": True,
                    **CACHED,
                },
                {"type": "text", "text": "Go on."},
            ],
        },
    ],
}

CODE_AGENT_OVER_RESPONSES = {
    "model": "fake",
    "instructions": "You are an agent.",
    "stream": True,
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0198c0de-0000-7000-8000-000000000000",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "reasoning": {"effort": "xhigh", "summary": "auto"},
    "text": {"verbosity": "medium"},
    "client_metadata": {"installation": "1"},
    "tools": [
        {"type": "function", "name": "shell", "description": "Runs.", "strict": False, "parameters": SCHEMA},
        {"type": "web_search", "external_web_access": False},
    ],
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be careful."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Read a."}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": None, "encrypted_content": None},
        {"type": "function_call", "id": "fc_1", "name": "shell", "arguments": '{"path":"/a"}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "one"},
        {
            "type": "message",
            "role": "assistant",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "It says one.", "annotations": []}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
    ],
}

CODE_AGENT_OVER_CHAT = {
    "model": "fake",
    "temperature": 0,
    "top_p": 1,
    "max_tokens": 32000,
    "stream": True,
    "stream_options": {"include_usage": True},
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning_effort": "xhigh",
    "prompt_cache_key": "ses_1",
    "store": False,
    "verbosity": "low",
    "tools": [
        {
            "type": "function",
            "function": {"name": "read", "description": "Reads.", "strict": True, "parameters": SCHEMA},
        }
    ],
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "system", "content": "Be careful."},
        {"role": "user", "content": [{"type": "text", "text": "Read a."}, {"type": "text", "text": "Now.", **CACHED}]},
        {
            "role": "assistant",
            "content": "",
            "refusal": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
            "reasoning_content": "A file.",
            "reasoning_details": [{"type": "reasoning.text", "text": "A file.", "index": 0, "format": "unknown"}],
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "read", "arguments": '{"path":"/a"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "name": "read", "content": [{"type": "text", "text": "one"}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": "Go on."},
    ],
}


async def asked(start: Start, path: str, body: dict[str, Any]) -> Any:
    server = await start()
    reply = await server.post(path, body)
    assert reply.status_code == 200, reply.text
    return server.house.requests[0]


def roles(request: Any) -> list[str]:
    return [message["role"] for message in request.prompt.messages]


async def test_an_agent_that_speaks_messages_is_understood(start: Start):
    request = await asked(start, "/v1/messages?beta=true", CODE_AGENT_OVER_MESSAGES)
    assert roles(request) == ["system", "user", "assistant", "tool", "tool", "user"]
    system, _, called, *results, last = (message["content"] for message in request.prompt.messages)
    assert (system, called, last) == ("You are an agent.\nBe careful.", "I read them.", "Go on.")
    assert results == ["one\ntwo", "Error: No such file."]
    assert [tool["function"]["name"] for tool in request.prompt.tools] == ["Read", "Write"]
    assert request.prompt.template_options == {"enable_thinking": True, "reasoning_effort": "high"}


async def test_an_agent_that_counts_its_messages_is_understood(start: Start):
    kept = {name: CODE_AGENT_OVER_MESSAGES[name] for name in ("model", "messages", "system", "tools", "thinking")}
    server = await start()
    reply = await server.post("/v1/messages/count_tokens?beta=true", kept)
    assert reply.json() == {"input_tokens": 3}


async def test_an_agent_that_speaks_responses_is_understood(start: Start):
    request = await asked(start, "/v1/responses", CODE_AGENT_OVER_RESPONSES)
    assert roles(request) == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert request.prompt.messages[0]["content"] == "You are an agent.\n\nBe careful."
    assert [tool["function"]["name"] for tool in request.prompt.tools] == ["shell"]
    assert request.prompt.template_options == {"enable_thinking": True, "reasoning_effort": "high"}


async def test_an_agent_that_speaks_chat_is_understood(start: Start):
    request = await asked(start, "/v1/chat/completions", CODE_AGENT_OVER_CHAT)
    assert roles(request) == ["system", "system", "user", "assistant", "tool", "assistant", "user"]
    assert request.prompt.messages[2]["content"] == "Read a.\nNow."
    assert request.prompt.messages[3]["reasoning_content"] == "A file."
    assert request.prompt.messages[5]["content"] == "No."
    assert request.prompt.template_options == {"enable_thinking": True, "reasoning_effort": "high"}


async def test_functions_in_a_group_are_called_by_both_names(start: Start, fake_house: Any):
    groups = [
        {"type": "namespace", "name": name, "tools": [{"type": "function", "name": "close", "parameters": SCHEMA}]}
        for name in ("agents", "mcp__files__")
    ]
    calls = tuple(ToolCallDelta(at, "{}", f"call_{at}", name) for at, name in enumerate(("agents__close", "shell")))
    script = [ReplyDelta("", (1,), tool_calls=calls)]
    server = await start(fake_house(script=script, finish=ReplyFinished(StopCause.TOOL_CALLS, USAGE)))
    body = {**CODE_AGENT_OVER_RESPONSES, "tools": [*CODE_AGENT_OVER_RESPONSES["tools"], *groups], "stream": False}
    output = (await server.post("/v1/responses", body)).json()["output"]
    assert [(call["name"], call.get("namespace")) for call in output] == [("close", "agents"), ("shell", None)]
    again = await server.post("/v1/responses", {**body, "input": [*body["input"], *output]})
    assert again.status_code == 200
    prompt = server.house.requests[1].prompt
    assert [tool["function"]["name"] for tool in prompt.tools] == ["shell", "agents__close", "mcp__files__close"]
    assert [call["function"]["name"] for call in prompt.messages[-1]["tool_calls"]] == ["agents__close", "shell"]


async def test_a_search_that_must_be_used_is_refused(start: Start):
    server = await start()
    for choice in ("required", {"type": "web_search"}):
        body = {"model": "fake", "input": "hi", "tools": [{"type": "web_search_preview"}], "tool_choice": choice}
        reply = await server.post("/v1/responses", body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tool_choice")


@pytest.mark.parametrize("place", ["output_format", "output_config"])
async def test_a_bound_message_may_be_asked_for_in_its_old_place(start: Start, place: str):
    wanted = {"type": "json_schema", "schema": SCHEMA}
    fields = {place: wanted if place == "output_format" else {"format": wanted}}
    body = {"model": "fake", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], **fields}
    request = await asked(start, "/v1/messages", body)
    assert '"An absolute path."' in request.grammar.source
    assert request.grammar.param == "output_config.format"


@pytest.mark.parametrize(
    ("fields", "param", "remedy"),
    [
        ({"functions": [{"name": "f"}]}, "functions", "`tools`"),
        ({"function_call": {"name": "f"}}, "function_call", "`tool_choice`"),
        ({"audio": {"voice": "a"}}, "audio", "text"),
        ({"web_search_options": {}}, "web_search_options", "leave it out"),
        (
            {"messages": [{"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}}]},
            "messages",
            "`tool_calls`",
        ),
    ],
)
async def test_what_would_change_an_answer_and_is_not_done_is_refused_by_name(
    start: Start, fields: dict[str, Any], param: str, remedy: str
):
    reply = await (await start()).chat(**fields)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert remedy in error["message"]


async def test_old_fields_that_ask_for_nothing_are_read(start: Start):
    reply = await (await start()).chat(functions=[], function_call="auto", audio=None)
    assert reply.status_code == 200
