"""The way of one request through the house: ingress, admission, a model's lease, templating, worker, and back out.

One object per answer, used by the request's own task. `prepare` and `proceed` wait at each station in turn, and between
them the request's account is asked to hold what it may cost: `walks_together` does all of it. `leave` waits for nobody,
so it is safe at any moment, cancellation included, and gives back whatever was taken so far. Called by the bridge.
"""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import trio
from pykka import ActorDeadError

from memra.actors.account import Account
from memra.actors.account_items import Item
from memra.actors.base import ask
from memra.actors.cached_reply import LeadingReply, StoredReply
from memra.actors.contract import Reply
from memra.actors.house_stay import HouseStay, Stations
from memra.actors.replies import ReplyStream
from memra.actors.reply import Deadline, StageTimes, WorkerReply
from memra.actors.shared_answers import Lead, SharedAnswers
from memra.actors.shared_rendering import SharedRendering
from memra.errors import DrainingError
from memra.gate.context_budget import TokenBudget, resolve_budget
from memra.gate.namespaces import namespace_of
from memra.gate.response_cache import StoredAnswer
from memra.messages.admission import AdmitRequest, RequestAdmitted, ReserveWork
from memra.messages.generation import GenerationRequest, Usage
from memra.messages.prompt import PromptRendered, RenderPrompt
from memra.messages.work import SubmitPrompt
from memra.telemetry import names
from memra.telemetry.spans import RequestTrace
from memra.types import CacheStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is known of a request before the worker hears of it.

    Attributes:
        timeout_s: of the whole way.
    """

    stream: ReplyStream
    admitted: RequestAdmitted
    rendered: PromptRendered
    budget: TokenBudget
    prompt: SubmitPrompt
    timeout_s: float


class RequestWalk:
    """One answer; `prepare` once, then `proceed` once, then `leave` once, whatever came of it."""

    def __init__(
        self, request: GenerationRequest, stations: Stations, *, shared: SharedRendering | None = None
    ) -> None:
        """Begin the request's trace.

        Args:
            request: who walks.
            stations: where to.
            shared: what answers to one prompt have in common; None for a request of its own.
        """
        self._request = request
        self._shared = shared
        self._stations = stations
        self._stay = HouseStay(request.request_id, stations)
        self._instance = 0
        self._prepared: _Prepared | None = None
        self._times: StageTimes | None = None
        self._reply: WorkerReply | StoredReply | None = None
        self._lead: Lead | None = None
        self._error: BaseException | None = None
        self._deadline = Deadline(math.inf, is_whole=False)
        self._trace = RequestTrace(
            request.traceparent,
            {
                names.ATTRIBUTE_REQUEST_ID: request.request_id,
                names.ATTRIBUTE_MODEL: request.model,
                names.ATTRIBUTE_LANE: request.lane.value,
            },
        )

    async def prepare(self) -> None:
        """Walk as far as the size of the work is known; the deadline counts from here.

        Raises:
            RequestError: the request is refused, by whichever station, or its deadline passed on the way.
        """
        is_stream = self._request.is_stream
        timeout_s = self._stations.deadlines.timeout_s(self._request.timeout_ms, is_stream=is_stream)
        self._deadline = Deadline(trio.current_time() + timeout_s, is_whole=not is_stream)
        self._prepared = await self.in_time(partial(self._prepare, timeout_s))

    async def proceed(self, account: Account) -> Reply:
        """Walk on until the worker has the prompt in its mailbox, or until an equal request's answer is there.

        Args:
            account: holds what the answer may cost; told when the request is let in.

        Raises:
            RequestError: as for `prepare`.
        """
        assert self._prepared is not None  # noqa: S101  (see the class)
        return await self.in_time(partial(self._proceed, self._prepared, account))

    async def in_time(self, way: Callable[[], Awaitable[T]]) -> T:
        """Go a part of the way, within the deadline.

        Raises:
            RequestError: of that part, or the deadline passed, or the house is closed.
        """
        try:
            return await self._go(way)
        except ActorDeadError:
            self._error = DrainingError("The server is shutting down.", retry_after_s=1.0)
            raise self._error from None
        except BaseException as error:
            self._error = error
            raise

    @property
    def worst_case(self) -> Item:
        """What the answer takes at its longest, once it is prepared; its prompt is counted with the first answer."""
        assert self._prepared is not None  # noqa: S101  (see the class)
        num_prompt_tokens = len(self._prepared.prompt.prompt_ids)
        bound = self._prepared.budget.max_new_tokens
        return Item(0 if self._request.choice else num_prompt_tokens, bound, num_prompt_tokens + bound)

    @property
    def usage(self) -> Usage | None:
        """What was spent so far; of several answers to a prompt the first alone counts the prompt."""
        usage = None if self._reply is None else self._reply.usage
        if usage is None or not self._request.choice:
            return usage
        return replace(usage, prompt_tokens=0, cached_tokens=0)

    def leave(self) -> None:
        """Give back the row, the model, the stream and the slot; waits for nobody."""
        reply = self._reply
        if reply is not None and not reply.is_worker_done:
            self._abort()
            reply.count_unread()
        if self._lead is not None:
            self._lead.end(None)
        if reply is None:
            self._stay.leave(stop=None, usage=None, error=self._error)
        else:
            self._stay.leave(stop=reply.stop, usage=self.usage, error=reply.error)
        self._end_trace()

    async def _go(self, way: Callable[[], Awaitable[T]]) -> T:
        with trio.move_on_at(self._deadline.at):
            return await way()
        raise self._deadline.error()

    async def _prepare(self, timeout_s: float) -> _Prepared:
        request = self._request
        stream = await self._stay.open_stream()
        admitted = await self._stay.be_admitted(
            AdmitRequest(
                request.request_id,
                request.model,
                request.lane,
                identity=request.identity,
                traceparent=self._trace.traceparent,
                part_of=request.part_of,
                client_id=request.client_id,
            )
        )
        self._times = StageTimes(admitted_ns=time.monotonic_ns())
        self._trace.add_attribute(names.ATTRIBUTE_TENANT, admitted.tenant)
        self._instance = await self._stay.lease_model(request.model, stream)
        rendered = await self._render()
        budget = resolve_budget(
            len(rendered.prompt_ids),
            request.max_new_tokens,
            context_tokens=rendered.context_tokens,
            context_floor_tokens=self._stations.context_floor_tokens,
            max_context_tokens=request.max_context_tokens,
            param=request.prompt.param,
            max_prompt_tokens=request.max_prompt_tokens,
            max_answer_tokens=request.max_answer_tokens,
        )
        prompt = self._prompt(rendered, budget, namespace=namespace_of(request.identity, request.cache_salt))
        return _Prepared(stream, admitted, rendered, budget, prompt, timeout_s)

    async def _proceed(self, prepared: _Prepared, account: Account) -> Reply:
        times = self._times
        assert times is not None  # noqa: S101  (set when the slot was taken)
        if self._stations.answers is not None:
            answer = await self._claim(self._stations.answers, prepared)
            if answer is not None:
                account.let_in()
                self._reply = StoredReply(answer, admitted=prepared.admitted, times=times)
                return self._reply
        budget = await self._reserve_work(prepared)
        account.let_in()
        self._submit(replace(prepared.prompt, max_new_tokens=budget.max_new_tokens), times)
        reply = self._reply = WorkerReply(
            prepared.stream,
            prepared.rendered,
            admitted=prepared.admitted,
            budget=budget,
            times=times,
            abort=self._abort,
            deadline=self._deadline,
        )
        return reply if self._lead is None else LeadingReply(reply, self._lead)

    async def _render(self) -> PromptRendered:
        request, shared = self._request, self._shared
        taken = None if shared is None else shared.take(self._instance)
        if taken is not None:
            return taken
        message = RenderPrompt(
            request.request_id,
            request.model,
            request.prompt,
            stop_strings=request.stop_strings,
            stop_token_ids=request.stop_token_ids,
            traceparent=self._trace.traceparent,
            instance=self._instance,
            biased_ids=frozenset(token_id for token_id, _ in request.sampling.logit_bias),
            wants_echo=request.wants_echo,
            grammar=request.grammar,
            ends=request.ends,
            num_answers=1 if shared is None else shared.num_open,
        )
        station = self._stations.binding if message.is_bound else self._stations.templating
        rendered: PromptRendered = await ask(station, message)
        return rendered if shared is None else shared.keep(rendered, self._instance)

    async def _reserve_work(self, prepared: _Prepared) -> TokenBudget:
        """Ask for a place at the worker; the answer may be shorter than the context allows, as memory has it."""
        budget = prepared.budget
        num_prompt_tokens = len(prepared.prompt.prompt_ids)
        if not self._request.is_stream and self._request.max_new_tokens is not None:
            self._stations.deadlines.check_feasible(
                num_prompt_tokens, budget.max_new_tokens, timeout_s=prepared.timeout_s
            )
        message = ReserveWork(
            self._request.request_id,
            num_prompt_tokens=num_prompt_tokens,
            max_new_tokens=budget.max_new_tokens,
            may_shorten=budget.is_context_bound,
            remaining_s=self._deadline.at - trio.current_time(),
            prompt_param=self._request.prompt.param,
        )
        reserved = await self._stay.reserve(message)
        return replace(budget, max_new_tokens=reserved.max_new_tokens)

    def _prompt(self, rendered: PromptRendered, budget: TokenBudget, *, namespace: str) -> SubmitPrompt:
        request = self._request
        return SubmitPrompt(
            request_id=request.request_id,
            model=request.model,
            prompt_ids=rendered.prompt_ids,
            max_new_tokens=budget.max_new_tokens,
            sampling=request.sampling,
            stop_ids=request.stop_token_ids,
            eos_ids=rendered.eos_ids,
            lane=request.lane,
            traceparent=self._trace.traceparent,
            namespace=namespace,
            affinity=request.affinity,
            instance=self._instance,
            constraint=rendered.constraint,
            min_new_tokens=request.ends.min_new_tokens,
            scores_prompt=request.scores_prompt,
        )

    async def _claim(self, answers: SharedAnswers, prepared: _Prepared) -> StoredAnswer | None:
        """Return an equal request's answer; None, maybe with the lead, when this one must be computed."""
        tenant = prepared.admitted.tenant
        key = answers.key_of(self._request, prepared.prompt, budget=prepared.budget, tenant=tenant)
        if key is None:
            return None
        claimed = await answers.claim(key, self._request.lane, prepared.stream)
        status = CacheStatus.MISS if isinstance(claimed, Lead) else CacheStatus.HIT
        self._trace.add_attribute(names.ATTRIBUTE_RESPONSE_CACHE, status.value)
        if isinstance(claimed, StoredAnswer):
            return claimed
        self._lead = claimed
        return None

    def _submit(self, prompt: SubmitPrompt, times: StageTimes) -> None:
        times.submitted_ns = time.monotonic_ns()
        self._stations.worker.submit(prompt)

    def _abort(self) -> None:
        self._stations.worker.abort(self._request.request_id)

    def _end_trace(self) -> None:
        reply = self._reply
        if self._times is not None and self._times.submitted_ns is not None:
            self._record_stages(self._times.submitted_ns, self._times)
        usage = None if reply is None else reply.usage
        if usage is not None:
            self._trace.add_attribute(names.ATTRIBUTE_PROMPT_TOKENS, usage.prompt_tokens)
            self._trace.add_attribute(names.ATTRIBUTE_COMPLETION_TOKENS, usage.completion_tokens)
            self._trace.add_attribute(names.ATTRIBUTE_CACHED_TOKENS, usage.cached_tokens)
        if reply is not None and reply.stop is not None:
            self._trace.add_attribute(names.ATTRIBUTE_STOP, reply.stop.value)
        self._trace.end(self._error if reply is None else reply.error)

    def _record_stages(self, submitted_ns: int, times: StageTimes) -> None:
        """Write down queue, prefill and decode; the last stage that was reached ends now if it did not end itself."""
        now_ns = time.monotonic_ns()
        self._trace.record_stage(names.SPAN_QUEUE, start_ns=submitted_ns, end_ns=times.started_ns or now_ns)
        if times.started_ns is not None:
            end_ns = times.first_token_ns or times.last_token_ns or now_ns
            self._trace.record_stage(names.SPAN_PREFILL, start_ns=times.started_ns, end_ns=end_ns)
        if times.first_token_ns is not None:
            self._trace.record_stage(
                names.SPAN_DECODE, start_ns=times.first_token_ns, end_ns=times.last_token_ns or now_ns
            )
