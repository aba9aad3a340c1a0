"""Grammars of forced calls in Lark, as llguidance reads it.

Trade: rules for markup, names and arguments that the dialects put together. It refuses to compile anything, and to know
vocabularies: a marker that may be one token stands in a rule of its own, and whoever knows the vocabulary puts the
token in with `with_tokens`.

Source: llguidance's documentation of its syntax (`%json`, `<[id]>`).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.declared_tools import DeclaredTools

_TEXT_LINE = re.compile(r'^(until_\d+)\[suffix=("(?:[^"\\]|\\.)*")\]: (.*)$', re.MULTILINE)
_JSON_SPACE = r"[\x20\x0A\x0D\x09]{1,16}"
"""Between the parts of a JSON text: JSON's own rule, but bounded, because small models never stop writing spaces."""

MAX_CALLS = 16
"""Of one forced answer: more than agents make at once, and an end for small models that repeat theirs for ever."""

_TOKEN = re.compile(r"(\]<\]\w+\[>\[|<[^<>\s]+>|\[[A-Z_]+\])")
_MARKER_LINE = re.compile(r'^(marker_\d+): ("(?:[^"\\]|\\.)*")$', re.MULTILINE)


def with_tokens(grammar: str, find_token: Callable[[str], int | None]) -> str:
    """Put tokens in the place of markers.

    Args:
        grammar: of a dialect.
        find_token: the id of the special token that is written so, or None when text is how the model writes it.
    """

    def replace_marker(match: re.Match[str]) -> str:
        token_id = find_token(json.loads(match[2]))
        return match[0] if token_id is None else f"{match[1]}: <[{token_id}]>"

    def replace_end(match: re.Match[str]) -> str:
        token_id = find_token(json.loads(match[2]))
        return match[0] if token_id is None else f"{match[1]}: {match[3]} <[{token_id}]>"

    return _TEXT_LINE.sub(replace_end, _MARKER_LINE.sub(replace_marker, grammar))


class GrammarText:
    """A grammar in the making: named rules, each written once."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        self._tools = DeclaredTools(tools)
        self._rules: list[str] = []
        self._markers: dict[str, str] = {}
        self._ends: dict[str, str] = {}

    def marker(self, text: str) -> str:
        """The rules of a marker's tokens, and what stands between them as text; empty text is nothing."""
        parts = [part for part in _TOKEN.split(text) if part] or [""]
        return " ".join(self._token(part) if _TOKEN.fullmatch(part) else quote(part) for part in parts)

    def _token(self, text: str) -> str:
        if text not in self._markers:
            self._markers[text] = self.rule(f"marker_{len(self._markers)}", quote(text))
        return self._markers[text]

    def rule(self, name: str, body: str) -> str:
        """Add a rule and return its name."""
        self._rules.append(f"{name}: {body}")
        return name

    def has_rule(self, name: str) -> bool:
        """Whether a rule of that name was added."""
        return any(rule.startswith(f"{name}: ") for rule in self._rules)

    def rule_once(self, name: str, body: str) -> str:
        """Add a rule unless it is there, and return its name."""
        return name if self.has_rule(name) else self.rule(name, body)

    def arguments(self, name: str, index: int) -> str:
        """The rule for the JSON of a tool's arguments."""
        schema = {"type": "object", **self._tools.schema(name)}
        return self.rule(f"arguments_{index}", json_of(schema))

    def text_until(self, end: str) -> str:
        """The rules of any text up to a literal, and the literal; of several tokens the first ends the text."""
        first, *rest = [part for part in _TOKEN.split(end) if part]
        if first not in self._ends:
            name = f"until_{len(self._ends)}"
            self._ends[first] = name
            self.rule(f"{name}[suffix={quote(first)}]", "/(?s:.*)/")
        return " ".join([self._ends[first], *([self.marker("".join(rest))] if rest else [])])

    def schema(self, name: str) -> Mapping[str, Any]:
        """The JSON schema of a declared tool's arguments; empty when there is none."""
        return self._tools.schema(name)

    def properties(self, name: str) -> Mapping[str, Any]:
        """The declared parameters of a tool with their schemas, in order."""
        properties = self._tools.schema(name).get("properties")
        return properties if isinstance(properties, Mapping) else {}

    def required(self, name: str) -> frozenset[str]:
        """Those parameters that must be there; a declaration that is no list of names asks for none."""
        names = self._tools.schema(name).get("required")
        return frozenset(key for key in names if isinstance(key, str)) if isinstance(names, list) else frozenset()

    def text(self, start: str) -> str:
        """The whole grammar, given the body of its first rule."""
        return "\n".join([f"start: {start}", *self._rules, ""])


def quote(text: str) -> str:
    """A literal of Lark, or of nothing."""
    return json.dumps(text, ensure_ascii=False)


def json_of(schema: Mapping[str, Any]) -> str:
    """JSON of a schema."""
    return f"%json {json.dumps({'x-guidance': {'whitespace_pattern': _JSON_SPACE}, **schema}, ensure_ascii=False)}"


def several(call: str, *, between: str, at_least_one: bool) -> str:
    """One call, or as many more as an answer may hold."""
    return f"{call} ({between} {call}){{0,{MAX_CALLS - 1}}}" if at_least_one else call


def with_definitions(wanted: object, root: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter's schema with all that its references may need."""
    definitions = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return {**definitions, **wanted} if isinstance(wanted, Mapping) else definitions


def listed(grammar: GrammarText, rules: Mapping[str, bool], *, between: str, suffix: str) -> str:
    """Items in order with a separator between them.

    Args:
        grammar: gets a rule for the items from each one on, once with a separator before them.
        rules: the rule of each item, and whether it must be there.
        between: the separator.
        suffix: makes the names of the new rules unique.
    """
    first = following = '""'
    for position, (rule, is_required) in reversed(list(enumerate(rules.items()))):
        here, later = f"{rule} {following}", f"{quote(between)} {rule} {following}"
        first = grammar.rule(f"first_{suffix}_{position}", here if is_required else f"{here} | {first}")
        following = grammar.rule(f"later_{suffix}_{position}", later if is_required else f"{later} | {following}")
    return first


def json_object_calls(
    tools: Sequence[Mapping[str, Any]],
    *,
    names: Sequence[str],
    name_key: str = "name",
    arguments_key: str = "arguments",
    wrap: Callable[[GrammarText, str], str],
) -> str:
    """Calls as JSON objects.

    Args:
        tools: all that are declared.
        names: those that may be called.
        name_key: of the objects.
        arguments_key: of the objects.
        wrap: makes the first rule's body out of the rule of one object.
    """
    grammar = GrammarText(tools)
    choices = [
        f"{quote(f'{{{json.dumps(name_key)}: {json.dumps(name)}, {json.dumps(arguments_key)}: ')} "
        f'{grammar.arguments(name, index)} "}}"'
        for index, name in enumerate(names)
    ]
    call = grammar.rule("call", " | ".join(choices))
    return grammar.text(wrap(grammar, call))
