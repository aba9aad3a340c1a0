"""Several answers under one request: what they share, and that none is left when one of them ends badly."""

import threading
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from memra.actors.choices import has_several_answers, take_apart
from memra.errors import ContextLengthError, DeadlineExceededError, WorkerFaultError
from memra.gate.slots import LaneLimit
from memra.messages.generation import ReplyDelta, ReplyFinished, TextPrompt
from memra.messages.sampling import SamplingParams
from memra.messages.work import RequestFailed
from memra.types import Lane, RequestId, StopCause


def manual(kit: Any) -> Any:
    return lambda: kit.Engine(is_manual=True)


def texts_of(answer: Any) -> dict[int, str]:
    texts: defaultdict[int, str] = defaultdict(str)
    for delta in answer.deltas:
        texts[delta.choice] += delta.text
    return dict(texts)


def test_prompts_come_in_order_and_each_with_all_its_choices(kit: Any):
    further = (TextPrompt("b"), TextPrompt("c"))
    whole = kit.request(prompt=TextPrompt("a"), further_prompts=further, num_choices=2, may_reuse_answer=True)
    parts = take_apart(whole)
    assert [(part.request_id, part.prompt.text, part.choice) for part in parts] == [
        ("r1", "a", 0),
        ("r1-1", "a", 1),
        ("r1-2", "b", 0),
        ("r1-3", "b", 1),
        ("r1-4", "c", 0),
        ("r1-5", "c", 1),
    ]
    assert [part.part_of for part in parts] == [None, *["r1"] * 5]
    assert not any(has_several_answers(part) or part.may_reuse_answer for part in parts)
    assert has_several_answers(whole)
    assert not has_several_answers(kit.request())


def test_every_choice_has_the_next_seed_and_the_largest_is_followed_by_zero(kit: Any):
    parts = take_apart(kit.request(num_choices=3, sampling=SamplingParams(seed=2**64 - 2)))
    assert [part.sampling.seed for part in parts] == [2**64 - 2, 2**64 - 1, 0]


async def test_all_choices_are_told_whole_and_the_prompt_is_counted_once(kit: Any):
    async with kit.open_house() as running:
        answer = await kit.read(running.house, kit.request(num_choices=3))
        assert texts_of(answer) == dict.fromkeys(range(3), "abcde")
        stops = {delta.choice: delta.stop for delta in answer.deltas if delta.stop}
        (finished,) = answer.finished
        assert {**stops, finished.choice: finished.stop} == dict.fromkeys(range(3), StopCause.MAX_TOKENS)
        assert finished.choice not in stops
        assert (finished.usage.prompt_tokens, finished.usage.cached_tokens) == (5, 2)
        assert finished.usage.completion_tokens == 15
        await running.is_empty()
        assert sum(ended.usage.prompt_tokens for ended in running.ended) == 5
        assert sum(ended.usage.completion_tokens for ended in running.ended) == 15


async def test_every_prompt_of_several_is_counted(kit: Any):
    async with kit.open_house() as running:
        wanted = kit.request(further_prompts=(TextPrompt("four"),), num_choices=2, wants_echo=True)
        answer = await kit.read(running.house, wanted)
        assert texts_of(answer) == {0: "what?abcde", 1: "what?abcde", 2: "fourabcde", 3: "fourabcde"}
        assert answer.finished[0].usage.prompt_tokens == 9
        await running.is_empty()


async def test_a_prompt_is_rendered_once_for_all_its_answers(kit: Any):
    async with kit.open_house() as running:
        wanted = kit.request(further_prompts=(TextPrompt("four"),), num_choices=3, stop_strings=("de",))
        answer = await kit.read(running.house, wanted)
        assert texts_of(answer) == dict.fromkeys(range(6), "abc")
        told = [(message.prompt.text, message.num_answers) for message in running.renderer.messages]
        assert told == [("what?", 3), ("four", 3)]
        await running.is_empty()


async def test_a_deadline_leaves_what_the_other_choices_have(kit: Any, mock_clock: MockClock):
    async with kit.open_house(make_engine=manual(kit)) as running:
        running.engine.held = {"r1-1"}
        wanted = kit.request(num_choices=3, timeout_ms=1500, max_new_tokens=80)
        async with running.house.open_reply(wanted) as reply:
            await step_until(kit, running, lambda: "r1-2" in running.engine.rows)
            await step_until(kit, running, lambda: running.engine.rows["r1-2"].num_generated)
            mock_clock.jump(1.6)
            parts = [part async for part in reply]
            running.engine.release()
        texts: defaultdict[int, str] = defaultdict(str)
        for part in parts:
            if isinstance(part, ReplyDelta):
                texts[part.choice] += part.text
        assert (texts[0][:1], texts[1], texts[2][:1]) == ("a", "", "a")
        stops = {
            part.choice: part.stop for part in parts if isinstance(part, (ReplyDelta, ReplyFinished)) and part.stop
        }
        assert stops == dict.fromkeys(range(3), StopCause.DEADLINE)
        assert parts[-1].usage.completion_tokens == len(texts[0] + texts[2])
        await running.is_empty()


async def test_a_deadline_before_any_token_of_any_choice_is_an_error(kit: Any, mock_clock: MockClock):
    async with kit.open_house(make_engine=manual(kit)) as running:
        async with running.house.open_reply(kit.request(num_choices=3, timeout_ms=1500)) as reply:
            await kit.eventually(running.engine.entered_step.is_set)
            mock_clock.jump(1.6)
            with pytest.raises(DeadlineExceededError):
                async for _ in reply:
                    pass
            running.engine.release()
        await running.is_empty()


async def step_until(kit: Any, running: Any, condition: Any) -> None:
    """Let the worker take steps, one by one, until something is so."""
    await kit.eventually(running.engine.entered_step.is_set)
    while not condition():
        num_entered = running.engine.num_entered
        running.engine.allow()
        await kit.eventually(lambda: running.engine.num_entered > num_entered)  # noqa: B023  (it is done with by then)


class SecondGate(threading.Event):
    """Lets the first prompt through, and holds up the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.num_prompts = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.num_prompts += 1
        return self.num_prompts != 2 or super().wait(timeout)


async def test_a_deadline_on_a_later_prompts_way_in_ends_all_before_any_is_computed(kit: Any, mock_clock: MockClock):
    async with kit.open_house() as running:
        gate = running.renderer.gate = SecondGate()
        wanted = kit.request(further_prompts=(TextPrompt("late"),), timeout_ms=1500, max_new_tokens=80)
        refusals: list[DeadlineExceededError] = []

        async def client() -> None:
            with pytest.raises(DeadlineExceededError) as refused:
                await kit.read(running.house, wanted)
            refusals.append(refused.value)

        async with trio.open_nursery() as clients:
            clients.start_soon(client)
            await kit.eventually(lambda: len(running.renderer.messages) == 2)
            await trio.testing.wait_all_tasks_blocked()
            mock_clock.jump(1.6)
            await kit.eventually(lambda: refusals)
            gate.set()
        assert running.engine.submitted == []
        await running.is_empty()


async def test_one_slot_is_enough_for_all_choices(kit: Any):
    async with kit.open_house(limits={lane: LaneLimit(1) for lane in Lane}) as running:
        async with running.house.open_reply(kit.request(num_choices=8)) as reply:
            assert running.num_slots_held == 1
            assert (reply.admitted.request_id, reply.admitted.slots_remaining) == ("r1", 0)
            parts = [part async for part in reply]
        assert isinstance(parts[-1], ReplyFinished)
        await running.is_empty()


async def test_a_client_that_leaves_takes_every_choice_with_it(kit: Any):
    async with kit.open_house() as running:
        async with running.house.open_reply(kit.request(num_choices=3, max_new_tokens=400)) as reply:
            async for part in reply:
                if isinstance(part, ReplyDelta):
                    break
        # A fast worker may have completed one before its reader came to leave.
        await kit.eventually(lambda: len(running.engine.aborted) + running.engine.num_completed == 3)
        assert set(running.engine.aborted) <= {"r1", "r1-1", "r1-2"}
        await running.is_empty()


async def test_a_client_that_is_cancelled_takes_every_choice_with_it(kit: Any):
    async with kit.open_house() as running:
        with trio.CancelScope() as scope:
            async with running.house.open_reply(kit.request(num_choices=3, max_new_tokens=400)) as reply:
                await anext(aiter(reply))
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        await running.is_empty()


async def test_the_failure_of_one_choice_ends_all_and_is_told_as_it_is(kit: Any):
    async with kit.open_house() as running:
        running.engine.failures = [RequestFailed(RequestId("r1-1"), "broken")]
        with pytest.raises(WorkerFaultError):
            await kit.read(running.house, kit.request(num_choices=3, max_new_tokens=400))
        await running.is_empty()


async def test_nothing_is_held_when_one_prompt_is_refused(kit: Any):
    async with kit.open_house() as running:
        wanted = kit.request(further_prompts=(TextPrompt("x" * 2000),))
        with pytest.raises(ContextLengthError):
            async with running.house.open_reply(wanted):
                pytest.fail("it was let in")
        await running.is_empty()


async def test_a_choice_ends_alone_at_its_stop_string(kit: Any):
    async with kit.open_house() as running:
        answer = await kit.read(running.house, kit.request(num_choices=2, max_new_tokens=400, stop_strings=("def",)))
        assert texts_of(answer) == {0: "abc", 1: "abc"}
        assert answer.finished[0].stop is StopCause.STOP_STRING
        await running.is_empty()


async def test_an_error_of_the_reader_leaves_without_a_group_around_it(kit: Any):
    async with kit.open_house() as running:
        with pytest.raises(KeyError):
            async with running.house.open_reply(kit.request(num_choices=2)):
                raise KeyError
        await running.is_empty()


async def test_the_choices_of_one_request_are_no_other_requests(kit: Any):
    async with kit.open_house() as running:
        first, second = kit.request("a", num_choices=2), replace(kit.request("b"), num_choices=2)
        assert texts_of(await kit.read(running.house, first)) == texts_of(await kit.read(running.house, second))
        await running.is_empty()
