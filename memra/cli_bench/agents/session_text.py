"""Made-up code, tool output and tasks of a coding agent: text whose tokens look like the real thing, from a seed.

Nothing is quoted: identifiers and sentences are drawn from small lists, so no two texts share more than a line. Refuses
to know conversations. Called by `coding_session` and the benchmarks.
"""

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

_CODE_CHARS, _OUTPUT_CHARS, _PROSE_CHARS = 3.6, 2.8, 4.3
"""Characters a token of this module's texts, on average over the vocabularies of SmolLM2, Qwen2.5 and Gemma 3."""

_NOUN_LINE = (
    "account batch buffer cache channel client config cursor device entry event filter frame gateway handler index "
    "invoice job key ledger listener lock message metric node order packet parser policy queue record region report "
    "request route schema session shard signal snapshot stream table task tenant token user vector window worker"
)
_VERB_LINE = "apply build check close collect decode drain emit encode expand fetch flush load merge open parse pick"
_NOUNS, _VERBS = _NOUN_LINE.split(), _VERB_LINE.split()
_KINDS = ("int", "str", "bytes", "float", "bool", "list[int]", "dict[str, int]", "tuple[str, ...]")
_FOLDERS = ("core", "api", "storage", "billing", "search", "network", "auth", "jobs", "render", "export")
_FAILURES = (
    "expected {0} rows, got {1}",
    "the {2} was closed before its {3} was flushed",
    "timed out after {0} ms while waiting for the {2}",
    "{2}.{3} is {1} although {0} were written",
)
_TOOLS: Mapping[str, Sequence[str]] = {
    "read_file": ("path", "first_line", "num_lines"),
    "write_file": ("path", "content"),
    "replace_in_file": ("path", "old", "new", "count"),
    "list_folder": ("path", "depth", "pattern"),
    "search_text": ("pattern", "path", "context", "ignore_case"),
    "run_command": ("command", "folder", "timeout_s"),
    "run_tests": ("selection", "verbose", "stop_at_first"),
    "show_changes": ("base", "path"),
    "commit_changes": ("message", "paths"),
    "fetch_page": ("url", "max_chars"),
    "ask_agent": ("task", "context", "max_turns"),
    "note_plan": ("steps", "current"),
}
"""Twelve, by name, with their parameters."""


class SessionText:
    """Draws texts one after the other; the same seed draws the same."""

    def __init__(self, seed: str) -> None:
        """Begin; different seeds share no text."""
        self._random = Random(seed)  # noqa: S311  (text to compute with, nothing secret)

    def code(self, num_tokens: int) -> str:
        """Functions and classes."""
        return self._fill(num_tokens * _CODE_CHARS, self._function)

    def tool_output(self, num_tokens: int) -> str:
        """What a tool prints: a file, a search, a test run or changes."""
        draw = self._random.choice((self._function, self._search_hit, self._test_line, self._change))
        return self._fill(num_tokens * (_CODE_CHARS if draw == self._function else _OUTPUT_CHARS), draw)

    def prose(self, num_tokens: int) -> str:
        """Sentences about code."""
        return self._fill(num_tokens * _PROSE_CHARS, self._sentence, separator=" ")

    def path(self) -> str:
        """Of a source file."""
        return f"src/{self._pick(_FOLDERS)}/{self._name()}.py"

    def tools(self, num_tokens: int) -> list[Mapping[str, Any]]:
        """Twelve declarations in OpenAI's shape, about `num_tokens` long together as JSON."""
        words = max(num_tokens // len(_TOOLS) // 8, 3)
        return [self._tool(name, parameters, words) for name, parameters in _TOOLS.items()]

    def tool_call(self) -> tuple[str, Mapping[str, Any]]:
        """A tool's name and arguments."""
        name = self._pick(list(_TOOLS))
        return name, {parameter: self._argument(parameter) for parameter in _TOOLS[name][:2]}

    def _argument(self, parameter: str) -> str | int:
        return self.path() if parameter == "path" else self._name()

    def _tool(self, name: str, parameters: Sequence[str], words: int) -> Mapping[str, Any]:
        properties = {parameter: {"type": "string", "description": self._words(words)} for parameter in parameters}
        return {
            "type": "function",
            "function": {
                "name": name,
                "description": self._sentence(),
                "parameters": {"type": "object", "properties": properties, "required": [parameters[0]]},
            },
        }

    def _fill(self, num_chars: float, draw: Callable[[], str], *, separator: str = "\n") -> str:
        parts: list[str] = []
        missing = num_chars
        while missing > 0:
            parts.append(draw())
            missing -= len(parts[-1]) + 1
        return separator.join(parts)[: int(num_chars)]

    def _pick(self, words: Sequence[str]) -> str:
        return self._random.choice(words)

    def _name(self) -> str:
        return f"{self._pick(_NOUNS)}_{self._pick(_NOUNS)}"

    def _words(self, count: int) -> str:
        return " ".join(self._pick(_NOUNS) for _ in range(count))

    def _function(self) -> str:
        first, second, state = self._name(), self._pick(_NOUNS), self._pick(_NOUNS)
        body = [
            f"def {self._pick(_VERBS)}_{self._name()}({first}: {self._pick(_KINDS)}, {second}: {self._pick(_KINDS)}):",
            f'    """{self._sentence()}"""',
            f"    {state} = self._{self._name()}.{self._pick(_VERBS)}({first}, limit={self._random.randrange(4096)})",
            f"    for {self._pick(_NOUNS)} in {state}.{self._pick(_VERBS)}_all({second}):",
            f"        if {self._pick(_NOUNS)}.{self._pick(_NOUNS)} >= {self._random.randrange(100)}:",
            f"            {self._pick(_VERBS)}_{self._pick(_NOUNS)}({state}, {self._pick(_NOUNS)}=True)",
            f"    return {state}",
            "",
        ]
        return "\n".join(body)

    def _search_hit(self) -> str:
        call = f"{self._pick(_VERBS)}_{self._pick(_NOUNS)}({self._name()}, {self._random.randrange(512)})"
        return f"{self.path()}:{self._random.randrange(1, 900)}:    {self._pick(_NOUNS)} = {call}"

    def _test_line(self) -> str:
        name = f"tests/{self._pick(_FOLDERS)}/test_{self._name()}.py::test_{self._pick(_VERBS)}_{self._name()}"
        if self._random.random() < 0.8:  # noqa: PLR2004  (most tests pass)
            return f"{name} PASSED [{self._random.randrange(100):3d}%] {self._random.random():.3f}s"
        numbers = self._random.randrange(900), self._random.randrange(900)
        return f"{name} FAILED: {self._pick(_FAILURES).format(*numbers, self._pick(_NOUNS), self._pick(_NOUNS))}"

    def _change(self) -> str:
        line = self._random.randrange(1, 700)
        before, after = self._search_hit().partition("    ")[2], self._search_hit().partition("    ")[2]
        return f"@@ -{line},7 +{line},7 @@ {self._name()}\n-    {before}\n+    {after}"

    def _sentence(self) -> str:
        return (
            f"{self._pick(_VERBS).capitalize()} the {self._pick(_NOUNS)} of each {self._pick(_NOUNS)} before the "
            f"{self._name()} is {self._pick(_VERBS)}ed, so that {self._pick(_NOUNS)} {self._random.randrange(100)} "
            f"keeps its {self._pick(_NOUNS)}."
        )
