"""What a plugin may do to the running server: the public handles, given to `memra_ready` and to blueprints.

They work on while the server drains and die with it: then every call raises `HandlesClosedError`, those that wait
included, and nothing that a plugin keeps can hold the process. All methods are trio coroutines; a plugin that says
`memra_async = "asyncio"` gets handles that are awaited on its own loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from memra.messages.identity import KeyClass
from memra.types import Lane, ModelName, RequestId


class HandlesClosedError(RuntimeError):
    """The server has ended; there is nothing left to handle."""


@dataclass(frozen=True, slots=True)
class RunningRequest:
    """A request in the house, without a word of its prompt.

    Attributes:
        phase: `admitted`, `queued`, `prefill` or `decode`.
        prompt_tokens: None until it is rendered.
        completion_tokens: generated so far.
        age_s: since it came in.
    """

    request_id: RequestId
    tenant: str
    principal: str | None
    lane: Lane
    model: ModelName
    phase: str
    prompt_tokens: int | None
    completion_tokens: int
    age_s: float


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made.

    Attributes:
        key: its whole text, which is nowhere else.
        prefix: its public beginning, which names it from now on.
    """

    key: str = field(repr=False)
    prefix: str
    tenant: str
    key_class: KeyClass
    rate_limit: int | None


Report = Mapping[str, Any]
"""Plain values, as they go into JSON."""


class RuntimeHandles(Protocol):
    """The server, as whoever administers it sees it."""

    @property
    def is_shutting_down(self) -> bool:
        """Whether the server drains, or has ended."""
        ...

    async def wait_shutdown(self) -> None:
        """Wait until the server begins to drain."""
        ...

    async def trim(self) -> Report:
        """Forget every remembered prefix that no running request uses.

        Returns:
            `reuse_entries`, `spec_reuse_entries`, `dspark_reuse_entries`, `prefix_entries`, and `devices`, a row each
            of `device`, `reclaimed_bytes`, `still_owned_bytes`, `pool_reserved_bytes`, `pool_cached_bytes`,
            `driver_free_bytes` and `synchronization_errors`.
        """
        ...

    async def purge_tenant(self, tenant: str) -> Report:
        """Forget what is remembered of a tenant; what running requests use is left and counted: call again after them.

        Returns:
            `tenant`, `host_namespaces`, `host_entries`, `host_bytes`, `device_entries`, `device_pinned_left`.
        """
        ...

    async def export_prefixes(self, *, force: bool = False) -> Report:
        """Write what is remembered to the hand-off file.

        Returns:
            `path`, `demoted_from_device`, `entries`, `bytes`, `skipped_over_cap`, `ms`.
        """
        ...

    async def import_prefixes(self) -> Report:
        """Begin to read the hand-off file.

        Returns:
            `path`, `header_entries`, `header_bytes`, `age_secs`, `refused_models`.
        """
        ...

    async def list_models(self) -> Sequence[Report]:
        """Return what lies in memory of every model: `name`, `state`, `bytes`, `pinned`, `in_use`, ..."""
        ...

    async def load_model(self, name: str, source: str | None = None) -> Report:
        """Load a model, or put another in its place, and wait for it; being cancelled takes the load back."""
        ...

    async def unload_model(self, name: str) -> bool:
        """Let a model go once its last request has ended; false when it was not loaded."""
        ...

    async def pin_model(self, name: str, *, is_pinned: bool = True) -> None:
        """Keep a model in memory, or stop keeping it."""
        ...

    async def list_requests(self) -> Sequence[RunningRequest]:
        """Return what runs and waits now."""
        ...

    async def cancel_request(self, request_id: str) -> bool:
        """End a request of whatever tenant; false when none of that id is in the house."""
        ...

    async def reload_metadata(self) -> Report:
        """Read the file of model metadata again; a broken one changes nothing and is said to be broken.

        Returns:
            `models`: how many have metadata now.
        """
        ...

    async def create_key(self, tenant: str, *, key_class: KeyClass, rate_limit: int | None = None) -> NewKey:
        """Make a key of a tenant's and write its hash into the keyring's file; it opens the server at once.

        Raises:
            memra.errors.ConfigurationError: the server has no keyring in a file, or it cannot be written.
        """
        ...

    async def revoke_key(self, prefix: str) -> int:
        """Disable the key with a public beginning at once; requests that run go on.

        Returns:
            How many keys have that beginning; only a single one is disabled.

        Raises:
            memra.errors.ConfigurationError: as for `create_key`.
        """
        ...

    async def metrics(self) -> Report:
        """Return the counters under the names of `/metrics`."""
        ...

    def shut_down(self) -> None:
        """Drain and end, as SIGTERM does."""
        ...
