"""A whole house on fakes: real actors and mailboxes, an engine and renderers that do as a test tells them."""

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pykka
import pytest
import trio

from memra.actors.admission import Admission
from memra.actors.base import ActorSystem, Ref, stop_actor
from memra.actors.bridge import ActorHouse
from memra.actors.gpu_worker import GpuWorker
from memra.actors.ingress import Ingress
from memra.actors.lifecycle import Lifecycle, LifecycleParts
from memra.actors.pulse import WorkerPulse
from memra.actors.replies import ReplyTable
from memra.actors.request_walk import Stations
from memra.actors.run_state import RunState
from memra.actors.templating import Templating
from memra.actors.watchdog import Watchdog
from memra.actors.worker_link import WorkerLink
from memra.gate.keys import KeyCheck
from memra.gate.slots import SlotTable, lane_limits
from memra.messages.admission import RequestEnded
from memra.messages.generation import GenerationRequest, ReplyDelta, ReplyFinished, ReplyStarted, TextPrompt
from memra.messages.prompt import PromptRendered, RenderPrompt
from memra.messages.sampling import SamplingParams
from memra.messages.work import PromptStarted, RequestFailed, StepFinished, SubmitPrompt, TokensGenerated, WorkReported
from memra.settings import LifecycleSettings
from memra.types import ModelName, RequestId, StopCause

MODEL = ModelName("fake")
EOS = 0
CONTEXT = 1000


@dataclass
class FakeRow:
    prompt: SubmitPrompt
    prefill_steps: int
    num_generated: int = 0
    is_started: bool = False


class FakeEngine:
    """Answers every prompt with `answer`, one character a step; a token is a character's number.

    With `is_manual`, a step waits for `allow()`: a worker in such a step is as good as hung.
    """

    def __init__(self, *, answer: str = "abcdefghij" * 100, prefill_steps: int = 1, is_manual: bool = False) -> None:
        self.answer = answer
        self.prefill_steps = prefill_steps
        self.is_manual = is_manual
        self.rows: dict[RequestId, FakeRow] = {}
        self.submitted: list[SubmitPrompt] = []
        self.aborted: list[RequestId] = []
        self.num_steps = 0
        self.num_entered = 0
        self.num_checks = 0
        self.num_reports = 0
        self.num_completed = 0
        self.is_closed = False
        self.step_error: BaseException | None = None
        self.submit_error: Exception | None = None
        self.integrity_error: Exception | None = None
        self.failures: list[RequestFailed] = []
        self.entered_step = threading.Event()
        self.thread = threading.get_ident()
        self._permits = threading.Semaphore(0)

    def allow(self, num_steps: int = 1) -> None:
        self._permits.release(num_steps)

    def release(self) -> None:
        self.is_manual = False
        self._permits.release(1000)

    @property
    def has_work(self) -> bool:
        return bool(self.rows)

    def submit(self, prompt: SubmitPrompt) -> None:
        if self.submit_error is not None:
            raise self.submit_error
        self.submitted.append(prompt)
        self.rows[prompt.request_id] = FakeRow(prompt, self.prefill_steps)

    def abort(self, request_id: RequestId) -> None:
        self.aborted.append(request_id)
        self.rows.pop(request_id, None)

    def step(self) -> StepFinished:
        assert threading.get_ident() == self.thread, "the engine was called from a second thread"
        assert not self.is_closed, "a closed engine was asked for a step"
        self.num_entered += 1
        self.entered_step.set()
        if self.is_manual:
            self._permits.acquire()
        if self.step_error is not None:
            raise self.step_error
        self.num_steps += 1
        events: list[Any] = [failed for failed in self.failures if self.rows.pop(failed.request_id, None)]
        for row in list(self.rows.values()):
            events += self._advance(row)
        return StepFinished(tuple(events), step_s=0.001)

    def report(self) -> WorkReported:
        self.num_reports += 1
        return WorkReported(
            num_admitted=len(self.submitted),
            num_completed=self.num_completed,
            num_prompt_tokens=40,
            num_cached_tokens=10,
            num_active=len(self.rows),
        )

    def check_integrity(self) -> None:
        self.num_checks += 1
        if self.integrity_error is not None:
            raise self.integrity_error

    def close(self) -> None:
        assert threading.get_ident() == self.thread, "the engine was closed by another thread"
        self.is_closed = True

    def _advance(self, row: FakeRow) -> list[Any]:
        events: list[Any] = []
        request_id = row.prompt.request_id
        if not row.is_started:
            row.is_started = True
            events.append(PromptStarted(request_id, num_cached_tokens=2))
        row.prefill_steps -= 1
        if row.prefill_steps > 0:
            return events
        row.num_generated += 1
        is_last = row.num_generated >= row.prompt.max_new_tokens
        if row.num_generated > len(self.answer):
            tokens, stop = (), StopCause.END_OF_SEQUENCE
        else:
            tokens = (ord(self.answer[row.num_generated - 1]),)
            stop = StopCause.MAX_TOKENS if is_last else None
        if stop is not None:
            del self.rows[request_id]
            self.num_completed += 1
        return [*events, TokensGenerated(request_id, tokens, row.num_generated, stop)]


class FakeReader:
    """A token is a character; holds back as much as could begin a stop string."""

    def __init__(self, stop_strings: tuple[str, ...]) -> None:
        self._stops = stop_strings
        self._held = ""
        self.is_stopped = False

    def read(self, token_ids: tuple[int, ...]) -> str:
        self._held += "".join(map(chr, token_ids))
        for stop in self._stops:
            place = self._held.find(stop)
            if place >= 0:
                self.is_stopped = True
                return self._held[:place]
        keep = max((len(stop) - 1 for stop in self._stops), default=0)
        cut = max(0, len(self._held) - keep)
        text, self._held = self._held[:cut], self._held[cut:]
        return text

    def finish(self) -> str:
        return self._held


class FakeRenderer:
    """A prompt's characters are its tokens."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.gate: threading.Event | None = None
        self.entered = threading.Event()

    def render(self, message: RenderPrompt) -> PromptRendered:
        self.entered.set()
        if self.gate is not None:
            self.gate.wait()
        if self.error is not None:
            raise self.error
        assert isinstance(message.prompt, TextPrompt)
        return PromptRendered(
            prompt_ids=tuple(map(ord, message.prompt.text)),
            eos_ids=frozenset({EOS}),
            context_tokens=CONTEXT,
            reader=FakeReader(message.stop_strings),
        )


@dataclass
class RunningHouse:
    house: ActorHouse
    system: ActorSystem
    state: RunState
    replies: ReplyTable
    slots: SlotTable
    worker: WorkerLink
    pulse: WorkerPulse
    lifecycle: Ref
    admission: Ref
    ingress: Ref
    templating: Ref
    renderer: FakeRenderer
    engines: list[FakeEngine]
    ended: list[RequestEnded]

    @property
    def engine(self) -> FakeEngine:
        return self.engines[-1]

    async def serves(self, generation: int) -> None:
        """Wait until this generation of the worker takes prompts."""
        await eventually(lambda: self.pulse.generation == generation and self.worker._is_open)

    async def is_empty(self) -> None:
        """Wait until nothing of any request is left; fails when something stays."""
        await eventually(lambda: not (self.replies.num_open or self.slots.num_held or self.engine.rows))
        self.slots.check_integrity()


@dataclass
class Answer:
    started: list[ReplyStarted] = field(default_factory=list)
    deltas: list[ReplyDelta] = field(default_factory=list)
    finished: list[ReplyFinished] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    @property
    def token_ids(self) -> tuple[int, ...]:
        return tuple(token for delta in self.deltas for token in delta.token_ids)


async def eventually(condition: Callable[[], object], *, within_s: float = 5.0) -> None:
    """Wait for what another thread is about to do; fails when it does not."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        await trio.sleep(0.001)


def request(name: str = "r1", **changes: Any) -> GenerationRequest:
    """Make a request for five tokens."""
    plain: dict[str, Any] = {
        "request_id": RequestId(name),
        "model": MODEL,
        "prompt": TextPrompt("what?"),
        "sampling": SamplingParams(),
        "max_new_tokens": 5,
    }
    return GenerationRequest(**{**plain, **changes})


async def read(house: ActorHouse, wanted: GenerationRequest) -> Answer:
    """Read an answer to its end."""
    answer = Answer()
    async with house.open_reply(wanted) as reply:
        async for part in reply:
            if isinstance(part, ReplyStarted):
                answer.started.append(part)
            elif isinstance(part, ReplyDelta):
                assert not answer.finished
                answer.deltas.append(part)
            else:
                answer.finished.append(part)
    return answer


@asynccontextmanager
async def open_house(  # noqa: PLR0913  (one keyword for each thing that a test changes)
    *,
    make_engine: Callable[[], FakeEngine] = FakeEngine,
    settings: LifecycleSettings | None = None,
    api_key: str | None = None,
    limits: Any = None,
    signals: Any = (),
    observe: Callable[[RequestEnded], None] | None = None,
    end_process: Callable[[int], object] | None = None,
    wait: bool = True,
) -> AsyncIterator[RunningHouse]:
    """Build a house as the composition root does, and take it down again."""
    engines: list[FakeEngine] = []
    ended: list[RequestEnded] = []

    def make() -> FakeEngine:
        engines.append(make_engine())
        engines[-1].thread = threading.get_ident()
        return engines[-1]

    async with trio.open_nursery() as nursery:
        state = RunState()
        system = ActorSystem(nursery, on_death=lambda name, error: state.stop(70, f"{name} died: {error!r}"))
        replies, pulse, worker, renderer = ReplyTable(), WorkerPulse(), WorkerLink(), FakeRenderer()
        slots = SlotTable(limits or lane_limits())
        ingress = Ingress.start(system, replies=replies)
        admission = Admission.start(
            system, models=(MODEL,), keys=KeyCheck(api_key), slots=slots, observe=observe or ended.append
        )
        templating = Templating.start(system, renderers={MODEL: renderer})
        parts = LifecycleParts(
            state=state,
            replies=replies,
            ingress=ingress,
            admission=admission,
            worker=worker,
            pulse=pulse,
            start_worker=lambda supervisor: GpuWorker.start(
                system, make_engine=make, deliver=replies.deliver, supervisor=supervisor, pulse=pulse
            ),
            models=(MODEL,),
            watchdog=Watchdog(end_process=end_process or pytest.fail),
        )
        lifecycle = Lifecycle.start(
            system, parts, settings=settings or LifecycleSettings(), signals=signals, respawn_pause_s=0.01
        )
        stations = Stations(ingress, admission, templating, worker, context_floor_tokens=500)
        house = ActorHouse(stations, models=(MODEL,), lifecycle=lifecycle, pulse=pulse)
        running = RunningHouse(
            house,
            system,
            state,
            replies,
            slots,
            worker,
            pulse,
            lifecycle,
            admission,
            ingress,
            templating,
            renderer,
            engines,
            ended,
        )
        try:
            if wait:
                with trio.fail_after(5):
                    assert await state.wait_until_ready()
            yield running
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
                if renderer.gate is not None:
                    renderer.gate.set()
                for engine in engines:
                    engine.release()
                assert await worker.stop(within_s=5)
                for ref in (lifecycle, templating, admission, ingress):
                    assert await stop_actor(ref, within_s=5)
            nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After every test: no actor, and no thread but those that trio keeps for reuse."""
    threads, actors = set(threading.enumerate()), set(pykka.ActorRegistry.get_all())
    yield
    deadline = time.monotonic() + 5
    for thread in set(threading.enumerate()) - threads:
        if not thread.name.startswith("Trio thread"):
            thread.join(max(0.0, deadline - time.monotonic()))
            assert not thread.is_alive(), f"thread {thread.name} is left"
    assert set(pykka.ActorRegistry.get_all()) <= actors


@pytest.fixture
def kit() -> Any:
    """Everything above, for tests that take the house apart in their own ways."""
    return SimpleNamespace(
        open_house=open_house, request=request, read=read, eventually=eventually, Engine=FakeEngine, Reader=FakeReader
    )
