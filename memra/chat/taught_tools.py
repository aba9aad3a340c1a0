"""Tools for a model whose template has no place for them: told in the prompt's own words.

Trade: a chat with tools, earlier calls and results becomes one of plain words. It refuses to know how the words for
tools and calls read, which is the generic dialect's, and which models are to be taught, which is a setting. Called by
`memra.chat.chat_format`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from memra.chat.template_messages import MessageStyle, plain_messages
from memra.chat.tool_dialects.generic import written_call
from memra.chat.tool_dialects.registry import GENERIC
from memra.messages.generation import ChatPrompt

_SYSTEM_ROLES = frozenset({"system", "developer"})
_RESULTS = ("<tool_response>\n", "\n</tool_response>")
"""Around what a tool said, as in Hermes' format."""


def has_tool_turns(prompt: ChatPrompt) -> bool:
    """Whether a chat declares tools, or tells of earlier calls."""
    turns = (message.get("tool_calls") or message.get("role") == "tool" for message in prompt.messages)
    return bool(prompt.tools) or any(turns)


def teach_tools(prompt: ChatPrompt, *, takes_system: bool) -> ChatPrompt:
    """Return the chat in words: declarations in the system message, calls as text, results as the user's turns.

    Args:
        prompt: with tools, or with earlier calls.
        takes_system: the template shows a system message; otherwise the first turn of the user begins with the words.

    Raises:
        InvalidRequestError: a content part is not text.
    """
    turns: list[dict[str, Any]] = []
    for message in plain_messages(prompt.messages, style=MessageStyle()):
        _add_turn(turns, message)
    if prompt.tools:
        _add_instructions(turns, prompt.tools, takes_system=takes_system)
    return replace(prompt, messages=turns, tools=None)


def _add_turn(turns: list[dict[str, Any]], message: dict[str, Any]) -> None:
    if message.get("role") == "tool":
        result = str(message.get("content") or "").join(_RESULTS)
        if turns and turns[-1].get("role") == "user" and turns[-1]["content"].startswith(_RESULTS[0]):
            turns[-1]["content"] += "\n" + result
        else:
            turns.append({"role": "user", "content": result})
        return
    calls = message.pop("tool_calls", None) or ()
    said = [str(message.get("content") or ""), *map(_written, calls)]
    turns.append({**message, "content": "\n".join(part for part in said if part)})


def _written(call: Mapping[str, Any]) -> str:
    function = call.get("function", call)
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return written_call(str(function.get("name", "")), text)


def _add_instructions(turns: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], *, takes_system: bool) -> None:
    words = GENERIC.instructions(tools).rstrip()
    first = turns[0] if turns else {}
    if takes_system and first.get("role") in _SYSTEM_ROLES:
        first["content"] = f"{first['content']}\n\n{words}".lstrip()
    elif takes_system:
        turns.insert(0, {"role": "system", "content": words})
    else:
        _begin_users_turn(turns, words)


def _begin_users_turn(turns: list[dict[str, Any]], words: str) -> None:
    user = next((turn for turn in turns if turn.get("role") == "user"), None)
    if user is None:
        turns.append({"role": "user", "content": words})
    else:
        user["content"] = f"{words}\n\n{user['content']}"
