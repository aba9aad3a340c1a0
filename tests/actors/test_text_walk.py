"""Texts, tokens and cancelling on their way through the house: what comes back, and that nothing stays."""

import struct
from functools import partial
from typing import Any

import pytest
import trio

from memra.errors import (
    BusyError,
    ContextLengthError,
    DeadlineExceededError,
    DrainingError,
    EngineFaultError,
    InvalidRequestError,
    OverloadedError,
    RequestCancelledError,
    RequestError,
    UnknownModelError,
    UnknownRequestError,
    WorkerFaultError,
)
from memra.gate.slots import lane_limits
from memra.messages.generation import TextPrompt
from memra.messages.identity import ANYBODY, Identity
from memra.messages.lifecycle import BeginDrain
from memra.messages.models import ModelTerms
from memra.messages.texts import DetokenizeRequest, TextsRequest, TokenizeRequest
from memra.messages.work import RequestFailed
from memra.types import Lane, ModelName, ModelTask, RequestId, StopCause


def texts(name: str = "e1", *words: str, **changes: Any) -> TextsRequest:
    plain: dict[str, Any] = {
        "request_id": RequestId(name),
        "model": ModelName("fake"),
        "task": ModelTask.EMBED,
        "texts": tuple(TextPrompt(word) for word in words or ("ab", "c")),
        "param": "input",
    }
    return TextsRequest(**{**plain, **changes})


def manual(kit: Any) -> Any:
    return partial(kit.Engine, is_manual=True)


async def failing(running: Any, request: TextsRequest, found: list[BaseException]) -> None:
    try:
        await running.house.pool_texts(request)
    except RequestError as error:
        found.append(error)


async def read_to_end(reply: Any) -> None:
    async for _ in reply:
        pass


async def test_texts_become_vectors_and_are_recorded_as_prompt_tokens(kit: Any):
    async with kit.open_house() as running:
        pooled = await running.house.pool_texts(texts())
        assert struct.unpack("<4f", pooled.vectors) == (2.0, 97.0 + 98.0, 1.0, 99.0)
        assert (pooled.width, pooled.num_tokens, pooled.admitted.tenant) == (2, 3, "default")
        await running.is_empty()
        (ended,) = running.ended
        assert (ended.stop, ended.failed, ended.usage.prompt_tokens) == (StopCause.END_OF_SEQUENCE, False, 3)
        assert ended.usage.completion_tokens == 0
        assert not running.engine.aborted


async def test_long_texts_are_rendered_a_few_at_a_time_and_stay_in_order(kit: Any):
    async with kit.open_house() as running:
        words = [chr(97 + index) * 12_000 for index in range(7)] + ["x", "y" * 70_000, "z"]
        pooled = await running.house.pool_texts(texts("e1", *words))
        found = struct.unpack(f"<{2 * len(words)}f", pooled.vectors)[::2]
        assert found == tuple(float(len(word)) for word in words)
        assert [message.first for message in running.renderer.rendered_texts] == [0, 2, 4, 6, 8, 9]
        await running.is_empty()


async def test_a_request_has_no_more_tokens_than_one_may(kit: Any):
    async with kit.open_house() as running:
        words = ["a" * 100_000, "b" * 100_000, "c" * 100_000, "d"]
        with pytest.raises(InvalidRequestError, match="more than 300000 tokens together") as refused:
            await running.house.pool_texts(texts("e1", *words))
        assert refused.value.param == "input"
        await running.house.pool_texts(texts("e1", *words[:3]))
        await running.is_empty()


async def test_texts_and_answers_share_the_lanes_slots(kit: Any):
    async with kit.open_house(make_engine=manual(kit), limits=lane_limits(max_judge=1)) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.house.pool_texts, texts(lane=Lane.JUDGE))
            await kit.eventually(lambda: running.engine.texts)
            with pytest.raises(BusyError):
                await running.house.pool_texts(texts("e2", lane=Lane.JUDGE))
            running.engine.release()
        await running.is_empty()


async def test_a_client_that_leaves_takes_its_texts_with_it(kit: Any):
    async with kit.open_house(make_engine=manual(kit)) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.house.pool_texts, texts())
            await kit.eventually(lambda: running.engine.texts)
            nursery.cancel_scope.cancel()
        running.engine.release()
        await running.is_empty()
        await kit.eventually(lambda: running.engine.aborted == ["e1"])
        assert (running.ended[0].stop, running.ended[0].failed) == (None, False)


@pytest.mark.parametrize(
    "error", [ContextLengthError("too long", param="input"), EngineFaultError("broken"), UnknownModelError("gone")]
)
async def test_a_refusal_of_the_renderer_reaches_the_client_and_nothing_stays(kit: Any, error: RequestError):
    async with kit.open_house() as running:
        running.renderer.error = error
        with pytest.raises(type(error)):
            await running.house.pool_texts(texts())
        await running.is_empty()
        assert not running.engine.texts


@pytest.mark.parametrize(("overloaded", "error"), [(True, OverloadedError), (False, WorkerFaultError)])
async def test_a_failure_in_the_worker_has_a_name(kit: Any, overloaded: Any, error: type[Exception]):
    async with kit.open_house(make_engine=manual(kit)) as running:
        running.engine.failures.append(RequestFailed(RequestId("e1"), "raw", overloaded=overloaded))
        running.engine.allow(5)
        with pytest.raises(error):
            await running.house.pool_texts(texts())
        await running.is_empty()
        assert running.ended[0].failed


async def test_texts_that_a_dead_worker_had_are_computed_by_the_next(kit: Any):
    async with kit.open_house(make_engine=manual(kit)) as running:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(running.house.pool_texts, texts())
            await kit.eventually(lambda: running.engine.texts)
            running.engine.step_error = RuntimeError("gone")
            running.engine.allow()
            await running.serves(1)
            running.engine.release()
        await running.is_empty()
        assert running.ended[0].stop is StopCause.END_OF_SEQUENCE


async def test_a_deadline_ends_the_wait(kit: Any):
    async with kit.open_house(make_engine=manual(kit)) as running:
        found: list[BaseException] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(failing, running, texts(timeout_ms=1000), found)
            await kit.eventually(lambda: found)
        assert isinstance(found[0], DeadlineExceededError)
        running.engine.release()
        await running.is_empty()


async def test_an_unknown_model_a_full_tenant_and_a_drain_are_refused(kit: Any):
    async with kit.open_house() as running:
        with pytest.raises(BusyError):
            await running.house.pool_texts(texts(identity=Identity("acme", max_inflight=0)))
        with pytest.raises(UnknownModelError):
            await running.house.pool_texts(texts(model=ModelName("other")))
        running.lifecycle.tell(BeginDrain("test"))
        found: list[BaseException] = []
        while not found:
            await failing(running, texts(), found)
        assert isinstance(found[0], DrainingError)
        await running.is_empty()


async def test_a_lazy_model_is_loaded_for_its_tokens_and_its_lease_is_given_back(kit: Any):
    async with kit.open_house(models={"fake": ModelTerms(), "lazy": ModelTerms(is_lazy=True)}) as running:
        assert running.house.task(ModelName("lazy")) is None
        wanted = TokenizeRequest(RequestId("t1"), ModelName("lazy"), TextPrompt("ab"))
        tokenized = await running.house.tokenize(wanted)
        assert (tokenized.token_ids, tokenized.context_tokens) == ((97, 98), 1000)
        text = await running.house.detokenize(DetokenizeRequest(RequestId("t2"), ModelName("lazy"), (99, 100)))
        assert text == "cd"
        assert running.house.task(ModelName("lazy")) is ModelTask.GENERATE
        with pytest.raises(UnknownModelError):
            await running.house.tokenize(TokenizeRequest(RequestId("t3"), ModelName("other"), TextPrompt("ab")))
        await running.is_empty()
        assert not running.ended, "nothing was computed, so there is nothing to record"


async def test_a_cancelled_answer_ends_with_an_error_behind_what_was_there(kit: Any):
    async with kit.open_house(make_engine=manual(kit)) as running:
        running.engine.allow(2)
        async with running.house.open_reply(kit.request(max_new_tokens=50)) as reply:
            await anext(reply)
            await running.house.cancel(RequestId("r1"), ANYBODY)
            with pytest.raises(RequestCancelledError):
                await read_to_end(reply)
        running.engine.release()
        await running.is_empty()
        assert running.engine.aborted == ["r1"]
        assert (running.ended[0].stop, running.ended[0].failed) == (None, False)
        with pytest.raises(UnknownRequestError, match="'r1'"):
            await running.house.cancel(RequestId("r1"), ANYBODY)


async def test_requests_are_cancelled_by_the_name_that_their_client_gave_them(kit: Any):
    async with kit.open_house(make_engine=manual(kit)) as running:
        named = kit.request("r1", client_id="mine", num_choices=2, max_new_tokens=50)
        async with running.house.open_reply(named) as reply, running.house.open_reply(kit.request("r2")) as other:
            await running.house.cancel("mine", ANYBODY)
            with pytest.raises(RequestCancelledError):
                await read_to_end(reply)
            running.engine.release()
            await read_to_end(other)
        await running.is_empty()
        with pytest.raises(UnknownRequestError, match="'mine'"):
            await running.house.cancel("mine", ANYBODY)


async def test_cancelled_texts_end_with_an_error(kit: Any):
    async with kit.open_house(make_engine=manual(kit)) as running:
        found: list[BaseException] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(failing, running, texts(), found)
            await kit.eventually(lambda: running.engine.texts)
            await running.house.cancel(RequestId("e1"), ANYBODY)
        assert isinstance(found[0], RequestCancelledError)
        running.engine.release()
        await running.is_empty()
