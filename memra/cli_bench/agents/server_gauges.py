"""What a memra server says of itself at `/metrics`, and waiting until it has nothing left to do.

Knows the metrics' names; refuses to know what they should be.
"""

import json
import time
from collections.abc import Mapping
from typing import Any

from memra.cli_bench.agents.chat_stream import OK, Endpoint
from memra.errors import MeasurementError
from memra.telemetry import names

_POLL_S = 0.02
_IDLE_S = 30.0
_PAGES_CACHED = "kv_pages_cached"
"""Pages that only keep prefixes, where the server tells them apart from free ones."""


def read_gauges(endpoint: Endpoint) -> Mapping[str, Any]:
    """Counters and gauges by public name.

    Raises:
        MeasurementError: the server does not answer, or has none.
    """
    status, content = endpoint.call("GET", "/metrics")
    if status != OK:
        raise MeasurementError(f"/metrics was answered with status {status}")
    return dict(json.loads(content))


def is_idle(gauges: Mapping[str, Any]) -> bool:
    """Whether no request runs or waits."""
    return not (gauges[names.METRIC_ACTIVE_SESSIONS] or gauges[names.METRIC_QUEUED_REQUESTS])


def num_pages_lost(gauges: Mapping[str, Any]) -> int:
    """Pages that are neither free nor keep a prefix: on an idle server, leaked ones."""
    free = gauges[names.METRIC_PAGES_FREE] + gauges.get(_PAGES_CACHED, 0)
    return int(gauges[names.METRIC_PAGES_TOTAL] - free)


def wait_until_idle(endpoint: Endpoint, *, within_s: float = _IDLE_S) -> float:
    """Ask until nothing runs or waits; returns the seconds that it took.

    Raises:
        MeasurementError: something still does.
    """
    begin = time.perf_counter()
    while not is_idle(gauges := read_gauges(endpoint)):
        if time.perf_counter() - begin > within_s:
            raise MeasurementError(
                f"after {within_s:g} s without clients {gauges[names.METRIC_ACTIVE_SESSIONS]} requests are active "
                f"and {gauges[names.METRIC_QUEUED_REQUESTS]} queued"
            )
        time.sleep(_POLL_S)
    return time.perf_counter() - begin
