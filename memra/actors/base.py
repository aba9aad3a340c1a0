"""What both kinds of actors share: the system that they live in, and how one talks to them.

An actor handles one message at a time and owns its state alone. Trio actors share the loop's thread, thread actors have
one each; senders cannot tell. Messages are the frozen dataclasses of `memra.messages`; one that carries a `traceparent`
is handled inside its sender's trace. pykka supervises nobody: here a death is reported to the system.

From the trio thread never block: `tell`, and `await ask(...)`; not `ref.ask(...)` with its default, `ref.stop()`,
`ActorRegistry.stop_all()` or an attribute assignment through a proxy.
"""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any, cast

import pykka
import trio
from pykka import ActorDeadError, messages

from memra.actors.future import TrioFuture
from memra.actors.mailbox import ThreadMailbox, TrioMailbox
from memra.telemetry.spans import attached

# At INFO pykka writes out the errors that it hands to askers, and a template's error may quote a prompt.
logging.getLogger("pykka").setLevel(logging.WARNING)

Ref = pykka.ActorRef[Any]
"""The address of an actor, of either kind."""


class UnknownMessageError(TypeError):
    """An actor was sent something that it does not accept: a mistake in the program."""

    def __init__(self, actor: object, message: object) -> None:
        """Name both ends, by type: a message may hold a prompt."""
        super().__init__(f"{type(actor).__name__} accepts no {type(message).__name__}")


class ActorSystem:
    """The loop that the actors belong to, and whom to tell when one dies.

    Made in the trio thread; its methods may be called from any thread.
    """

    def __init__(self, nursery: trio.Nursery, *, on_death: Callable[[str, BaseException], None]) -> None:
        """Keep the run that is current now.

        Args:
            nursery: trio actors are its tasks, and end when it is cancelled.
            on_death: called in the trio thread with the actor's class name and the error that ended it.
        """
        self.nursery = nursery
        self.token = trio.lowlevel.current_trio_token()
        self.thread = threading.get_ident()
        self._on_death = on_death

    def call_soon(self, function: Callable[..., object], *args: object) -> None:
        """Run a function in the trio thread, in order of the calls; nothing happens once the loop has ended."""
        with contextlib.suppress(trio.RunFinishedError):  # a thread may outlive the loop by a moment
            self.token.run_sync_soon(function, *args)

    def report_death(self, actor: object, error: BaseException) -> None:
        """Say that an actor ended by a failure."""
        self.call_soon(self._on_death, type(actor).__name__, error)


class Dispatch:
    """The part of an actor that takes one message: inside its sender's trace, and loud about a stranger."""

    def on_receive(self, message: Any) -> Any:
        """Handle one message; pykka calls this."""
        with attached(getattr(message, "traceparent", None)):
            return self.handle(message)

    def handle(self, message: Any) -> Any:
        """Handle one message: a `match` over what the actor accepts, `raise UnknownMessageError` for the rest."""
        raise UnknownMessageError(self, message)


async def ask(ref: Ref, message: object) -> Any:
    """Send a message and wait for the answer; an error of the handler is raised here.

    Cancelling the wait takes a message that was not read yet out of the mailbox again, except for a stop: whoever asks
    and leaves makes no work.

    Raises:
        ActorDeadError: the actor is gone, or went before it answered.
    """
    answer = cast("TrioFuture", ref.ask(message, block=False))
    try:
        return await answer
    except trio.Cancelled:
        cast("ThreadMailbox | TrioMailbox", ref.actor_inbox).withdraw(answer)
        raise


def tell_if_alive(ref: Ref, message: object) -> bool:
    """Send a message; false when the actor is gone, which on the way down is no error."""
    try:
        ref.tell(message)
    except ActorDeadError:
        return False
    return True


async def stop_actor(ref: Ref, *, within_s: float) -> bool:
    """Ask an actor to stop after the messages that wait, and wait for it; false when it did not in time.

    Gone already counts as stopped. A thread that does not return is left behind: it is a daemon.
    """
    with trio.move_on_after(within_s) as scope, contextlib.suppress(ActorDeadError):
        # ActorRef.stop() would return a future that can only block.
        await ask(ref, messages._ActorStop())  # noqa: SLF001  (pykka has no public name for it)
    return not scope.cancelled_caught
