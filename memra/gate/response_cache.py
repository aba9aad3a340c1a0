"""Whole answers that were computed before: least recently used first out, within a budget of bytes and a time to live.

A table and nothing else: whether a request may have a stored answer, and who waits for whom while one is computed, is
the business of `memra.actors.shared_answers`, its only caller. Nothing here waits; the clock is given.
"""

import sys
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from memra.gate.answer_key import AnswerKey
from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyPart, ReplyStarted, ToolCallDelta, Usage
from memra.types import CacheStatus, StopCause

ENTRY_BYTES = 1024
"""What an entry costs beside its text and its tokens: key, digest, table and objects, rounded up; a test measures."""

_COMPLETE = frozenset(
    {
        StopCause.END_OF_SEQUENCE,
        StopCause.STOP_STRING,
        StopCause.STOP_TOKEN,
        StopCause.MAX_TOKENS,
        StopCause.CONTEXT_FULL,
        StopCause.TOOL_CALLS,
    }
)
"""Ends that follow from the request alone, so that a recompute would end there too; a cause not named here does not."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """One complete answer, small: all text in one string, all tokens in one array.

    Attributes:
        token_ids: 32-bit integers; every vocabulary's ids fit.
        usage: of the request that computed it.
        reasoning: all of it in one string.
        tool_calls: one whole call each.
        stop_string: the one that ended it, or None.
    """

    text: str = field(repr=False)
    token_ids: bytes = field(repr=False)
    stop: StopCause
    usage: Usage
    reasoning: str = field(default="", repr=False)
    tool_calls: tuple[ToolCallDelta, ...] = field(default=(), repr=False)
    stop_string: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, deltas: list[ReplyDelta], finished: ReplyFinished) -> Self | None:
        """Keep an answer; None when it did not end by itself, so that it must not be given to anybody else."""
        if finished.stop not in _COMPLETE:
            return None
        whole = ReplyDelta.join(deltas)
        return cls(
            whole.text,
            array("i", whole.token_ids).tobytes(),
            finished.stop,
            finished.usage,
            whole.reasoning,
            whole.tool_calls,
            finished.stop_string,
        )

    @property
    def num_bytes(self) -> int:
        """What keeping it costs."""
        texts = sys.getsizeof(self.text) + sys.getsizeof(self.reasoning) + sum(map(_call_bytes, self.tool_calls))
        return ENTRY_BYTES + texts + sys.getsizeof(self.token_ids)

    def parts(self, usage: Usage) -> tuple[ReplyPart, ...]:
        """Return the parts of a reply that says the same, with this usage."""
        started = ReplyStarted(usage.prompt_tokens, usage.cached_tokens)
        delta = ReplyDelta(self.text, tuple(array("i", self.token_ids)), self.reasoning, self.tool_calls)
        finished = ReplyFinished(self.stop, usage, CacheStatus.HIT, stop_string=self.stop_string)
        return (started, delta, finished) if delta != _NO_DELTA else (started, finished)


_NO_DELTA = ReplyDelta("")


def _call_bytes(call: ToolCallDelta) -> int:
    return sum(map(sys.getsizeof, (call, call.arguments, call.call_id, call.name)))


@dataclass(frozen=True, slots=True)
class _Entry:
    answer: StoredAnswer
    num_bytes: int
    stored_at: float


class ResponseCache:
    """The stored answers."""

    def __init__(self, limit_bytes: int, *, ttl_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start empty.

        Args:
            limit_bytes: most that all entries together may cost.
            ttl_s: age at which an answer is no longer given, seconds; being given does not make it younger.
            clock: seconds that only grow.
        """
        self._limit_bytes = limit_bytes
        self._ttl_s = ttl_s
        self._clock = clock
        self._entries: OrderedDict[AnswerKey, _Entry] = OrderedDict()
        self._num_bytes = 0

    @property
    def num_entries(self) -> int:
        """Answers that are kept, those included whose time is over and that nobody has asked for since."""
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        """What they cost."""
        return self._num_bytes

    @property
    def limit_bytes(self) -> int:
        """What they may cost."""
        return self._limit_bytes

    def get(self, key: AnswerKey) -> StoredAnswer | None:
        """Return the answer and make it the most recently used; forget it when its time is over."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        if self._clock() - entry.stored_at >= self._ttl_s:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.answer

    def put(self, key: AnswerKey, answer: StoredAnswer) -> None:
        """Keep an answer, in place of others that were not used for longer; one larger than the budget is not kept."""
        self._drop(key)
        num_bytes = answer.num_bytes
        if num_bytes > self._limit_bytes:
            return
        while self._num_bytes + num_bytes > self._limit_bytes:
            self._drop(next(iter(self._entries)))
        self._entries[key] = _Entry(answer, num_bytes, self._clock())
        self._num_bytes += num_bytes

    def forget(self, weights: str) -> None:
        """Drop every answer that these weights gave."""
        for key in [key for key in self._entries if key.weights == weights]:
            self._drop(key)

    def forget_tenant(self, tenant: str) -> None:
        """Drop every answer that was computed for a tenant."""
        for key in [key for key in self._entries if key.tenant == tenant]:
            self._drop(key)

    def check_integrity(self) -> None:
        """Compare the sum with the entries, and the entries with the budget.

        Raises:
            RuntimeError: they disagree.
        """
        counted = sum(entry.answer.num_bytes for entry in self._entries.values())
        if counted != self._num_bytes or counted > self._limit_bytes:
            raise RuntimeError(f"the cache counts {self._num_bytes} bytes of {self._limit_bytes}, but holds {counted}")

    def _drop(self, key: AnswerKey) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._num_bytes -= entry.num_bytes
