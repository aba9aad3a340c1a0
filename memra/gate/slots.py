"""How many requests of each lane and tenant may be in the house at once: a table, and no wait.

A lane's `max_running` is the number that clients see as their limit. Interactive requests above it are still let in, up
to `max_waiting` more, because their queue is the engine's; the other lanes are refused at once. A tenant's requests
count together, whatever their lanes and keys. It knows no clock, no key and no model. Called by the admission actor
alone.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from memra.errors import BusyError, QueueFullError
from memra.messages.identity import DEFAULT_TENANT
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
    """What a client may know about its lane and its tenant.

    Attributes:
        limit: slots of the lane, or of the tenant where those are fewer.
        remaining: slots that are still free to this tenant; 0 while requests queue.
    """

    limit: int
    remaining: int


@dataclass(frozen=True, slots=True)
class _Held:
    lane: Lane
    tenant: str


class SlotTable:
    """The slots that are held, by request."""

    def __init__(self, limits: Mapping[Lane, LaneLimit]) -> None:
        self._limits = limits
        self._held: dict[RequestId, _Held] = {}
        self._num_held = dict.fromkeys(Lane, 0)
        self._num_held_of: Counter[str] = Counter()

    def num_held(self, lane: Lane) -> int:
        """Return the slots of a lane that are held."""
        return self._num_held[lane]

    def num_held_of(self, tenant: str) -> int:
        """Return the slots that a tenant holds, of all lanes."""
        return self._num_held_of[tenant]

    def take(
        self, request_id: RequestId, lane: Lane, *, tenant: str = DEFAULT_TENANT, tenant_limit: int | None = None
    ) -> SlotTaken:
        """Hold a slot until `release`.

        Args:
            request_id: whose slot it is.
            lane: which it wants.
            tenant: who pays.
            tenant_limit: requests of the tenant in the house at once, as the key has it that is used now; it counts
                where it is narrower than the lane.

        Raises:
            BusyError: the lane is full, or the tenant's share; nothing is held. It is a `QueueFullError` where the lane
                is full and requests may queue.
            ValueError: the request holds one already.
        """
        if request_id in self._held:
            raise ValueError(f"request {request_id!r} holds a slot already")
        limit = self._limits[lane]
        share = None if tenant_limit is None or tenant_limit >= limit.max_running else tenant_limit
        if share is not None and self._num_held_of[tenant] >= share:
            raise BusyError(
                f"The tenant {tenant} has {self._num_held_of[tenant]} requests under way and its key allows {share}; "
                "try again when one of them has ended.",
                slots_limit=share,
                slots_remaining=0,
            )
        if self._num_held[lane] >= limit.max_held:
            kind = QueueFullError if limit.max_waiting else BusyError
            raise kind(
                f"The {lane.value} lane is at capacity ({limit.max_held} requests); try again shortly.",
                slots_limit=limit.max_running,
                slots_remaining=0,
            )
        self._held[request_id] = _Held(lane, tenant)
        self._num_held[lane] += 1
        self._num_held_of[tenant] += 1
        remaining = max(0, limit.max_running - self._num_held[lane])
        if share is None:
            return SlotTaken(limit.max_running, remaining)
        return SlotTaken(share, min(remaining, share - self._num_held_of[tenant]))

    def release(self, request_id: RequestId) -> bool:
        """Give a slot back; false, and nothing else, when none was held."""
        held = self._held.pop(request_id, None)
        if held is None:
            return False
        self._num_held[held.lane] -= 1
        self._num_held_of[held.tenant] -= 1
        if not self._num_held_of[held.tenant]:
            del self._num_held_of[held.tenant]  # tenants may be as many as a plugin likes
        return True

    def check_integrity(self) -> None:
        """Compare the counts with the holders.

        Raises:
            RuntimeError: they differ.
        """
        counted = dict.fromkeys(Lane, 0) | Counter(held.lane for held in self._held.values())
        if counted != self._num_held:
            raise RuntimeError(f"slot counts {self._num_held} differ from the holders {counted}")
        tenants = Counter(held.tenant for held in self._held.values())
        if tenants != self._num_held_of or len(tenants) != len(self._num_held_of):
            raise RuntimeError(f"slot counts {self._num_held_of} differ from the holders {tenants}")
