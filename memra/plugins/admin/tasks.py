"""What takes too long for an answer: carried out beside it, looked at later, and taken back on demand.

Trade: one list of tasks, the newest `MAX_ENDED` of those that have ended. Refuses to know what a task does. A task
lives in the run of trio in which it was begun, and ends with it.
"""

import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

import trio

from memra.errors import MemraError
from memra.plugins.handles import HandlesClosedError, Report, RuntimeHandles

MAX_ENDED = 100
"""Ended tasks that are remembered: an operator's day."""

log = logging.getLogger(__name__)


class TaskState(StrEnum):
    """Where a task is."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class Task:
    """One task.

    Attributes:
        kind: what is done, such as `load`.
        subject: to what.
        result: of a task that is done.
        error: in one line, of one that failed.
        ended_unix: None while it runs.
    """

    id: str
    kind: str
    subject: str
    started_unix: int
    state: TaskState = TaskState.RUNNING
    result: Report | None = None
    error: str | None = None
    ended_unix: int | None = None
    scope: trio.CancelScope = field(default_factory=trio.CancelScope, repr=False)

    def report(self) -> dict[str, Any]:
        """Return what is told of it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "subject": self.subject,
            "state": self.state.value,
            "started_unix": self.started_unix,
            "ended_unix": self.ended_unix,
            "result": self.result,
            "error": self.error,
        }


class TaskList:
    """The tasks of one server; trio thread only."""

    def __init__(self, handles: RuntimeHandles) -> None:
        """Begin with none.

        Args:
            handles: say when the server ends, and no task goes on.
        """
        self._handles = handles
        self._tasks: dict[str, Task] = {}
        self._ended: deque[str] = deque()
        self._numbers = count(1)

    def begin(self, kind: str, subject: str, work: Callable[[], Awaitable[Report]]) -> Task:
        """Begin a task beside the caller's.

        Args:
            kind: what is done.
            subject: to what.
            work: does it; a `MemraError` is told as the reason of a failure.
        """
        task = Task(f"task-{next(self._numbers)}", kind, subject, int(time.time()))
        self._tasks[task.id] = task
        # Not a task of the request's, which ends with its answer; handles end every call when the server does.
        trio.lowlevel.spawn_system_task(self._run, task, work)
        return task

    def find(self, task_id: str) -> Task | None:
        """Return a task; None where none of this id is remembered."""
        return self._tasks.get(task_id)

    def all(self) -> tuple[Task, ...]:
        """Return the tasks that are remembered, the oldest first."""
        return tuple(self._tasks.values())

    def cancel(self, task: Task) -> bool:
        """Take a task back; false when it has ended before."""
        if task.state is not TaskState.RUNNING:
            return False
        task.state = TaskState.CANCELLED
        task.scope.cancel()
        return True

    async def _run(self, task: Task, work: Callable[[], Awaitable[Report]]) -> None:
        try:
            with task.scope:
                task.result = await work()
                task.state = TaskState.DONE
        except MemraError as error:
            self._fail(task, error.message)
        except HandlesClosedError as error:
            self._fail(task, str(error))
        except Exception:
            log.exception("task %s (%s %s) failed", task.id, task.kind, task.subject)
            self._fail(task, "it failed; the server's log names the cause")
        finally:
            task.ended_unix = int(time.time())
            self._ended.append(task.id)
            if len(self._ended) > MAX_ENDED:
                del self._tasks[self._ended.popleft()]

    def _fail(self, task: Task, reason: str) -> None:
        task.state, task.error = TaskState.FAILED, reason
