"""Between lifecycle and everybody: phases, health and the way down."""

from dataclasses import dataclass
from enum import StrEnum

from memra.messages.work import WorkerBeat


class GpuProbeState(StrEnum):
    """What came of the last question to the GPU's driver."""

    OFF = "off"
    """None was asked yet."""
    OK = "ok"
    FAULT = "fault"
    FAILED = "failed"
    """The tool ended with an error, which says nothing about the GPU."""
    HUNG = "hung"
    MISSING = "missing"
    """There is no tool; none will be asked."""


@dataclass(frozen=True, slots=True)
class GpuReported:
    """What the GPU watcher knows.

    Attributes:
        fault: the first fault that the GPU has shown, in one line; never taken back.
        xid_warnings: errors in the kernel log that are no such fault.
        probe_age_ms, probe_took_ms: since the last question to the driver ended, and how long it took.
        num_probe_hangs: questions that were not answered in time.
    """

    fault: str | None = None
    xid_warnings: int = 0
    probe_state: GpuProbeState = GpuProbeState.OFF
    probe_age_ms: float | None = None
    probe_took_ms: float | None = None
    num_probe_hangs: int = 0


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
        beat_age_ms: since the worker's last loop iteration.
        stall_threshold_ms: a busy worker silent for longer counts as hung.
        detail: one line, only when not live.
        forward_progress_age_ms: since the last run of an executor ended; None before the first.
        prefill_age_ms: since the prefill that goes on now came on; None without one.
        idle_for_ms: None unless idle.
        gpu: None where no GPU is watched.
        drain_s: how long a drain may take, seconds.
    """

    is_live: bool
    is_ready: bool
    is_draining: bool
    worker: WorkerBeat
    beat_age_ms: float
    stall_threshold_ms: float
    models: tuple[str, ...]
    detail: str | None = None
    forward_progress_age_ms: float | None = None
    prefill_age_ms: float | None = None
    idle_for_ms: float | None = None
    gpu: GpuReported | None = None
    drain_s: float = 0.0


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
