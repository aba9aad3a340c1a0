"""The field `tool_choice`: which of the declared tools an answer must call, if it must.

Refuses to know how a model writes calls. Called by `memra.http.wire.chat_request`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from memra.errors import InvalidRequestError
from memra.http.wire.refusal import refuse


def read_tool_choice(choice: Any, tools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the tools of which the answer must call one, or none where the model may choose.

    Args:
        choice: as sent: absent, "auto", "none", "required", or an object that names one function.
        tools: as declared; each has a name.

    Raises:
        InvalidRequestError: the choice is of no known kind, or asks for a tool that is not declared.
    """
    if choice in (None, "auto", "none"):
        return ()
    names = tuple(tool["function"]["name"] for tool in tools)
    if choice == "required":
        if not names:
            refuse("tool_choice", '"auto" or "none" where `tools` declares nothing')
        return names
    name = _named(choice)
    if name is None:
        refuse("tool_choice", '"auto", "none", "required" or {"type": "function", "function": {"name": ...}}')
    if name not in names:
        raise InvalidRequestError(f"`tool_choice` names {name!r}, which `tools` does not declare.", param="tool_choice")
    return (name,)


def is_named(choice: Any) -> bool:
    """Whether a choice names one function, which is then called once."""
    return _named(choice) is not None


def _named(choice: Any) -> str | None:
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None
