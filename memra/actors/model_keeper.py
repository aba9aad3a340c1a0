"""The keeper of models: which ones are loaded, for whom, and when one goes.

It accepts `LeaseModel` (asked; answered with a ticket for `ModelLeased`), `LoadModel` (asked; a ticket for
`ModelInstance`), `UnloadModel` (asked; whether it was loaded), `PinModel` and `ReportModels` (asked) and, told,
`ReturnModel`, `WithdrawLoad` and `ModelsRestored`. Its tasks ask the worker to `InstallModel` and `RemoveModel`. It has
nothing to fail at: what goes wrong with a model is its askers' error.

A lease holds one instance: a model that is replaced or unloaded finishes its requests on the weights they began with. A
model that is not loaded is loaded for the first who asks; all who ask meanwhile share that load, first come first
served, and a load that nobody waits for any more is not begun; one whose orderer took it back is undone when it ends.
Loads run one at a time, in the order in which they were asked for. A load that fails is reported to those who waited
for it, and to nobody else. The policy is `memra.gate.residency`'s, the waiting `model_loading`'s; here is only their
state's one owner.
"""

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import trio

from memra.actors.base import ActorSystem, UnknownMessageError
from memra.actors.catalogue import Catalogue, CatalogueEntry
from memra.actors.model_loading import LoadingParts, ModelLoading
from memra.actors.model_shelf import OpenedModel
from memra.actors.ticket import Ticket
from memra.actors.trio_actor import TrioActor
from memra.errors import DrainingError, RequestError, UnknownModelError
from memra.messages.models import (
    LeaseModel,
    LoadModel,
    ModelInstance,
    ModelLeased,
    ModelReported,
    ModelsRestored,
    ModelState,
    ModelTerms,
    PinModel,
    ReportModels,
    ReturnModel,
    UnloadModel,
    WithdrawLoad,
)
from memra.types import ModelName, RequestId

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class _Order:
    """One load that somebody waits for, or that was ordered whether or not anybody does."""

    name: ModelName
    source: str | None
    terms: ModelTerms
    is_wanted_by_itself: bool = False
    is_taken_back: bool = False
    waiters: dict[RequestId, Ticket[ModelLeased]] = field(default_factory=dict)
    done: list[Ticket[ModelInstance]] = field(default_factory=list)

    @property
    def is_wanted(self) -> bool:
        return self.is_wanted_by_itself or bool(self.waiters)


class ModelKeeper(TrioActor):
    """See the module."""

    def __init__(
        self,
        system: ActorSystem,
        parts: LoadingParts,
        *,
        catalogue: Catalogue,
        loaded: Mapping[ModelName, OpenedModel],
    ) -> None:
        """Take the parts.

        Args:
            system: the loop.
            parts: the residency is owned by this actor from now on.
            catalogue: written by this actor alone from now on.
            loaded: models that the first worker begins with; they are on the shelf when this returns.
        """
        super().__init__(system)
        self._residency = parts.residency
        self._shelf = parts.shelf
        self._catalogue = catalogue
        self._loading = ModelLoading(parts, reload=self._order_again)
        self._orders: deque[_Order] = deque()
        self._under_way: _Order | None = None
        self._granted: deque[tuple[Ticket[ModelLeased], ModelLeased]] = deque()
        self._ordered = trio.Event()
        self._idled = trio.Event()
        self._scopes: set[trio.CancelScope] = set()
        for name in catalogue.names:
            self._residency.set_terms(name, self._entry(name).terms)
        for name, opened in loaded.items():
            self._begin_with(name, opened)

    def on_start(self) -> None:
        """Wait for orders, and for models that nobody uses."""
        self._start_task(self._carry_out_orders)
        self._start_task(self._unload_idle)

    def on_exit(self) -> None:
        """End the tasks, and send away who waits."""
        for scope in self._scopes:
            scope.cancel()
        error = DrainingError("The server is shutting down.", retry_after_s=1.0)
        for order in self._all_orders():
            _refuse(order, error)
        for ticket, _ in self._granted:
            ticket.refuse(error)

    def handle(self, message: Any) -> Any:
        """Handle one message; see the module for those accepted."""
        match message:
            case LeaseModel(request_id, model):
                return self._lease(request_id, model)
            case ReturnModel(request_id):
                self._return(request_id)
            case LoadModel():
                return self._order(message)
            case WithdrawLoad(ticket):
                self._withdraw(ticket)
            case UnloadModel(name):
                return self._unload(name)
            case PinModel(name, is_pinned):
                self._pin(name, is_pinned=is_pinned)
            case ReportModels():
                return tuple(self._report(name) for name in self._catalogue.names)
            case ModelsRestored(models):
                self._loading.note_restored(models)
            case _:
                raise UnknownMessageError(self, message)
        return None

    def _lease(self, request_id: RequestId, name: ModelName) -> Ticket[ModelLeased]:
        entry = self._entry(name)
        ticket = Ticket[ModelLeased]()
        leased = self._take_lease(request_id, name)
        if leased is not None:
            ticket.grant(leased)
            return ticket
        order = next((order for order in self._all_orders() if order.name == name), None)
        if order is None:
            order = _Order(name, entry.source, entry.terms)
            self._enqueue(order)
        order.waiters[request_id] = ticket
        return ticket

    def _take_lease(self, request_id: RequestId, name: ModelName) -> ModelLeased | None:
        key = self._residency.lease(request_id, name)
        if key is None:
            return None
        opened = self._shelf.opened(key)
        return ModelLeased(key, opened.context_tokens, opened.identity)

    def _return(self, request_id: RequestId) -> None:
        for order in self._all_orders():
            if order.waiters.pop(request_id, None) is not None:
                if not order.is_wanted and order in self._orders:
                    self._orders.remove(order)
                break
        self._remove(self._residency.return_lease(request_id))
        self._note_idleness()

    def _order(self, message: LoadModel) -> Ticket[ModelInstance]:
        known = self._catalogue.find(message.name)
        if known is None and message.source is None:
            raise self._unknown(message.name)
        ticket = Ticket[ModelInstance]()
        order = _Order(
            message.name,
            message.source or (known.source if known else None),
            message.terms or (known.terms if known else ModelTerms()),
            is_wanted_by_itself=True,
            done=[ticket],
        )
        self._enqueue(order)
        return ticket

    def _withdraw(self, ticket: object) -> None:
        order = next((order for order in self._all_orders() if ticket in order.done), None)
        if order is None:
            return  # it is loaded, or has failed
        order.done = [done for done in order.done if done is not ticket]
        order.is_wanted_by_itself = bool(order.done)
        order.is_taken_back = not order.done
        if not order.is_wanted and order in self._orders:
            self._orders.remove(order)

    def _order_again(self, name: ModelName) -> None:
        """Bring a model back that had to go for nothing."""
        if self._residency.current(name) is None and not any(order.name == name for order in self._orders):
            entry = self._entry(name)
            self._enqueue(_Order(name, entry.source, entry.terms, is_wanted_by_itself=True))

    def _unload(self, name: ModelName) -> bool:
        self._entry(name)
        was_loaded = self._residency.current(name) is not None
        self._remove(self._residency.retire(name))
        return was_loaded

    def _pin(self, name: ModelName, *, is_pinned: bool) -> None:
        entry = self._entry(name)
        terms = replace(entry.terms, is_pinned=is_pinned)
        self._catalogue.write(name, replace(entry, terms=terms))
        self._residency.set_terms(name, terms)
        self._note_idleness()

    def _report(self, name: ModelName) -> ModelReported:
        entry, current = self._entry(name), self._residency.current(name)
        return ModelReported(
            name=name,
            state=self._state(name, entry),
            instance=None if current is None else current.instance,
            num_bytes=self._residency.num_bytes(name),
            num_leases=self._residency.num_leases(name),
            num_waiting=sum(len(order.waiters) for order in self._all_orders() if order.name == name),
            terms=entry.terms,
            context_tokens=entry.context_tokens,
        )

    def _state(self, name: ModelName, entry: CatalogueEntry) -> ModelState:
        if self._residency.current(name) is not None:
            return ModelState.LOADED
        if any(order.name == name for order in self._all_orders()):
            return ModelState.LOADING
        return ModelState.FAILED if entry.has_failed else ModelState.UNLOADED

    def _entry(self, name: ModelName) -> CatalogueEntry:
        entry = self._catalogue.find(name)
        if entry is None:
            raise self._unknown(name)
        return entry

    def _unknown(self, name: ModelName) -> UnknownModelError:
        known = ", ".join(self._catalogue.names)
        return UnknownModelError(f"No model {name!r} is served here; there are: {known}.", param="model")

    def _all_orders(self) -> Iterator[_Order]:
        if self._under_way is not None:
            yield self._under_way
        yield from self._orders

    def _enqueue(self, order: _Order) -> None:
        self._orders.append(order)
        self._ordered.set()

    async def _carry_out_orders(self) -> None:
        while True:
            await self._ordered.wait()
            if not self._orders:
                self._ordered = trio.Event()
                continue
            order = self._under_way = self._orders.popleft()
            try:
                key = await self._loading.load(order.name, order.source, order.terms)
            except RequestError as error:
                self._under_way = None
                self._fail(order, error)
            else:
                self._under_way = None
                if order.is_taken_back and not order.is_wanted:
                    await self._loading.remove(key)
                    continue
                self._complete(order, key)
                await self._grant_in_turn()

    def _complete(self, order: _Order, key: ModelInstance) -> None:
        self._residency.set_terms(order.name, order.terms)
        self._catalogue.write(order.name, CatalogueEntry(order.terms, source=order.source))
        self._note_context(key)
        self._remove(self._residency.finish_load(key))
        for done in order.done:
            done.grant(key)
        self._note_idleness()
        for request_id, ticket in order.waiters.items():
            leased = self._take_lease(request_id, order.name)
            if leased is not None:
                self._granted.append((ticket, leased))

    async def _grant_in_turn(self) -> None:
        """Wake the waiters one after the other: tasks that are woken together run in any order."""
        while self._granted:
            ticket, leased = self._granted.popleft()
            ticket.grant(leased)
            await trio.lowlevel.checkpoint()

    def _fail(self, order: _Order, error: RequestError) -> None:
        entry = self._catalogue.find(order.name)
        if entry is not None:
            self._catalogue.write(order.name, replace(entry, has_failed=True))
        _refuse(order, error)

    def _begin_with(self, name: ModelName, opened: OpenedModel) -> None:
        key = self._residency.begin_load(name)
        self._residency.measure(key, opened.num_bytes)
        self._shelf.put(key, opened)
        self._residency.finish_load(key)
        self._note_context(key)

    def _note_context(self, key: ModelInstance) -> None:
        opened = self._shelf.opened(key)
        entry = replace(
            self._entry(key.name),
            context_tokens=opened.context_tokens,
            task=opened.task,
            embedding_width=opened.embedding_width,
            traits=opened.traits,
        )
        self._catalogue.write(key.name, entry)

    def _remove(self, key: ModelInstance | None) -> None:
        if key is not None:
            self._start_task(lambda: self._loading.remove(key))

    def _note_idleness(self) -> None:
        """An instance may have become idle, or its terms others: look again at who goes when."""
        self._idled.set()

    async def _unload_idle(self) -> None:
        while True:
            expires_at = self._residency.next_expiry()
            with trio.move_on_at(math.inf if expires_at is None else expires_at):
                await self._idled.wait()
            self._idled = trio.Event()
            for key in self._residency.retire_idle():
                log.info("%s was unused for %g s", key, self._residency.terms_of(key.name).idle_ttl_s)
                self._remove(key)

    def _start_task(self, task: Callable[[], Awaitable[None]]) -> None:
        scope = trio.CancelScope()
        self._scopes.add(scope)

        async def run_in_scope() -> None:
            with scope:
                await task()
            self._scopes.discard(scope)

        self.system.nursery.start_soon(run_in_scope, name=f"{type(self).__name__} task")


def _refuse(order: _Order, error: RequestError) -> None:
    for waiter in order.waiters.values():
        waiter.refuse(error)
    for done in order.done:
        done.refuse(error)
