"""The worker's signs of life, readable without its help.

Plain attributes, written by the worker's thread and read by lifecycle: a worker that hangs answers no message, and that
is just when its pulse is wanted. One object serves all generations of the worker.
"""

import time

from memra.messages.load import WorkerLoad
from memra.messages.work import PrefillProgress, WorkerBeat
from memra.types import WorkerPhase


class WorkerPulse:
    """What the worker wrote down about itself last; each attribute is written whole, so a reader needs no lock."""

    def __init__(self) -> None:
        self.phase = WorkerPhase.LOADING
        self.beat_at = time.monotonic()
        self.tick_max_ms = 0.0
        self.generation = 0
        self.progress_at: float | None = None
        self.prefill: PrefillProgress | None = None
        self.idle_since: float | None = None
        self.loss: str | None = None
        self._is_prefill_over = False
        self._reading = (0, WorkerLoad())

    @property
    def load(self) -> WorkerLoad:
        """The gauges as they were last published; set by the worker's thread after every step."""
        return self._reading[1]

    @load.setter
    def load(self, load: WorkerLoad) -> None:
        self._reading = (self._reading[0] + 1, load)

    def read_load(self) -> tuple[int, WorkerLoad]:
        """Return the number of the last published gauges, and them; callable from any thread."""
        return self._reading

    def begin(self, generation: int) -> None:
        """A worker is about to load; called by lifecycle before it starts one."""
        self.generation = generation
        self.progress_at = self.prefill = self.loss = None
        self.load = WorkerLoad()
        self.beat(WorkerPhase.LOADING)

    def beat(self, phase: WorkerPhase) -> None:
        """Write down a sign of life; called by the worker at both ends of every step."""
        now = time.monotonic()
        if phase is not WorkerPhase.IDLE:
            self.idle_since = None
        elif self.idle_since is None:
            self.idle_since = now
            self.prefill = None
        self.beat_at = now
        self.phase = phase

    def die(self, loss: str) -> None:
        """Write down why the worker ends; its last sign of life."""
        self.loss = loss
        self.beat(WorkerPhase.DEAD)

    def note_progress(self, progress_at: float, num_prefill_rows: int) -> None:
        """Write down a run of an executor inside a step; the engine calls it between its runs.

        Args:
            progress_at: when it ended, on the clock of `time.monotonic()`.
            num_prefill_rows: prompt tokens that it computed; 0 for a run that only decoded, or failed.
        """
        self.progress_at = progress_at
        if num_prefill_rows:
            before = self.prefill or PrefillProgress(0, 0, progress_at)
            self.prefill = PrefillProgress(before.num_rows + num_prefill_rows, before.num_chunks + 1, progress_at)
            self._is_prefill_over = False

    def note_tick(self, step_s: float) -> None:
        """Keep the longest step, in seconds, and end the prefill when the step had no part of one."""
        self.tick_max_ms = max(self.tick_max_ms, 1000 * step_s)
        if self._is_prefill_over:
            self.prefill = None
        self._is_prefill_over = True

    def read(self) -> WorkerBeat:
        """Return a copy; callable from any thread."""
        return WorkerBeat(
            phase=self.phase,
            beat_at=self.beat_at,
            tick_max_ms=self.tick_max_ms,
            generation=self.generation,
            progress_at=self.progress_at,
            prefill=self.prefill,
            idle_since=self.idle_since,
            loss=self.loss,
        )
