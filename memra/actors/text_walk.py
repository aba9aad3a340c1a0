"""The ways through the house of requests that generate nothing: vectors and scores, and token ids.

Texts for vectors walk as a generation request does, past ingress, admission, a model's lease, templating and the
worker; ids need a lease and templating alone. One task per request; leaving it waits for nobody and gives back whatever
was taken. `request_walk` is the same for a request that generates. Called by the bridge.
"""

import math
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import trio
from pykka import ActorDeadError

from memra.actors.account import Account
from memra.actors.account_items import Item
from memra.actors.base import ask, tell_if_alive
from memra.actors.house_stay import HouseStay, Stations, lease_model
from memra.actors.replies import ReplyStream
from memra.actors.worker_failures import error_of
from memra.errors import (
    ContextLengthError,
    DeadlineExceededError,
    DrainingError,
    InvalidRequestError,
)
from memra.messages.admission import AdmitRequest, ReserveWork
from memra.messages.generation import TextPrompt, TokenPrompt, Usage
from memra.messages.models import ReturnModel
from memra.messages.texts import (
    DetokenizeIds,
    DetokenizeRequest,
    PoolableText,
    RenderTexts,
    TextPair,
    TextsRendered,
    TextsRequest,
    TextTokenized,
    TextVectors,
    TokenizeRequest,
    TokenizeText,
)
from memra.messages.work import PoolTexts, PromptStarted, RequestFailed, TextsPooled
from memra.telemetry import names
from memra.telemetry.spans import RequestTrace
from memra.types import StopCause, TokenId

MAX_REQUEST_TOKENS = 300_000
"""Tokens of one request's texts together, as in OpenAI's API: more would keep all others out for minutes."""
_RENDER_CHARS = 1 << 15
"""Characters, or ids, that templating gets at once: some ten milliseconds, in which a chat's prompt waits."""


class TextWalk:
    """One request for vectors or scores; `walk` once, then `leave` once, whatever came of it."""

    def __init__(self, request: TextsRequest, stations: Stations, account: Account) -> None:
        """Begin the request's trace.

        Args:
            request: who walks.
            stations: where to.
            account: holds what the texts cost, each by itself; ended by whoever opened it.
        """
        self._request = request
        self._account = account
        self._stations = stations
        self._stay = HouseStay(request.request_id, stations)
        self._is_with_worker = False
        self._stop: StopCause | None = None
        self._usage: Usage | None = None
        self._error: BaseException | None = None
        self._trace = RequestTrace(
            request.traceparent,
            {
                names.ATTRIBUTE_REQUEST_ID: request.request_id,
                names.ATTRIBUTE_MODEL: request.model,
                names.ATTRIBUTE_LANE: request.lane.value,
            },
        )

    async def walk(self) -> TextVectors:
        """Walk in, wait for the worker, and return what it made.

        Raises:
            RequestError: the request is refused or failed, by whichever station, or its deadline passed.
        """
        timeout_s = self._stations.deadlines.timeout_s(self._request.timeout_ms, is_stream=False)
        try:
            return await self._walk_in_time(trio.current_time() + timeout_s)
        except ActorDeadError:
            self._error = DrainingError("The server is shutting down.", retry_after_s=1.0)
            raise self._error from None
        except BaseException as error:
            self._error = error
            raise

    def leave(self) -> None:
        """Give back the texts' pages, the model, the stream and the slot; waits for nobody."""
        if self._is_with_worker:
            self._stations.worker.abort(self._request.request_id)
        self._stay.leave(stop=self._stop, usage=self._usage, error=self._error)
        self._trace.end(self._error)

    async def _walk_in_time(self, deadline: float) -> TextVectors:
        with trio.move_on_at(deadline):
            return await self._walk(deadline)
        raise DeadlineExceededError("The deadline passed; raise `timeout_ms`, send fewer texts or try again later.")

    async def _walk(self, deadline: float) -> TextVectors:
        request = self._request
        stream = await self._stay.open_stream()
        admitted = await self._stay.be_admitted(
            AdmitRequest(
                request.request_id,
                request.model,
                request.lane,
                identity=request.identity,
                traceparent=self._trace.traceparent,
            )
        )
        started = time.monotonic()
        instance = await self._stay.lease_model(request.model, stream)
        sequences = await self._render(instance)
        num_tokens = sum(map(len, sequences))
        self._trace.add_attribute(names.ATTRIBUTE_PROMPT_TOKENS, num_tokens)
        items = [Item(len(ids), 0, len(ids), index) for index, ids in enumerate(sequences)]
        await self._account.hold(items)
        await self._reserve(num_tokens, deadline)
        self._account.let_in()
        pooled = await self._be_computed(stream, sequences, instance=instance)
        self._stop = StopCause.END_OF_SEQUENCE
        self._usage = Usage(num_tokens, 0, 0, elapsed_s=time.monotonic() - started)
        await self._account.complete_prompts(elapsed_s=self._usage.elapsed_s)
        return TextVectors(pooled.vectors, pooled.width, num_tokens, admitted)

    async def _render(self, instance: int) -> tuple[tuple[TokenId, ...], ...]:
        """Have the texts rendered a few at a time, so that the prompts of others get their turn in between."""
        sequences: list[tuple[TokenId, ...]] = []
        num_tokens = 0
        for first, texts in _portions(self._request.texts):
            rendered = await self._render_some(texts, first, instance=instance)
            sequences += rendered.sequences
            num_tokens += sum(map(len, rendered.sequences))
            if num_tokens > MAX_REQUEST_TOKENS:
                raise InvalidRequestError(
                    f"The texts have more than {MAX_REQUEST_TOKENS} tokens together; send several requests.",
                    param=self._request.param,
                )
        return tuple(sequences)

    async def _render_some(self, texts: tuple[PoolableText, ...], first: int, *, instance: int) -> TextsRendered:
        request = self._request
        message = RenderTexts(
            request.request_id,
            request.model,
            request.task,
            texts,
            request.param,
            first=first,
            traceparent=self._trace.traceparent,
            instance=instance,
        )
        rendered: TextsRendered = await ask(self._stations.templating, message)
        longest, allowed = max(map(len, rendered.sequences)), request.max_text_tokens
        if allowed is not None and longest > allowed:
            raise ContextLengthError(
                f"A text has {longest} tokens, but this model takes {allowed}; shorten it.", param=request.param
            )
        return rendered

    async def _reserve(self, num_tokens: int, deadline: float) -> None:
        remaining_s = deadline - trio.current_time()
        message = ReserveWork(
            self._request.request_id,
            num_prompt_tokens=num_tokens,
            max_new_tokens=0,
            remaining_s=None if math.isinf(remaining_s) else remaining_s,
            prompt_param=self._request.param,
        )
        await self._stay.reserve(message)

    async def _be_computed(
        self, stream: ReplyStream, sequences: tuple[tuple[TokenId, ...], ...], *, instance: int
    ) -> TextsPooled:
        request = self._request
        texts = PoolTexts(
            request.request_id,
            request.model,
            sequences,
            lane=request.lane,
            traceparent=self._trace.traceparent,
            instance=instance,
        )
        self._stations.worker.submit(texts)
        self._is_with_worker = True
        while True:
            for arrival in await stream.take():
                if isinstance(arrival.event, PromptStarted):
                    self._account.record_prompts()
                if isinstance(arrival.event, TextsPooled):
                    self._is_with_worker = False
                    return arrival.event
                if isinstance(arrival.event, RequestFailed):
                    self._is_with_worker = False
                    raise error_of(arrival.event)


async def tokenize(request: TokenizeRequest, stations: Stations) -> TextTokenized:
    """Turn a prompt into token ids, with a model that is loaded for that if need be.

    Raises:
        RequestError: the model is unknown or cannot be loaded, or the prompt cannot be rendered.
    """
    async with _leased(request, stations) as instance:
        tokenized: TextTokenized = await ask(stations.templating, TokenizeText(request, instance))
    return tokenized


async def detokenize(request: DetokenizeRequest, stations: Stations) -> str:
    """Turn token ids into text; as `tokenize`.

    Raises:
        RequestError: the model is unknown or cannot be loaded, or an id is outside of its vocabulary.
    """
    async with _leased(request, stations) as instance:
        text: str = await ask(stations.templating, DetokenizeIds(request, instance))
    return text


@asynccontextmanager
async def _leased(request: TokenizeRequest | DetokenizeRequest, stations: Stations) -> AsyncIterator[int]:
    """Have the model of a request that needs no slot loaded; its instance."""
    try:
        yield await lease_model(stations, request.request_id, request.model)
    except ActorDeadError:
        raise DrainingError("The server is shutting down.", retry_after_s=1.0) from None
    finally:
        tell_if_alive(stations.keeper, ReturnModel(request.request_id))


def _portions(texts: tuple[PoolableText, ...]) -> Iterator[tuple[int, tuple[PoolableText, ...]]]:
    """Yield the texts, a few at a time, behind the place of the first of them."""
    first = num_chars = 0
    for index, text in enumerate(texts):
        if index > first and num_chars + _size_of(text) > _RENDER_CHARS:
            yield first, texts[first:index]
            first, num_chars = index, 0
        num_chars += _size_of(text)
    yield first, texts[first:]


def _size_of(text: PoolableText) -> int:
    match text:
        case TextPrompt():
            return len(text.text)
        case TokenPrompt():
            return len(text.token_ids)
        case TextPair():
            return len(text.query) + len(text.document)
