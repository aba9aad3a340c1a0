"""Everything that is remembered of one tenant, forgotten.

A function over the prefix caches of all models; the engine calls it when it is asked to.
"""

from collections.abc import Sequence

from memra.engine.host_shares import tenant_of
from memra.engine.prefix_cache import PrefixCache
from memra.messages.prefixes import TenantPurged


def purge_tenant(caches: Sequence[PrefixCache], tenant: str) -> TenantPurged:
    """Forget a tenant's prefixes under all its salts, but for those that running sequences use."""
    num_namespaces = host_entries = host_bytes = device_entries = num_left = 0
    for cache in caches:
        names = [name for name in cache.namespaces if tenant_of(name) == tenant]
        num_namespaces += len(names)
        blobs, blob_bytes = cache.holdings.host.num_blobs, cache.holdings.host.num_bytes
        pages = len(cache.holdings.held_pages())
        cache.trim(names)
        host_entries += blobs - cache.holdings.host.num_blobs
        host_bytes += blob_bytes - cache.holdings.host.num_bytes
        device_entries += pages - len(cache.holdings.held_pages())
        num_left += sum(node.page_id is not None for name in names for node in cache.holdings.walk(name))
    return TenantPurged(tenant, num_namespaces, host_entries, host_bytes, device_entries, num_left)
