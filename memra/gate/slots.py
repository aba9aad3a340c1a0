"""How many requests of each lane may be in the house at once: a table of held slots, and nothing that waits.

A lane's `max_running` is the number that clients see as their limit. Interactive requests above it are still let in, up
to `max_waiting` more, because their queue is the engine's; the other lanes are refused at once. It knows no clock, no
key and no model. Called by the admission actor alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from memra.errors import BusyError, QueueFullError
from memra.types import Lane, RequestId


@dataclass(frozen=True, slots=True)
class LaneLimit:
    """The room that one lane has.

    Attributes:
        max_running: the limit that a client is told.
        max_waiting: further requests that are let in and queue in the engine.
    """

    max_running: int
    max_waiting: int = 0

    @property
    def max_held(self) -> int:
        """Requests that may be in the house at once."""
        return self.max_running + self.max_waiting


_WAITING_PER_RUNNING = 4
"""Interactive requests that may queue for each that runs: a client at the end of a full queue waits five turns."""


def queue_depth(max_queue_depth: int, max_interactive: int) -> int:
    """Return how many interactive requests may wait; `max_queue_depth` of 0 means as many turns as usual."""
    return max_queue_depth or _WAITING_PER_RUNNING * max_interactive


def lane_limits(
    *, max_interactive: int = 64, max_judge: int = 4, max_harvest: int = 8, max_queue_depth: int = 0
) -> dict[Lane, LaneLimit]:
    """Return the limits of every lane from the numbers that a user sets; see `queue_depth` for the last."""
    return {
        Lane.INTERACTIVE: LaneLimit(max_interactive, max_waiting=queue_depth(max_queue_depth, max_interactive)),
        Lane.JUDGE: LaneLimit(max_judge),
        Lane.HARVEST: LaneLimit(max_harvest),
    }


@dataclass(frozen=True, slots=True)
class SlotTaken:
    """What a client may know about its lane.

    Attributes:
        limit: slots of the lane.
        remaining: slots that are still free; 0 while requests queue.
    """

    limit: int
    remaining: int


class SlotTable:
    """The slots that are held, by request."""

    def __init__(self, limits: Mapping[Lane, LaneLimit]) -> None:
        self._limits = limits
        self._held: dict[RequestId, Lane] = {}
        self._num_held = dict.fromkeys(Lane, 0)

    def num_held(self, lane: Lane) -> int:
        """Return the slots of a lane that are held."""
        return self._num_held[lane]

    def take(self, request_id: RequestId, lane: Lane) -> SlotTaken:
        """Hold a slot until `release`.

        Raises:
            BusyError: the lane is full; nothing is held. It is a `QueueFullError` where requests may queue.
            ValueError: the request holds one already.
        """
        if request_id in self._held:
            raise ValueError(f"request {request_id!r} holds a slot already")
        limit = self._limits[lane]
        if self._num_held[lane] >= limit.max_held:
            kind = QueueFullError if limit.max_waiting else BusyError
            raise kind(
                f"The {lane.value} lane is at capacity ({limit.max_held} requests); try again shortly.",
                slots_limit=limit.max_running,
                slots_remaining=0,
            )
        self._held[request_id] = lane
        self._num_held[lane] += 1
        return SlotTaken(limit=limit.max_running, remaining=max(0, limit.max_running - self._num_held[lane]))

    def release(self, request_id: RequestId) -> bool:
        """Give a slot back; false, and nothing else, when none was held."""
        lane = self._held.pop(request_id, None)
        if lane is None:
            return False
        self._num_held[lane] -= 1
        return True

    def check_integrity(self) -> None:
        """Compare the counts with the holders.

        Raises:
            RuntimeError: they differ.
        """
        counted = dict.fromkeys(Lane, 0)
        for lane in self._held.values():
            counted[lane] += 1
        if counted != self._num_held:
            raise RuntimeError(f"slot counts {self._num_held} differ from the holders {counted}")
