"""Models that come and go under a running house: shared loads, replacement, eviction, idleness, and what may fail."""

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from memra.actors.shared_answers import SharedAnswers
from memra.errors import (
    ConfigurationError,
    DrainingError,
    ModelLoadError,
    OverloadedError,
    SourceError,
    UnknownModelError,
)
from memra.gate.response_cache import ResponseCache
from memra.messages.lifecycle import BeginDrain
from memra.messages.models import ModelInstance, ModelReported, ModelState, ModelTerms
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt
from memra.settings import LifecycleSettings
from memra.types import ModelName

LAZY = ModelTerms(is_lazy=True)
A, B, C = (ModelName(name) for name in "abc")


def ask_for(kit: Any, running: Any, model: str, name: str, **changes: Any) -> Any:
    return kit.read(running.house, kit.request(name, model=model, **changes))


async def states(running: Any) -> dict[str, str]:
    return {model.name: model.state.value for model in await running.house.report_models()}


async def report_on(running: Any, name: str) -> ModelReported:
    return next(model for model in await running.house.report_models() if model.name == name)


async def is_unloaded(kit: Any, running: Any, *keys: ModelInstance) -> None:
    await kit.eventually(lambda: not any(running.residency.holds(key) for key in keys))


async def test_a_server_of_lazy_models_is_ready_without_any(kit: Any):
    async with kit.open_house(models={"a": LAZY, "b": LAZY}) as running:
        assert (await running.house.report_health()).is_ready
        assert running.house.models == ("a", "b")
        assert running.house.context_tokens(A) is None
        assert await states(running) == {"a": "unloaded", "b": "unloaded"}
        assert running.opener.opened == []


async def test_the_first_request_loads_a_lazy_model_and_later_ones_find_it(kit: Any):
    async with kit.open_house(models={"a": LAZY}) as running:
        assert (await ask_for(kit, running, "a", "r1")).text == "abcde"
        assert (await ask_for(kit, running, "a", "r2")).text == "abcde"
        assert running.opener.built == ["a"]
        assert running.house.context_tokens(A) == 1000
        assert await states(running) == {"a": "loaded"}
        await running.is_empty()


async def test_all_who_wait_for_a_model_share_one_load_in_their_order(kit: Any):
    async with kit.open_house(models={"a": LAZY}) as running:
        running.opener.gates["a"] = threading.Event()
        async with trio.open_nursery() as clients:
            for number in range(5):
                clients.start_soon(ask_for, kit, running, "a", f"r{number}")
                await trio.testing.wait_all_tasks_blocked()
            await kit.eventually(lambda: running.opener.built == ["a"])
            assert (await report_on(running, "a")).num_waiting == 5
            assert (await report_on(running, "a")).state is ModelState.LOADING
            running.opener.gates["a"].set()
        assert running.opener.built == ["a"]
        assert [message.request_id for message in running.renderer.messages] == [f"r{number}" for number in range(5)]
        await running.is_empty()


async def test_a_waiter_that_leaves_is_dropped_and_the_others_are_served(kit: Any):
    async with kit.open_house(models={"a": LAZY}) as running:
        running.opener.gates["a"] = threading.Event()
        async with trio.open_nursery() as clients:
            leaver = trio.CancelScope()

            async def leave() -> None:
                with leaver:
                    await ask_for(kit, running, "a", "leaver")

            clients.start_soon(leave)
            clients.start_soon(ask_for, kit, running, "a", "stayer")
            await kit.eventually(lambda: running.opener.built == ["a"])
            await trio.testing.wait_all_tasks_blocked()
            leaver.cancel()
            await trio.testing.wait_all_tasks_blocked()
            assert (await report_on(running, "a")).num_waiting == 1
            running.opener.gates["a"].set()
        assert [prompt.request_id for prompt in running.engine.submitted] == ["stayer"]
        await running.is_empty()


async def test_a_load_that_nobody_waits_for_any_more_is_not_begun(kit: Any):
    async with kit.open_house(models={"a": LAZY, "b": LAZY}) as running:
        running.opener.gates["a"] = threading.Event()
        async with trio.open_nursery() as clients:
            clients.start_soon(ask_for, kit, running, "a", "r1")
            await kit.eventually(lambda: running.opener.built == ["a"])
            with trio.move_on_after(0.01):
                await ask_for(kit, running, "b", "r2")
            running.opener.gates["a"].set()
        await running.is_empty()
        assert running.opener.opened == ["a"]
        assert await states(running) == {"a": "loaded", "b": "unloaded"}


async def test_the_others_take_their_steps_while_a_model_is_loaded(kit: Any):
    async with kit.open_house(models={"a": ModelTerms(), "b": LAZY}) as running:
        running.opener.gates["b"] = threading.Event()
        async with trio.open_nursery() as clients:
            clients.start_soon(ask_for, kit, running, "b", "r2")
            await kit.eventually(lambda: running.opener.built == ["a", "b"])
            before = running.engine.num_steps
            assert len((await ask_for(kit, running, "a", "r1", max_new_tokens=200)).token_ids) == 200
            assert running.engine.num_steps - before >= 200
            assert "b" not in {key.name for key in running.engine.models}
            running.opener.gates["b"].set()
        await running.is_empty()


async def test_requests_under_way_finish_on_the_weights_they_began_with(kit: Any):
    async with kit.open_house(models={"a": ModelTerms()}, make_engine=lambda: kit.Engine(is_manual=True)) as running:
        old, new = ModelInstance(A, 0), ModelInstance(A, 1)
        async with running.house.open_reply(kit.request("r1", model=A)) as reply:
            running.engine.allow(3)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(running.house.load_model, A, "new source")
                await kit.eventually(lambda: running.opener.built == ["a", "a"])
                running.engine.allow(3)  # the worker looks at its mailbox between steps
            assert set(running.engine.models) == {old, new}
            async with running.house.open_reply(kit.request("r2", model=A)) as other:
                running.engine.release()
                assert [part async for part in other]
            assert {prompt.request_id: prompt.instance for prompt in running.engine.submitted} == {"r1": 0, "r2": 1}
            assert [message.instance for message in running.renderer.messages] == [0, 1]
            assert running.residency.holds(old)
            assert [part async for part in reply]
        await is_unloaded(kit, running, old)
        assert set(running.engine.models) == {new}
        assert running.opener.closed == ["a:configured"]
        assert set(running.shelf.renderers) == {new}
        await running.is_empty()


async def test_a_load_adds_a_name_and_is_its_source_from_then_on(kit: Any):
    async with kit.open_house() as running:
        assert await running.house.load_model(B, "somewhere") == ModelInstance(B, 0)
        assert running.house.models == ("fake", "b")
        assert (await ask_for(kit, running, "b", "r1")).text == "abcde"
        assert await running.house.unload_model(B)
        await is_unloaded(kit, running, ModelInstance(B, 0))
        assert not await running.house.unload_model(B)
        assert (await ask_for(kit, running, "b", "r2")).text == "abcde"
        assert running.shelf.opened(ModelInstance(B, 1)).source == "somewhere"
        with pytest.raises(UnknownModelError, match="there are: fake, b"):
            await running.house.load_model(C)
        with pytest.raises(UnknownModelError):
            await running.house.unload_model(C)


async def test_answers_of_weights_that_were_replaced_are_forgotten(kit: Any):
    def weights_of(prompt: SubmitPrompt) -> str:
        return f"{ModelInstance(prompt.model, prompt.instance)} a:configured"

    answers = SharedAnswers(ResponseCache(1 << 20, ttl_s=60), weights_of=weights_of)
    async with kit.open_house(models={"a": ModelTerms()}, answers=answers) as running:
        for name in ("r1", "r2"):
            await ask_for(kit, running, "a", name, may_reuse_answer=True, sampling=SamplingParams(temperature=0.0))
        assert (answers.report()["hits"], answers.report()["entries"]) == (1, 1)
        await running.is_empty()
        await running.house.load_model(A)
        await is_unloaded(kit, running, ModelInstance(A, 0))
        assert answers.report()["entries"] == 0
        await ask_for(kit, running, "a", "r3", may_reuse_answer=True, sampling=SamplingParams(temperature=0.0))
        assert [prompt.instance for prompt in running.engine.submitted] == [0, 1]


@pytest.mark.parametrize("stage", ["open", "build", "install"])
async def test_a_failed_load_is_told_to_its_waiters_and_leaves_all_as_it_was(
    kit: Any, stage: str, caplog: pytest.LogCaptureFixture
):
    async with kit.open_house(
        models={"a": ModelTerms(), "b": LAZY}, memory_mb=10, sizes_mb={"a": 6, "b": 6}
    ) as running:
        error = SourceError("/secret/path.gguf: there is no such file")
        if stage == "install":
            running.engine.install_error = error
        else:
            getattr(running.opener, f"{stage}_errors")["b"] = error
        with pytest.raises(ModelLoadError, match="Model b could not be loaded: its source cannot be found") as failed:
            await ask_for(kit, running, "b", "r1")
        assert "secret" not in failed.value.message
        assert "/secret/path.gguf" in caplog.text
        running.engine.install_error = None
        await kit.eventually(lambda: running.residency.current(A) is not None and not running.residency.leaving())
        assert await states(running) == {"a": "loaded", "b": "failed"}
        assert running.residency.num_bytes(B) == 0
        assert running.opener.num_open == 1
        assert running.opener.num_bytes_held == 6 << 20
        assert {key.name for key in running.engine.models} == {"a"}
        assert (await ask_for(kit, running, "a", "r2")).text == "abcde"
        running.opener.open_errors.clear()
        running.opener.build_errors.clear()
        assert (await ask_for(kit, running, "b", "r3")).text == "abcde"
        await running.is_empty()
        assert [record.failed for record in running.ended] == [True, False, False]


async def test_a_failed_replacement_leaves_the_old_one_serving(kit: Any):
    async with kit.open_house(models={"a": ModelTerms()}) as running:
        running.opener.build_errors["a"] = ConfigurationError("no")
        with pytest.raises(ModelLoadError, match="does not fit this server's settings"):
            await running.house.load_model(A, "broken")
        assert (await ask_for(kit, running, "a", "r1")).text == "abcde"
        assert running.engine.submitted[0].instance == 0
        assert (await report_on(running, "a")).state is ModelState.LOADED


async def test_a_panic_in_native_code_fails_the_load_alone(kit: Any):
    async with kit.open_house(models={"a": LAZY}) as running:
        running.opener.open_errors["a"] = SystemExit(3)
        with pytest.raises(ModelLoadError, match="the server's log names the cause"):
            await ask_for(kit, running, "a", "r1")
        assert not running.state.is_stopped


async def test_room_is_made_by_bytes_and_memory_is_never_over_the_limit(kit: Any):
    sizes = {"a": 4, "b": 4, "c": 7}
    async with kit.open_house(models=dict.fromkeys("abc", LAZY), memory_mb=10, sizes_mb=sizes) as running:
        for number, model in enumerate("abcacb"):
            assert (await ask_for(kit, running, model, f"r{number}")).text == "abcde"
            await kit.eventually(lambda: not running.residency._holders)
        assert running.opener.max_bytes_held <= 10 << 20
        assert running.opener.built == list("abcacb")
        await running.is_empty()


async def test_the_least_recently_used_makes_way(kit: Any):
    async with kit.open_house(
        models=dict.fromkeys("abc", LAZY), memory_mb=10, sizes_mb=dict.fromkeys("abc", 4)
    ) as running:
        for number, model in enumerate("abac"):
            await ask_for(kit, running, model, f"r{number}")
            await kit.eventually(lambda: not running.residency._holders)
        assert await states(running) == {"a": "loaded", "b": "unloaded", "c": "loaded"}


async def test_a_model_with_requests_is_never_evicted_and_the_newcomer_is_told(kit: Any):
    async with kit.open_house(
        models={"a": LAZY, "b": LAZY},
        memory_mb=10,
        sizes_mb={"a": 6, "b": 6},
        make_engine=lambda: kit.Engine(is_manual=True),
    ) as running:
        async with running.house.open_reply(kit.request("r1", model=A)) as reply:
            with pytest.raises(OverloadedError, match=r"Model b needs 6 MiB of MEMRA_MEMORY_MB \(10 MiB\)") as refused:
                await ask_for(kit, running, "b", "r2")
            assert refused.value.retry_after_s >= 1
            running.engine.release()
            assert [part async for part in reply]
        assert (await ask_for(kit, running, "b", "r3")).text == "abcde"
        assert running.opener.max_bytes_held == 6 << 20
        await running.is_empty()


async def test_memory_of_a_model_on_its_way_out_is_used_only_when_it_is_free(kit: Any):
    async with kit.open_house(
        models={"a": ModelTerms(), "b": LAZY, "c": ModelTerms()},
        memory_mb=10,
        sizes_mb={"a": 6, "b": 6},
        make_engine=lambda: kit.Engine(is_manual=True),
    ) as running:
        async with running.house.open_reply(kit.request("r1", model=C)) as reply, trio.open_nursery() as clients:
            await kit.eventually(running.engine.entered_step.is_set)
            await running.house.unload_model(A)  # the worker hears of it after its step
            clients.start_soon(ask_for, kit, running, "b", "r2")
            await kit.eventually(lambda: running.opener.opened[-1] == "b")
            await trio.testing.wait_all_tasks_blocked()
            assert "b" not in running.opener.built
            running.engine.release()
            assert [part async for part in reply]
        assert running.opener.built[-1] == "b"
        assert running.opener.max_bytes_held <= 10 << 20


async def test_a_model_larger_than_all_memory_is_refused_before_anything_goes(kit: Any):
    async with kit.open_house(models={"a": ModelTerms(), "b": LAZY}, memory_mb=10, sizes_mb={"b": 11}) as running:
        with pytest.raises(ModelLoadError, match="Model b needs 11 MiB, more than all of MEMRA_MEMORY_MB"):
            await ask_for(kit, running, "b", "r1")
        assert await states(running) == {"a": "loaded", "b": "failed"}
        assert running.opener.built == ["a"]


async def test_what_a_model_really_takes_counts_once_it_is_known(kit: Any):
    async with kit.open_house(models=dict.fromkeys("ab", LAZY), memory_mb=10, sizes_mb={"a": 1, "b": 6}) as running:
        running.opener.measured["a"] = 5 << 20
        await ask_for(kit, running, "a", "r1")
        assert (await report_on(running, "a")).num_bytes == 5 << 20
        await kit.eventually(lambda: not running.residency._holders)
        await ask_for(kit, running, "b", "r2")
        assert await states(running) == {"a": "unloaded", "b": "loaded"}


async def test_a_pinned_model_stays_and_may_be_let_go(kit: Any):
    async with kit.open_house(
        models={"a": ModelTerms(is_pinned=True), "b": LAZY}, memory_mb=10, sizes_mb={"a": 6, "b": 6}
    ) as running:
        with pytest.raises(OverloadedError, match="pinned"):
            await ask_for(kit, running, "b", "r1")
        await running.house.pin_model(A, is_pinned=False)
        assert (await ask_for(kit, running, "b", "r2")).text == "abcde"
        assert await states(running) == {"a": "unloaded", "b": "loaded"}
        with pytest.raises(UnknownModelError):
            await running.house.pin_model(C)


async def test_an_idle_model_is_unloaded_after_its_time_and_comes_back(kit: Any, mock_clock: MockClock):
    async with kit.open_house(
        models={"a": ModelTerms(idle_ttl_s=60), "b": ModelTerms(idle_ttl_s=60, is_pinned=True), "c": ModelTerms()}
    ) as running:
        mock_clock.jump(40)
        await ask_for(kit, running, "a", "r1")
        await running.is_empty()
        mock_clock.jump(59)
        await trio.testing.wait_all_tasks_blocked()
        assert running.residency.current(A) is not None
        mock_clock.jump(2)
        await is_unloaded(kit, running, ModelInstance(A, 0))
        assert await states(running) == {"a": "unloaded", "b": "loaded", "c": "loaded"}
        assert (await ask_for(kit, running, "a", "r2")).text == "abcde"


async def test_a_model_with_a_long_request_is_not_idle(kit: Any, mock_clock: MockClock):
    async with (
        kit.open_house(
            models={"a": ModelTerms(idle_ttl_s=1)}, make_engine=lambda: kit.Engine(is_manual=True)
        ) as running,
        running.house.open_reply(kit.request("r1", model=A)) as reply,
    ):
        mock_clock.jump(5)
        await trio.testing.wait_all_tasks_blocked()
        assert running.residency.current(A) is not None
        running.engine.release()
        assert [part async for part in reply]


async def test_a_restarted_worker_serves_the_models_that_were_loaded(kit: Any):
    async with kit.open_house(models={"a": ModelTerms(), "b": LAZY, "c": LAZY}) as running:
        await ask_for(kit, running, "b", "r1")
        await running.house.unload_model(A)
        await is_unloaded(kit, running, ModelInstance(A, 0))
        await running.house.load_model(A)
        running.engine.step_error = RuntimeError("device lost")
        assert (await ask_for(kit, running, "b", "r2")).text == "abcde", "begun anew, on the same instance"
        await running.serves(1)
        assert set(running.engine.models) == {ModelInstance(A, 1), ModelInstance(B, 0)}
        assert (await ask_for(kit, running, "b", "r3")).text == "abcde"
        assert running.opener.num_bytes_held == 2 << 20
        await running.is_empty()


async def test_a_load_outlives_the_worker_that_it_began_under(kit: Any):
    async with kit.open_house(models={"a": ModelTerms(), "b": LAZY}) as running:
        running.opener.gates["b"] = threading.Event()
        async with trio.open_nursery() as clients:
            clients.start_soon(ask_for, kit, running, "b", "r1")
            await kit.eventually(lambda: "b" in running.opener.built)
            running.engine.step_error = RuntimeError("device lost")
            assert (await ask_for(kit, running, "a", "r2")).text == "abcde"
            await running.serves(1)
            running.opener.gates["b"].set()
        assert {key.name for key in running.engine.models} == {"a", "b"}
        await running.is_empty()


async def test_a_model_that_is_handed_over_while_the_worker_dies_reaches_the_next_one(kit: Any):
    async with kit.open_house(
        models={"a": ModelTerms(), "b": LAZY}, make_engine=lambda: kit.Engine(is_manual=True)
    ) as running:
        async with trio.open_nursery() as clients:
            clients.start_soon(ask_for, kit, running, "a", "r1")
            await kit.eventually(running.engine.entered_step.is_set)
            clients.start_soon(ask_for, kit, running, "b", "r2")
            await kit.eventually(lambda: running.shelf._ready)
            await trio.testing.wait_all_tasks_blocked()
            running.engine.step_error = RuntimeError("device lost")
            running.engine.release()
            await running.serves(1)
            assert set(running.engine.models) == {ModelInstance(A, 0), ModelInstance(B, 0)}
            running.engine.release()
        await running.is_empty()


async def test_whoever_waits_for_a_model_when_the_house_stops_is_told(kit: Any):
    refused = []
    async with kit.open_house(models={"a": LAZY}) as running, trio.open_nursery() as clients:
        running.opener.gates["a"] = threading.Event()

        async def client() -> None:
            with pytest.raises(DrainingError) as error:
                await ask_for(kit, running, "a", "r1")
            refused.append(error)

        clients.start_soon(client)
        await kit.eventually(lambda: running.opener.built == ["a"])
        await trio.testing.wait_all_tasks_blocked()
        running.keeper.stop(block=False)
    assert len(refused) == 1


async def test_a_drain_does_not_wait_for_a_load_beyond_its_time(kit: Any):
    async with kit.open_house(models={"a": LAZY}, settings=LifecycleSettings(drain_s=0.01)) as running:
        running.opener.gates["a"] = threading.Event()
        async with trio.open_nursery() as clients:

            async def client() -> None:
                with pytest.raises(DrainingError, match="shut down before"):
                    await ask_for(kit, running, "a", "r1")

            clients.start_soon(client)
            await kit.eventually(lambda: running.opener.built == ["a"])
            running.lifecycle.tell(BeginDrain("test"))
            assert await running.state.wait_until_stopped() == 0


async def test_many_clients_of_many_models_in_little_memory_leave_nothing(kit: Any):
    models = dict.fromkeys("abcde", LAZY)
    async with kit.open_house(models=models, memory_mb=10, sizes_mb=dict.fromkeys("abcde", 4)) as running:
        num_answers = 0

        async def client(number: int) -> None:
            nonlocal num_answers
            for turn in range(20):
                model = "abcde"[(number * 7 + turn * (number + 1)) % 5]
                with trio.move_on_after(0.002 if turn % 4 == number % 4 else 5):
                    try:
                        answer = await ask_for(kit, running, model, f"c{number}-{turn}")
                    except OverloadedError:
                        continue
                    assert answer.text == "abcde"
                    num_answers += 1

        async with trio.open_nursery() as clients:
            for number in range(8):
                clients.start_soon(client, number)
        await running.is_empty()
        names = [ModelName(name) for name in "abcde"]
        await kit.eventually(lambda: not running.residency.leaving() and not any(map(running.residency.loading, names)))
        assert num_answers > 40
        assert running.opener.max_bytes_held <= 10 << 20
        assert running.opener.num_bytes_held == sum(map(running.residency.num_bytes, names))
