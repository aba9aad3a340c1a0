"""Several answers under one request: it is taken apart into one walk an answer, and their replies are made one again.

All walks share the first one's slot, and those with the same prompt what was rendered of it. They are submitted one
after the other, when all are rendered; the engine lets a sequence wait for another that computes the same tokens, so
equal prompts are computed once. What ends one walk before its time, a failure or the client's leaving, ends them all;
only a deadline leaves what the others have, if they have anything. Knows nothing of prompts and texts. Called by the
bridge, in the request's task.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Self

import trio

from memra.actors.contract import Reply
from memra.actors.house_stay import Stations
from memra.actors.request_walk import RequestWalk
from memra.actors.shared_rendering import SharedRendering
from memra.errors import DeadlineExceededError, OverloadedError
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import GenerationRequest, ReplyDelta, ReplyFinished, ReplyPart, ReplyStarted, Usage
from memra.types import RequestId, StopCause

_SEED_RANGE = 2**64
_NOTHING_SPENT = Usage(0, 0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class _Message:
    """What one of the replies says: a part, or the error with which it ends."""

    index: int
    content: ReplyPart | Exception


def has_several_answers(request: GenerationRequest) -> bool:
    """Whether the request has to be taken apart."""
    return request.num_choices > 1 or bool(request.further_prompts)


def take_apart(request: GenerationRequest) -> list[GenerationRequest]:
    """Return one request an answer, prompt by prompt as OpenAI numbers them: `num_choices` to the first come first.

    The first keeps the id. Answer `i` to a prompt draws with the seed plus `i`, modulo 2**64.
    """
    prompts = (request.prompt, *request.further_prompts)
    pairs = [(prompt, choice) for prompt in prompts for choice in range(request.num_choices)]
    return [
        replace(
            request,
            request_id=RequestId(f"{request.request_id}-{index}") if index else request.request_id,
            part_of=request.request_id if index else None,
            prompt=prompt,
            sampling=replace(request.sampling, seed=(request.sampling.seed + choice) % _SEED_RANGE),
            choice=choice,
            num_choices=1,
            further_prompts=(),
            may_reuse_answer=False,
        )
        for index, (prompt, choice) in enumerate(pairs)
    ]


def walks_of(parts: Sequence[GenerationRequest], stations: Stations, *, num_choices: int) -> list[RequestWalk]:
    """Return a walk for each part; those with one prompt share what is rendered of it."""
    walks: list[RequestWalk] = []
    shared: SharedRendering | None = None
    for part in parts:
        if shared is None or not part.choice:
            shared = SharedRendering(num_choices)
        walks.append(RequestWalk(part, stations, shared=shared))
    return walks


@asynccontextmanager
async def joined(replies: Sequence[Reply], parts: Sequence[GenerationRequest]) -> AsyncIterator[Reply]:
    """Read all replies as one; whatever ends the context, nothing reads them any more.

    Args:
        replies: of all parts.
        parts: of the request, as it was taken apart.
    """
    send, receive = trio.open_memory_channel[_Message](0)  # a slow reader lets deltas join where they wait
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        for index, reply in enumerate(replies):
            nursery.start_soon(_forward, index, reply, send)
        try:
            yield _JoinedReply(replies[0].admitted, receive, parts)
        except Exception as error:  # noqa: BLE001  (whatever it is, it leaves the nursery without a group around it)
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _forward(index: int, reply: Reply, send: trio.MemorySendChannel[_Message]) -> None:
    """Pass one reply's parts on; an error is passed on as well, since the reader must have it as it is."""
    try:
        async for part in reply:
            await send.send(_Message(index, part))
    except Exception as error:  # noqa: BLE001  (raised again by the reader)
        await send.send(_Message(index, error))
    else:
        await send.send(_Message(index, OverloadedError("The answer ended before it was complete; send it again.")))


class _JoinedReply:
    """The parts of all choices, each with its number, and one last part with the usage of all."""

    def __init__(
        self,
        admitted: RequestAdmitted,
        receive: trio.MemoryReceiveChannel[_Message],
        requests: Sequence[GenerationRequest],
    ) -> None:
        self._admitted = admitted
        self._receive = receive
        self._requests = requests
        self._usages: dict[int, Usage] = {}
        self._late: DeadlineExceededError | None = None

    @property
    def admitted(self) -> RequestAdmitted:
        """The slot that all of them share."""
        return self._admitted

    def __aiter__(self) -> Self:
        """Iterate over the parts."""
        return self

    async def __anext__(self) -> ReplyPart:
        """Return the next part of any choice.

        Raises:
            RequestError: one of them cannot go on, and so none does; or none had begun at the deadline.
            StopAsyncIteration: all are complete.
        """
        while len(self._usages) < len(self._requests):
            message = await self._receive.receive()
            match message.content:
                case DeadlineExceededError():
                    self._late = message.content
                    return self._finish(message.index, ReplyFinished(StopCause.DEADLINE, _NOTHING_SPENT))
                case Exception():
                    if message.index not in self._usages:  # behind the last part only the end can come
                        raise message.content
                case ReplyFinished():
                    return self._finish(message.index, message.content)
                case ReplyDelta():
                    return replace(message.content, choice=message.index)
                case ReplyStarted():
                    return message.content
        raise StopAsyncIteration

    def _finish(self, index: int, finished: ReplyFinished) -> ReplyPart:
        self._usages[index] = finished.usage
        if len(self._usages) < len(self._requests):
            return ReplyDelta("", choice=index, stop=finished.stop)
        if self._late is not None and not any(usage.completion_tokens for usage in self._usages.values()):
            raise self._late
        return replace(finished, usage=self._sum(), choice=index)

    def _sum(self) -> Usage:
        usages = self._usages.values()
        firsts = [self._usages[index] for index, request in enumerate(self._requests) if not request.choice]
        return Usage(
            prompt_tokens=sum(usage.prompt_tokens for usage in firsts),
            completion_tokens=sum(usage.completion_tokens for usage in usages),
            cached_tokens=sum(usage.cached_tokens for usage in firsts),
            elapsed_s=max(usage.elapsed_s for usage in usages),
            reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
        )
