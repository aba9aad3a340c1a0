"""Answers as models write them, in every dialect: what the tests cut to pieces."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from memra.chat.tool_dialects.contract import ArgumentsPiece, CallBegun, CallEnded, Piece, TextPiece, ToolDialect
from memra.chat.tool_dialects.generic import GenericDialect
from memra.chat.tool_dialects.hermes import HermesDialect
from memra.chat.tool_dialects.reading import joined

Calls = Sequence[tuple[str, dict[str, Any]]]

_PROPERTIES: dict[str, Any] = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "share": {"type": "number"},
    "is_exact": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "options": {"type": "object"},
}

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": _PROPERTIES}}}
    for name in ("get_weather", "search", "now")
]


@dataclass(frozen=True)
class Written:
    """A dialect, and how a model that speaks it writes calls."""

    dialect: ToolDialect
    write: Callable[[Calls], str]
    markers: tuple[str, ...]


def _as_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _hermes(calls: Calls) -> str:
    return "\n".join(
        f'<tool_call>\n{{"name": "{name}", "arguments": {_as_json(arguments)}}}\n</tool_call>'
        for name, arguments in calls
    )


WRITTEN: dict[str, Written] = {
    "hermes": Written(HermesDialect(), _hermes, ("<tool_call>",)),
    "generic": Written(GenericDialect(), _hermes, ("<tool_call>",)),
}


def read(dialect: ToolDialect, pieces: Sequence[str], tools: Sequence[dict[str, Any]] = TOOLS) -> list[Piece]:
    """What a dialect's parser makes of an answer that comes in pieces."""
    parser = dialect.open(tools)
    result = [piece for text in pieces for piece in parser.feed(text)]
    return joined([*result, *parser.finish()])


def text_of(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))


def calls_of(pieces: Sequence[Piece]) -> list[tuple[str, Any]]:
    """The complete calls, their arguments decoded."""
    calls: list[tuple[str, Any]] = []
    name, arguments = "", ""
    for piece in pieces:
        match piece:
            case CallBegun():
                name, arguments = piece.name, ""
            case ArgumentsPiece():
                arguments += piece.text
            case CallEnded():
                calls.append((name, json.loads(arguments)))
    return calls
