"""Who sends a request: what was presented at the door, and who that turned out to be."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from memra.types import Lane

DEFAULT_TENANT = "default"
"""Who pays on an open server, and on one with a single key."""

MAX_TENANT_CHARS = 64
"""Longest tenant: it stands in every namespace, log line and metric."""

_TENANT = re.compile(r"[A-Za-z0-9_-]+")


def is_tenant(name: object) -> bool:
    """Tell whether a tenant may have a name: nothing in it may end a namespace, a log line or a path."""
    return isinstance(name, str) and len(name) <= MAX_TENANT_CHARS and _TENANT.fullmatch(name) is not None


class KeyClass(StrEnum):
    """What a key may ask for."""

    INTERACTIVE = "interactive"
    BATCH = "batch"
    """Everything but the interactive lane; `harvest` where the request names none."""

    @property
    def default_lane(self) -> Lane:
        """The lane of a request that names none."""
        return Lane.HARVEST if self is KeyClass.BATCH else Lane.INTERACTIVE

    def may_use(self, lane: Lane) -> bool:
        """Whether a request may ask for a lane."""
        return self is not KeyClass.BATCH or lane is not Lane.INTERACTIVE


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client presents.

    Attributes:
        api_key: from `Authorization: Bearer` or `x-api-key`, as sent; None where there is none.
        headers: all request headers by lower-case name, for schemes of a plugin's own; the last of equal names wins.
    """

    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class Identity:
    """Who pays for a request, and what may be asked for.

    Attributes:
        tenant: as `is_tenant` has it; the cache namespace is derived from it.
        principal: names the key within the tenant, such as the public beginning of it; never the key. None without one.
        key_class: which lanes are open.
        max_inflight: requests of the whole tenant in the house at once; None: as many as the lane takes.
        is_named: it was told apart by a key of its own; then namespaces are the tenant's and no client chooses one.
    """

    tenant: str = DEFAULT_TENANT
    principal: str | None = None
    key_class: KeyClass = KeyClass.INTERACTIVE
    max_inflight: int | None = None
    is_named: bool = False


ANYBODY = Identity()
"""Whoever comes to an open server."""
