"""A whole house on fakes: real actors and mailboxes, an engine and renderers that do as a test tells them."""

import contextlib
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pykka
import pytest
import trio

from memra.actors.accounting import Accounting
from memra.actors.admission import Admission, AdmissionRules
from memra.actors.base import ActorSystem, Ref, stop_actor, tell_if_alive
from memra.actors.bridge import ActorHouse
from memra.actors.catalogue import Catalogue, CatalogueEntry
from memra.actors.doorkeeper import Doorkeeper
from memra.actors.gpu_faults import GpuRecord
from memra.actors.gpu_worker import GpuWorker
from memra.actors.house_stay import Stations
from memra.actors.ingress import Ingress
from memra.actors.lifecycle import Lifecycle, LifecycleParts
from memra.actors.model_keeper import ModelKeeper
from memra.actors.model_listing import ModelListing
from memra.actors.model_loading import LoadingParts
from memra.actors.model_shelf import ModelShelf
from memra.actors.pulse import WorkerPulse
from memra.actors.replies import ReplyTable
from memra.actors.run_state import RunState
from memra.actors.shared_answers import SharedAnswers
from memra.actors.templating import Templating
from memra.actors.watchdog import Watchdog
from memra.actors.worker_link import WorkerLink
from memra.errors import UnknownModelError
from memra.gate.deadlines import DeadlineRules
from memra.gate.keys import KeyLaw
from memra.gate.residency import Residency
from memra.gate.slots import SlotTable, lane_limits
from memra.messages.admission import RequestEnded
from memra.messages.generation import GenerationRequest, ReplyDelta, ReplyFinished, ReplyStarted, TextPrompt
from memra.messages.load import WorkerLoad
from memra.messages.models import UNKNOWN_TRAITS, ModelInstance, ModelsRestored, ModelTerms, ModelTraits
from memra.messages.prompt import AnswerPiece, PromptRendered, RenderPrompt
from memra.messages.sampling import SamplingParams
from memra.messages.texts import DetokenizeIds, RenderTexts, TextsRendered, TextTokenized, TokenizeText
from memra.messages.work import (
    PoolTexts,
    PromptStarted,
    RequestFailed,
    StepFinished,
    SubmitPrompt,
    TextsPooled,
    TokensGenerated,
    WorkReported,
)
from memra.metadata.source import MetadataSource
from memra.settings import LifecycleSettings
from memra.types import ModelName, ModelTask, RequestId, StopCause

MODEL = ModelName("fake")
EOS = 0
CONTEXT = 1000


class Bell:
    """Wakes the tests that wait for a condition: after every step of another task, and when a thread rings."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def ring(self) -> None:
        """Something changed; called by the fakes from any thread."""
        for listener in list(self._listeners):
            with contextlib.suppress(trio.RunFinishedError):
                listener.token.run_sync_soon(listener.hear)

    @contextmanager
    def listen(self) -> Iterator["Listener"]:
        listener = Listener()
        self._listeners.append(listener)
        trio.lowlevel.add_instrument(listener)
        try:
            yield listener
        finally:
            trio.lowlevel.remove_instrument(listener)
            self._listeners.remove(listener)


class Listener(trio.abc.Instrument):
    def __init__(self) -> None:
        self.token = trio.lowlevel.current_trio_token()
        self._task = trio.lowlevel.current_task()
        self._heard = trio.Event()

    def hear(self) -> None:
        self._heard.set()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        if task is not self._task:
            self._heard.set()

    async def wait(self) -> None:
        await self._heard.wait()
        self._heard = trio.Event()


BELL = Bell()


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
        self.models: dict[ModelInstance, Any] = {}
        self.install_error: Exception | None = None
        self.rows: dict[RequestId, FakeRow] = {}
        self.submitted: list[SubmitPrompt] = []
        self.texts: dict[RequestId, PoolTexts] = {}
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
        self.held: set[str] = set()
        self.entered_step = threading.Event()
        self.close_gate: threading.Event | None = None
        self.thread = threading.get_ident()
        self._permits = threading.Semaphore(0)

    def allow(self, num_steps: int = 1) -> None:
        self._permits.release(num_steps)

    def release(self) -> None:
        self.is_manual = False
        self._permits.release(1000)

    @property
    def has_work(self) -> bool:
        return bool(self.rows or self.texts)

    def add_model(self, model: Any) -> None:
        assert threading.get_ident() == self.thread, "a model was added by a second thread"
        if self.install_error is not None:
            raise self.install_error
        self.models[ModelInstance(model.name, model.instance)] = model
        BELL.ring()

    def remove_model(self, name: ModelName, instance: int) -> Any:
        assert threading.get_ident() == self.thread, "a model was removed by a second thread"
        key = ModelInstance(name, instance)
        if key not in self.models:
            raise UnknownModelError(f"no {key}")
        assert not any((row.prompt.model, row.prompt.instance) == (name, instance) for row in self.rows.values())
        return self.models.pop(key)

    def submit(self, prompt: SubmitPrompt) -> None:
        if self.submit_error is not None:
            raise self.submit_error
        if isinstance(prompt, PoolTexts):
            self.texts[prompt.request_id] = prompt
            BELL.ring()
            return
        self.submitted.append(prompt)
        self.rows[prompt.request_id] = FakeRow(prompt, self.prefill_steps)
        BELL.ring()

    def abort(self, request_id: RequestId) -> None:
        self.aborted.append(request_id)
        self.rows.pop(request_id, None)
        self.texts.pop(request_id, None)
        BELL.ring()

    def step(self) -> StepFinished:
        assert threading.get_ident() == self.thread, "the engine was called from a second thread"
        assert not self.is_closed, "a closed engine was asked for a step"
        self.num_entered += 1
        self.entered_step.set()
        BELL.ring()
        if self.is_manual:
            self._permits.acquire()
        if self.step_error is not None:
            raise self.step_error
        self.num_steps += 1
        events: list[Any] = [
            failed
            for failed in self.failures
            if self.rows.pop(failed.request_id, None) or self.texts.pop(failed.request_id, None)
        ]
        for request_id, texts in list(self.texts.items()):
            del self.texts[request_id]
            vectors = b"".join(struct.pack("<2f", len(ids), sum(ids)) for ids in texts.sequences)
            events += [PromptStarted(request_id, 0), TextsPooled(request_id, vectors, width=2)]
        for request_id, row in list(self.rows.items()):
            if request_id not in self.held:
                events += self._advance(row)
        BELL.ring()
        return StepFinished(tuple(events), step_s=0.001)

    def report(self) -> WorkReported:
        self.num_reports += 1
        BELL.ring()
        return WorkReported(
            num_admitted=len(self.submitted),
            num_completed=self.num_completed,
            num_prompt_tokens=40,
            num_cached_tokens=10,
            num_active=len(self.rows),
        )

    def load(self) -> WorkerLoad:
        return WorkerLoad(num_interactive=len(self.rows))

    def check_integrity(self) -> None:
        self.num_checks += 1
        BELL.ring()
        if self.integrity_error is not None:
            raise self.integrity_error

    def close(self) -> None:
        assert threading.get_ident() == self.thread, "the engine was closed by another thread"
        if self.close_gate is not None:
            self.close_gate.wait()
        for model in self.models.values():
            model.executor.close()
        self.is_closed = True
        BELL.ring()

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
        self._num_read = 0
        self.is_stopped = False
        self.has_calls = False
        self.is_thinking = False
        self.stop_string: str | None = None

    def read(self, token_ids: tuple[int, ...]) -> AnswerPiece:
        self._held += "".join(map(chr, token_ids))
        self._num_read += len(token_ids)
        for stop in self._stops:
            place = self._held.find(stop)
            if place >= 0:
                self.is_stopped = True
                self.stop_string = stop
                text, self._held = self._held[:place], self._held[place:]
                return AnswerPiece(text)
        keep = max((len(stop) - 1 for stop in self._stops), default=0)
        cut = max(0, len(self._held) - keep)
        text, self._held = self._held[:cut], self._held[cut:]
        return AnswerPiece(text)

    def finish(self) -> AnswerPiece:
        return AnswerPiece(self._held)

    @property
    def num_read_bytes(self) -> int:
        return self._num_read

    @property
    def num_held_bytes(self) -> int:
        return len(self._held)

    def token_bytes(self, token_id: int) -> bytes:
        return chr(token_id).encode()


class FakeRenderer:
    """A prompt's characters are its tokens."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.num_prompt_tokens: int | None = None
        self.constraint: Any = None
        self.gate: threading.Event | None = None
        self.entered = threading.Event()
        self.messages: list[RenderPrompt] = []
        self.rendered_texts: list[RenderTexts] = []
        self.tokenized: list[TokenizeText] = []

    def render(self, message: RenderPrompt) -> PromptRendered:
        self.messages.append(message)
        gate = self.gate  # before a test hears of it, and takes it away
        self.entered.set()
        BELL.ring()
        if gate is not None:
            gate.wait()
        if self.error is not None:
            raise self.error
        text = message.prompt.text if isinstance(message.prompt, TextPrompt) else ""
        return PromptRendered(
            prompt_ids=tuple(map(ord, text)) if self.num_prompt_tokens is None else (1,) * self.num_prompt_tokens,
            eos_ids=frozenset({EOS}),
            context_tokens=CONTEXT,
            reader=FakeReader(message.stop_strings),
            further_readers=tuple(FakeReader(message.stop_strings) for _ in range(message.num_answers - 1)),
            echo=text if message.wants_echo else "",
            constraint=self.constraint,
        )

    def render_texts(self, message: RenderTexts) -> TextsRendered:
        self.rendered_texts.append(message)
        gate = self.gate  # before a test hears of it, and takes it away
        self.entered.set()
        BELL.ring()
        if gate is not None:
            gate.wait()
        if self.error is not None:
            raise self.error
        return TextsRendered(tuple(tuple(map(ord, text.text)) for text in message.texts))

    def tokenize(self, message: TokenizeText) -> TextTokenized:
        if self.error is not None:
            raise self.error
        self.tokenized.append(message)
        prompt = message.wanted.prompt
        return TextTokenized(tuple(map(ord, prompt.text if isinstance(prompt, TextPrompt) else "")), CONTEXT)

    def detokenize(self, message: DetokenizeIds) -> str:
        return "".join(map(chr, message.wanted.token_ids))


class FakeExecutor:
    """Counts what lies in memory."""

    backend = "fake"

    def __init__(self, opener: "FakeOpener", key: str, num_bytes: int) -> None:
        self._opener = opener
        self._key = key
        self.num_bytes = num_bytes
        opener.num_bytes_held += num_bytes
        opener.max_bytes_held = max(opener.max_bytes_held, opener.num_bytes_held)

    def close(self) -> None:
        self._opener.num_bytes_held -= self.num_bytes
        self._opener.closed.append(self._key)
        BELL.ring()


@dataclass
class FakeModel:
    name: ModelName
    executor: FakeExecutor
    instance: int = 0


@dataclass
class FakeOpened:
    opener: "FakeOpener"
    name: ModelName
    source: str
    terms: ModelTerms
    num_bytes: int
    renderer: FakeRenderer
    context_tokens: int = CONTEXT
    task: ModelTask = ModelTask.GENERATE
    embedding_width: int | None = None
    traits: ModelTraits = UNKNOWN_TRAITS
    is_closed: bool = False

    @property
    def identity(self) -> str:
        return f"{self.name}:{self.source}"

    def build(self) -> FakeModel:
        assert not self.is_closed
        self.opener.built.append(self.name)
        BELL.ring()
        gate = self.opener.gates.get(self.name)
        if gate is not None:
            assert gate.wait(10)
        if self.name in self.opener.build_errors:
            raise self.opener.build_errors[self.name]
        num_bytes = self.opener.measured.get(self.name, self.num_bytes)
        return FakeModel(self.name, FakeExecutor(self.opener, self.identity, num_bytes))

    def close(self) -> None:
        assert not self.is_closed
        self.is_closed = True
        self.opener.num_open -= 1


@dataclass
class FakeOpener:
    """Opens whatever it is asked for; a test says what goes wrong, how large it is, and when a load may end."""

    renderer: FakeRenderer
    sizes: dict[str, int] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    open_errors: dict[str, BaseException] = field(default_factory=dict)
    build_errors: dict[str, BaseException] = field(default_factory=dict)
    gates: dict[str, threading.Event] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    closed: list[str] = field(default_factory=list)
    num_open: int = 0
    num_bytes_held: int = 0
    max_bytes_held: int = 0

    def open(self, name: ModelName, source: str | None, terms: ModelTerms) -> FakeOpened:
        self.opened.append(name)
        BELL.ring()
        if name in self.open_errors:
            raise self.open_errors[name]
        self.num_open += 1
        return FakeOpened(self, name, source or "configured", terms, self.sizes.get(name, 1 << 20), self.renderer)


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
    binding: Ref
    renderer: FakeRenderer
    engines: list[FakeEngine]
    ended: list[RequestEnded]
    keeper: Ref
    residency: Residency
    shelf: ModelShelf
    opener: FakeOpener

    @property
    def engine(self) -> FakeEngine:
        return self.engines[-1]

    @property
    def num_slots_held(self) -> int:
        return len(self.slots._held)

    async def serves(self, generation: int) -> None:
        """Wait until this generation of the worker takes prompts."""
        await eventually(lambda: self.pulse.generation == generation and self.worker.is_open)

    async def is_empty(self) -> None:
        """Wait until nothing of any request is left; fails when something stays."""
        await eventually(
            lambda: (
                not (
                    self.replies.num_open
                    or self.num_slots_held
                    or self.engine.rows
                    or self.engine.texts
                    or self.residency._holders
                )
            )
        )
        self.slots.check_integrity()
        self.residency.check_integrity()


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
    """Wait for what another task or thread is about to do; fails when it does not."""
    with BELL.listen() as listener, trio.move_on_after(within_s) as scope:
        while not condition():
            await listener.wait()
    # When the condition holds now, the thread that brought it about did not ring.
    assert not scope.cancelled_caught, "nobody rang" if condition() else "it did not come to pass"


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


@dataclass(kw_only=True)
class HouseOptions:
    """What tests change about a house."""

    make_engine: Callable[[], FakeEngine] = FakeEngine
    settings: LifecycleSettings = field(default_factory=LifecycleSettings)
    doorkeeper: Doorkeeper = field(default_factory=lambda: Doorkeeper(KeyLaw(None)))
    metadata: MetadataSource = field(default_factory=lambda: MetadataSource(None, ()))
    limits: Any = field(default_factory=lane_limits)
    signals: Any = ()
    observe: Callable[[RequestEnded], None] | None = None
    rules: AdmissionRules | None = None
    deadlines: DeadlineRules = field(default_factory=DeadlineRules)
    end_process: Callable[[int], object] = pytest.fail
    answers: SharedAnswers | None = None
    accounting: Accounting = field(default_factory=Accounting)
    gpu: GpuRecord | None = None
    models: dict[str, ModelTerms] = field(default_factory=lambda: {MODEL: ModelTerms()})
    memory_mb: int = 0
    sizes_mb: dict[str, int] = field(default_factory=dict)
    opener: Any = None


def start_house(nursery: trio.Nursery, options: HouseOptions) -> RunningHouse:
    """Build a house as the composition root does."""
    state = RunState()
    system = ActorSystem(nursery, on_death=lambda name, error: state.stop(70, f"{name} died: {error!r}"))
    replies, pulse, renderer = ReplyTable(), WorkerPulse(), FakeRenderer()
    worker = WorkerLink(replies.deliver)
    slots, ended, engines = SlotTable(options.limits), list[RequestEnded](), list[FakeEngine]()
    shelf = ModelShelf()
    sizes = {name: size << 20 for name, size in options.sizes_mb.items()}
    opener = options.opener or FakeOpener(renderer, sizes=sizes)
    catalogue = Catalogue({ModelName(name): CatalogueEntry(terms) for name, terms in options.models.items()})
    residency = Residency(limit_bytes=options.memory_mb << 20 or None, clock=trio.current_time)
    keeper = ModelKeeper.start(
        system,
        LoadingParts(
            residency, shelf, worker, opener, lambda key: options.answers and options.answers.forget(shelf.weights(key))
        ),
        catalogue=catalogue,
        loaded={name: opener.open(name, None, terms) for name, terms in options.models.items() if not terms.is_lazy},
    )
    ingress = Ingress.start(system, replies=replies)
    admission = Admission.start(
        system,
        models=catalogue.names,
        slots=slots,
        observe=options.observe or ended.append,
        pulse=pulse,
        rules=options.rules,
    )
    templating = Templating.start(system, renderers=shelf.renderers)
    binding = Templating.start(system, renderers=shelf.renderers)
    parts = LifecycleParts(
        state=state,
        replies=replies,
        ingress=ingress,
        admission=admission,
        worker=worker,
        pulse=pulse,
        start_worker=_worker_starter(
            system, options.make_engine, engines, worker=worker, pulse=pulse, shelf=shelf, keeper=keeper
        ),
        models=catalogue.names,
        watchdog=Watchdog(end_process=options.end_process),
        gpu=options.gpu,
        tell_of_cut=options.accounting.drain_kill,
    )
    lifecycle = Lifecycle.start(system, parts, settings=options.settings, signals=options.signals, respawn_pause_s=0.01)
    stations = Stations(
        ingress,
        admission,
        templating,
        keeper,
        worker,
        context_floor_tokens=500,
        binding=binding,
        answers=options.answers,
        deadlines=options.deadlines,
        accounting=options.accounting,
    )
    return RunningHouse(
        ActorHouse(
            stations,
            doorkeeper=options.doorkeeper,
            catalogue=catalogue,
            listing=ModelListing(catalogue, options.metadata, created=1),
            lifecycle=lifecycle,
            pulse=pulse,
        ),
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
        binding,
        renderer,
        engines,
        ended,
        keeper,
        residency,
        shelf,
        opener,
    )


def _worker_starter(  # noqa: PLR0913  (keyword-only parts)
    system: ActorSystem,
    make_engine: Callable[[], FakeEngine],
    engines: list[FakeEngine],
    *,
    worker: WorkerLink,
    pulse: WorkerPulse,
    shelf: ModelShelf,
    keeper: Ref,
) -> Callable[[Ref], Ref]:
    def make() -> FakeEngine:
        engines.append(make_engine())
        engines[-1].thread = threading.get_ident()
        restored = shelf.restore_into(engines[-1], beat=BELL.ring)
        tell_if_alive(keeper, ModelsRestored(restored))
        return engines[-1]

    def start(supervisor: Ref) -> Ref:
        return GpuWorker.start(
            system, make_engine=make, deliver=worker.deliver, supervisor=supervisor, pulse=pulse, shelf=shelf
        )

    return start


async def take_down(running: RunningHouse) -> None:
    """Let go of everything that a test holds up, and stop every actor."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + 10):
        if running.renderer.gate is not None:
            running.renderer.gate.set()
        for engine in running.engines:
            engine.release()
        assert await running.worker.stop(within_s=5)
        for gate in getattr(running.opener, "gates", {}).values():
            gate.set()
        templatings = (running.templating, running.binding)
        for ref in (running.lifecycle, *templatings, running.keeper, running.admission, running.ingress):
            assert await stop_actor(ref, within_s=5)
        running.shelf.close()


@asynccontextmanager
async def open_house(*, wait: bool = True, **changes: Any) -> AsyncIterator[RunningHouse]:
    """Run a house; see `HouseOptions` for what can be changed. With `wait`, its worker is ready."""
    async with trio.open_nursery() as nursery:
        running = start_house(nursery, HouseOptions(**changes))
        try:
            if wait:
                with trio.fail_after(5):
                    assert await running.state.wait_until_ready()
            yield running
        finally:
            await take_down(running)
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
        open_house=open_house,
        request=request,
        read=read,
        eventually=eventually,
        ring=BELL.ring,
        Engine=FakeEngine,
        Reader=FakeReader,
    )
