"""What a stream needs of a shape of answers, and of those that number the items of an answer.

Refuses to know the shapes: those of `memra.http.wire.answer.Answer` are of the first kind, `responses_answer` and
`messages_answer` of the second. Called through by `memra.http.event_stream`.
"""

from typing import Protocol

from memra.messages.generation import ReplyDelta, ReplyFinished, ReplyStarted


class StreamedAnswer(Protocol):
    """Writes one answer as a stream; made for one request, not shared."""

    def delta(self, delta: ReplyDelta) -> bytes:
        """Return the stream's lines for more of the answer; empty when there is nothing to show."""
        ...

    def finish(self, finished: ReplyFinished) -> bytes:
        """Return the stream's last lines."""
        ...

    def failure(self, error: bytes) -> bytes:
        """Return the stream's last lines when the answer cannot go on; `error` is the JSON error object."""
        ...


class ItemAnswer(StreamedAnswer, Protocol):
    """Writes one answer in items, either as a stream or as a whole that is kept delta by delta."""

    def begin(self, started: ReplyStarted) -> bytes:
        """Return the stream's first lines, before anything is generated."""
        ...

    def keep(self, delta: ReplyDelta) -> None:
        """Take more of an answer that is shown as a whole."""
        ...

    def whole(self, finished: ReplyFinished) -> bytes:
        """Return the JSON body of the answer that was kept."""
        ...
