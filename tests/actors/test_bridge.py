import logging
import re
import threading
from typing import Any

import pytest
import trio

from memra.actors.doorkeeper import Doorkeeper
from memra.errors import (
    AuthenticationError,
    BusyError,
    ContextLengthError,
    EngineFaultError,
    OverloadedError,
    TemplateError,
    UnknownModelError,
    UnknownRequestError,
)
from memra.gate.keys import KeyLaw
from memra.gate.slots import LaneLimit
from memra.messages.constraint import AnswerGrammar, GrammarKind
from memra.messages.generation import ChatPrompt, TextPrompt, TokenPrompt
from memra.messages.identity import ANYBODY, Credentials, Identity
from memra.messages.work import RequestFailed
from memra.types import Lane, ModelName, RequestId, StopCause


async def test_an_answer_comes_in_order_and_complete(kit: Any):
    async with kit.open_house() as running:
        answer = await kit.read(running.house, kit.request())
        assert [(part.num_prompt_tokens, part.num_cached_tokens) for part in answer.started] == [(5, 2)]
        assert answer.text == "abcde"
        assert answer.token_ids == tuple(map(ord, "abcde"))
        (finished,) = answer.finished
        assert finished.stop is StopCause.MAX_TOKENS
        assert finished.usage.prompt_tokens == 5
        assert finished.usage.completion_tokens == 5
        assert finished.usage.cached_tokens == 2
        assert finished.usage.elapsed_s > 0
        await running.is_empty()


async def test_the_ending_token_counts_but_is_not_shown(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(answer="xy")) as running:
        answer = await kit.read(running.house, kit.request())
        assert answer.text == "xy"
        assert answer.finished[0].stop is StopCause.END_OF_SEQUENCE
        assert answer.finished[0].usage.completion_tokens == 3


async def test_a_stop_string_ends_the_answer_before_it_and_frees_the_row(kit: Any):
    async with kit.open_house() as running:
        answer = await kit.read(running.house, kit.request(max_new_tokens=400, stop_strings=("def", "zzz")))
        assert answer.text == "abc"
        assert answer.token_ids == tuple(map(ord, "abcdef"))
        assert answer.finished[0].stop is StopCause.STOP_STRING
        assert answer.finished[0].stop_string == "def"
        assert answer.finished[0].usage.completion_tokens == 6
        await kit.eventually(lambda: running.engine.aborted == ["r1"])
        await running.is_empty()


async def test_text_held_back_for_a_stop_string_comes_at_the_end(kit: Any):
    async with kit.open_house() as running:
        answer = await kit.read(running.house, kit.request(max_new_tokens=5, stop_strings=("def!",)))
        assert answer.text == "abcde"
        assert answer.finished[0].stop is StopCause.MAX_TOKENS


async def test_a_slow_reader_gets_everything_that_waits_in_one_piece(kit: Any):
    async with kit.open_house() as running:
        async with running.house.open_reply(kit.request(max_new_tokens=50)) as reply:
            await kit.eventually(lambda: running.engine.num_completed == 1)
            # The worker answers behind the step that completed the request, so that step's events have arrived by then.
            await running.house.report_metrics()
            parts = [part async for part in reply]
        assert len(parts) == 3
        assert len(parts[1].token_ids) == 50


async def test_without_a_limit_the_context_bounds_the_answer(kit: Any):
    async with kit.open_house() as running:
        answer = await kit.read(running.house, kit.request(max_new_tokens=None))
        assert answer.finished[0].stop is StopCause.CONTEXT_FULL
        assert answer.finished[0].usage.completion_tokens == 495


async def test_stop_tokens_of_client_and_model_reach_the_worker(kit: Any):
    async with kit.open_house() as running:
        await kit.read(running.house, kit.request(stop_token_ids=frozenset({7})))
        (submitted,) = running.engine.submitted
        assert submitted.stop_ids == {7}
        assert submitted.eos_ids == {0}
        assert running.renderer.messages[0].stop_token_ids == {7}, "templating knows the vocabulary"


async def test_a_stop_string_frees_the_row_while_the_client_still_holds_the_answer(kit: Any):
    async with kit.open_house() as running:
        wanted = kit.request(max_new_tokens=400, stop_strings=("def",))
        async with running.house.open_reply(wanted) as reply:
            assert [part async for part in reply][-1].stop is StopCause.STOP_STRING
            await kit.eventually(lambda: running.engine.aborted)
        await running.is_empty()
        assert running.engine.aborted == ["r1"]


async def test_who_sends_a_request_is_found_before_anything_else_is_known(kit: Any):
    async with kit.open_house(doorkeeper=Doorkeeper(KeyLaw("secret"))) as running:
        assert await running.house.identify(Credentials("secret")) == ANYBODY
        for wrong in ("wrong", None):
            with pytest.raises(AuthenticationError):
                await running.house.identify(Credentials(wrong))
        await running.is_empty()
        assert running.ended == []


async def test_the_house_believes_whom_the_door_found(kit: Any, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", logger="memra.actors.admission")
    async with kit.open_house() as running:
        who = Identity("acme", "mk-acme-1", max_inflight=3, is_named=True)
        async with running.house.open_reply(kit.request(identity=who, cache_salt="s", lane=Lane.JUDGE)) as reply:
            assert (reply.admitted.tenant, reply.admitted.slots_limit, reply.admitted.slots_remaining) == ("acme", 3, 2)
            assert [part async for part in reply]
        await running.is_empty()
        assert running.engine.submitted[0].namespace == "t:acme\x1fs"
        assert [record.tenant for record in running.ended] == ["acme"]
    assert "[meter] admit id=r1 tenant=acme lane=judge model=fake" in caplog.text


async def test_a_tenants_keys_share_its_slots_and_others_have_their_own(kit: Any):
    narrow, wide = (Identity("acme", name, max_inflight=limit) for name, limit in (("a", 1), ("b", 2)))
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request("r1", identity=narrow, num_choices=2)):
            with pytest.raises(BusyError, match="acme has 1 requests under way") as refused:
                await kit.read(running.house, kit.request("r2", identity=narrow))
            assert (refused.value.slots_limit, refused.value.slots_remaining) == (1, 0)
            async with running.house.open_reply(kit.request("r3", identity=wide)) as reply:
                assert reply.admitted.slots_remaining == 0
            other = kit.request("r4", identity=Identity("other", max_inflight=1))
            async with running.house.open_reply(other) as reply:
                assert reply.admitted.slots_limit == 1
        running.engine.release()
        await running.is_empty()


async def test_only_the_tenant_of_a_request_ends_it(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request(identity=Identity("acme"))):
            with pytest.raises(UnknownRequestError):
                await running.house.cancel(RequestId("r1"), Identity("other"))
            await running.house.cancel(RequestId("r1"), Identity("acme", "another key of theirs"))
        running.engine.release()
        await running.is_empty()


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (TextPrompt("x"), "prompt"),
        (TokenPrompt((1,)), "prompt_ids"),
        (ChatPrompt(({"role": "user", "content": "x"},)), "messages"),
        (ChatPrompt(({"role": "user", "content": "x"},), param="prompt"), "prompt"),
    ],
)
async def test_a_prompt_that_is_too_long_is_blamed_on_the_field_that_was_sent(kit: Any, prompt: Any, param: str):
    async with kit.open_house() as running:
        running.renderer.num_prompt_tokens = 1000
        with pytest.raises(ContextLengthError) as refused:
            await kit.read(running.house, kit.request(prompt=prompt))
        assert refused.value.param == param


@pytest.mark.parametrize(
    ("changes", "error", "param"),
    [
        ({"model": ModelName("nope")}, UnknownModelError, "model"),
        ({"prompt": TextPrompt("x" * 1000)}, ContextLengthError, "prompt"),
    ],
)
async def test_a_refused_request_holds_nothing(
    kit: Any, changes: dict[str, Any], error: type[Exception], param: str | None
):
    async with kit.open_house() as running:
        with pytest.raises(error) as refused:
            await kit.read(running.house, kit.request(**changes))
        assert refused.value.param == param
        await running.is_empty()
        assert running.engine.submitted == []


async def test_a_full_lane_refuses_and_recovers(kit: Any):
    limits = {lane: LaneLimit(1) for lane in Lane}
    async with kit.open_house(limits=limits, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request("r1", lane=Lane.JUDGE)) as reply:
            assert (reply.admitted.slots_limit, reply.admitted.slots_remaining) == (1, 0)
            with pytest.raises(BusyError, match="judge") as refused:
                await kit.read(running.house, kit.request("r2", lane=Lane.JUDGE))
            assert refused.value.retry_after_s == 2.0
            assert (refused.value.slots_limit, refused.value.slots_remaining) == (1, 0)
        running.engine.release()
        await running.is_empty()
        assert (await kit.read(running.house, kit.request("r3", lane=Lane.JUDGE))).text == "abcde"


async def test_a_template_error_reaches_the_client_as_it_is(kit: Any):
    async with kit.open_house() as running:
        running.renderer.error = TemplateError("roles must alternate", param="messages")
        with pytest.raises(TemplateError, match="roles must alternate"):
            await kit.read(running.house, kit.request())
        await running.is_empty()
        assert [(record.stop, record.usage, record.failed) for record in running.ended] == [(None, None, False)]


async def test_a_broken_renderer_is_our_fault_and_its_words_stay_out_of_the_log(
    kit: Any, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    async with kit.open_house() as running:
        running.renderer.error = RuntimeError("the prompt was: secret words")
        with pytest.raises(EngineFaultError):
            await kit.read(running.house, kit.request())
        await running.is_empty()
        assert running.ended[0].failed
        running.renderer.error = None
        assert (await kit.read(running.house, kit.request("r2"))).text == "abcde"
    assert "RuntimeError" in caplog.text
    assert "secret words" not in caplog.text


FAILURES = [(RequestFailed(RequestId("r1"), "out of secret memory", overloaded=True), OverloadedError)]
FAILURES += [(RequestFailed(RequestId("r1"), "secret bug"), EngineFaultError)]


@pytest.mark.parametrize(("failure", "error"), FAILURES)
async def test_a_request_that_fails_in_the_engine_fails_alone(kit: Any, failure: RequestFailed, error: type[Exception]):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with (
            running.house.open_reply(kit.request("r1")) as broken,
            running.house.open_reply(kit.request("r2")) as sound,
        ):
            running.engine.failures = [failure]
            running.engine.release()
            with pytest.raises(error) as failed:
                [part async for part in broken]
            assert "secret" not in failed.value.message
            with pytest.raises(error):
                await broken.__anext__()
            assert [part async for part in sound]
        await running.is_empty()
        assert {record.request_id: record.failed for record in running.ended} == {"r1": True, "r2": False}
        assert "r1" not in running.engine.aborted


async def test_every_admitted_request_leaves_one_record(kit: Any):
    async with kit.open_house() as running:
        for number in range(5):
            await kit.read(running.house, kit.request(f"r{number}"))
        await running.is_empty()
        assert [record.request_id for record in running.ended] == [f"r{number}" for number in range(5)]
        record = running.ended[0]
        assert (record.model, record.tenant, record.lane, record.failed) == (
            "fake",
            "default",
            Lane.INTERACTIVE,
            False,
        )
        assert record.stop is StopCause.MAX_TOKENS
        assert record.usage is not None
        assert record.usage.completion_tokens == 5


async def test_an_observer_that_fails_disturbs_nobody(kit: Any, caplog: pytest.LogCaptureFixture):
    def fail(_record: object) -> None:
        raise RuntimeError("observer")

    async with kit.open_house(observe=fail) as running:
        await kit.read(running.house, kit.request("r1"))
        assert (await kit.read(running.house, kit.request("r2"))).text == "abcde"
        await running.is_empty()
    assert "observer failed" in caplog.text


async def test_a_request_id_in_use_is_refused_without_harm_to_its_owner(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request()) as reply:
            with pytest.raises(ValueError, match="in use"):
                await kit.read(running.house, kit.request())
            await trio.testing.wait_all_tasks_blocked()
            running.engine.release()
            assert len([part async for part in reply]) >= 3
        await running.is_empty()


async def test_a_thousand_short_requests_leave_nothing_behind(kit: Any):
    async with kit.open_house() as running:

        async def client(number: int) -> None:
            for turn in range(50):
                answer = await kit.read(running.house, kit.request(f"c{number}-{turn}", max_new_tokens=3))
                assert answer.text == "abc"

        async with trio.open_nursery() as clients:
            for number in range(20):
                clients.start_soon(client, number)
        await running.is_empty()
        assert len(running.ended) == 1000
        assert running.engine.aborted == []
        assert running.house._stations.admission.actor_inbox.empty()


async def test_metrics_have_the_public_keys(kit: Any):
    async with kit.open_house() as running:
        await kit.read(running.house, kit.request())
        metrics = await running.house.report_metrics()
        assert metrics["admitted"] == 1
        assert metrics["completed"] == 1
        assert metrics["computed_tokens_in"] == 30
        assert metrics["cache_hit_token_ratio"] == 0.25
        assert metrics["worker_respawns_total"] == 0
        assert set(metrics) >= {
            "tokens_out",
            "step_p50_ms",
            "step_p99_ms",
            "prompt_tokens_in",
            "cached_tokens_in",
            "serve_idle_seconds",
            "active_sessions",
            "queued_requests",
            "aborted",
            "failed",
        }


def test_the_house_gives_what_the_front_door_asks_for():
    from memra.actors.bridge import ActorHouse  # noqa: PLC0415
    from memra.actors.contract import House  # noqa: PLC0415

    wanted = {name for name in vars(House) if re.match(r"[a-z]", name)}
    assert wanted <= set(dir(ActorHouse))


async def test_a_grammar_goes_to_templating_and_what_comes_of_it_to_the_worker(kit: Any):
    grammar = AnswerGrammar(GrammarKind.REGEX, "a+", "regex")
    async with kit.open_house() as running:
        running.renderer.constraint = constraint = object()
        await kit.read(running.house, kit.request(grammar=grammar))
        assert [message.grammar for message in running.renderer.messages] == [grammar]
        assert [prompt.constraint for prompt in running.engine.submitted] == [constraint]


async def test_a_grammar_that_takes_long_holds_up_no_other_prompt(kit: Any):
    async with kit.open_house() as running:
        running.renderer.gate = gate = threading.Event()
        async with trio.open_nursery() as clients:
            bound = kit.request("bound", grammar=AnswerGrammar(GrammarKind.REGEX, "a+", "regex"))
            clients.start_soon(kit.read, running.house, bound)
            await kit.eventually(running.renderer.entered.is_set)
            running.renderer.gate = None
            await kit.read(running.house, kit.request("free"))
            assert [prompt.request_id for prompt in running.engine.submitted] == ["free"]
            gate.set()
