"""What stands in a response: its items, its usage, its error, and what it repeats of the request.

Refuses to know streams. Called by `responses_answer` and the route.
"""

from collections.abc import Mapping
from typing import Any

from memra.http.wire.answer_items import Item, ItemKind
from memra.http.wire.responses_request import ResponsesRequest
from memra.messages.generation import Usage
from memra.types import StopCause

INCOMPLETE_CAUSES = frozenset({StopCause.MAX_TOKENS, StopCause.CONTEXT_FULL})
"""What leaves a response incomplete."""

_FAILURES: Mapping[str, str] = {
    "invalid_request_error": "invalid_prompt",
    "rate_limit_error": "rate_limit_exceeded",
}
"""OpenAI's words for why a response failed, by our types of errors; all others are `server_error`."""


def item_object(item: Item, *, item_id: str) -> dict[str, Any]:
    """Return an output item as it stands."""
    status = "incomplete" if item.is_open or item.is_cut else "completed"
    common = {"id": item_id, "status": status}
    if item.kind is ItemKind.CALL:
        call = {"call_id": item.call_id, "name": item.name, "arguments": item.content}
        return {"type": "function_call", **common, **call}
    if item.kind is ItemKind.REASONING:
        return {"type": "reasoning", **common, "summary": [], "content": [part_object(item)], "encrypted_content": None}
    return {"type": "message", **common, "role": "assistant", "content": [part_object(item)]}


def part_object(item: Item) -> dict[str, Any]:
    """Return the one content part of an item of text or thoughts."""
    if item.kind is ItemKind.REASONING:
        return {"type": "reasoning_text", "text": item.content}
    return {"type": "output_text", "text": item.content, "annotations": [], "logprobs": []}


def response_usage(usage: Usage) -> Mapping[str, Any]:
    """Return the usage of a response."""
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def failure_object(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the error of a response that failed, from the error object that a refusal would have."""
    return {"code": _FAILURES.get(error["type"], "server_error"), "message": error["message"]}


def echo_of(body: ResponsesRequest) -> Mapping[str, Any]:
    """Return what a response repeats of its request, with what is true of all."""
    reasoning = body.reasoning
    return {
        "background": False,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "service_tier": "default",
        "store": False,
        "temperature": 1.0 if body.temperature is None else body.temperature,
        "text": {"format": (body.text and body.text.format) or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_logprobs": 0,
        "top_p": 1.0 if body.top_p is None else body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }
