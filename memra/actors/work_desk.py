"""Where admission reads the worker's gauges and weighs requests against them; no actor of its own.

Brings together what the worker published last, what was let in since, and the policy of `memra.gate.queueing`. Refuses
to know keys and slots. Owned by the admission actor; trio thread only.
"""

import time

from memra.actors.pulse import WorkerPulse
from memra.gate.bookings import Bookings
from memra.gate.queueing import Ahead, Placement, QueueLimits, WaitCause, WorkAsked, place, queued_ahead
from memra.lanes.policy import LaneView
from memra.messages.admission import ReserveWork, WorkReserved
from memra.messages.load import ModelLoad, WorkerLoad
from memra.types import Lane, ModelName, RequestId, WorkerPhase


class WorkDesk:
    """See the module.

    Attributes:
        num_row_waits, num_memory_waits: requests that were let in to wait for a row, or for memory.
    """

    def __init__(self, pulse: WorkerPulse, limits: QueueLimits, *, window_s: float) -> None:
        """Begin with nobody.

        Args:
            pulse: where the worker leaves its gauges.
            limits: how long the queue may become.
            window_s: how long a step time counts, seconds.
        """
        self._pulse = pulse
        self._limits = limits
        self._window_s = window_s
        self._bookings = Bookings()
        self.num_row_waits = 0
        self.num_memory_waits = 0

    @property
    def step_p50_ms(self) -> float | None:
        """Median time of an interactive step as it was last measured; None before."""
        return self._pulse.load.interactive_p50_ms

    def view(self, *, num_held: int) -> LaneView:
        """Return what a lane's policy looks at.

        Step times leave the worker's window only as it steps, so those of a worker that sleeps are dropped here.

        Args:
            num_held: requests of the lane that are in the house already.
        """
        load = self._pulse.load
        at = load.interactive_step_at
        step_age_s = None if at is None else time.monotonic() - at
        is_recent = step_age_s is not None and step_age_s <= self._window_s
        return LaneView(
            num_held=num_held,
            num_interactive=0 if self._is_asleep else load.num_interactive,
            step_p99_ms=load.interactive_p99_ms if is_recent else None,
            step_age_s=step_age_s,
        )

    def reserve(self, wanted: ReserveWork, model: ModelName, lane: Lane) -> WorkReserved:
        """Let a request go to the worker, or refuse it.

        A model of which nothing was published yet takes whoever comes: its queue is the engine's.

        Raises:
            RequestError: as `memra.gate.queueing.place`.
        """
        reading, load = self._pulse.read_load()
        gauges = load.models.get(model)
        if gauges is None:
            return WorkReserved(wanted.max_new_tokens, None)
        if self._is_asleep:
            load = WorkerLoad()
            gauges = _without_work(gauges)
        placement = place(
            _work_of(wanted, lane),
            gauges,
            ahead=self._ahead(model, lane, gauges=gauges, load=load, reading=reading),
            limits=self._limits,
        )
        self._count(placement)
        self._bookings.add(wanted.request_id, placement, model=model, lane=lane, reading=reading)
        return WorkReserved(placement.max_new_tokens, placement.wait_s)

    def release(self, request_id: RequestId) -> None:
        """Forget a request that ended."""
        self._bookings.drop(request_id)

    @property
    def _is_asleep(self) -> bool:
        """Whether nothing runs, whatever the gauges say: they are as old as the last step."""
        return self._pulse.phase is WorkerPhase.IDLE

    def _ahead(self, model: ModelName, lane: Lane, *, gauges: ModelLoad, load: WorkerLoad, reading: int) -> Ahead:
        booked = self._bookings.ahead(model, lane, reading=reading)
        queued = queued_ahead(gauges, lane)
        num_queued_in_lane = sum(each.num_queued.get(lane, 0) for each in load.models.values())
        return Ahead(
            num_sequences=booked.num_sequences + queued.num_sequences,
            num_pages=booked.num_pages + queued.num_pages,
            num_waiting_in_lane=booked.num_waiting_in_lane + num_queued_in_lane,
        )

    def _count(self, placement: Placement) -> None:
        self.num_row_waits += placement.waits_for is WaitCause.ROW
        self.num_memory_waits += placement.waits_for is WaitCause.MEMORY


def _work_of(wanted: ReserveWork, lane: Lane) -> WorkAsked:
    return WorkAsked(
        lane=lane,
        num_prompt_tokens=wanted.num_prompt_tokens,
        max_new_tokens=wanted.max_new_tokens,
        may_shorten=wanted.may_shorten,
        remaining_s=wanted.remaining_s,
        prompt_param=wanted.prompt_param,
    )


def _without_work(gauges: ModelLoad) -> ModelLoad:
    """Return the gauges of a model whose worker sleeps: those who left after the last step are gone from them."""
    return ModelLoad(
        page_tokens=gauges.page_tokens,
        num_pages=gauges.num_pages,
        num_pages_free=gauges.num_pages,
        max_rows=gauges.max_rows,
        mean_row_s=gauges.mean_row_s,
    )
