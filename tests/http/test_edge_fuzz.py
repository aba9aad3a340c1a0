"""Bodies of responses and messages with anything in any place: read, or refused in one sentence."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire import messages_request, responses_request
from memra.messages.generation import ChatPrompt, GenerationRequest
from memra.types import Lane, RequestId

CALLER = Caller(lane=Lane.INTERACTIVE)
WORDS = ["", "text", "message", "user", "assistant", "system", "tool", "function", "auto", "json_schema", "é😀", "{}"]
KEYS = ["type", "role", "content", "text", "name", "id", "call_id", "arguments", "output", "input", "tool_use_id"]
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = PLAIN | st.sampled_from(WORDS)


def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)


JSON = st.recursive(LEAVES, grown, max_leaves=8)
RESPONSE_ITEMS = [
    {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "1"},
]
RESPONSE = {
    "model": "fake",
    "input": RESPONSE_ITEMS,
    "tools": [{"type": "function", "name": "f", "parameters": {}}],
    "tool_choice": "auto",
    "text": {"format": {"type": "text"}},
    "reasoning": {"effort": "low"},
    "temperature": 1,
}
MESSAGE = {
    "model": "fake",
    "max_tokens": 1,
    "system": [{"type": "text", "text": "a"}],
    "messages": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]},
    ],
    "tools": [{"name": "f", "input_schema": {}}],
    "tool_choice": {"type": "auto"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "stop_sequences": ["x"],
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


def read_response(body: bytes) -> GenerationRequest:
    request = responses_request.DECODER.decode(body)
    return responses_request.read_responses_request(request, request_id=RequestId("r"), caller=CALLER)


def read_message(body: bytes) -> GenerationRequest:
    request = messages_request.DECODER.decode(body)
    return messages_request.read_messages_request(request, request_id=RequestId("r"), caller=CALLER)


@pytest.mark.parametrize(("read", "valid"), [(read_response, RESPONSE), (read_message, MESSAGE)])
@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_anything_anywhere_is_read_or_refused(read: Any, valid: dict[str, Any], data: st.DataObject):
    place = data.draw(st.sampled_from(places(valid)))
    body = msgspec.json.encode(replaced(valid, place, data.draw(JSON)))
    try:
        request = read(body)
    except (InvalidRequestError, msgspec.ValidationError):
        return
    assert isinstance(request.prompt, ChatPrompt)
    assert all(isinstance(message["content"], str | None) for message in request.prompt.messages)


@pytest.mark.parametrize(("read", "valid"), [(read_response, RESPONSE), (read_message, MESSAGE)])
def test_the_bodies_that_are_changed_are_valid(read: Any, valid: dict[str, Any]):
    assert isinstance(read(msgspec.json.encode(valid)).prompt, ChatPrompt)
