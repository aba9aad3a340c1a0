"""Equal requests share one answer: a stored one, or the one that is being computed for the first of them.

The first of several equal requests leads: it goes to the worker. The others follow: they wait for its end, hold their
slots and their streams, and have no row. A leader that fails, or whose client leaves, makes one of its followers the
next leader; a follower that leaves is missed by nobody. A leader never waits for its followers, so nobody waits in a
circle. Requests follow within their lane only: an interactive one must not wait for a harvest row's turn.

Used by the requests' own tasks, in the trio thread. What a key and a store are is `memra.gate`'s business.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from memra.actors.replies import ReplyStream
from memra.gate.answer_key import AnswerKey, answer_key
from memra.gate.context_budget import TokenBudget
from memra.gate.response_cache import ResponseCache, StoredAnswer
from memra.messages.generation import GenerationRequest
from memra.messages.work import SubmitPrompt
from memra.telemetry import names
from memra.types import Lane

NO_ANSWERS = {"hits": 0, "misses": 0, "entries": 0, "bytes": 0, "limit_bytes": 0}
"""What `SharedAnswers.report` would say where no answers are kept."""


@dataclass(slots=True)
class _Computation:
    """An answer that somebody computes now.

    Attributes:
        followers: the streams of those who wait; nudged when it ends.
        answer: set before that when it became complete.
        is_current: the weights that compute it are still served.
    """

    followers: list[ReplyStream] = field(default_factory=list)
    answer: StoredAnswer | None = None
    is_current: bool = True


class Lead:
    """The duty to compute an answer that others may wait for; ends once, by `end`."""

    def __init__(self, end: Callable[[StoredAnswer | None], None]) -> None:
        """Take what tells the followers."""
        self._end = end
        self._is_ended = False

    def end(self, answer: StoredAnswer | None) -> None:
        """Hand over the complete answer, or None where it never will be; only the first call counts."""
        if not self._is_ended:
            self._is_ended = True
            self._end(answer)


class SharedAnswers:
    """One for the life of the server."""

    def __init__(self, store: ResponseCache, *, weights_of: Callable[[SubmitPrompt], str]) -> None:
        """Start with the store's answers.

        Args:
            store: owned by this object from now on.
            weights_of: names the instance that a prompt is for; two that may answer differently have different names.
        """
        self._store = store
        self._weights_of = weights_of
        self._computations: dict[tuple[AnswerKey, Lane], _Computation] = {}
        self._num_hits = 0
        self._num_misses = 0

    def key_of(
        self, request: GenerationRequest, prompt: SubmitPrompt, *, budget: TokenBudget, tenant: str
    ) -> AnswerKey | None:
        """Return the key of a request's answer; None when it may be shared with nobody."""
        if not request.may_reuse_answer:
            return None
        return answer_key(request, prompt, budget=budget, tenant=tenant, weights=self._weights_of(prompt))

    async def claim(self, key: AnswerKey, lane: Lane, stream: ReplyStream) -> StoredAnswer | Lead:
        """Return the answer, or the duty to compute it; waits while somebody else does.

        Args:
            key: of the request.
            lane: of the request.
            stream: the request's own; nothing but its cut can arrive there, since the request has no row.

        Raises:
            RequestError: the stream was cut while the request waited.
        """
        while (answer := self._store.get(key)) is None:
            computation = self._computations.get((key, lane))
            if computation is None:
                self._num_misses += 1
                return self._begin(key, lane)
            computation.followers.append(stream)
            await stream.wait()
            if computation.answer is not None:
                answer = computation.answer
                break
        self._num_hits += 1
        return answer

    def forget(self, weights: str) -> None:
        """Drop what these weights answered; an answer that they are computing reaches its followers and is not kept."""
        self._store.forget(weights)
        for (key, _), computation in self._computations.items():
            if key.weights == weights:
                computation.is_current = False

    def forget_tenant(self, tenant: str) -> None:
        """Drop what was computed for a tenant; as `forget`."""
        self._store.forget_tenant(tenant)
        for (key, _), computation in self._computations.items():
            if key.tenant == tenant:
                computation.is_current = False

    def report(self) -> dict[str, int]:
        """Return the counters and gauges; a request that followed counts as a hit."""
        return {
            "hits": self._num_hits,
            "misses": self._num_misses,
            "entries": self._store.num_entries,
            "bytes": self._store.num_bytes,
            "limit_bytes": self._store.limit_bytes,
        }

    def _begin(self, key: AnswerKey, lane: Lane) -> Lead:
        computation = self._computations[key, lane] = _Computation()

        def end(answer: StoredAnswer | None) -> None:
            del self._computations[key, lane]
            if answer is not None and computation.is_current:
                self._store.put(key, answer)
            computation.answer = answer
            for stream in computation.followers:
                stream.nudge()  # one whose client has left hears it as little as any event

        return Lead(end)


def response_cache_metrics(answers: SharedAnswers | None) -> dict[str, Any]:
    """Return what `/metrics` shows of the answers that are kept."""
    report = NO_ANSWERS if answers is None else answers.report()
    return {
        names.METRIC_RESPONSE_CACHE_HITS: report["hits"],
        names.METRIC_RESPONSE_CACHE_MISSES: report["misses"],
        names.METRIC_RESPONSE_CACHE_ENTRIES: report["entries"],
        names.METRIC_RESPONSE_CACHE_BYTES: report["bytes"],
    }
