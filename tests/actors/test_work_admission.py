"""The second question: who goes to the worker, who waits and who is refused, by the worker's gauges."""

import time
from dataclasses import replace
from typing import Any

import pytest
import trio

from memra.actors.admission import AdmissionRules
from memra.actors.shared_answers import SharedAnswers
from memra.errors import (
    BusyError,
    ContextLengthError,
    DeadlineUnreachableError,
    InfeasibleDeadlineError,
    InvalidRequestError,
    QueueFullError,
    QueueWaitError,
    RequestError,
    RequestTooLongForMemoryError,
)
from memra.gate.deadlines import DeadlineRules
from memra.gate.queueing import QueueLimits
from memra.gate.response_cache import ResponseCache
from memra.gate.slots import LaneLimit
from memra.lanes.metrics import LaneMetrics, zero_counts
from memra.lanes.policy import LanePolicy
from memra.messages.load import ModelLoad, WorkerLoad
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt, WorkReported
from memra.types import Lane, ModelName

MODEL = ModelName("fake")
ROOMY = ModelLoad(page_tokens=10, num_pages=1000, num_pages_free=1000, max_rows=4, mean_row_s=8.0)
FULL = replace(ROOMY, num_active=4, num_pages_free=600, mean_row_s=20.0)


def load(model: ModelLoad = ROOMY, **changes: Any) -> WorkerLoad:
    return WorkerLoad({MODEL: model}, **changes)


async def start_work(kit: Any, running: Any, clients: trio.Nursery, name: str = "first") -> None:
    """Keep the worker busy with one request, in a step that does not end."""
    clients.start_soon(kit.read, running.house, kit.request(name, max_new_tokens=400))
    await kit.eventually(lambda: running.engines and running.engine.entered_step.is_set())


async def are_submitted(kit: Any, running: Any, num_requests: int) -> None:
    """Wait until so many requests are in the worker or in the mailbox before it."""

    def is_so() -> bool:
        waiting = running.worker._worker.actor_inbox._envelopes
        submits = [envelope for envelope in waiting if isinstance(envelope.message, SubmitPrompt)]
        return len(running.engine.submitted) + len(submits) == num_requests

    await kit.eventually(is_so)


def let_go(running: Any, clients: trio.Nursery) -> None:
    clients.cancel_scope.cancel()
    running.engine.release()


async def test_a_burst_is_not_let_in_on_one_old_reading(kit: Any):
    rules = AdmissionRules(queue=QueueLimits(max_depth=2))
    refused: list[RequestError] = []
    async with kit.open_house(rules=rules, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        running.pulse.load = load()

        async def client(number: int) -> None:
            try:
                await kit.read(running.house, kit.request(f"r{number}", max_new_tokens=400))
            except BusyError as error:
                refused.append(error)

        async with trio.open_nursery() as clients:
            for number in range(9):
                clients.start_soon(client, number)
            await kit.eventually(lambda: len(refused) == 3)
            assert {type(error) for error in refused} == {QueueFullError}
            # Six are in: four are thought to run, the next to end is the third of them that is waited for.
            assert [error.retry_after_s for error in refused] == [6.0, 6.0, 6.0]
            assert [(error.slots_limit, error.slots_reset_s) for error in refused] == [(64, 2)] * 3
            metrics = await running.house.report_metrics()
            assert metrics["admission_session_defers"] == 2
            assert metrics["admission_vram_defers"] == 0
            assert metrics["admission_inflight"] == 6
            let_go(running, clients)
        await running.is_empty()
        assert len(running.engine.submitted) == 6
        assert len(running.ended) == 6, "whoever was refused was never in"
        lanes = (await running.house.report_lanes())["lanes"]
        assert [lanes[lane]["shed"] for lane in ("interactive", "judge", "harvest")] == [3, 0, 0]


async def test_memory_is_not_promised_twice(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        running.pulse.load = load(replace(ROOMY, num_pages=60, num_pages_free=60))
        async with trio.open_nursery() as clients:
            for number in range(3):
                clients.start_soon(kit.read, running.house, kit.request(f"r{number}", max_new_tokens=295))
            await are_submitted(kit, running, 3)
            metrics = await running.house.report_metrics()
            assert (metrics["admission_session_defers"], metrics["admission_vram_defers"]) == (0, 1)
            let_go(running, clients)
        await running.is_empty()


async def test_what_the_gauges_count_is_not_counted_twice(kit: Any):
    rules = AdmissionRules(queue=QueueLimits(max_depth=0))
    async with kit.open_house(rules=rules, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        running.pulse.load = load()
        async with trio.open_nursery() as clients:
            await start_work(kit, running, clients)
            for number in range(3):
                clients.start_soon(kit.read, running.house, kit.request(f"r{number}", max_new_tokens=400))
            await are_submitted(kit, running, 4)
            for num_refused in range(2):
                with pytest.raises(QueueFullError):
                    await kit.read(running.house, kit.request("late"))
                running.pulse.load = load(replace(ROOMY, num_active=num_refused))
            clients.start_soon(kit.read, running.house, kit.request("later", max_new_tokens=400))
            await are_submitted(kit, running, 5)
            let_go(running, clients)
        await running.is_empty()


async def test_gauges_of_a_worker_that_sleeps_are_not_believed(kit: Any):
    async with kit.open_house() as running:
        running.pulse.load = load(FULL, num_interactive=4, interactive_step_at=time.monotonic() - 1)
        answer = await kit.read(running.house, kit.request(lane=Lane.HARVEST))
        assert answer.text == "abcde"
        await running.is_empty()


@pytest.mark.parametrize("lane", [Lane.JUDGE, Lane.HARVEST])
async def test_a_dark_lane_without_room_is_refused_at_once(kit: Any, lane: Lane):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with trio.open_nursery() as clients:
            await start_work(kit, running, clients)
            running.pulse.load = load(FULL)
            for name in ("r1", "r2"):
                with pytest.raises(BusyError, match="no room") as refused:
                    await kit.read(running.house, kit.request(name, lane=lane))
                assert type(refused.value) is BusyError
                assert refused.value.retry_after_s == 5.0  # one of four rows of 20 s ends
                assert refused.value.slots_limit is not None
            assert running.slots.num_held(lane) == 0
            lanes = (await running.house.report_lanes())["lanes"]
            assert lanes[lane.value]["shed"] == 2
            let_go(running, clients)
        await running.is_empty()
        assert [record.request_id for record in running.ended] == ["first"]


@pytest.mark.parametrize(
    ("timeout_ms", "ceiling_s", "error"),
    [(3000, None, DeadlineUnreachableError), (None, 3.0, QueueWaitError)],
)
async def test_a_wait_that_is_too_long_is_not_begun(
    kit: Any, timeout_ms: int | None, ceiling_s: float | None, error: type[BusyError]
):
    rules = AdmissionRules(queue=QueueLimits(wait_ceiling_s=ceiling_s))
    async with kit.open_house(rules=rules, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with trio.open_nursery() as clients:
            await start_work(kit, running, clients)
            running.pulse.load = load(FULL)
            with pytest.raises(error) as refused:
                await kit.read(running.house, kit.request("r1", timeout_ms=timeout_ms))
            assert refused.value.retry_after_s == 5.0
            let_go(running, clients)
        await running.is_empty()


async def test_what_never_fits_is_refused_and_leaves_nothing(kit: Any):
    async with kit.open_house() as running:
        running.pulse.load = load(replace(ROOMY, num_pages=30, num_pages_free=30))
        with pytest.raises(RequestTooLongForMemoryError) as refused:
            await kit.read(running.house, kit.request(max_new_tokens=296))
        assert refused.value.param == "max_tokens"
        await running.is_empty()
        assert running.engine.submitted == []
        assert (await running.house.report_lanes())["lanes"]["interactive"]["shed"] == 0


async def test_an_answer_of_no_asked_length_is_cut_to_the_memory(kit: Any):
    async with kit.open_house() as running:
        running.pulse.load = load(replace(ROOMY, num_pages=30, num_pages_free=30))
        answer = await kit.read(running.house, kit.request(max_new_tokens=None))
        assert answer.finished[0].usage.completion_tokens == 295
        assert answer.finished[0].stop.value == "context_full"


async def test_a_worker_of_which_nothing_is_known_takes_whoever_comes(kit: Any):
    async with kit.open_house() as running:
        for lane in Lane:
            assert (await kit.read(running.house, kit.request(lane.value, lane=lane))).text == "abcde"


async def test_a_dark_lane_makes_way_while_interactive_answers_are_slow(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with trio.open_nursery() as clients:
            await start_work(kit, running, clients)
            slow = load(interactive_p99_ms=47.0, interactive_step_at=time.monotonic() + 60, num_interactive=1)
            running.pulse.load = slow
            with pytest.raises(BusyError, match="harvest lane makes way: interactive answers are slow") as refused:
                await kit.read(running.house, kit.request("r1", lane=Lane.HARVEST))
            slots = refused.value.slots_limit, refused.value.slots_remaining, refused.value.retry_after_s
            assert slots == (8, 8, 2.0)
            let_go(running, clients)
        await running.is_empty()
        running.pulse.load = replace(slow, num_interactive=0)
        assert (await kit.read(running.house, kit.request("r2", lane=Lane.HARVEST))).text == "abcde"
        assert (await running.house.report_lanes())["lanes"]["harvest"]["shed"] == 1


async def test_a_dark_lane_makes_way_while_interactive_answers_wait(kit: Any):
    rules = AdmissionRules(lanes=LanePolicy(slo_p99_ms=500.0))
    async with kit.open_house(rules=rules, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with trio.open_nursery() as clients:
            await start_work(kit, running, clients)
            running.pulse.load = load(num_interactive=1, interactive_step_at=time.monotonic() - 1)
            with pytest.raises(BusyError, match="judge lane makes way: interactive answers wait"):
                await kit.read(running.house, kit.request("r1", lane=Lane.JUDGE))
            let_go(running, clients)
        await running.is_empty()


async def test_refusals_of_a_full_lane_count_as_shed(kit: Any):
    limits = {lane: LaneLimit(0) for lane in Lane}
    async with kit.open_house(limits=limits) as running:
        for lane in Lane:
            with pytest.raises(BusyError, match="at capacity"):
                await kit.read(running.house, kit.request(lane=lane))
        lanes = (await running.house.report_lanes())["lanes"]
        assert [lanes[lane.value]["shed"] for lane in Lane] == [1, 1, 1]


async def test_a_full_lane_says_when_an_average_answer_ends(kit: Any):
    async with kit.open_house(limits={lane: LaneLimit(2) for lane in Lane}) as running:
        async with running.house.open_reply(kit.request("first")) as reply:
            assert reply.admitted.slots_reset_s == 2
            assert [part async for part in reply]
        await running.is_empty()
        running.pulse.load = load(interactive_p50_ms=700.0)
        async with running.house.open_reply(kit.request("second")) as reply:
            assert reply.admitted.slots_reset_s == 4  # five tokens of 0.7 s


async def test_the_lanes_are_shown_as_the_worker_counted_them(kit: Any):
    class Engine(kit.Engine):
        def report(self) -> WorkReported:
            counted = LaneMetrics(
                admitted={**zero_counts(), Lane.JUDGE: 3},
                completed={**zero_counts(), Lane.JUDGE: 2},
                tokens_out={**zero_counts(), Lane.JUDGE: 11},
                step_p50_ms=1.5,
                step_p99_ms=2.5,
                batch_size_last=7,
            )
            return replace(super().report(), lanes=counted)

    async with kit.open_house(make_engine=Engine) as running:
        shown = await running.house.report_lanes()
        nothing = {"admitted": 0, "shed": 0, "completed": 0, "tokens_out": 0}
        assert shown == {
            "lanes": {
                "interactive": nothing,
                "judge": {"admitted": 3, "shed": 0, "completed": 2, "tokens_out": 11},
                "harvest": nothing,
            },
            "interactive_step_ms": {"p50": 1.5, "p99": 2.5},
            "batch_size_last": 7,
        }


async def test_conversation_and_salt_reach_the_worker(kit: Any):
    async with kit.open_house() as running:
        await kit.read(running.house, kit.request(affinity="chat 7", cache_salt="pepper"))
        await kit.read(running.house, kit.request("plain"))
        assert [(prompt.affinity, prompt.namespace) for prompt in running.engine.submitted] == [
            ("chat 7", "pepper"),
            (None, ""),
        ]


async def test_only_a_whole_answer_of_asked_length_must_be_feasible(kit: Any):
    deadlines = DeadlineRules(default_timeout_ms=2000, prefill_tok_s=1e9, decode_tok_s=10.0)
    async with kit.open_house(deadlines=deadlines) as running:
        with pytest.raises(InfeasibleDeadlineError):
            await kit.read(running.house, kit.request(max_new_tokens=31))
        for number, wanted in enumerate(({"max_new_tokens": 29}, {"max_new_tokens": 31, "is_stream": True}, {})):
            await kit.read(running.house, kit.request(f"r{number}", **{"max_new_tokens": None, **wanted}))
        await running.is_empty()


async def test_a_deadline_out_of_bounds_is_refused_before_anything_else(kit: Any):
    async with kit.open_house(deadlines=DeadlineRules(max_timeout_ms=2000)) as running:
        with pytest.raises(InvalidRequestError, match="from 1000 to 2000"):
            await kit.read(running.house, kit.request(timeout_ms=2001))
        await running.is_empty()
        assert running.ended == []
        assert running.renderer.messages == []


async def test_a_refusal_by_the_context_comes_first(kit: Any):
    async with kit.open_house() as running:
        running.pulse.load = load(replace(ROOMY, num_pages=1))
        running.renderer.num_prompt_tokens = 1000
        with pytest.raises(ContextLengthError):
            await kit.read(running.house, kit.request())
        await running.is_empty()


async def test_a_client_that_leaves_with_a_booking_gives_it_back(kit: Any):
    rules = AdmissionRules(queue=QueueLimits(max_depth=0))
    async with kit.open_house(rules=rules, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        running.pulse.load = load(replace(ROOMY, max_rows=1))
        for number in range(5):
            async with running.house.open_reply(kit.request(f"r{number}", max_new_tokens=400)):
                pass
            await kit.eventually(lambda: running.num_slots_held == 0)
        running.engine.release()
        await running.is_empty()


async def test_an_answer_that_is_kept_asks_for_no_place_at_the_worker(kit: Any):
    answers = SharedAnswers(ResponseCache(1 << 20, ttl_s=60.0), weights_of=lambda _: "w")
    greedy = {"sampling": SamplingParams(temperature=0.0), "may_reuse_answer": True}
    async with kit.open_house(answers=answers) as running:
        first = await kit.read(running.house, kit.request("first", **greedy))
        running.pulse.load = load(replace(ROOMY, num_pages=0))
        with pytest.raises(RequestTooLongForMemoryError):
            await kit.read(running.house, kit.request("other", max_new_tokens=6, **greedy))
        assert (await kit.read(running.house, kit.request("same", **greedy))).text == first.text
        await running.is_empty()
