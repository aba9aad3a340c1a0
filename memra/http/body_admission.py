"""How many request bodies may be read at once: permits, and the wait for one.

A body that is being read lies in memory whole and is decoded beside the streams, so many large ones at once would stop
the house; small ones are many and quick. What a sender pushes meanwhile is kept by the layers below without a bound of
theirs. So nobody waits for a large permit, while a small body, which cannot grow beyond what it declares, waits a
moment: clients that start together must not be refused for it. Refuses to know what bodies mean. Called by
`memra.http.request_body`.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from memra.errors import BodyBusyError

LARGE_BODY_BYTES = 1 << 20
"""A larger body, or one that does not say how large it is, counts as large."""

MAX_LARGE_BODIES = 4
MAX_SMALL_BODIES = 32

SMALL_PATIENCE_S = 1.0
"""How long a small body waits for a permit; hundreds that start together are read within that time."""

RETRY_AFTER_S = 1.0
"""Advised wait: a body takes a fraction of a second to arrive and to decode."""


class BodyAdmission:
    """The permits of one server; used from the trio thread alone."""

    def __init__(self, *, max_large: int = MAX_LARGE_BODIES, max_small: int = MAX_SMALL_BODIES) -> None:
        """Start with all permits free."""
        self._large = trio.Semaphore(max_large)
        self._small = trio.Semaphore(max_small)

    @asynccontextmanager
    async def admit(self, num_bytes: int | None) -> AsyncIterator[None]:
        """Hold a permit while a body is read and decoded.

        Args:
            num_bytes: size of the body as declared, or None.

        Raises:
            BodyBusyError: no permit is free, or none became free in time.
        """
        is_large = num_bytes is None or num_bytes > LARGE_BODY_BYTES
        permits = self._large if is_large else self._small
        if not await _take(permits, patience_s=0.0 if is_large else SMALL_PATIENCE_S):
            raise BodyBusyError(
                f"Too many {'large' if is_large else 'small'} request bodies are arriving at once; try again shortly.",
                retry_after_s=RETRY_AFTER_S,
            )
        try:
            yield
        finally:
            permits.release()


async def _take(permits: trio.Semaphore, *, patience_s: float) -> bool:
    """Take a permit, at once where one is free; tell whether that was possible in time."""
    try:
        permits.acquire_nowait()
    except trio.WouldBlock:
        with trio.move_on_after(patience_s) as waiting:
            await permits.acquire()
        return not waiting.cancelled_caught
    return True
