"""What all models' prefixes come to together, for the metrics.

A pure function over counts; the engine calls it when it is asked for a report. Totals are those of the models that are
there now: a model that goes takes its counts with it.
"""

from collections.abc import Sequence

from memra.engine.host_shares import HostShares
from memra.engine.prefix_budget import PrefixBudget
from memra.engine.prefix_cache import LCP_EDGES, PrefixCache
from memra.messages.work import PrefixesMoved, PrefixReported


def report_prefixes(
    caches: Sequence[PrefixCache], host: HostShares, *, budget: PrefixBudget, moved: PrefixesMoved
) -> PrefixReported:
    """Return the sums over all models."""
    counts = [cache.counts for cache in caches]
    return PrefixReported(
        num_hits=sum(count.num_hits for count in counts),
        num_misses=sum(count.num_misses for count in counts),
        num_hit_tokens=sum(count.num_hit_tokens for count in counts),
        num_inserts=sum(count.num_inserts for count in counts),
        num_evictions=sum(count.num_evictions for count in counts),
        num_entries=sum(cache.holdings.num_nodes for cache in caches),
        num_bytes=budget.num_bytes,
        lcp_edges=LCP_EDGES,
        lcp_counts=tuple(map(sum, zip(*(count.lcp_counts for count in counts), strict=True))),
        host_entries=sum(cache.holdings.host.num_blobs for cache in caches),
        host_bytes=host.num_bytes,
        num_promotions=sum(count.num_promotions for count in counts),
        num_host_drops=host.num_drops,
        moved=moved,
    )
