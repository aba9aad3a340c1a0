"""What was let in since the worker's gauges were read, so that a burst is not let in on one old reading.

A book, and nothing that waits: it knows no clock and no tokens. The worker numbers its readings. One that is published
after a request was let in may stem from a step that had begun before; the next one surely counts the request. Until
then, or until the request ends, it stands here. Called by the admission actor alone.
"""

from dataclasses import dataclass

from memra.gate.queueing import Ahead, Placement, lanes_before
from memra.types import Lane, ModelName, RequestId

_SURE_AFTER = 2
"""Readings after which the gauges count a request."""


@dataclass(frozen=True, slots=True)
class _Booking:
    model: ModelName
    lane: Lane
    placement: Placement
    reading: int


class Bookings:
    """The requests that were let in and that the gauges may not count yet."""

    def __init__(self) -> None:
        self._open: dict[RequestId, _Booking] = {}

    def __len__(self) -> int:
        """Requests that stand here."""
        return len(self._open)

    def add(self, request_id: RequestId, placement: Placement, *, model: ModelName, lane: Lane, reading: int) -> None:
        """Write down a request that was let in on this reading of the gauges."""
        self._open[request_id] = _Booking(model, lane, placement, reading)

    def drop(self, request_id: RequestId) -> None:
        """Forget a request that ended; unknown ones are ignored."""
        self._open.pop(request_id, None)

    def ahead(self, model: ModelName, lane: Lane, *, reading: int) -> Ahead:
        """Return what stands here before a new request, and forget what this reading counts already."""
        self._open = {
            request_id: booking for request_id, booking in self._open.items() if reading < booking.reading + _SURE_AFTER
        }
        before = lanes_before(lane)
        first = [entry for entry in self._open.values() if entry.model == model and entry.lane in before]
        return Ahead(
            num_sequences=sum(1 for entry in first if entry.placement.num_pages),
            num_pages=sum(entry.placement.num_pages for entry in first),
            num_waiting_in_lane=sum(
                1 for entry in self._open.values() if entry.lane is lane and entry.placement.waits_for is not None
            ),
        )
