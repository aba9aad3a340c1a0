"""Spans leave through the exporters that plugins bring; without any, nothing is set up."""

import importlib.util

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memra.errors import UsageError
from memra.telemetry.export import SpanExport
from memra.telemetry.spans import RequestTrace


@pytest.fixture
def provided(monkeypatch: pytest.MonkeyPatch) -> list[TracerProvider]:
    """What was set as the process's provider: the API takes one once, so the test takes it instead."""
    given: list[TracerProvider] = []
    monkeypatch.setattr(trace, "set_tracer_provider", given.append)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: given[-1] if given else trace.ProxyTracerProvider())
    monkeypatch.setattr(trace, "get_tracer", lambda *names: trace.get_tracer_provider().get_tracer(*names))
    return given


def test_memra_telemetry_exporters_get_the_spans_of_requests_and_are_shut_down(provided):
    first, second = InMemorySpanExporter(), InMemorySpanExporter()
    export = SpanExport([("one", first)], version="1.2")
    again = SpanExport([("two", second)], version="1.2")
    assert len(provided) == 1, "a provider that is there is added to"
    RequestTrace(None, {"a": 1}).end()
    export.end()
    again.end()
    for exporter in (first, second):
        (span,) = exporter.get_finished_spans()
        assert span.attributes == {"a": 1}
        assert span.resource.attributes["service.version"] == "1.2"
        assert exporter._stopped


def test_without_exporters_nothing_is_set_up(provided):
    SpanExport([], version="1.2").end()
    assert not provided


def test_without_the_sdk_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memra.telemetry.export.find_spec", {}.get)
    assert importlib.util.find_spec("opentelemetry.sdk")
    with pytest.raises(UsageError, match=r"plugin one \(one 1.0\): exports spans.*install memra\[otel\]"):
        SpanExport([("one (one 1.0)", InMemorySpanExporter())], version="1.2")
