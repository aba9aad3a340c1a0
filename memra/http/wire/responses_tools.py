"""The tools of a response's request: functions, groups of them, and offers to search.

A group (`namespace`) holds functions that agents name by both words. A model sees them as functions whose name has
both, and its calls are told apart again. Refuses to know how a model writes calls. Called by `responses_request`,
`responses_input` and the route.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memra.errors import InvalidRequestError
from memra.http.wire.declared_function import check_function

_SEARCH = "web_search"
"""What the types of searches begin with. Agents offer them unasked, and a model that is offered one need not use it."""

_BETWEEN = "__"
_FIELDS = ("description", "parameters", "strict")


@dataclass(frozen=True, slots=True)
class GroupedName:
    """A function's name in its group."""

    namespace: str
    name: str

    @property
    def joined(self) -> str:
        """The name that a model sees; a group whose own name ends as if more followed is not parted twice."""
        return self.namespace.removesuffix(_BETWEEN) + _BETWEEN + self.name


def read_tools(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the functions as a chat declares them; offers to search are left out, since nothing here could search.

    Raises:
        InvalidRequestError: a tool is malformed, or of a kind that this server does not have; names it.
    """
    return [_function(tool, place, group) for tool, place, group in _functions(tools)]


def grouped_names(tools: Sequence[Mapping[str, Any]]) -> Mapping[str, GroupedName]:
    """Return the names of the functions that stand in groups, by the name that a model sees.

    Args:
        tools: that `read_tools` accepted.
    """
    names = (GroupedName(group, tool["name"]) for tool, _, group in _functions(tools) if group is not None)
    return {name.joined: name for name in names}


def _functions(tools: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str, str | None]]:
    """Tell each tool that is no offer to search, its place, and its group."""
    for index, tool in enumerate(tools):
        place, kind = f"tools[{index}]", tool.get("type")
        if kind == "namespace":
            group = _name(tool, place)
            members = tool.get("tools")
            if not (isinstance(members, list) and all(isinstance(member, dict) for member in members)):
                raise InvalidRequestError(f"`{place}.tools` must be a list of functions.", param="tools")
            yield from ((member, f"{place}.tools[{number}]", group) for number, member in enumerate(members))
        elif not (isinstance(kind, str) and kind.startswith(_SEARCH)):
            yield tool, place, None


def _function(tool: Mapping[str, Any], place: str, group: str | None) -> Mapping[str, Any]:
    if tool.get("type") != "function":
        raise InvalidRequestError(
            f'`{place}.type` must be "function": this server runs no tools of its own.', param="tools"
        )
    check_function(tool, place)
    name = _name(tool, place)
    shown = name if group is None else GroupedName(group, name).joined
    return {
        "type": "function",
        "function": {"name": shown} | {key: tool[key] for key in _FIELDS if tool.get(key) is not None},
    }


def _name(tool: Mapping[str, Any], place: str) -> str:
    name = tool.get("name")
    if not (isinstance(name, str) and name):
        raise InvalidRequestError(f"`{place}.name` must be a name.", param="tools")
    return name
