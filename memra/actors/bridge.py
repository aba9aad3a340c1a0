"""The bridge: the house as the front door sees it, spoken over the mailboxes.

It implements `memra.actors.contract.House` and holds no state of its own: every request walks by itself, health comes
from lifecycle, counters from the worker. Called by HTTP in the trio thread.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import trio
from pykka import ActorDeadError

from memra.actors.account import Account, ending
from memra.actors.base import Ref, ask, tell_if_alive
from memra.actors.catalogue import Catalogue
from memra.actors.choices import has_several_answers, joined, take_apart, walks_of
from memra.actors.contract import Reply
from memra.actors.doorkeeper import Doorkeeper
from memra.actors.house_stay import Stations
from memra.actors.metered_reply import MeteredReply
from memra.actors.metrics import cache_metrics, lane_metrics, model_metrics, public_metrics
from memra.actors.model_listing import ModelListing
from memra.actors.pulse import WorkerPulse
from memra.actors.request_list import running_requests
from memra.actors.request_meta import bounded, meta_of, meta_of_refused, meta_of_texts
from memra.actors.shared_answers import NO_ANSWERS, response_cache_metrics
from memra.actors.text_walk import TextWalk, detokenize, tokenize
from memra.actors.ticket import Ticket
from memra.actors.walks_together import usage_of, walk_in
from memra.engine.handoff_reader import ImportReport
from memra.engine.prefix_handoff import ExportReport
from memra.errors import DrainingError, OverloadedError, UnknownRequestError
from memra.gate.model_rules import settle, settle_prompt
from memra.messages.admission import AdmissionsReported, FindRequests, GuestListed, ListGuests, ReportAdmissions
from memra.messages.generation import GenerationRequest
from memra.messages.identity import Credentials, Identity
from memra.messages.lifecycle import BeginDrain, HealthReported, ReportHealth
from memra.messages.models import (
    LoadModel,
    ModelInstance,
    ModelReported,
    ModelTerms,
    PinModel,
    ReportModels,
    UnloadModel,
    WithdrawLoad,
)
from memra.messages.prefixes import (
    ExportPrefixes,
    ImportPrefixes,
    PrefixesTrimmed,
    PurgeTenant,
    TenantPurged,
    TrimPrefixes,
)
from memra.messages.refusals import RefusedRequest
from memra.messages.replies import CancelReply, ListReplies, ReplyProgress
from memra.messages.texts import DetokenizeRequest, TextsRequest, TextTokenized, TextVectors, TokenizeRequest
from memra.plugins.handles import RunningRequest
from memra.types import ModelName, ModelTask, RequestId

_REPORT_WITHIN_S = 0.5
"""How long the counters wait for a busy worker; a scraper gives up after seconds, and the last known ones serve."""
_TRIM_WITHIN_S = 30.0
"""How long whoever administers the server waits for the end of a step."""
_EXPORT_WITHIN_S = 900.0
"""Hundreds of gigabytes on a slow disk."""


class ActorHouse:
    """The running server."""

    def __init__(  # noqa: PLR0913  (each is another part of the house)
        self,
        stations: Stations,
        *,
        doorkeeper: Doorkeeper,
        catalogue: Catalogue,
        listing: ModelListing,
        lifecycle: Ref,
        pulse: WorkerPulse,
    ) -> None:
        """Take the addresses.

        Args:
            stations: where requests pass.
            doorkeeper: knows who sends them.
            catalogue: names that are served.
            listing: what is declared of them, and what it means for requests.
            lifecycle: knows the health.
            pulse: tells how often the worker was restarted.
        """
        self._stations = stations
        self._doorkeeper = doorkeeper
        self._catalogue = catalogue
        self._listing = listing
        self._lifecycle = lifecycle
        self._pulse = pulse

    @property
    def listing(self) -> ModelListing:
        """What the outside is told of the models."""
        return self._listing

    @property
    def models(self) -> tuple[ModelName, ...]:
        """The names that are served, in configured order."""
        return tuple(self._catalogue.names)

    def context_tokens(self, model: ModelName) -> int | None:
        """The longest prompt and answer together, as it is offered; None until the model was opened once."""
        entry = self._catalogue.find(model)
        return None if entry is None else self._listing.rules(model).context_tokens(entry.context_tokens)

    def task(self, model: ModelName) -> ModelTask | None:
        """What a model does with text; None until it was opened once."""
        entry = self._catalogue.find(model)
        return None if entry is None else entry.task

    def embedding_width(self, model: ModelName) -> int | None:
        """Values of a vector of a model; None for one that makes none, and until it was opened once."""
        entry = self._catalogue.find(model)
        return None if entry is None else entry.embedding_width

    async def load_model(
        self, name: ModelName, source: str | None = None, *, terms: ModelTerms | None = None
    ) -> ModelInstance:
        """Load a model, in place of the one of this name, and wait until it serves; leaving takes the load back.

        Requests under way finish on the weights that they began with.

        Args:
            name: a new one, or one that is served.
            source: as in `NAME=SOURCE`; None for the one that the name has.
            terms: on which it lies in memory; None for those that the name has.

        Raises:
            UnknownModelError: no source was ever given for the name.
            ModelLoadError: it cannot be loaded; everything is as it was.
            OverloadedError: there is no room at the moment.
        """
        ticket: Ticket[ModelInstance] = await ask(self._stations.keeper, LoadModel(name, source, terms))
        try:
            return await ticket.wait()
        except trio.Cancelled:
            tell_if_alive(self._stations.keeper, WithdrawLoad(ticket))
            raise

    async def unload_model(self, name: ModelName) -> bool:
        """Let a model go once its last request has ended; false when it was not loaded. A later request loads it.

        Raises:
            UnknownModelError: the name is not served.
        """
        was_loaded: bool = await ask(self._stations.keeper, UnloadModel(name))
        return was_loaded

    async def pin_model(self, name: ModelName, *, is_pinned: bool = True) -> None:
        """Keep a model in memory whatever wants its room, or stop keeping it.

        Raises:
            UnknownModelError: the name is not served.
        """
        await ask(self._stations.keeper, PinModel(name, is_pinned))

    async def report_models(self) -> tuple[ModelReported, ...]:
        """Return what lies in memory of every model, in configured order."""
        reported: tuple[ModelReported, ...] = await ask(self._stations.keeper, ReportModels())
        return reported

    async def identify(self, credentials: Credentials) -> Identity:
        """Say who sends a request, before anything else of it is read; whoever that is goes with the request.

        Raises:
            AuthenticationError: nothing was presented, or nothing that opens this server.
            ForbiddenError: it is known, and opens nothing any more.
        """
        return await self._doorkeeper.identify(credentials)

    @asynccontextmanager
    async def open_reply(self, request: GenerationRequest) -> AsyncIterator[Reply]:
        """Admit, render and submit a request; leaving the context early frees everything that it holds.

        Leaving frees the rows at the worker's next step before it waits for anybody, which is the accounting alone.

        Raises:
            RequestError: the request is refused; nothing is held then.
        """
        account = Account(self._stations.accounting, meta_of(request), body=request.body)
        async with ending(account):
            request = bounded(settle(request, self._listing.rules(request.model)), await account.admit())
            parts = take_apart(request) if has_several_answers(request) else [request]
            walks = walks_of(parts, self._stations, num_choices=request.num_choices)
            try:
                async with _as_one(await walk_in(walks, account), parts) as reply:
                    yield MeteredReply(reply, account, usage=partial(usage_of, walks)) if account.is_kept else reply
            finally:
                for walk in reversed(walks):
                    walk.leave()
                account.record(usage_of(walks))

    async def pool_texts(self, request: TextsRequest) -> TextVectors:
        """Admit, render and compute texts; being cancelled frees everything that the request holds.

        Raises:
            RequestError: the request is refused, or failed.
        """
        account = Account(self._stations.accounting, meta_of_texts(request), body=request.body)
        async with ending(account):
            await account.admit()
            rules = self._listing.rules(request.model)
            walk = TextWalk(replace(request, max_text_tokens=rules.max_prompt_tokens), self._stations, account)
            try:
                return await walk.walk()
            finally:
                walk.leave()

    async def captures(self, identity: Identity) -> bool:
        """Whether the bodies of somebody's requests are to go with them."""
        return await self._stations.accounting.captures(identity)

    async def note_refusal(self, refused: RefusedRequest, error: Exception) -> None:
        """Take notice of a request that the front door refused; never raises."""
        await Account(self._stations.accounting, meta_of_refused(refused)).end(error)

    async def tokenize(self, request: TokenizeRequest) -> TextTokenized:
        """Turn a prompt into token ids; holds no slot, and loads the model if need be.

        Raises:
            RequestError: the model is unknown or cannot be loaded, or the prompt cannot be rendered.
        """
        prompt = settle_prompt(request.prompt, self._listing.rules(request.model))
        return await tokenize(replace(request, prompt=prompt), self._stations)

    async def detokenize(self, request: DetokenizeRequest) -> str:
        """Turn token ids into text; as `tokenize`.

        Raises:
            RequestError: the model is unknown or cannot be loaded, or an id is outside of its vocabulary.
        """
        return await detokenize(request, self._stations)

    async def cancel(self, name: str, identity: Identity) -> None:
        """End requests under way: whoever reads their answers gets a `RequestCancelledError` behind what is there.

        Args:
            name: the id of one, or what the client itself called one or several.
            identity: of the client.

        Raises:
            UnknownRequestError: no such request of this tenant is under way.
        """
        try:
            found: tuple[RequestId, ...] = await ask(self._stations.admission, FindRequests(name, identity.tenant))
            if any([await ask(self._stations.ingress, CancelReply(request_id)) for request_id in found]):
                return
        except ActorDeadError:
            raise DrainingError("The server is shutting down.", retry_after_s=1.0) from None
        raise UnknownRequestError(f"No request {name!r} of yours is under way; it may have ended.", param="id")

    async def list_requests(self) -> tuple[RunningRequest, ...]:
        """Return every request in the house, in the order in which they came."""
        guests: tuple[GuestListed, ...] = await ask(self._stations.admission, ListGuests())
        progress: Mapping[RequestId, ReplyProgress] = await ask(self._stations.ingress, ListReplies())
        return running_requests(guests, progress)

    async def cancel_any(self, request_id: RequestId) -> bool:
        """End a request of whatever tenant, as `cancel` does; false when none of this id is under way."""
        was_there: bool = await ask(self._stations.ingress, CancelReply(request_id))
        return was_there

    def begin_drain(self, reason: str) -> None:
        """Take no new work, let running requests finish within the drain's time, and end; callable from any thread."""
        tell_if_alive(self._lifecycle, BeginDrain(reason))

    async def report_health(self) -> HealthReported:
        """Return the state that the probes show; answers at once, also when the worker hangs."""
        health: HealthReported = await ask(self._lifecycle, ReportHealth())
        return health

    async def report_caches(self) -> Mapping[str, Any]:
        """Return what the caches hold and how often they helped, by cache; as old as `report_metrics`'s."""
        answers = self._stations.answers
        report = await self._stations.worker.report(within_s=_REPORT_WITHIN_S)
        return {
            "response_cache": NO_ANSWERS if answers is None else answers.report(),
            "prefix_cache": cache_metrics(report.prefix),
        }

    async def trim_prefixes(self) -> PrefixesTrimmed:
        """Forget every remembered prefix that no running sequence uses.

        Raises:
            OverloadedError: there is no worker at the moment, or it did not answer in time.
        """
        trimmed: PrefixesTrimmed = await self._administer(TrimPrefixes(), within_s=_TRIM_WITHIN_S)
        return trimmed

    async def purge_tenant(self, tenant: str) -> TenantPurged:
        """Forget what is remembered of a tenant, under all its salts; requests under way are left alone.

        Whole answers that are kept for it go too.

        Raises:
            OverloadedError: as for `trim_prefixes`.
        """
        if self._stations.answers is not None:
            self._stations.answers.forget_tenant(tenant)
        purged: TenantPurged = await self._administer(PurgeTenant(tenant), within_s=_TRIM_WITHIN_S)
        return purged

    async def export_prefixes(self, *, force: bool = False) -> ExportReport:
        """Write what is remembered to the hand-off file; no step is taken meanwhile.

        Args:
            force: also while requests are worked on.

        Raises:
            HandoffError: requests are worked on, no file is named, or it cannot be written.
            OverloadedError: as for `trim_prefixes`.
        """
        exported: ExportReport = await self._administer(ExportPrefixes(force), within_s=_EXPORT_WITHIN_S)
        return exported

    async def import_prefixes(self) -> ImportReport:
        """Begin to read the hand-off file, an entry a step; answers when its header is known.

        Raises:
            HandoffError: there is none, or it is refused.
            OverloadedError: as for `trim_prefixes`.
        """
        imported: ImportReport = await self._administer(ImportPrefixes(), within_s=_TRIM_WITHIN_S)
        return imported

    async def report_metrics(self) -> Mapping[str, Any]:
        """Return the counters under their public names; the last known ones when the worker is too busy to answer."""
        report = await self._stations.worker.report(within_s=_REPORT_WITHIN_S)
        metrics = public_metrics(report, await self._report_admissions(), num_respawns=self._pulse.generation)
        models = model_metrics(await self.report_models())
        limits = await self._stations.accounting.report()
        return {**metrics, **models, **response_cache_metrics(self._stations.answers), **limits}

    async def report_lanes(self) -> Mapping[str, Any]:
        """Return the counters by lane under their public names; as old as `report_metrics`'s."""
        report = await self._stations.worker.report(within_s=_REPORT_WITHIN_S)
        return lane_metrics(report, await self._report_admissions())

    async def _administer(self, message: object, *, within_s: float) -> Any:
        try:
            with trio.fail_after(within_s):
                return await self._stations.worker.ask(message)
        except (ActorDeadError, trio.TooSlowError):
            raise OverloadedError("The model worker is restarting or busy; try again shortly.") from None

    async def _report_admissions(self) -> AdmissionsReported:
        reported: AdmissionsReported = await ask(self._stations.admission, ReportAdmissions())
        return reported


def _as_one(replies: Sequence[Reply], parts: Sequence[GenerationRequest]) -> AbstractAsyncContextManager[Reply]:
    """Return the reply of a request, for as long as the context lasts."""
    return joined(replies, parts) if len(replies) > 1 else nullcontext(replies[0])
