import subprocess
import sys

from memra.telemetry import names
from memra.telemetry.spans import RequestTrace, attached, stage_span


def test_nothing_is_traced_unless_somebody_asks():
    trace = RequestTrace(None, {names.ATTRIBUTE_MODEL: "fake"})
    assert trace.traceparent is None
    with attached(None), stage_span(names.SPAN_RENDER, None):
        trace.record_stage(names.SPAN_QUEUE, start_ns=1, end_ns=2)
    trace.end()


def test_a_clients_context_is_carried_on_even_when_nobody_records():
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    trace = RequestTrace(traceparent, {})
    assert trace.traceparent == traceparent
    trace.end(ValueError("x"))


def test_a_malformed_context_is_no_context():
    trace = RequestTrace("nonsense", {})
    assert trace.traceparent is None
    trace.end()


def test_the_names_need_no_library():
    check = "import sys, memra.telemetry.names; assert 'opentelemetry' not in sys.modules"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=60)


def test_no_two_names_are_alike():
    for prefix in ("SPAN_", "ATTRIBUTE_", "METRIC_"):
        values = [value for name, value in vars(names).items() if name.startswith(prefix)]
        assert len(values) == len(set(values)) > 0
