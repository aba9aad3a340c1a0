"""Actors that are trio tasks: pykka's reference, mailbox and registry over a loop that awaits its mailbox.

Handlers and hooks are plain functions: an actor of this kind cannot wait for anybody, so no circle of actors can ever
wait for each other. What has to wait is a task in the system's nursery, which tells the actor when it is done.
Subclassed by ingress, admission and lifecycle.
"""

import inspect
import sys
from typing import Any

import pykka
from pykka import ActorRegistry, messages
from pykka._envelope import Envelope

from memra.actors.base import ActorSystem, Dispatch
from memra.actors.future import TrioFuture
from memra.actors.mailbox import TrioMailbox, refuse_all


class TrioActor(Dispatch, pykka.Actor):
    """One task in the system's nursery; start it in the trio thread with `Class.start(system, ...)`.

    An exception of an asked message goes to the asker. One of a told message, of `on_start` or of `on_stop` ends the
    actor: `on_failure` runs, waiting asks get `ActorDeadError`, and the system is told.
    """

    actor_inbox: TrioMailbox

    def __init__(self, system: ActorSystem) -> None:
        super().__init__()
        self.system = system

    @staticmethod
    def _create_actor_inbox() -> TrioMailbox:
        return TrioMailbox()

    @staticmethod
    def _create_future() -> TrioFuture:
        return TrioFuture()

    def _start_actor_loop(self) -> None:
        self.actor_inbox.bind(self.system.token, self.system.thread)
        self.system.nursery.start_soon(self._run, name=type(self).__name__)

    def on_exit(self) -> None:
        """Let go of what the actor holds, whatever its end was: stopped, failed or cancelled. Must not raise."""

    async def _run(self) -> None:
        try:
            self.on_start()
            while not self.actor_stopped.is_set():
                self._take(await self.actor_inbox.receive())
        except Exception as error:  # noqa: BLE001  (a death is logged and reported, whatever its cause)
            self._die(error)
        finally:
            self._leave()

    def _take(self, envelope: Envelope[Any]) -> None:
        if isinstance(envelope.message, messages._ActorStop):  # noqa: SLF001  (pykka has no public name for it)
            self._stop_in_order(envelope)
            return
        try:
            answer = self._plain(self._handle_receive(envelope.message))
        except Exception:
            if envelope.reply_to is None:
                raise
            envelope.reply_to.set_exception()
        else:
            if envelope.reply_to is not None:
                envelope.reply_to.set(answer)

    def _plain(self, answer: Any) -> Any:
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError(f"a handler of {type(self).__name__} is a coroutine; only plain functions may handle")
        return answer

    def _stop_in_order(self, envelope: Envelope[Any]) -> None:
        ActorRegistry.unregister(self.actor_ref)
        self.actor_stopped.set()
        try:
            self.on_stop()
        finally:
            if envelope.reply_to is not None:
                envelope.reply_to.set(None)

    def _die(self, error: Exception) -> None:
        self._handle_failure(*sys.exc_info())
        self.system.report_death(self, error)
        try:
            self.on_failure(type(error), error, error.__traceback__)
        except Exception:  # noqa: BLE001  (the actor is dead already; pykka logs it)
            self._handle_failure(*sys.exc_info())

    def _leave(self) -> None:
        ActorRegistry.unregister(self.actor_ref)
        self.actor_stopped.set()
        refuse_all(self.actor_inbox.close())
        self.on_exit()
