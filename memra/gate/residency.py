"""Which models lie in memory, who uses them, and which one goes when room is wanted.

Trade: a book of instances with their bytes, leases and last use. Memory is given out by bytes, never by count, and
never taken from a request. Pure policy: it loads nothing, frees nothing, waits for nobody and knows no thread; whoever
keeps the book does what it says and writes down what came of it. Kept by `memra.actors.model_keeper`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from memra.errors import IntegrityError
from memra.messages.models import ModelInstance, ModelTerms
from memra.types import ModelName, RequestId


class _Phase(StrEnum):
    LOADING = "loading"
    CURRENT = "current"
    RETIRED = "retired"
    """Replaced, unloaded or evicted: no new request gets it, and it goes when its last lease is returned."""


@dataclass(slots=True)
class _Resident:
    phase: _Phase = _Phase.LOADING
    num_bytes: int = 0
    leases: set[RequestId] = field(default_factory=set)
    used_at: float = 0.0

    @property
    def is_leaving(self) -> bool:
        return self.phase is _Phase.RETIRED and not self.leases


class Residency:
    """The book. At most one instance of a name is current, and at most one is being loaded."""

    def __init__(self, *, limit_bytes: int | None, clock: Callable[[], float]) -> None:
        """Begin with nothing in memory.

        Args:
            limit_bytes: for all models together; None for no limit.
            clock: seconds, never running backwards.
        """
        self.limit_bytes = limit_bytes
        self._clock = clock
        self._terms: dict[ModelName, ModelTerms] = {}
        self._num_loads = Counter[ModelName]()
        # In order of last use, the longest ago first.
        self._residents: dict[ModelInstance, _Resident] = {}
        self._holders: dict[RequestId, ModelInstance] = {}

    def set_terms(self, name: ModelName, terms: ModelTerms) -> None:
        """Say on which terms a name's instances lie in memory, from now on."""
        self._terms[name] = terms

    def terms_of(self, name: ModelName) -> ModelTerms:
        """The terms of a name; the default ones when none were set."""
        return self._terms.get(name, ModelTerms())

    def begin_load(self, name: ModelName) -> ModelInstance:
        """Write down a load that begins; end it with `finish_load` or `forget`.

        Raises:
            IntegrityError: one of this name is under way.
        """
        if self.loading(name) is not None:
            raise IntegrityError(f"model {name} is being loaded already")
        key = ModelInstance(name, self._num_loads[name])
        self._num_loads[name] += 1
        self._residents[key] = _Resident(used_at=self._clock())
        return key

    def reserve(self, key: ModelInstance, num_bytes: int) -> tuple[ModelInstance, ...] | None:
        """Book memory for a load, or for what it was measured to take.

        Instances that are unused and not pinned are retired for it, unused for the longest time first; never one of the
        same name, so that a load which fails leaves its predecessor.

        Returns:
            Those retired now, to be removed before the memory is used, as is whatever else `leaving` names; None, with
            nothing changed, when leases and pins leave no room.
        """
        excess = 0 if self.limit_bytes is None else self._num_bytes_staying(but=key) + num_bytes - self.limit_bytes
        victims = self._choose_victims(key.name, excess)
        if victims is None:
            return None
        for victim in victims:
            self._residents[victim].phase = _Phase.RETIRED
        self._residents[key].num_bytes = num_bytes
        return tuple(victims)

    def measure(self, key: ModelInstance, num_bytes: int) -> None:
        """Write down what an instance was found to take, whether or not there is room."""
        self._residents[key].num_bytes = num_bytes

    def fits_ever(self, num_bytes: int) -> bool:
        """Whether so much would fit if nothing else were in memory."""
        return self.limit_bytes is None or num_bytes <= self.limit_bytes

    def finish_load(self, key: ModelInstance) -> ModelInstance | None:
        """Make a loaded instance the one that new requests get.

        Returns:
            The one before, retired now and unused, to be removed; None when there is none, or requests still use it.
        """
        replaced = self.retire(key.name)
        self._residents[key].phase = _Phase.CURRENT
        self._touch(key)
        return replaced

    def forget(self, key: ModelInstance) -> None:
        """Strike out an instance: its load failed, or it was removed from memory.

        Raises:
            IntegrityError: it is leased.
        """
        if self._residents[key].leases:
            raise IntegrityError(f"model {key} was removed under {len(self._residents[key].leases)} requests")
        del self._residents[key]

    def lease(self, request_id: RequestId, name: ModelName) -> ModelInstance | None:
        """Hold the current instance of a name for a request; None when there is none.

        Raises:
            IntegrityError: the request holds one.
        """
        key = self.current(name)
        if request_id in self._holders:
            raise IntegrityError(f"request {request_id} holds model {self._holders[request_id]} already")
        if key is not None:
            self._residents[key].leases.add(request_id)
            self._holders[request_id] = key
            self._touch(key)
        return key

    def return_lease(self, request_id: RequestId) -> ModelInstance | None:
        """End a lease; unknown ids are ignored.

        Returns:
            The instance, if it is retired and this was its last lease: it is to be removed.
        """
        key = self._holders.pop(request_id, None)
        if key is None:
            return None
        resident = self._residents[key]
        resident.leases.discard(request_id)
        self._touch(key)
        return key if resident.is_leaving else None

    def retire(self, name: ModelName) -> ModelInstance | None:
        """Give the current instance of a name to no further request.

        Returns:
            It, if it is unused: it is to be removed.
        """
        key = self.current(name)
        if key is None:
            return None
        resident = self._residents[key]
        resident.phase = _Phase.RETIRED
        return key if resident.is_leaving else None

    def retire_idle(self) -> tuple[ModelInstance, ...]:
        """Retire what was unused for longer than its terms allow; all of it is to be removed."""
        now = self._clock()
        idle = tuple(key for key, expires_at in self._expiries() if expires_at <= now)
        for key in idle:
            self._residents[key].phase = _Phase.RETIRED
        return idle

    def next_expiry(self) -> float | None:
        """When `retire_idle` finds something next, on the clock; None while nothing idles towards its end."""
        return min((expires_at for _, expires_at in self._expiries()), default=None)

    def current(self, name: ModelName) -> ModelInstance | None:
        """The instance that new requests of a name get."""
        return self._find(name, _Phase.CURRENT)

    def loading(self, name: ModelName) -> ModelInstance | None:
        """The instance of a name that is being loaded."""
        return self._find(name, _Phase.LOADING)

    def holds(self, key: ModelInstance) -> bool:
        """Whether an instance is in the book."""
        return key in self._residents

    def leaving(self) -> tuple[ModelInstance, ...]:
        """Retired instances without a lease: their memory is free as soon as they are removed."""
        return tuple(key for key, resident in self._residents.items() if resident.is_leaving)

    def num_leases(self, name: ModelName) -> int:
        """Requests on any instance of a name."""
        return sum(len(resident.leases) for _, resident in self._of(name))

    def num_bytes(self, name: ModelName) -> int:
        """Bytes of all instances of a name."""
        return sum(resident.num_bytes for _, resident in self._of(name))

    def check_integrity(self) -> None:
        """Compare instances, leases and bytes with each other.

        Raises:
            IntegrityError: they disagree, which is a bug.
        """
        for phase in (_Phase.LOADING, _Phase.CURRENT):
            counted = Counter(key.name for key, resident in self._residents.items() if resident.phase is phase)
            if counted and counted.most_common(1)[0][1] > 1:
                raise IntegrityError(f"model {counted.most_common(1)[0][0]} is {phase.value} twice")
        held = {request_id: key for key, resident in self._residents.items() for request_id in resident.leases}
        if held != self._holders:
            raise IntegrityError(f"the leases {held} differ from their holders {self._holders}")
        for key, resident in self._residents.items():
            if resident.phase is _Phase.LOADING and resident.leases:
                raise IntegrityError(f"model {key} is leased before it is loaded")

    def _choose_victims(self, name: ModelName, excess: int) -> list[ModelInstance] | None:
        victims: list[ModelInstance] = []
        for key, resident in self._residents.items():
            if excess <= 0:
                break
            if self._is_evictable(key, resident) and key.name != name:
                victims.append(key)
                excess -= resident.num_bytes
        if excess > 0:
            return None
        for key in reversed(victims.copy()):  # whatever the later ones made superfluous may stay, the latest used first
            if excess + self._residents[key].num_bytes <= 0:
                victims.remove(key)
                excess += self._residents[key].num_bytes
        return victims

    def _is_evictable(self, key: ModelInstance, resident: _Resident) -> bool:
        return resident.phase is _Phase.CURRENT and not resident.leases and not self.terms_of(key.name).is_pinned

    def _num_bytes_staying(self, *, but: ModelInstance) -> int:
        return sum(
            resident.num_bytes for key, resident in self._residents.items() if key != but and not resident.is_leaving
        )

    def _expiries(self) -> Iterator[tuple[ModelInstance, float]]:
        for key, resident in self._residents.items():
            ttl_s = self.terms_of(key.name).idle_ttl_s
            if ttl_s > 0 and self._is_evictable(key, resident):
                yield key, resident.used_at + ttl_s

    def _touch(self, key: ModelInstance) -> None:
        resident = self._residents.pop(key)
        resident.used_at = self._clock()
        self._residents[key] = resident

    def _find(self, name: ModelName, phase: _Phase) -> ModelInstance | None:
        return next((key for key, resident in self._of(name) if resident.phase is phase), None)

    def _of(self, name: ModelName) -> Iterator[tuple[ModelInstance, _Resident]]:
        return ((key, resident) for key, resident in self._residents.items() if key.name == name)
