"""Where evicted pages and states go before they are forgotten: shares of one host store among models and tenants.

Trade: decides what is dropped when the host store is full, each tenant within its share. Knows tenants by the
namespaces' names; refuses to know what a blob holds. One `HostShares` for the engine, one `HostTier` for each model's
prefixes; used in the worker's thread alone.
"""

from collections import defaultdict
from collections.abc import Callable

from memra.engine.host_store import BlobHandle, HostStore
from memra.engine.prefix_tree import PrefixNode, Snapshot
from memra.engine.recency_queue import RecencyQueue
from memra.errors import LostBlobError
from memra.messages.identity import DEFAULT_TENANT

Demoted = PrefixNode | Snapshot


def tenant_of(namespace: str) -> str:
    """Return the tenant of a namespace: `t:NAME`, U+001F and a salt; or the one tenant of a server without keys."""
    if not namespace.startswith("t:"):
        return DEFAULT_TENANT
    return namespace[2:].partition("\x1f")[0]


class HostShares:
    """The host store, and how much of it each tenant has.

    Attributes:
        num_drops: pages and states that were forgotten for want of room.
    """

    def __init__(self, store: HostStore | None, *, tenant_percent: int = 50) -> None:
        """Take the store.

        Args:
            store: None where nothing is kept beyond the executor; owned from now on.
            tenant_percent: of the store's bytes that one tenant may have, 1 to 100.
        """
        self.num_drops = 0
        self._store = store
        self._tenant_limit = 0 if store is None else store.limit_bytes * tenant_percent // 100
        self._tenant_bytes: defaultdict[str, int] = defaultdict(int)
        self._tiers: list[HostTier] = []

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._store is not None and self._store.is_on

    @property
    def num_bytes(self) -> int:
        """Bytes that are kept."""
        return 0 if self._store is None else self._store.num_bytes

    @property
    def tenant_bytes(self) -> dict[str, int]:
        """Bytes by tenant."""
        return {tenant: num_bytes for tenant, num_bytes in self._tenant_bytes.items() if num_bytes}

    def open_tier(self, drop: Callable[[Demoted], None]) -> "HostTier":
        """Return the tier of one model; `drop` forgets one of its pages or states, and frees its blob."""
        tier = HostTier(self, drop)
        self._tiers.append(tier)
        return tier

    def close_tier(self, tier: "HostTier") -> None:
        """A model is gone, and everything of it is free."""
        self._tiers.remove(tier)

    def put(self, tenant: str, data: bytes) -> BlobHandle | None:
        """Keep a blob, dropping older ones for it; None when there is no room for it.

        A tenant over its share gives up its own oldest first, and never another's.
        """
        store = self._store
        if store is None or len(data) > self._tenant_limit:
            return None
        while self._tenant_bytes[tenant] + len(data) > self._tenant_limit:
            if not self._drop_oldest((tenant,)):
                return None
        while (blob := store.put(data)) is None:
            if not store.is_on or not self._drop_oldest(tuple(self._tenant_bytes)):
                return None
        self._tenant_bytes[tenant] += len(data)
        return blob

    def get(self, blob: BlobHandle) -> bytes | None:
        """Return a blob's bytes; None when they are lost."""
        assert self._store is not None  # noqa: S101  (there is no blob without a store)
        try:
            return self._store.get(blob)
        except LostBlobError:
            return None

    def free(self, tenant: str, blob: BlobHandle, num_bytes: int) -> None:
        """Let a blob go."""
        assert self._store is not None  # noqa: S101  (there is no blob without a store)
        self._store.free(blob)
        self._tenant_bytes[tenant] -= num_bytes

    def close(self) -> None:
        """Give the store up."""
        if self._store is not None:
            self._store.close()

    def check_integrity(self) -> None:
        """Compare the store's books; raises `IntegrityError`."""
        if self._store is not None:
            self._store.check_integrity()

    def _drop_oldest(self, tenants: tuple[str, ...]) -> bool:
        candidates = [
            (oldest.last_used, index, oldest)
            for index, tier in enumerate(self._tiers)
            if (oldest := tier.oldest(tenants)) is not None
        ]
        if not candidates:
            return False
        _, index, oldest = min(candidates, key=lambda candidate: candidate[:2])
        self._tiers[index].drop(oldest)
        self.num_drops += 1
        return True


class HostTier:
    """One model's blobs."""

    def __init__(self, shares: HostShares, drop: Callable[[Demoted], None]) -> None:
        self._shares = shares
        self.drop = drop
        self._sizes: dict[BlobHandle, int] = {}
        self._demoted: defaultdict[str, RecencyQueue[Demoted]] = defaultdict(lambda: RecencyQueue(_may_drop))

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._shares.is_on

    @property
    def num_bytes(self) -> int:
        """Bytes of this model's blobs."""
        return sum(self._sizes.values())

    @property
    def num_blobs(self) -> int:
        """Blobs of this model."""
        return len(self._sizes)

    def put(self, namespace: str, data: bytes) -> BlobHandle | None:
        """Keep a page's or state's bytes; None when there is no room."""
        blob = self._shares.put(tenant_of(namespace), data)
        if blob is not None:
            self._sizes[blob] = len(data)
        return blob

    def get(self, blob: BlobHandle) -> bytes | None:
        """Return what was kept; None when it is lost."""
        return self._shares.get(blob)

    def free(self, namespace: str, blob: BlobHandle) -> None:
        """Let a blob go."""
        self._shares.free(tenant_of(namespace), blob, self._sizes.pop(blob))

    def enlist(self, item: Demoted) -> None:
        """Note that a page or state may be dropped, or that it was used; harmless for one that may not."""
        namespace = item.namespace if isinstance(item, PrefixNode) else item.node.namespace
        if _may_drop(item):
            self._demoted[tenant_of(namespace)].push(item)

    def oldest(self, tenants: tuple[str, ...]) -> Demoted | None:
        """Return what of some tenants was used longest ago."""
        queues = [self._demoted[tenant] for tenant in tenants if tenant in self._demoted]
        items = [item for queue in queues if (item := queue.peek()) is not None]
        return min(items, key=lambda item: item.last_used, default=None)

    def close(self) -> None:
        """Leave the shares."""
        self._shares.close_tier(self)


def _may_drop(item: Demoted) -> bool:
    if isinstance(item, Snapshot):
        return item.blob is not None and item.node.snapshots.get(item.offset) is item
    return item.blob is not None and item.parent is not None and not item.children
