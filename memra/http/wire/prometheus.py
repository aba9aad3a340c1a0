"""The counters of `/metrics` as Prometheus reads them: text exposition format 0.0.4.

The JSON names stay, behind `memra_`, but for those that dashboards know from the reference server; counters, and they
alone, end in `_total`, and what JSON nests becomes a label. Values that are not known yet are left out. Refuses to know
who counted. Called by `memra.http.routes.metrics`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memra.telemetry import names

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_PREFIX = "memra_"
_LABELS: Mapping[str, str] = {names.METRIC_IGNORED_FIELDS: "field"}
"""Counters by something, and what that is."""

_KNOWN_AS: Mapping[str, str] = {
    names.METRIC_ADMITTED: "requests_admitted",
    names.METRIC_COMPLETED: "requests_completed",
}
_STEP_QUANTILES: Mapping[str, str] = {names.METRIC_STEP_P50_MS: "0.5", names.METRIC_STEP_P99_MS: "0.99"}

COUNTERS = frozenset(
    {
        names.METRIC_ADMITTED,
        names.METRIC_COMPLETED,
        names.METRIC_ABORTED,
        names.METRIC_FAILED,
        names.METRIC_TOKENS_OUT,
        names.METRIC_PROMPT_TOKENS_IN,
        names.METRIC_CACHED_TOKENS_IN,
        names.METRIC_COMPUTED_TOKENS_IN,
        names.METRIC_IDLE_SECONDS,
        names.METRIC_SESSION_DEFERS,
        names.METRIC_MEMORY_DEFERS,
        names.METRIC_PREEMPTED,
        names.METRIC_PREFIX_HITS,
        names.METRIC_PREFIX_MISSES,
        names.METRIC_PREFIX_INSERTS,
        names.METRIC_PREFIX_EVICTIONS,
        names.METRIC_PREFIX_HIT_TOKENS,
        names.METRIC_PREFIX_HOST_PROMOTIONS,
        names.METRIC_PREFIX_HOST_DROPS,
        names.METRIC_PREFIX_HANDOFF_EXPORTS,
        names.METRIC_PREFIX_HANDOFF_ENTRIES,
        names.METRIC_PREFIX_HANDOFF_BYTES,
        names.METRIC_PREFIX_HANDOFF_SKIPS,
        names.METRIC_PREFIX_PURGES,
        names.METRIC_PREFIX_PURGED_ENTRIES,
        names.METRIC_PREFIX_PURGED_BYTES,
        names.METRIC_RESPONSE_CACHE_HITS,
        names.METRIC_RESPONSE_CACHE_MISSES,
        names.METRIC_WORKER_RESPAWNS,
        names.METRIC_LIMITS_RELOAD_FAILED,
        names.METRIC_SHED,
        names.METRIC_IGNORED_FIELDS,
    }
)
"""What only grows; everything else is a gauge."""


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    value: float
    is_counter: bool
    labels: tuple[tuple[str, str], ...] = ()


def exposition(metrics: Mapping[str, Any], lanes: Mapping[str, Any]) -> str:
    """Return the text.

    Args:
        metrics: what `/metrics` shows as JSON.
        lanes: what `/yield/metrics` shows.
    """
    samples = [*_samples_of(metrics), *_samples_of_lanes(lanes)]
    lines: list[str] = []
    # All samples of a name must stand together, behind its type.
    for name in dict.fromkeys(sample.name for sample in samples):
        own = [sample for sample in samples if sample.name == name]
        lines.append(f"# TYPE {name} {'counter' if own[0].is_counter else 'gauge'}")
        lines += (f"{name}{_labels(sample)} {sample.value!r}" for sample in own)
    return "\n".join([*lines, ""])


def _samples_of(metrics: Mapping[str, Any]) -> Iterator[_Sample]:
    for name, value in metrics.items():
        if name == names.METRIC_LCP_HISTOGRAM:
            for edge, count in zip(value["edges"], value["counts"], strict=True):
                yield _Sample(f"{_PREFIX}lcp_total", count, True, (("at_least_tokens", str(edge)),))
        elif name in _LABELS:
            for key, count in value.items():
                yield _sample(name, count, labels=((_LABELS[name], key),))
        elif name in _STEP_QUANTILES and value is not None:
            yield _Sample(f"{_PREFIX}step_latency_seconds", value / 1e3, False, (("quantile", _STEP_QUANTILES[name]),))
        elif value is not None:
            yield _sample(name, value)


def _samples_of_lanes(lanes: Mapping[str, Any]) -> Iterator[_Sample]:
    for lane, counts in lanes.get(names.METRIC_LANES, {}).items():
        for name, count in counts.items():
            yield _sample(name, count, prefix="lane_", labels=(("lane", lane),))
    for quantile, value in lanes.get(names.METRIC_INTERACTIVE_STEP_MS, {}).items():
        if value is not None:
            yield _sample(f"interactive_step_{quantile}_ms", value)
    if names.METRIC_BATCH_SIZE_LAST in lanes:
        yield _sample(names.METRIC_BATCH_SIZE_LAST, lanes[names.METRIC_BATCH_SIZE_LAST])


def _sample(name: str, value: float, *, prefix: str = "", labels: tuple[tuple[str, str], ...] = ()) -> _Sample:
    is_counter = name in COUNTERS
    stem = name.removesuffix("_total") if prefix else _KNOWN_AS.get(name, name.removesuffix("_total"))
    return _Sample(f"{_PREFIX}{prefix}{stem}{'_total' if is_counter else ''}", value, is_counter, labels)


def _labels(sample: _Sample) -> str:
    if not sample.labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in sample.labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
