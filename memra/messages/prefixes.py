"""Between whoever administers the server and the worker: what is remembered of prompts is trimmed, purged and moved.

Each is asked of the worker, done between two steps, and answered with its report.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrimPrefixes:
    """Forget every remembered prefix that no running sequence uses; answered with `PrefixesTrimmed`."""


@dataclass(frozen=True, slots=True)
class PrefixesTrimmed:
    """What was forgotten.

    Attributes:
        prefix_entries: pages that were dropped.
        reclaimed_bytes: of them, in the executors.
        still_owned_bytes: of the pages and states that running sequences use.
        pool_reserved_bytes: of all pages that the executors hold, used or not.
        pool_cached_bytes: of those among them that nothing uses now.
    """

    prefix_entries: int
    reclaimed_bytes: int
    still_owned_bytes: int
    pool_reserved_bytes: int = 0
    pool_cached_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PurgeTenant:
    """Forget what is remembered of one tenant, under all its salts; answered with `TenantPurged`."""

    tenant: str


@dataclass(frozen=True, slots=True)
class TenantPurged:
    """What was forgotten of a tenant; running sequences are left alone.

    Attributes:
        namespaces: of the tenant that held something.
        host_entries, host_bytes: pages and states that lay in the host store.
        device_entries: pages that lay in the executors.
        device_pinned_left: pages that running sequences use; purge again when they have ended.
    """

    tenant: str
    namespaces: int
    host_entries: int
    host_bytes: int
    device_entries: int
    device_pinned_left: int


@dataclass(frozen=True, slots=True)
class ExportPrefixes:
    """Write the hand-off file; answered with its report, or refused with a `HandoffError`.

    Attributes:
        force: also while requests are worked on, which wait meanwhile.
    """

    force: bool = False


@dataclass(frozen=True, slots=True)
class ImportPrefixes:
    """Read the hand-off file, an entry a step; answered when its header has been read, or refused."""
