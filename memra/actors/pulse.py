"""The worker's signs of life, readable without its help.

Plain attributes, written by the worker's thread and read by lifecycle: a worker that hangs answers no message, and that
is just when its pulse is wanted. One object serves all generations of the worker.
"""

import time

from memra.messages.load import WorkerLoad
from memra.messages.work import WorkerBeat
from memra.types import WorkerPhase


class WorkerPulse:
    """What the worker wrote down about itself last; each attribute is written whole, so a reader needs no lock."""

    def __init__(self) -> None:
        self.phase = WorkerPhase.LOADING
        self.beat_at = time.monotonic()
        self.tick_max_ms = 0.0
        self.generation = 0
        self.load = WorkerLoad()

    def begin(self, generation: int) -> None:
        """A worker is about to load; called by lifecycle before it starts one."""
        self.generation = generation
        self.beat(WorkerPhase.LOADING)

    def beat(self, phase: WorkerPhase) -> None:
        """Write down a sign of life; called by the worker at both ends of every step."""
        self.beat_at = time.monotonic()
        self.phase = phase

    def note_progress(self, beat_at: float) -> None:
        """Write down progress inside a step, at a time of `time.monotonic()`; the engine calls it between its runs."""
        self.beat_at = beat_at

    def note_tick(self, step_s: float) -> None:
        """Keep the longest step, in seconds."""
        self.tick_max_ms = max(self.tick_max_ms, 1000 * step_s)

    def read(self) -> WorkerBeat:
        """Return a copy; callable from any thread."""
        return WorkerBeat(
            phase=self.phase, beat_at=self.beat_at, tick_max_ms=self.tick_max_ms, generation=self.generation
        )
