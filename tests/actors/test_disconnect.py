"""A client that leaves frees its place, wherever its request was."""

import threading
from typing import Any

import pytest
import trio

from memra.messages.generation import ReplyDelta, ReplyStarted
from memra.messages.work import AbortRequest
from memra.types import StopCause


async def test_a_client_that_leaves_while_it_decodes_frees_its_row_within_one_step(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with trio.open_nursery() as clients:

            async def client() -> None:
                async with running.house.open_reply(kit.request(max_new_tokens=400)) as reply:
                    async for part in reply:
                        if isinstance(part, ReplyDelta):
                            reading.set()

            reading = trio.Event()
            clients.start_soon(client)
            await kit.eventually(lambda: running.engines and running.engine.entered_step.is_set())
            running.engine.allow(1)
            await reading.wait()
            clients.cancel_scope.cancel()
        steps_before = running.engine.num_steps
        running.engine.allow(1)  # the step that was under way when the client left
        await running.is_empty()
        assert running.engine.num_steps <= steps_before + 1
        (record,) = running.ended
        assert record.stop is None
        assert not record.failed
        assert record.usage.completion_tokens == 1


async def test_a_client_that_leaves_during_prefill_frees_its_row(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(prefill_steps=1000, is_manual=True)) as running:
        async with running.house.open_reply(kit.request()) as reply:
            running.engine.allow(2)
            assert isinstance(await reply.__anext__(), ReplyStarted)
        running.engine.allow(1)
        await running.is_empty()
        assert running.ended[0].usage.completion_tokens == 0
        assert running.ended[0].usage.prompt_tokens == 5


async def test_a_client_that_leaves_the_queue_was_never_worked_on(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request("first", max_new_tokens=400)):
            await kit.eventually(running.engine.entered_step.is_set)
            async with running.house.open_reply(kit.request("queued")):
                pass
        running.engine.allow(1)
        await running.is_empty()
        assert {record.request_id: record.usage for record in running.ended} == {"first": None, "queued": None}
        assert set(running.engine.aborted) == {"first", "queued"}


async def test_a_client_that_leaves_while_its_prompt_is_rendered_never_reaches_the_worker(kit: Any):
    async with kit.open_house() as running:
        running.renderer.gate = threading.Event()
        async with trio.open_nursery() as clients:
            clients.start_soon(kit.read, running.house, kit.request())
            await kit.eventually(running.renderer.entered.is_set)
            assert running.num_slots_held == 1
            clients.cancel_scope.cancel()
        await running.is_empty()
        running.renderer.gate.set()
        await kit.read(running.house, kit.request("r2"))
        assert [prompt.request_id for prompt in running.engine.submitted] == ["r2"]


async def test_prompts_of_clients_that_left_are_not_rendered(kit: Any):
    async with kit.open_house() as running:
        running.renderer.gate = threading.Event()
        mailbox = running.templating.actor_inbox
        async with trio.open_nursery() as clients:
            clients.start_soon(kit.read, running.house, kit.request("being rendered"))
            await kit.eventually(running.renderer.entered.is_set)
            for number in range(5):
                clients.start_soon(kit.read, running.house, kit.request(f"waiting {number}"))
            await kit.eventually(lambda: len(mailbox._envelopes) == 5)
            clients.cancel_scope.cancel()
        assert mailbox.empty(), "a slot is given back, so its prompt may not stay either"
        running.renderer.gate.set()
        await kit.read(running.house, kit.request("later"))
        assert [message.request_id for message in running.renderer.messages] == ["being rendered", "later"]


async def test_a_client_that_leaves_before_admission_answers_holds_nothing(kit: Any):
    async with kit.open_house() as running:
        for num_steps in range(8):
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as clients:
                    clients.start_soon(kit.read, running.house, kit.request(f"r{num_steps}", max_new_tokens=400))
                    for _ in range(num_steps):
                        await trio.lowlevel.checkpoint()
                    scope.cancel()
            await running.is_empty()
        assert len(running.ended) == len({record.request_id for record in running.ended})


async def test_a_client_may_leave_by_an_error_of_its_own(kit: Any):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        with pytest.raises(ConnectionResetError):
            async with running.house.open_reply(kit.request()):
                raise ConnectionResetError
        running.engine.allow(2)
        await running.is_empty()
        assert not running.ended[0].failed


async def test_a_finished_answer_is_not_aborted(kit: Any):
    async with kit.open_house() as running:
        await kit.read(running.house, kit.request())
        await running.is_empty()
        assert running.engine.aborted == []
        assert running.ended[0].stop is StopCause.MAX_TOKENS


async def test_an_abort_of_an_unknown_request_is_ignored(kit: Any):
    async with kit.open_house() as running:
        running.worker._worker.tell(AbortRequest("nobody"))
        assert (await kit.read(running.house, kit.request())).text == "abcde"
