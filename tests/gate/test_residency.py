"""Which models stay and which go: by bytes, by last use, never under a request."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from memra.errors import IntegrityError
from memra.gate.residency import Residency
from memra.messages.models import ModelInstance, ModelTerms
from memra.types import ModelName, RequestId

A, B, C, D = (ModelName(name) for name in "abcd")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def book_of(clock: Clock, limit: int | None, **sizes: int) -> Residency:
    """Make a book with loaded models, the first named used the longest ago."""
    book = Residency(limit_bytes=limit, clock=clock)
    for name, size in sizes.items():
        load(book, ModelName(name), size)
    return book


def load(book: Residency, name: ModelName, size: int) -> ModelInstance:
    key = book.begin_load(name)
    book.measure(key, size)
    book.finish_load(key)
    return key


def test_without_a_limit_nothing_is_evicted(clock: Clock):
    book = book_of(clock, None, a=10**12, b=10**12)
    assert book.reserve(book.begin_load(C), 10**15) == ()


def test_the_longest_unused_goes_first_and_no_more_than_needed(clock: Clock):
    book = book_of(clock, 30, a=10, b=10, c=10)
    book.lease(RequestId("r"), A)
    book.return_lease(RequestId("r"))
    assert book.reserve(book.begin_load(D), 10) == (ModelInstance(B, 0),)
    assert book.current(B) is None
    assert book.current(A) == ModelInstance(A, 0)


def test_room_is_counted_in_bytes_not_in_models(clock: Clock):
    book = book_of(clock, 100, a=30, b=30, c=30)
    assert book.reserve(book.begin_load(D), 10) == ()
    book.measure(ModelInstance(D, 0), 0)
    assert book.reserve(ModelInstance(D, 0), 70) == (ModelInstance(A, 0), ModelInstance(B, 0))


def test_a_small_one_is_spared_where_a_larger_one_gives_the_room_alone(clock: Clock):
    book = book_of(clock, 100, a=10, b=90)
    assert book.reserve(book.begin_load(C), 60) == (ModelInstance(B, 0),)
    assert book.current(A) is not None


def test_a_model_with_requests_and_a_pinned_one_never_go(clock: Clock):
    book = book_of(clock, 30, a=10, b=10, c=10)
    book.lease(RequestId("r"), A)
    book.set_terms(B, ModelTerms(is_pinned=True))
    assert book.reserve(book.begin_load(D), 20) is None
    assert [book.current(name) is not None for name in (A, B, C)] == [True] * 3, "nothing was changed"
    assert book.reserve(ModelInstance(D, 0), 10) == (ModelInstance(C, 0),)


def test_a_replacement_does_not_evict_its_predecessor(clock: Clock):
    book = book_of(clock, 30, a=20)
    assert book.reserve(book.begin_load(A), 20) is None
    assert book.current(A) == ModelInstance(A, 0)


def test_memory_that_is_about_to_be_free_counts_as_free(clock: Clock):
    book = book_of(clock, 30, a=20, b=10)
    assert book.retire(A) == ModelInstance(A, 0)
    assert book.reserve(book.begin_load(C), 20) == ()
    assert book.leaving() == (ModelInstance(A, 0),)


def test_a_replaced_instance_goes_with_its_last_lease(clock: Clock):
    book = book_of(clock, None, a=10)
    for name in ("r1", "r2"):
        assert book.lease(RequestId(name), A) == ModelInstance(A, 0)
    new = book.begin_load(A)
    assert book.lease(RequestId("r3"), A) == ModelInstance(A, 0), "until the new one is loaded, the old one serves"
    assert book.finish_load(new) is None
    assert book.lease(RequestId("r4"), A) == ModelInstance(A, 1)
    assert [book.return_lease(RequestId(name)) for name in ("r1", "r4", "r2")] == [None] * 3
    assert book.return_lease(RequestId("r3")) == ModelInstance(A, 0)
    assert book.return_lease(RequestId("r3")) is None


def test_an_unused_instance_goes_at_once_when_it_is_replaced(clock: Clock):
    book = book_of(clock, None, a=10)
    assert book.finish_load(book.begin_load(A)) == ModelInstance(A, 0)


def test_idleness_counts_from_the_end_of_the_last_use(clock: Clock):
    book = book_of(clock, None, a=10, b=10)
    book.set_terms(A, ModelTerms(idle_ttl_s=60))
    assert book.next_expiry() == 60
    clock.now = 50
    book.lease(RequestId("r"), A)
    assert book.next_expiry() is None, "a model with requests is not idle"
    clock.now = 500
    assert book.retire_idle() == ()
    book.return_lease(RequestId("r"))
    assert book.next_expiry() == 560
    clock.now = 560
    assert book.retire_idle() == (ModelInstance(A, 0),)
    assert book.retire_idle() == ()
    assert book.current(B) is not None


def test_a_pinned_model_is_never_idle(clock: Clock):
    book = book_of(clock, None, a=10)
    book.set_terms(A, ModelTerms(idle_ttl_s=60, is_pinned=True))
    clock.now = 1000
    assert book.retire_idle() == ()


def test_a_leased_model_is_not_struck_out(clock: Clock):
    book = book_of(clock, None, a=10)
    book.lease(RequestId("r"), A)
    with pytest.raises(IntegrityError, match="under 1 requests"):
        book.forget(ModelInstance(A, 0))
    with pytest.raises(IntegrityError, match="holds model"):
        book.lease(RequestId("r"), A)


def test_one_name_is_loaded_once_at_a_time(clock: Clock):
    book = book_of(clock, None)
    book.begin_load(A)
    with pytest.raises(IntegrityError, match="being loaded"):
        book.begin_load(A)


LIMIT = 100
NAMES = st.sampled_from([A, B, C, D])


class ResidencyMachine(RuleBasedStateMachine):
    """Whatever is asked in whatever order, memory is never promised twice and no request loses its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.book = Residency(limit_bytes=LIMIT, clock=self.clock)
        self.held: dict[RequestId, ModelInstance] = {}
        self.sizes: dict[ModelInstance, int] = {}
        self.to_remove: set[ModelInstance] = set()
        self.loading: ModelInstance | None = None
        self.num_requests = 0

    @precondition(lambda self: self.loading is None)
    @rule(name=NAMES, size=st.integers(1, 120))
    def begin(self, name: ModelName, size: int) -> None:
        key = self.book.begin_load(name)
        before = dict(self.sizes)
        victims = self.book.reserve(key, size)
        if victims is None:
            self.book.forget(key)
            assert self.sizes == before
            return
        assert not set(victims) & set(self.held.values())
        assert all(not self.book.terms_of(victim.name).is_pinned and victim.name != name for victim in victims)
        self.to_remove.update(victims)
        for leaving in self.book.leaving():
            self.to_remove.add(leaving)
        for victim in list(self.to_remove):
            self.remove(victim)
        self.loading = key
        self.sizes[key] = size
        assert sum(self.sizes.values()) <= LIMIT

    def remove(self, key: ModelInstance) -> None:
        self.book.forget(key)
        self.to_remove.discard(key)
        del self.sizes[key]

    @precondition(lambda self: self.loading is not None)
    @rule(is_sound=st.booleans())
    def end(self, is_sound: bool) -> None:  # noqa: FBT001  (hypothesis names it)
        key = self.loading
        assert key is not None
        self.loading = None
        if not is_sound:
            before = self.book.current(key.name)
            self.book.forget(key)
            del self.sizes[key]
            assert self.book.current(key.name) == before
            return
        replaced = self.book.finish_load(key)
        if replaced is not None:
            self.to_remove.add(replaced)
        assert self.book.current(key.name) == key

    @rule(name=NAMES)
    def lease(self, name: ModelName) -> None:
        self.num_requests += 1
        request_id = RequestId(str(self.num_requests))
        key = self.book.lease(request_id, name)
        if key is not None:
            self.held[request_id] = key

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        request_id = data.draw(st.sampled_from(sorted(self.held)))
        key = self.held.pop(request_id)
        free = self.book.return_lease(request_id)
        if free is not None:
            assert free == key
            assert key not in self.held.values()
            self.to_remove.add(key)

    @rule(name=NAMES)
    def unload(self, name: ModelName) -> None:
        free = self.book.retire(name)
        if free is not None:
            self.to_remove.add(free)
        assert self.book.current(name) is None

    @precondition(lambda self: self.to_remove)
    @rule()
    def finish_a_removal(self) -> None:
        self.remove(min(self.to_remove, key=str))

    @rule(name=NAMES, is_pinned=st.booleans(), ttl=st.sampled_from([0.0, 5.0]), passed=st.floats(0, 10))
    def let_time_pass(self, name: ModelName, is_pinned: bool, ttl: float, passed: float) -> None:  # noqa: FBT001
        self.book.set_terms(name, ModelTerms(is_pinned=is_pinned, idle_ttl_s=ttl))
        self.clock.now += passed
        idle = self.book.retire_idle()
        assert not set(idle) & set(self.held.values())
        self.to_remove.update(idle)
        assert (self.book.next_expiry() or self.clock.now + 1) > self.clock.now

    @invariant()
    def the_books_are_right(self) -> None:
        self.book.check_integrity()
        assert set(self.book.leaving()) == self.to_remove, "what nobody uses any more is known to whoever removes it"
        assert all(self.book.holds(key) for key in self.held.values())
        assert sum(self.sizes.values()) == sum(self.book.num_bytes(name) for name in (A, B, C, D))
        assert len(self.held) == sum(self.book.num_leases(name) for name in (A, B, C, D))


TestResidencyMachine = ResidencyMachine.TestCase
