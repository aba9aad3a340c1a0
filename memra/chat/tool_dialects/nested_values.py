"""Values written as elements: objects and arrays whose members stand in tags of their own.

Trade: what stands inside one parameter's tags becomes JSON. `<KEY>` begins a member of an object and `<item>` one of an
array, each tag behind the dialect's own mark; the schema decides what elements and plain text are, and where it is open
the elements do: items alone make an array. Plain text may as well be the JSON of an object or an array. It refuses to
know what stands around the parameter. Called by `tagged_calls`.

Source: the chat template of MiniMax M3.
"""

import json
from collections.abc import Mapping

from memra.chat.tool_dialects.declared_tools import DeclaredValue, coerce
from memra.chat.tool_dialects.json_text import MAX_DEPTH
from memra.chat.tool_dialects.reading import NAME, MalformedCallError, Reading, Script

_ITEM = "item"
_EMPTY: Mapping[frozenset[str], str] = {frozenset({"array"}): "[]", frozenset({"object"}): "{}"}


def read_nested(reading: Reading, key: str, declared: DeclaredValue, *, lead: str, depth: int = 0) -> Script[str]:
    """Take what stands inside an element, and its closing tag; return it as JSON.

    Args:
        reading: behind the opening tag.
        key: the element's name.
        declared: of the value.
        lead: the mark before every tag.
        depth: of elements around this one.

    Raises:
        MalformedCallError: tags that do not match, or too many of them inside each other.
        AnswerEndedError: the answer ends inside it.
    """
    if depth > MAX_DEPTH:
        raise MalformedCallError
    text = yield from reading.until(f"{lead}<")
    members: list[tuple[str, str]] = []
    types = declared.types
    while not (yield from reading.accept(f"/{key}>")):
        name = yield from reading.word(NAME)
        if not name or name.startswith("/"):
            raise reading.refusal(f"/{key}>")
        yield from reading.expect(">")
        inner = declared.item() if "array" in types and name == _ITEM else declared.member(name)
        members.append((name, (yield from read_nested(reading, name, inner, lead=lead, depth=depth + 1))))
        yield from reading.skip_space()
        yield from reading.expect(f"{lead}<")
    return _json_of(text, members, types)


def _json_of(text: str, members: list[tuple[str, str]], types: frozenset[str]) -> str:
    if not members:
        return coerce(text, types) if text else _EMPTY.get(types, '""')
    if text.strip():
        raise MalformedCallError
    if "object" not in types and all(name == _ITEM for name, _ in members):
        return "[" + ", ".join(value for _, value in members) + "]"
    return "{" + ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in members) + "}"
