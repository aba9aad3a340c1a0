"""What a plugin says of itself before it is used: its API version, its loop, the shape of its functions.

Trade: returns complaints, calls nothing of the plugin. pluggy itself finds misspelt hooks and arguments.
"""

import inspect
from collections.abc import Iterator
from typing import Any

from memra.plugins.markers import API_VERSION

MAY_BE_COROUTINES = frozenset(
    {
        "memra_ready",
        "memra_authenticate",
        "memra_admit",
        "memra_request_started",
        "memra_request_ended",
        "memra_shutdown",
    }
)
"""Hooks that are awaited; all others are called at start or in a thread, and must be plain functions."""

_LOOPS = {None, "trio", "anyio", "asyncio"}


def complaints_about_plugin(module: object) -> Iterator[str]:
    """Return what is wrong with the plugin's own declarations."""
    wanted = getattr(module, "memra_api", API_VERSION)
    if type(wanted) is not int:
        yield f"memra_api is {wanted!r}, and must be a whole number"
    elif wanted > API_VERSION:
        yield f"needs plugin API {wanted}, this memra has {API_VERSION}; upgrade memra"
    loop = getattr(module, "memra_async", None)
    if loop not in _LOOPS:
        yield f'memra_async is {loop!r}, and must be "trio", "anyio" or "asyncio"'


def complaints_about_hook(hook: str, function: Any, *, is_wrapper: bool) -> Iterator[str]:
    """Return what is wrong with the plugin's function for a hook."""
    if is_wrapper:
        yield f"{hook} is a hook wrapper; memra calls hooks one by one, so it would never run: make it a plain hook"
    elif inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        yield f"{hook} is a generator function, and must return its answer"
    elif inspect.iscoroutinefunction(function) and hook not in MAY_BE_COROUTINES:
        yield f"{hook} is a coroutine function, and must be a plain one"


def uses_asyncio(module: object) -> bool:
    """Whether the plugin's coroutine functions are written for asyncio."""
    return getattr(module, "memra_async", None) == "asyncio"
