"""What came of streams that were opened together: the same account whoever drove them.

Plain values; refuses to know sockets.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memra.errors import MeasurementError

_OK = 200


@dataclass(frozen=True, slots=True)
class Stream:
    """One answer.

    Attributes:
        status: HTTP status; 0 when no answer came.
        is_done: whether `[DONE]` came.
        num_tokens: as the server's usage says; None where it says nothing.
        times: seconds since the first connection of every event with text, and of `[DONE]` at the end.
    """

    status: int
    is_done: bool
    num_tokens: int | None
    times: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class StreamReport:
    """Streams that ran together.

    Attributes:
        tokens_per_s: all tokens, from the first connection to the last `[DONE]`: connecting, parsing, tokenizing and
            prefill are inside.
        first_ms: median time to the first text; None when no stream had any.
        gap_p99_ms: 99th percentile of the pause between two events of a stream; None without a pause.
    """

    tokens_per_s: float
    num_tokens: int
    first_ms: float | None
    gap_p99_ms: float | None


def read_streams(reply: Mapping[str, Any]) -> list[Stream]:
    """Read what the load client wrote."""
    return [
        Stream(
            status=stream["status"],
            is_done=stream["is_done"],
            num_tokens=None if stream["tokens"] < 0 else stream["tokens"],
            times=tuple(stream["times"]),
        )
        for stream in reply["streams"]
    ]


def summarise(streams: Sequence[Stream]) -> StreamReport:
    """Add the streams up.

    Where the server tells no usage, every event with text counts as one token.

    Raises:
        MeasurementError: a stream was refused or broke off; a figure without it would flatter.
    """
    for stream in streams:
        if stream.status != _OK or not stream.is_done:
            state = "was not finished" if stream.status == _OK else f"was answered with status {stream.status}"
            raise MeasurementError(f"a stream {state}; see the server's log")
    num_tokens = sum(len(stream.times) - 1 if stream.num_tokens is None else stream.num_tokens for stream in streams)
    firsts = [stream.times[0] for stream in streams if len(stream.times) > 1]
    gaps = [
        after - before
        for stream in streams
        for before, after in zip(stream.times[:-2], stream.times[1:-1], strict=True)
    ]
    return StreamReport(
        tokens_per_s=num_tokens / max(stream.times[-1] for stream in streams),
        num_tokens=num_tokens,
        first_ms=statistics.median(firsts) * 1e3 if firsts else None,
        gap_p99_ms=statistics.quantiles(gaps, n=100)[-1] * 1e3 if len(gaps) > 1 else None,
    )
