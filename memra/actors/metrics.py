"""The worker's counters under the names that `/metrics` shows.

A pure function; the bridge calls it.
"""

from typing import Any

from memra.messages.work import WorkReported
from memra.telemetry import names


def public_metrics(report: WorkReported, *, num_respawns: int) -> dict[str, Any]:
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
        names.METRIC_PAGES_FREE: report.num_pages_free,
        names.METRIC_PAGES_TOTAL: report.num_pages_total,
        names.METRIC_WORKER_RESPAWNS: num_respawns,
    }
