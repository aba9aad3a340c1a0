"""What the actors take from pykka beyond its public face; an upgrade that changes it fails here."""

import threading
from importlib.metadata import version
from typing import Any

import pykka
import pytest
from pykka import messages
from pykka._envelope import Envelope

from memra.actors.admission import Admission
from memra.actors.future import TrioFuture
from memra.actors.gpu_worker import GpuWorker
from memra.actors.ingress import Ingress
from memra.actors.lifecycle import Lifecycle
from memra.actors.mailbox import ThreadMailbox
from memra.actors.templating import Templating
from memra.actors.thread_actor import ThreadActor
from memra.actors.trio_actor import TrioActor

MEANT = {"_create_actor_inbox", "_create_future", "_start_actor_loop", "_actor_loop_teardown"}


def test_this_is_the_version_that_the_contract_was_read_from():
    assert version("pykka").startswith("4.5.")


def test_an_actor_is_built_from_the_two_factories_and_the_loop():
    calls: list[str] = []

    class Probe(pykka.Actor):
        @staticmethod
        def _create_actor_inbox() -> Any:
            calls.append("inbox")
            return ThreadMailbox()

        @staticmethod
        def _create_future() -> Any:
            calls.append("future")
            return TrioFuture()

        def _start_actor_loop(self) -> None:
            calls.append("loop")

    ref = Probe.start()
    assert calls == ["inbox", "loop"]
    assert ref in pykka.ActorRegistry.get_all()
    assert isinstance(ref.actor_stopped, threading.Event)
    future = ref.ask("x", block=False)
    assert isinstance(future, TrioFuture)
    assert calls == ["inbox", "loop", "future"]
    pykka.ActorRegistry.unregister(ref)


def test_an_envelope_holds_a_message_and_a_future():
    envelope = Envelope("message", reply_to=TrioFuture())
    assert envelope.message == "message"
    assert Envelope("told").reply_to is None


def test_a_stop_is_a_message():
    mailbox = ThreadMailbox()

    class Probe(ThreadActor):
        def _start_actor_loop(self) -> None:
            self._actor_ref.actor_inbox = mailbox

    ref = Probe.start(None)
    ref.stop(block=False)
    assert isinstance(mailbox.get().message, messages._ActorStop)
    pykka.ActorRegistry.unregister(ref)


def test_a_future_keeps_its_result_and_condition_where_ours_looks():
    future: pykka.ThreadingFuture[int] = pykka.ThreadingFuture()
    assert future._result is None
    assert future._get_hook is None
    with future._condition:
        future.set(1)  # the lock is re-entrant
    assert future._result is not None
    assert future.map(str)._get_hook is not None


def test_a_failure_unregisters_and_stops_before_on_failure_runs(caplog: pytest.LogCaptureFixture):
    seen: list[Any] = []
    done = threading.Event()

    class Failing(pykka.ThreadingActor):
        def on_receive(self, message: Any) -> None:
            raise ValueError(message)

        def on_failure(self, *error: Any) -> None:
            seen.extend((self.actor_stopped.is_set(), error[0], str(error[1])))
            done.set()

    ref = Failing.start()
    ref.tell("boom")
    assert done.wait(5)
    assert seen == [True, ValueError, "boom"]
    assert ref not in pykka.ActorRegistry.get_all()
    assert "boom" in caplog.text


def test_the_errors_that_go_to_askers_are_not_logged(caplog: pytest.LogCaptureFixture):
    class Asked(ThreadActor):
        def handle(self, message: Any) -> None:
            raise ValueError(message)

    caplog.set_level("INFO")
    ref = Asked.start(None)
    with pytest.raises(ValueError, match="words of a prompt"):
        ref.ask("words of a prompt", timeout=5)
    ref.stop(timeout=5)
    assert "words of a prompt" not in caplog.text


@pytest.mark.parametrize("kind", [Admission, GpuWorker, Ingress, Lifecycle, Templating])
def test_our_actors_shadow_none_of_its_private_names_by_accident(kind: type[pykka.Actor]):
    private = {name for name in dir(pykka.ThreadingActor) if name.startswith("_") and not name.startswith("__")}
    private.discard("_abc_impl")
    for owner in kind.__mro__:
        if owner.__module__.startswith("memra.") and owner not in {TrioActor, ThreadActor}:
            assert not private & set(vars(owner)), owner
    assert private & (set(vars(TrioActor)) | set(vars(ThreadActor))) <= MEANT
