"""What the worker needs from an engine; `memra.engine` and the tests' fake keep to it.

Every call comes from the worker's thread, and none may wait for anybody.
"""

from typing import Protocol

from memra.engine.handoff_reader import ImportReport
from memra.engine.loaded_model import LoadedModel
from memra.engine.prefix_handoff import ExportReport
from memra.messages.load import WorkerLoad
from memra.messages.prefixes import PrefixesTrimmed, TenantPurged
from memra.messages.work import StepFinished, Submission, WorkReported
from memra.types import ModelName, RequestId


class WorkerEngine(Protocol):
    """The engine as its worker sees it."""

    @property
    def has_work(self) -> bool:
        """Whether another step would do anything, retiring aborted sequences included."""
        ...

    def add_model(self, model: LoadedModel, /) -> None:
        """Serve a model from now on, beside those of the same name. An error leaves everything as it was."""
        ...

    def remove_model(self, name: ModelName, instance: int, /) -> LoadedModel:
        """Serve a model no more, and give it back; the caller closes its executor.

        Raises:
            UnknownModelError: it is not served.
        """
        ...

    def submit(self, prompt: Submission, /) -> None:
        """Queue a sequence, or texts. An error fails this request alone."""
        ...

    def abort(self, request_id: RequestId, /) -> None:
        """Retire a sequence at the next step; unknown ids are ignored."""
        ...

    def step(self) -> StepFinished:
        """Do one step. An error means that the engine as a whole is lost."""
        ...

    def report(self) -> WorkReported:
        """Return the counters."""
        ...

    def load(self) -> WorkerLoad:
        """Return how busy each model is; called after every step."""
        ...

    def trim(self) -> PrefixesTrimmed:
        """Forget every remembered prefix that is not in use."""
        ...

    def purge_tenant(self, tenant: str, /) -> TenantPurged:
        """Forget what is remembered of a tenant and not in use."""
        ...

    def export_prefixes(self, *, force: bool) -> ExportReport:
        """Write the hand-off file; a `HandoffError` says why not."""
        ...

    def import_prefixes(self) -> ImportReport:
        """Begin to read the hand-off file; a `HandoffError` says why not."""
        ...

    def check_integrity(self) -> None:
        """Compare what is held with who holds it; called when idle. An error means that the engine is lost."""
        ...

    def close(self) -> None:
        """Free everything; nothing may be called afterwards."""
        ...
