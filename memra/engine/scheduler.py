"""Who runs next on one model: queues, admission into rows, and the spans of one step.

Knows lanes and rows; computes nothing and sends nothing. One scheduler per model, so that a full model never holds up
another. Lanes are served strictly in order, first come first served inside a lane; the head of the queue is never
overtaken, so a long prompt that waits for pages gets them in the end. For an interactive or judge sequence the youngest
harvest sequence gives its room up; it goes on later from the very token where it stopped.
"""

from bisect import insort
from collections import deque

from memra.engine.loaded_model import LoadedModel
from memra.engine.prefix_tree import count_shared_tokens
from memra.engine.row_batches import MAX_SCORED_ROWS, RowSpan
from memra.engine.sequence import Sequence, SequencePhase
from memra.engine.sequence_memory import SequenceMemory
from memra.engine.tick_plan import Demand
from memra.errors import IntegrityError
from memra.types import Lane

_LANES = (Lane.INTERACTIVE, Lane.JUDGE, Lane.HARVEST)


class Scheduler:
    """The waiting and the running sequences of one model."""

    def __init__(self, model: LoadedModel, memory: SequenceMemory) -> None:
        """Start with nobody waiting.

        Args:
            model: gives the limits.
            memory: gives the sequences' room.
        """
        self._model = model
        self._memory = memory
        self._queues: dict[Lane, deque[Sequence]] = {lane: deque() for lane in _LANES}
        self._running: list[Sequence] = []
        self.num_preempted = 0
        self._blocked: Sequence | None = None

    @property
    def num_queued(self) -> int:
        """Sequences that wait for admission."""
        return sum(map(len, self._queues.values()))

    @property
    def num_running(self) -> int:
        """Sequences that hold a row."""
        return len(self._running)

    def count_queued(self) -> dict[Lane, int]:
        """Return how many sequences wait, by lane."""
        return {lane: len(queue) for lane, queue in self._queues.items()}

    def count_queued_pages(self) -> int:
        """Return the pages that the waiting sequences will ask for."""
        return sum(
            self._model.count_pages(sequence.capacity_tokens) for queue in self._queues.values() for sequence in queue
        )

    def count_remembering(self) -> int:
        """Return the pages that only keep prefixes."""
        return self._memory.count_remembering(self._running)

    def count_harvest(self) -> tuple[int, int]:
        """Return the harvest sequences that run, and their pages: they give way to others."""
        harvest = [sequence for sequence in self._running if sequence.request.lane is Lane.HARVEST]
        return len(harvest), sum(len(sequence.page_ids) for sequence in harvest)

    def count_interactive(self) -> int:
        """Return the interactive sequences that wait or run."""
        return len(self._queues[Lane.INTERACTIVE]) + sum(map(_is_interactive, self._running))

    def demand(self) -> Demand:
        """Return what could be done now."""
        decoding = [sequence for sequence in self._running if sequence.phase is SequencePhase.DECODING]
        prefilling = [sequence for sequence in self._running if sequence.phase is SequencePhase.PREFILLING]
        return Demand(
            decodes=any(map(_is_interactive, decoding)),
            decodes_dark=not all(map(_is_interactive, decoding)),
            prefills=any(map(_is_interactive, prefilling)),
            prefills_dark=not all(map(_is_interactive, prefilling)),
        )

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
        if sequence is self._blocked:
            return None  # nobody has gone since it was tried
        while not self._start(sequence):
            if not self._preempt_for(sequence):
                self._blocked = sequence
                return None
        queue.popleft()
        self._find_leader(sequence)
        # Equal lanes stay in order of admission: insort places to the right of equals.
        insort(self._running, sequence, key=_rank)
        return sequence

    def plan_spans(
        self, *, decodes: bool = True, lanes: tuple[Lane, ...] = _LANES, num_prefill_rows: int | None = None
    ) -> list[RowSpan]:
        """Return one step's work: one row of every decoding sequence, then prompts, each lane in its order.

        Args:
            decodes: whether decoding sequences take part.
            lanes: whose prompts are computed.
            num_prefill_rows: prompt tokens at most; None for the model's prefill chunk.
        """
        decoding = [
            RowSpan(sequence, num_rows=1, is_sampled=True)
            for sequence in self._running
            if decodes and sequence.phase is SequencePhase.DECODING
        ]
        limit = self._model.prefill_chunk_tokens
        return decoding + self._plan_prefill(lanes, min(limit, limit if num_prefill_rows is None else num_prefill_rows))

    def retire(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and free its row and pages at once; again does nothing."""
        if sequence.phase is SequencePhase.QUEUED and sequence in self._queues[sequence.request.lane]:
            self._queues[sequence.request.lane].remove(sequence)
        elif sequence in self._running:
            self._running.remove(sequence)
        self._memory.release(sequence)
        sequence.finish()
        self._blocked = None

    def check_integrity(self) -> None:
        """Compare rows, phases and pages with each other.

        Raises:
            IntegrityError: they disagree; the message names the sequence or the page.
        """
        if len(self._running) > self._model.max_rows:
            raise IntegrityError(f"{len(self._running)} sequences run on {self._model.max_rows} rows")
        for queue in self._queues.values():
            for sequence in queue:
                _require(sequence, is_sound=sequence.phase is SequencePhase.QUEUED and not sequence.page_ids)
        for sequence in self._running:
            is_running = sequence.phase in {SequencePhase.PREFILLING, SequencePhase.DECODING}
            has_room = len(sequence.page_ids) == self._model.count_pages(sequence.capacity_tokens)
            is_in_step = sequence.phase is SequencePhase.PREFILLING or sequence.num_waiting_tokens == 1
            _require(sequence, is_sound=is_running and has_room and is_in_step and sequence.num_waiting_tokens > 0)
        self._memory.check_integrity(self._running)

    def _start(self, sequence: Sequence) -> bool:
        if len(self._running) >= self._model.max_rows:
            return False
        lease = self._memory.lease(sequence)
        if lease is None:
            return False
        sequence.start(lease)
        self._memory.plan_branch_points(sequence)
        return True

    def _preempt_for(self, sequence: Sequence) -> bool:
        """Let the youngest harvest sequence wait again, where that helps; false when nobody gave room up."""
        num_harvest, num_harvest_pages = self.count_harvest()
        if sequence.request.lane is Lane.HARVEST or not num_harvest:
            return False
        num_needed = self._model.count_pages(sequence.capacity_tokens)
        if self._model.pool.num_free + self.count_remembering() + num_harvest_pages < num_needed:
            return False
        self._pause(self._running[-1])  # the last lane's last
        self.num_preempted += 1
        return True

    def _pause(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._memory.release(sequence)
        sequence.pause()
        self._queues[sequence.request.lane].appendleft(sequence)

    def _find_leader(self, sequence: Sequence) -> None:
        """Let a sequence wait for one that is about to compute the tokens which both share."""
        if not self._memory.prefixes.is_on or sequence.is_scoring:
            return
        wanted = sequence.read_tokens(0, sequence.num_tokens - 1).tobytes()
        for other in self._running:
            if other.phase is not SequencePhase.PREFILLING:
                continue
            if other.request.namespace != sequence.request.namespace or _rank(other) > _rank(sequence):
                continue
            shared = count_shared_tokens(other.read_tokens(0, other.num_tokens).tobytes(), wanted)
            shared -= shared % self._model.executor.page_tokens
            if shared > max(sequence.num_computed_tokens, sequence.num_shared_tokens):
                sequence.leader, sequence.num_shared_tokens = other, shared
        if sequence.leader is not None:
            self._memory.add_branch_point(sequence.leader, sequence.num_shared_tokens)

    def _is_waiting(self, sequence: Sequence) -> bool:
        """Whether a sequence waits for its leader; when that is over, it goes on from what the leader computed."""
        leader = sequence.leader
        if leader is None:
            return False
        if leader.phase is SequencePhase.PREFILLING and leader.num_computed_tokens < sequence.num_shared_tokens:
            return True
        sequence.leader, sequence.num_shared_tokens = None, 0
        lease = self._memory.catch_up(sequence)
        if lease is not None:
            sequence.move(lease)
            self._blocked = None
            self._memory.plan_branch_points(sequence)
        return False

    def _plan_prefill(self, lanes: tuple[Lane, ...], budget: int) -> list[RowSpan]:
        spans: list[RowSpan] = []
        for sequence in self._running:
            if sequence.phase is not SequencePhase.PREFILLING or sequence.request.lane not in lanes or budget <= 0:
                continue
            if self._is_waiting(sequence):
                continue
            num_rows = min(budget, sequence.num_waiting_tokens)
            if sequence.is_scoring:
                if any(span.is_scored for span in spans):
                    continue
                num_rows = min(num_rows, MAX_SCORED_ROWS)
            if sequence.branch_points:
                num_rows = min(num_rows, sequence.branch_points[0] - sequence.num_computed_tokens)
            is_sampled = num_rows == sequence.num_waiting_tokens
            spans.append(RowSpan(sequence, num_rows, is_sampled=is_sampled, is_scored=sequence.is_scoring))
            budget -= num_rows
        return spans


def _rank(sequence: Sequence) -> int:
    return _LANES.index(sequence.request.lane)


def _is_interactive(sequence: Sequence) -> bool:
    return sequence.request.lane is Lane.INTERACTIVE


def _require(sequence: Sequence, *, is_sound: bool) -> None:
    if not is_sound:
        raise IntegrityError(
            f"sequence {sequence.request_id} is {sequence.phase.value} with {len(sequence.page_ids)} pages for "
            f"{sequence.capacity_tokens} tokens, {sequence.num_computed_tokens} of {sequence.num_tokens} computed"
        )
