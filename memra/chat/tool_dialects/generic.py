"""The dialect for templates without tools: the tools and the way to call them are told to the model in plain words.

Trade: those words; the format is that of `hermes`, which most models have seen. No template asks for it: whoever serves
a model chooses it, since a model that never learned to call tools may do it badly.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from memra.chat.tool_dialects.hermes import CLOSE, OPEN, HermesDialect

_RULES = f"""\
You can call the tools below. To call one, answer with a block like this and nothing after it:
{OPEN}
{{"name": "the tool's name", "arguments": {{"a parameter": "its value"}}}}
{CLOSE}
Write one block for each call. Call a tool only when it helps; otherwise answer in words.
The tools, one JSON schema a line:
"""


def written_call(name: str, arguments: str) -> str:
    """A call as the dialect writes it, given the JSON of its arguments."""
    return f'{OPEN}\n{{"name": {json.dumps(name, ensure_ascii=False)}, "arguments": {arguments}}}\n{CLOSE}'


class GenericDialect(HermesDialect):
    """Hermes' format, taught by the prompt."""

    name = "generic"

    def knows(self, template: str) -> bool:  # noqa: ARG002  (no template speaks it)
        """Never: it is chosen by a setting."""
        return False

    def instructions(self, tools: Sequence[Mapping[str, Any]]) -> str:
        """What the system message has to say; ends with a line break."""
        functions = [tool.get("function", tool) for tool in tools]
        return _RULES + "".join(json.dumps(function, ensure_ascii=False) + "\n" for function in functions)
