"""Who runs next on one model: queues, admission into rows, and the spans of one step.

Knows lanes, rows and pages; computes nothing and sends nothing. One scheduler per model, so that a full model never
holds up another. Lanes are served strictly in order, first come first served inside a lane; the head of the queue is
never overtaken, so a long prompt that waits for pages gets them in the end.
"""

from bisect import insort
from collections import deque

from memra.engine.loaded_model import LoadedModel, PageLease
from memra.engine.row_batches import RowSpan
from memra.engine.sequence import Sequence, SequencePhase
from memra.errors import IntegrityError
from memra.types import Lane

_LANES = (Lane.INTERACTIVE, Lane.JUDGE, Lane.HARVEST)


class Scheduler:
    """The waiting and the running sequences of one model."""

    def __init__(self, model: LoadedModel) -> None:
        """Start with nobody waiting."""
        self._model = model
        self._queues: dict[Lane, deque[Sequence]] = {lane: deque() for lane in _LANES}
        self._running: list[Sequence] = []

    @property
    def num_queued(self) -> int:
        """Sequences that wait for admission."""
        return sum(map(len, self._queues.values()))

    @property
    def num_running(self) -> int:
        """Sequences that hold a row."""
        return len(self._running)

    def enqueue(self, sequence: Sequence) -> None:
        """Put a sequence at the end of its lane's queue."""
        self._queues[sequence.request.lane].append(sequence)

    def admit_next(self) -> Sequence | None:
        """Give the head of the queue a row and all pages that it can ever need; None when it must wait.

        A sequence that generates nothing gets neither and is only taken off the queue.
        """
        queue = next((queue for queue in self._queues.values() if queue), None)
        if queue is None:
            return None
        sequence = queue[0]
        if sequence.generates_nothing:
            return queue.popleft()
        lease = self._lease_room(sequence)
        if lease is None:
            return None
        queue.popleft()
        sequence.start(lease)
        # Equal lanes stay in order of admission: insort places to the right of equals.
        insort(self._running, sequence, key=lambda running: _LANES.index(running.request.lane))
        return sequence

    def plan_spans(self) -> list[RowSpan]:
        """Return one step's work: one row of every decoding sequence, then prompts up to the prefill chunk."""
        decoding = [
            RowSpan(sequence, num_rows=1, is_sampled=True)
            for sequence in self._running
            if sequence.phase is SequencePhase.DECODING
        ]
        return decoding + self._plan_prefill()

    def retire(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and free its row and pages at once; again does nothing."""
        if sequence.phase is SequencePhase.QUEUED and sequence in self._queues[sequence.request.lane]:
            self._queues[sequence.request.lane].remove(sequence)
        elif sequence in self._running:
            self._running.remove(sequence)
        self._model.return_pages(sequence.finish())

    def check_integrity(self) -> None:
        """Compare rows, phases and pages with each other.

        Raises:
            IntegrityError: they disagree; the message names the sequence or the page.
        """
        if len(self._running) > self._model.max_rows:
            raise IntegrityError(f"{len(self._running)} sequences run on {self._model.max_rows} rows")
        for queue in self._queues.values():
            for sequence in queue:
                _require(sequence, is_sound=sequence.phase is SequencePhase.QUEUED and not sequence.lease.page_ids)
        for sequence in self._running:
            is_running = sequence.phase in {SequencePhase.PREFILLING, SequencePhase.DECODING}
            has_room = len(sequence.lease.page_ids) == self._model.count_pages(sequence.capacity_tokens)
            is_in_step = sequence.phase is SequencePhase.PREFILLING or sequence.num_waiting_tokens == 1
            _require(sequence, is_sound=is_running and has_room and is_in_step and sequence.num_waiting_tokens > 0)
        self._model.pool.check_integrity([sequence.lease.page_ids for sequence in self._running])
        self._model.states.check_integrity([sequence.lease.state_ids for sequence in self._running])

    def _lease_room(self, sequence: Sequence) -> PageLease | None:
        if len(self._running) >= self._model.max_rows:
            return None
        return self._model.lease_pages(sequence.request.prompt_ids, sequence.capacity_tokens)

    def _plan_prefill(self) -> list[RowSpan]:
        spans = []
        budget = self._model.prefill_chunk_tokens
        for sequence in self._running:
            if sequence.phase is SequencePhase.PREFILLING and budget:
                num_rows = min(budget, sequence.num_waiting_tokens)
                spans.append(RowSpan(sequence, num_rows, is_sampled=num_rows == sequence.num_waiting_tokens))
                budget -= num_rows
        return spans


def _require(sequence: Sequence, *, is_sound: bool) -> None:
    if not is_sound:
        raise IntegrityError(
            f"sequence {sequence.request_id} is {sequence.phase.value} with {len(sequence.lease.page_ids)} pages for "
            f"{sequence.capacity_tokens} tokens, {sequence.num_computed_tokens} of {sequence.num_tokens} computed"
        )
