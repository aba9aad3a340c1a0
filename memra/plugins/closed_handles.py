"""Handles of a server that is not there, for looking at plugins without one.

Every call raises `HandlesClosedError`, as the handles of a server do that has ended. A plugin that only keeps its
handles for later can be asked for its routes with these.
"""

import inspect
from typing import Any, cast

from memra.plugins.handles import HandlesClosedError, RuntimeHandles


def closed_handles() -> RuntimeHandles:
    """Return handles that are closed from the beginning."""
    return cast("RuntimeHandles", _ClosedHandles())


class _ClosedHandles:
    is_shutting_down = True

    def __getattr__(self, name: str) -> Any:
        part = getattr(RuntimeHandles, name)
        return _refuse_later if inspect.iscoroutinefunction(part) else _refuse


def _refuse(*_: Any, **__: Any) -> None:
    raise HandlesClosedError("there is no server to handle")


async def _refuse_later(*_: Any, **__: Any) -> None:
    _refuse()
