"""Where spans go: exporters that plugins bring, behind OpenTelemetry's SDK.

Trade: sets the process's tracer provider up, or adds to the one that somebody set up already. The SDK is optional and
imported only here, and only where there is an exporter. Spans are handed over in batches, from a thread of the SDK's.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from opentelemetry import trace

from memra.errors import UsageError


class SpanExport:
    """The exporters of one server; nothing is done where there are none."""

    def __init__(self, exporters: Sequence[tuple[str, Any]], *, version: str) -> None:
        """Begin to export.

        Args:
            exporters: `SpanExporter`s, each with the plugin that brings it, in words.
            version: of memra, told with the spans.

        Raises:
            UsageError: the SDK is not installed.
        """
        self._processors: list[Any] = []
        if exporters:
            if find_spec("opentelemetry.sdk") is None:
                raise UsageError(
                    f"plugin {exporters[0][0]}: exports spans, which needs opentelemetry-sdk; install memra[otel]"
                )
            self._start([exporter for _, exporter in exporters], version)

    def _start(self, exporters: Sequence[Any], version: str) -> None:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415  (an extra)
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  (as above)
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415  (as above)

        provider = trace.get_tracer_provider()
        if not isinstance(provider, TracerProvider):
            resource = Resource.create({"service.name": "memra", "service.version": version})
            provider = TracerProvider(resource=resource)
            trace.set_tracer_provider(provider)
        for exporter in exporters:
            self._processors.append(BatchSpanProcessor(exporter))
            provider.add_span_processor(self._processors[-1])

    def end(self) -> None:
        """Hand over what is left and let the exporters go; blocks."""
        for processor in self._processors:
            processor.shutdown()
