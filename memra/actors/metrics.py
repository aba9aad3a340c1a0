"""The worker's and admission's counters under the names that `/metrics` and `/yield/metrics` show.

Pure functions; the bridge calls them.
"""

from typing import Any

from memra.messages.admission import AdmissionsReported
from memra.messages.models import ModelReported, ModelState
from memra.messages.work import PrefixReported, WorkReported
from memra.telemetry import names
from memra.types import Lane


def public_metrics(report: WorkReported, admissions: AdmissionsReported, *, num_respawns: int) -> dict[str, Any]:
    """Return counters and gauges by public name; step times are None before the first step."""
    num_prompt, num_cached = report.num_prompt_tokens, report.num_cached_tokens
    return {
        names.METRIC_ADMITTED: report.num_admitted,
        names.METRIC_COMPLETED: report.num_completed,
        names.METRIC_ABORTED: report.num_aborted,
        names.METRIC_FAILED: report.num_failed,
        names.METRIC_TOKENS_OUT: report.num_generated_tokens,
        names.METRIC_STEP_P50_MS: report.step_p50_ms,
        names.METRIC_STEP_P99_MS: report.step_p99_ms,
        names.METRIC_PROMPT_TOKENS_IN: num_prompt,
        names.METRIC_CACHED_TOKENS_IN: num_cached,
        names.METRIC_COMPUTED_TOKENS_IN: num_prompt - num_cached,
        names.METRIC_CACHE_HIT_TOKEN_RATIO: num_cached / num_prompt if num_prompt else 0.0,
        names.METRIC_IDLE_SECONDS: round(report.idle_s, 3),
        names.METRIC_ACTIVE_SESSIONS: report.num_active,
        names.METRIC_QUEUED_REQUESTS: report.num_queued,
        names.METRIC_ADMISSION_INFLIGHT: admissions.num_inflight,
        names.METRIC_SESSION_DEFERS: admissions.num_row_waits,
        names.METRIC_MEMORY_DEFERS: admissions.num_memory_waits,
        names.METRIC_PAGES_FREE: report.num_pages_free,
        names.METRIC_PAGES_TOTAL: report.num_pages_total,
        names.METRIC_PAGES_CACHED: report.num_pages_cached,
        names.METRIC_PREEMPTED: report.num_preempted,
        **_prefix_metrics(report.prefix),
        names.METRIC_WORKER_RESPAWNS: num_respawns,
    }


def _prefix_metrics(report: PrefixReported) -> dict[str, Any]:
    return {
        names.METRIC_PREFIX_HITS: report.num_hits,
        names.METRIC_PREFIX_MISSES: report.num_misses,
        names.METRIC_PREFIX_ENTRIES: report.num_entries,
        names.METRIC_PREFIX_BYTES: report.num_bytes,
        names.METRIC_PREFIX_INSERTS: report.num_inserts,
        names.METRIC_PREFIX_EVICTIONS: report.num_evictions,
        names.METRIC_PREFIX_HIT_TOKENS: report.num_hit_tokens,
        names.METRIC_PREFIX_HOST_ENTRIES: report.host_entries,
        names.METRIC_PREFIX_HOST_BYTES: report.host_bytes,
        names.METRIC_PREFIX_HOST_PROMOTIONS: report.num_promotions,
        names.METRIC_PREFIX_HOST_DROPS: report.num_host_drops,
        names.METRIC_PREFIX_HANDOFF_EXPORTS: report.moved.num_exports,
        names.METRIC_PREFIX_HANDOFF_ENTRIES: report.moved.num_imported,
        names.METRIC_PREFIX_HANDOFF_BYTES: report.moved.num_imported_bytes,
        names.METRIC_PREFIX_HANDOFF_SKIPS: report.moved.num_import_skips,
        names.METRIC_PREFIX_PURGES: report.moved.num_purges,
        names.METRIC_PREFIX_PURGED_ENTRIES: report.moved.num_purged,
        names.METRIC_PREFIX_PURGED_BYTES: report.moved.num_purged_bytes,
        names.METRIC_LCP_HISTOGRAM: {"edges": report.lcp_edges, "counts": report.lcp_counts},
    }


def cache_metrics(report: PrefixReported) -> dict[str, Any]:
    """Return what `/cache/stats` shows of the prefix cache."""
    return {
        "hits": report.num_hits,
        "misses": report.num_misses,
        "hit_tokens": report.num_hit_tokens,
        "entries": report.num_entries,
        "bytes": report.num_bytes,
        "evictions": report.num_evictions,
        "host_entries": report.host_entries,
        "host_bytes": report.host_bytes,
    }


def model_metrics(models: tuple[ModelReported, ...]) -> dict[str, Any]:
    """Return how many models lie in memory, and what they take: weights, and room for keys, values and states."""
    return {
        names.METRIC_MODELS_LOADED: sum(model.state is ModelState.LOADED for model in models),
        names.METRIC_MODEL_BYTES: sum(model.num_bytes for model in models),
    }


def lane_metrics(report: WorkReported, admissions: AdmissionsReported) -> dict[str, Any]:
    """Return the counters by lane and the interactive steps' times; those are None without recent steps."""
    lanes = report.lanes
    return {
        names.METRIC_LANES: {
            lane.value: {
                names.METRIC_ADMITTED: lanes.admitted[lane],
                names.METRIC_SHED: admissions.num_shed[lane],
                names.METRIC_COMPLETED: lanes.completed[lane],
                names.METRIC_TOKENS_OUT: lanes.tokens_out[lane],
            }
            for lane in Lane
        },
        names.METRIC_INTERACTIVE_STEP_MS: {
            names.METRIC_P50: lanes.step_p50_ms,
            names.METRIC_P99: lanes.step_p99_ms,
        },
        names.METRIC_BATCH_SIZE_LAST: lanes.batch_size_last,
    }
