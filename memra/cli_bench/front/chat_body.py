"""The chat that is sent: many turns, calls of tools among them, and the tools' declarations; the same in every run.

Knows OpenAI's shape of a request; refuses to know servers and clocks.
"""

import json
from collections.abc import Mapping
from typing import Any

from memra.cli_bench.agents.session_text import SessionText

NUM_TURNS = 20
NUM_TOOLS = 10
_SYSTEM_TOKENS, _TURN_TOKENS, _TOOLS_TOKENS = 200, 60, 2000


def make_chat(model: str, *, with_tools: bool, max_tokens: int) -> dict[str, Any]:
    """Make the body of a streamed chat request: a system prompt, the turns, and one more question.

    Every turn is a question and its answer; every second one has a call and its result between them.

    Args:
        model: that is asked.
        with_tools: for a template that has a place for them; otherwise calls and results are left out.
        max_tokens: of the answer.
    """
    text = SessionText("front")
    messages: list[Mapping[str, Any]] = [{"role": "system", "content": text.prose(_SYSTEM_TOKENS)}]
    for turn in range(NUM_TURNS):
        messages.append({"role": "user", "content": text.prose(_TURN_TOKENS)})
        if with_tools and turn % 2:
            messages += _tool_turn(text, f"call_{turn}")
        messages.append({"role": "assistant", "content": text.prose(_TURN_TOKENS)})
    messages.append({"role": "user", "content": text.prose(_TURN_TOKENS)})
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True}
    if with_tools:
        body["tools"] = text.tools(_TOOLS_TOKENS)[:NUM_TOOLS]
    return {**body, "stream_options": {"include_usage": True}}


def make_question(model: str, number: int, *, max_tokens: int) -> dict[str, Any]:
    """Make the body of a short streamed chat request; another one for every number."""
    messages = [{"role": "user", "content": f"{number}. Tell a long story of the sea, and do not stop."}]
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True}
    return {**body, "stream_options": {"include_usage": True}}


def _tool_turn(text: SessionText, call_id: str) -> list[Mapping[str, Any]]:
    name, arguments = text.tool_call()
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": text.tool_output(_TURN_TOKENS)},
    ]
