"""Actors with a thread of their own, for work that blocks or computes.

pykka's thread actor with a mailbox that can be closed, futures that trio can await, and a report of its death. The
thread is a daemon: one that hangs in native code must not keep the process alive. Subclassed by templating and the
worker.
"""

import threading
from types import TracebackType
from typing import Any

import pykka

from memra.actors.base import ActorSystem, Dispatch
from memra.actors.future import TrioFuture
from memra.actors.mailbox import ThreadMailbox, refuse_all


class ThreadActor(Dispatch, pykka.ThreadingActor):
    """One thread; start it with `Class.start(system, ...)`. `__init__` runs in the caller's thread, the rest in its.

    An exception of an asked message goes to the asker. One of a told message ends the actor: `on_failure` runs,
    waiting asks get `ActorDeadError`, and the system is told. `on_start` that raises ends it too, without `on_failure`.
    """

    actor_inbox: ThreadMailbox
    use_daemon_thread = True

    def __init__(self, system: ActorSystem) -> None:
        super().__init__()
        self.system = system

    @staticmethod
    def _create_actor_inbox() -> ThreadMailbox:
        return ThreadMailbox()

    @staticmethod
    def _create_future() -> TrioFuture:
        return TrioFuture()

    def _start_actor_loop(self) -> None:
        threading.Thread(target=self._actor_loop, name=type(self).__name__, daemon=self.use_daemon_thread).start()

    def _actor_loop_teardown(self) -> None:
        # In one go, and from now on in put(): pykka would empty it one by one, while messages come and are withdrawn.
        refuse_all(self.actor_inbox.close())

    def on_receive(self, message: Any) -> Any:
        """Handle one message.

        Raises:
            RuntimeError: in place of a `SystemExit` or its like, on which pykka would stop every actor there is.
        """
        try:
            return super().on_receive(message)
        except Exception:
            raise
        except BaseException as error:
            raise RuntimeError(f"{type(self).__name__} was ended by {type(error).__name__}") from error

    def on_failure(
        self,
        exception_type: type[BaseException] | None,
        exception_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Report the death; a subclass with a supervisor of its own overrides this."""
        del exception_type, traceback
        self.system.report_death(self, exception_value or RuntimeError("unknown cause"))
