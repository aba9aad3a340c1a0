"""A house behind the front door whose model costs nothing: its worker says the same words to everybody, on the clock.

What lies between the worker's steps and the socket is the server's own: the table of replies, the reader of each
answer, the parts that the front door is told. Prompts are rendered in the loop's thread, so that their cost is counted
with the rest. Refuses to know admission, models and sockets.
"""

import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import trio

from memra.actors.contract import Reply
from memra.actors.replies import ReplyTable
from memra.actors.reply import StageTimes, WorkerReply
from memra.chat.chat_format import ChatFormat
from memra.gate.context_budget import TokenBudget
from memra.messages.admission import RequestAdmitted
from memra.messages.generation import GenerationRequest
from memra.messages.identity import ANYBODY, Credentials, Identity
from memra.messages.prompt import RenderPrompt
from memra.messages.refusals import RefusedRequest
from memra.messages.work import PromptStarted, StepFinished, TokensGenerated, WorkEvent
from memra.types import ModelName, RequestId, StopCause, TokenId

_SLOTS = 64


@dataclass(slots=True)
class _Row:
    max_tokens: int
    num_generated: int = 0


class ScriptedWorker:
    """A thread that takes a step every so often; use as a context manager. A step has a token for every open answer."""

    def __init__(self, deliver: Callable[[StepFinished], object], script: Sequence[TokenId], *, step_s: float) -> None:
        """Stay idle until the first answer is begun.

        Args:
            deliver: is called in the trio thread, once a step.
            script: the tokens that every answer is made of, over and over.
            step_s: pause between two steps.
        """
        self._deliver = deliver
        self._script = script
        self._step_s = step_s
        self._token = trio.lowlevel.current_trio_token()
        self._begun: list[tuple[RequestId, _Row]] = []
        self._rows: dict[RequestId, _Row] = {}
        self._has_work = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="scripted worker", daemon=True)

    def begin(self, request_id: RequestId, max_tokens: int) -> None:
        """Begin an answer at the next step."""
        self._begun.append((request_id, _Row(max_tokens)))
        self._has_work.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_over = True
        self._has_work.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over:
            events = self._step()
            if events:
                self._token.run_sync_soon(self._deliver, StepFinished(tuple(events), self._step_s))
                time.sleep(self._step_s)
            else:
                self._has_work.wait()
                self._has_work.clear()

    def _step(self) -> list[WorkEvent]:
        begun, self._begun = self._begun, []
        self._rows.update(begun)
        events: list[WorkEvent] = [PromptStarted(request_id, 0) for request_id, _ in begun]
        for request_id, row in list(self._rows.items()):
            token_id = self._script[row.num_generated % len(self._script)]
            row.num_generated += 1
            is_last = row.num_generated >= row.max_tokens
            if is_last:
                del self._rows[request_id]
            stop = StopCause.MAX_TOKENS if is_last else None
            events.append(TokensGenerated(request_id, (token_id,), row.num_generated, stop))
        return events


class ScriptedHouse:
    """As much of `memra.actors.contract.House` as chats need."""

    def __init__(self, chat_format: ChatFormat, table: ReplyTable, worker: ScriptedWorker) -> None:
        """Serve one model, whatever it is called, by this worker, which delivers to this table."""
        self._format = chat_format
        self._table = table
        self._worker = worker

    @property
    def models(self) -> tuple[ModelName, ...]:
        """No names: every one is taken for the model."""
        return ()

    async def identify(self, _credentials: Credentials) -> Identity:
        """Let everybody in."""
        return ANYBODY

    async def captures(self, _identity: Identity) -> bool:
        """Want no bodies."""
        return False

    async def note_refusal(self, _refused: RefusedRequest, _error: Exception) -> None:
        """Keep no accounts."""

    @asynccontextmanager
    async def open_reply(self, request: GenerationRequest) -> AsyncIterator[Reply]:
        """Render a prompt and have it answered."""
        request_id, max_tokens = request.request_id, request.max_new_tokens or 1
        stream = self._table.open(request_id)
        try:
            rendered = self._format.render(RenderPrompt(request_id, request.model, request.prompt))
            now_ns = time.monotonic_ns()
            reply = WorkerReply(
                stream,
                rendered,
                admitted=RequestAdmitted(request_id, "default", request.lane, _SLOTS, _SLOTS),
                budget=TokenBudget(max_tokens, is_context_bound=False),
                times=StageTimes(admitted_ns=now_ns, submitted_ns=now_ns),
                abort=lambda: None,
            )
            self._worker.begin(request_id, max_tokens)
            yield reply
        finally:
            self._table.close(request_id)
