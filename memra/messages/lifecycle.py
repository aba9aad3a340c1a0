"""Between lifecycle and everybody: phases, health and the way down."""

from dataclasses import dataclass

from memra.messages.work import WorkerBeat


@dataclass(frozen=True, slots=True)
class ReportHealth:
    """Ask lifecycle for `HealthReported`."""


@dataclass(frozen=True, slots=True)
class HealthReported:
    """The state that the probes show.

    Attributes:
        is_live: the worker does its job or is idle; false sends the process to be restarted.
        is_ready: new work may be routed here.
        is_draining: the server is on its way down.
        beat_age_ms: since the worker's last sign of life.
        stall_threshold_ms: a busy worker silent for longer counts as hung.
        detail: one line, only when not live.
    """

    is_live: bool
    is_ready: bool
    is_draining: bool
    worker: WorkerBeat
    beat_age_ms: float
    stall_threshold_ms: float
    models: tuple[str, ...]
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class BeginDrain:
    """Take no new work, let running requests finish until the deadline, then stop.

    Attributes:
        reason: for the log, such as `SIGTERM`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class EndDrain:
    """Cut the drain short: what still runs is ended now."""


@dataclass(frozen=True, slots=True)
class RefuseNewWork:
    """Tell admission that the server is on its way down.

    Attributes:
        deadline: when the drain ends, on the loop's clock; refusals say how long that is.
    """

    deadline: float


@dataclass(frozen=True, slots=True)
class WorkerReady:
    """The worker has its weights and takes prompts.

    Attributes:
        generation: 0 for the first worker, +1 for each restart.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class WorkerDied:
    """The worker's thread ended by a failure.

    Attributes:
        detail: the cause, for the log and the health page.
        generation: which worker it was.
        was_loaded: false when it failed before it had its weights.
    """

    detail: str
    generation: int = 0
    was_loaded: bool = True


@dataclass(frozen=True, slots=True)
class RestartWorker:
    """Lifecycle's reminder to itself that the pause before a restart is over."""

    generation: int
