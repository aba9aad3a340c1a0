"""Answers that equal requests share, in a whole house on fakes: hits, followers, and what is never shared."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import trio

from memra.actors.account import Account
from memra.actors.accounting import Accounting
from memra.actors.replies import ReplyStream
from memra.actors.request_meta import meta_of
from memra.actors.request_walk import RequestWalk
from memra.actors.shared_answers import Lead, SharedAnswers
from memra.actors.walks_together import walk_in
from memra.errors import BusyError, EngineFaultError, OverloadedError
from memra.gate.answer_key import AnswerKey
from memra.gate.response_cache import ResponseCache, StoredAnswer
from memra.gate.slots import lane_limits
from memra.messages.generation import Usage
from memra.messages.sampling import SamplingParams
from memra.messages.work import RequestFailed, SubmitPrompt
from memra.types import CacheStatus, Lane, RequestId, StopCause

GREEDY = SamplingParams(temperature=0.0)


class Answers(SharedAnswers):
    """Shared answers whose weights a test may change."""

    def __init__(self, limit_bytes: int = 1 << 20) -> None:
        self.weights = "w"
        self.num_claims = 0
        self.store = ResponseCache(limit_bytes, ttl_s=60.0)
        super().__init__(self.store, weights_of=self._name)

    def _name(self, prompt: SubmitPrompt) -> str:
        return f"{self.weights} {prompt.instance}"

    async def claim(self, *request: Any) -> Any:
        self.num_claims += 1  # whoever sees this runs when the request waits already
        return await super().claim(*request)

    @property
    def counts(self) -> tuple[int, int, int]:
        report = self.report()
        return report["hits"], report["misses"], report["entries"]


@pytest.fixture
def answers() -> Answers:
    return Answers()


def ask(kit: Any, name: str, **changes: Any) -> Any:
    return kit.request(name, **{"sampling": GREEDY, "may_reuse_answer": True, **changes})


class Clients:
    """Requests in tasks of their own, each of which may leave."""

    def __init__(self, kit: Any, running: Any, nursery: trio.Nursery, answers: Answers) -> None:
        self.kit = kit
        self.running = running
        self.shared = answers
        self.nursery = nursery
        self.scopes: dict[str, trio.CancelScope] = {}
        self.answers: dict[str, Any] = {}
        self.errors: dict[str, Exception] = {}

    async def start(self, *names: str, **changes: Any) -> None:
        """Start them one after the other, each when the one before waits for the worker or for another."""
        for name in names:
            num_before = self.shared.num_claims
            self.nursery.start_soon(self._run, ask(self.kit, name, **changes))
            await self.kit.eventually(lambda before=num_before: self.shared.num_claims > before)
        await self.kit.eventually(self.running.engine.entered_step.is_set)  # the first leader has its row

    def leave(self, name: str) -> None:
        self.scopes[name].cancel()

    async def _run(self, request: Any) -> None:
        name = request.request_id
        with trio.CancelScope() as self.scopes[name]:
            try:
                self.answers[name] = await self.kit.read(self.running.house, request)
            except (EngineFaultError, OverloadedError) as error:
                self.errors[name] = error


@asynccontextmanager
async def open_clients(kit: Any, running: Any, answers: Answers) -> AsyncIterator[Clients]:
    """Run clients; fails when one of them hangs."""
    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            yield Clients(kit, running, nursery, answers)


def status(answer: Any) -> CacheStatus:
    return answer.finished[0].cache


async def test_the_second_of_two_equal_requests_is_not_computed(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        first = await kit.read(running.house, ask(kit, "a"))
        second = await kit.read(running.house, ask(kit, "b"))
        assert [prompt.request_id for prompt in running.engine.submitted] == ["a"]
        assert (status(first), status(second)) == (CacheStatus.MISS, CacheStatus.HIT)
        assert (first.text, first.token_ids, first.started) == (second.text, second.token_ids, second.started)
        computed, given = first.finished[0], second.finished[0]
        assert (computed.stop, replace(computed.usage, elapsed_s=0)) == (given.stop, replace(given.usage, elapsed_s=0))
        assert given.usage.cached_tokens == 2
        assert given.usage.elapsed_s > 0
        assert answers.counts == (1, 1, 1)
        await running.is_empty()


async def test_a_hit_is_metered_like_any_other_request(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        for name in "ab":
            await kit.read(running.house, ask(kit, name))
        await running.is_empty()
        computed, given = running.ended
        assert (given.request_id, given.stop, given.failed) == ("b", StopCause.MAX_TOKENS, False)
        assert (given.usage.prompt_tokens, given.usage.completion_tokens) == (5, 5)
        assert computed.usage.completion_tokens == 5
        assert running.engine.aborted == []


async def test_a_stop_string_ends_a_hit_where_it_ended_the_computation(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        for name in "ab":
            found = await kit.read(running.house, ask(kit, name, stop_strings=("cd",), max_new_tokens=50))
            assert (found.text, found.finished[0].stop) == ("ab", StopCause.STOP_STRING)
            assert found.finished[0].usage.completion_tokens == 4
        assert len(running.engine.submitted) == 1


async def test_a_seed_of_the_client_makes_a_draw_repeatable(kit: Any, answers: Answers):
    drawing = SamplingParams(temperature=1.0, seed=7)
    async with kit.open_house(answers=answers) as running:
        for name in "ab":
            await kit.read(running.house, ask(kit, name, sampling=drawing, has_seed=True))
        await kit.read(running.house, ask(kit, "c", sampling=replace(drawing, seed=8), has_seed=True))
        assert [prompt.request_id for prompt in running.engine.submitted] == ["a", "c"]


@pytest.mark.parametrize(
    "changes", [{"sampling": SamplingParams(temperature=1.0, seed=7)}, {"may_reuse_answer": False}], ids=str
)
async def test_what_depends_on_chance_or_is_streamed_is_neither_read_nor_kept(kit: Any, answers: Answers, changes: Any):
    async with kit.open_house(answers=answers) as running:
        for name in "ab":
            assert status(await kit.read(running.house, ask(kit, name, **changes))) is CacheStatus.SKIP
        assert len(running.engine.submitted) == 2
        assert answers.counts == (0, 0, 0)


async def test_without_a_cache_every_request_is_computed(kit: Any):
    async with kit.open_house() as running:
        for name in "ab":
            assert status(await kit.read(running.house, ask(kit, name))) is CacheStatus.SKIP
        assert len(running.engine.submitted) == 2
        empty = {"hits": 0, "misses": 0, "entries": 0, "bytes": 0, "limit_bytes": 0}
        assert (await running.house.report_caches())["response_cache"] == empty


async def test_no_answer_crosses_a_salt(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        for name, salt in (("a", ""), ("b", "one"), ("c", "two")):
            assert status(await kit.read(running.house, ask(kit, name, cache_salt=salt))) is CacheStatus.MISS
        assert status(await kit.read(running.house, ask(kit, "d", cache_salt="one"))) is CacheStatus.HIT
        assert len(running.engine.submitted) == 3


async def test_nobody_follows_across_a_salt(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start("a")
            await clients.start("b", cache_salt="s")
            running.engine.release()
        assert len(running.engine.submitted) == 2


async def test_new_weights_never_give_an_old_answer(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        await kit.read(running.house, ask(kit, "a"))
        answers.weights = "v"
        assert status(await kit.read(running.house, ask(kit, "b"))) is CacheStatus.MISS
        answers.forget("w 0")
        assert answers.report()["entries"] == 1


async def test_what_old_weights_are_computing_is_not_kept(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start("a", "b")
            answers.forget("w 0")
            running.engine.release()
        assert status(clients.answers["b"]) is CacheStatus.HIT
        assert answers.report()["entries"] == 0


async def test_equal_requests_at_the_same_time_are_computed_once(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start(*"abcd")
            assert running.num_slots_held == 4
            assert len(running.engine.rows) <= 1
            running.engine.release()
        assert [prompt.request_id for prompt in running.engine.submitted] == ["a"]
        assert {answer.text for answer in clients.answers.values()} == {"abcde"}
        assert [status(clients.answers[name]).value for name in "abcd"] == ["miss", "hit", "hit", "hit"]
        assert answers.counts == (3, 1, 1)
        await running.is_empty()
        assert len(running.ended) == 4
        assert all(record.usage.completion_tokens == 5 for record in running.ended)


async def test_followers_are_served_although_the_answer_is_too_large_to_keep(kit: Any):
    answers = Answers(limit_bytes=100)
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start(*"ab")
            running.engine.release()
        assert status(clients.answers["b"]) is CacheStatus.HIT
        assert answers.counts == (1, 1, 0)


async def test_a_leader_that_leaves_makes_one_follower_the_next(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start(*"abc")
            running.engine.allow(2)  # the leader has half an answer
            clients.leave("a")
            await kit.eventually(lambda: running.num_slots_held == 2)
            running.engine.release()
        assert sorted(clients.answers) == ["b", "c"]
        assert {answer.text for answer in clients.answers.values()} == {"abcde"}
        assert sorted(status(answer).value for answer in clients.answers.values()) == ["hit", "miss"]
        assert len(running.engine.submitted) == 2
        await running.is_empty()


async def test_a_follower_that_leaves_disturbs_nobody(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start(*"abc")
            clients.leave("b")
            await kit.eventually(lambda: running.num_slots_held == 2)
            running.engine.release()
        assert sorted(clients.answers) == ["a", "c"]
        assert [prompt.request_id for prompt in running.engine.submitted] == ["a"]
        await running.is_empty()
        left = next(record for record in running.ended if record.request_id == "b")
        assert (left.stop, left.usage, left.failed) == (None, None, False)


async def test_everybody_may_leave(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start(*"abc")
            clients.nursery.cancel_scope.cancel()
        running.engine.release()
        await running.is_empty()
        assert answers.report()["entries"] == 0
        assert status(await kit.read(running.house, ask(kit, "d"))) is CacheStatus.MISS


async def test_a_failure_is_the_leaders_alone(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start(*"abc")
            running.engine.failures.append(RequestFailed(RequestId("a"), "broken"))
            running.engine.release()
        assert list(clients.errors) == ["a"]
        assert sorted(clients.answers) == ["b", "c"]
        assert len(running.engine.submitted) == 2
        await running.is_empty()


async def test_what_failed_is_not_kept(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        running.engine.failures.append(RequestFailed(RequestId("a"), "broken"))
        with pytest.raises(EngineFaultError):
            await kit.read(running.house, ask(kit, "a"))
        assert answers.report()["entries"] == 0
        assert status(await kit.read(running.house, ask(kit, "b"))) is CacheStatus.MISS


async def test_what_was_left_half_read_is_not_kept(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        async with running.house.open_reply(ask(kit, "a", max_new_tokens=900)) as reply:
            await anext(aiter(reply))
        assert answers.report()["entries"] == 0
        await running.is_empty()


async def test_a_prompt_that_the_worker_does_not_take_leaves_no_leader_behind(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        running.worker.give_up("no worker will come")
        with pytest.raises(OverloadedError):
            await kit.read(running.house, ask(kit, "a"))
        running.worker.open()
        assert status(await kit.read(running.house, ask(kit, "b"))) is CacheStatus.MISS


async def test_a_cut_reaches_those_who_wait_for_another(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start(*"abc")
            running.replies.cut_all(OverloadedError("The server shut down."))
        assert sorted(clients.errors) == ["a", "b", "c"]
        running.engine.release()
        await running.is_empty()
        assert [prompt.request_id for prompt in running.engine.submitted] == ["a"]
        assert answers.report()["entries"] == 0


async def test_an_interactive_request_does_not_wait_for_a_harvest_row(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with open_clients(kit, running, answers) as clients:
            await clients.start("a", lane=Lane.HARVEST)
            await clients.start("b", lane=Lane.INTERACTIVE)
            running.engine.release()
        assert len(running.engine.submitted) == 2
        # What is kept is kept for all lanes.
        assert status(await kit.read(running.house, ask(kit, "c", lane=Lane.JUDGE))) is CacheStatus.HIT


async def test_followers_count_against_their_lane(kit: Any, answers: Answers):
    house = {"limits": lane_limits(max_judge=2), "make_engine": lambda: kit.Engine(is_manual=True)}
    async with kit.open_house(answers=answers, **house) as running, open_clients(kit, running, answers) as clients:
        await clients.start(*"ab", lane=Lane.JUDGE)
        with pytest.raises(BusyError, match="judge lane is at capacity"):
            await kit.read(running.house, ask(kit, "c", lane=Lane.JUDGE))
        running.engine.release()


async def test_the_metrics_tell_of_the_cache(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        for name in "aab":
            await kit.read(running.house, ask(kit, name))
        metrics = await running.house.report_metrics()
        assert (metrics["response_cache_hits"], metrics["response_cache_misses"]) == (2, 1)
        report = (await running.house.report_caches())["response_cache"]
        assert metrics["response_cache_entries"] == report["entries"] == 1
        assert metrics["response_cache_bytes"] == report["bytes"] == answers.store.num_bytes > 0
        assert report["limit_bytes"] == 1 << 20


async def test_leaving_twice_ends_a_lead_once(kit: Any, answers: Answers):
    async with kit.open_house(answers=answers) as running:
        walk = RequestWalk(ask(kit, "a"), running.house._stations)
        await walk_in([walk], Account(Accounting(), meta_of(ask(kit, "a"))))
        walk.leave()
        walk.leave()
        assert status(await kit.read(running.house, ask(kit, "b"))) is CacheStatus.MISS


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_leaders_and_followers_do_everybody_who_stays_is_served(answers: Answers, seed: int):
    """Thirty clients of three keys; leaders answer, fail or leave, followers leave or wait."""
    random = Random(seed)  # noqa: S311  (reproducible, not secret)
    answer = StoredAnswer("x", b"", StopCause.MAX_TOKENS, Usage(1, 1, 0, 0.1))
    outcomes: dict[str, int] = {"led": 0, "failed": 0, "given": 0, "left": 0}
    plans = [(random.choice("abc"), random.choice(["stay", "fail", "leave"]), random.randrange(20)) for _ in range(30)]

    async def client(name: str, plan: str, num_turns: int) -> None:
        with trio.CancelScope() as scope:
            if plan == "leave":
                nursery.start_soon(leave_after, scope, num_turns)
            for _ in range(num_turns % 7):
                await trio.lowlevel.checkpoint()
            claimed = await answers.claim(AnswerKey("w", "t", name.encode()), Lane.INTERACTIVE, ReplyStream())
            if not isinstance(claimed, Lead):
                assert claimed is answer
                outcomes["given"] += 1
                return
            try:
                for _ in range(num_turns):
                    await trio.lowlevel.checkpoint()
                if plan != "fail":
                    claimed.end(answer)
                outcomes["failed" if plan == "fail" else "led"] += 1
            finally:
                claimed.end(None)
        outcomes["left"] += scope.cancelled_caught

    async def leave_after(scope: trio.CancelScope, num_turns: int) -> None:
        for _ in range(num_turns):
            await trio.lowlevel.checkpoint()
        scope.cancel()

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for plan in plans:
                nursery.start_soon(client, *plan)
    assert sum(outcomes.values()) == len(plans)
    assert outcomes["left"] <= sum(plan == "leave" for _, plan, _ in plans)
    assert not answers._computations
    hits, misses, _ = answers.counts
    assert hits == outcomes["given"]
    assert misses <= len(plans) - hits
    assert outcomes["led"] <= 3, "a stored answer was computed again"
    answers.store.check_integrity()
