"""A plugin that was found, and its implementations of hooks: the two nouns of this room.

Refuses to know how plugins are found and how they are called. Built by `plugin_set`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plugin:
    """One plugin in use.

    Attributes:
        name: of its entry point.
        origin: name, distribution and version, for messages.
        module: the object whose functions are hooks.
        uses_asyncio: its coroutine functions run on the asyncio loop rather than on trio.
    """

    name: str
    origin: str
    module: object
    uses_asyncio: bool = False


@dataclass(frozen=True, slots=True)
class Implementation:
    """A plugin's function for one hook.

    Attributes:
        parameters: those of the hook's arguments that the function takes, in its order.
    """

    plugin: Plugin
    hook: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]

    def select(self, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return what the function takes, of all arguments of the hook by name."""
        return tuple(arguments[name] for name in self.parameters)

    def call(self, **arguments: Any) -> Any:
        """Call a plain function here and now."""
        return self.function(*self.select(arguments))
