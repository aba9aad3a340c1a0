"""Traces: one span for a request and children for its stages, joined across mailboxes and threads.

OpenTelemetry's API only: nothing leaves the process unless somebody configures an SDK. Context travels in messages as
a W3C `traceparent` string, because neither a mailbox nor a thread inherits it. The worker records nothing; the stages
that happen in it are written down afterwards by the request's task, from the times at which its events arrived.
Attributes are those of `memra.telemetry.names`; no text of a prompt or an answer comes here.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context, trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from memra.telemetry import names

AttributeValue = str | int | float | bool

_PROPAGATOR = TraceContextTextMapPropagator()
_TRACEPARENT = "traceparent"


@contextmanager
def attached(traceparent: str | None) -> Iterator[None]:
    """Make the sender's trace context current while a message is handled; nothing to do without one."""
    if traceparent is None:
        yield
        return
    token = context.attach(_PROPAGATOR.extract({_TRACEPARENT: traceparent}))
    try:
        yield
    finally:
        context.detach(token)


@contextmanager
def stage_span(name: str, traceparent: str | None) -> Iterator[None]:
    """Record a stage of a request from where it happens; an exception is noted by its type alone."""
    if traceparent is None:
        yield
        return
    parent = _PROPAGATOR.extract({_TRACEPARENT: traceparent})
    span = _tracer().start_span(name, context=parent)
    try:
        yield
    except Exception as error:
        _mark_failed(span, error)
        raise
    finally:
        span.end()


class RequestTrace:
    """The span of one request; owned by the request's task and ended exactly once by it."""

    def __init__(self, traceparent: str | None, attributes: Mapping[str, AttributeValue]) -> None:
        """Start the span now.

        Args:
            traceparent: the client's trace context, or None to begin a trace.
            attributes: known from the start.
        """
        # Events carry monotonic times, spans want wall time: one offset keeps a request's stages in order.
        self._wall_offset_ns = time.time_ns() - time.monotonic_ns()
        parent = context.Context() if traceparent is None else _PROPAGATOR.extract({_TRACEPARENT: traceparent})
        self._span = _tracer().start_span(
            names.SPAN_REQUEST, context=parent, kind=SpanKind.SERVER, attributes=dict(attributes)
        )
        self._context = trace.set_span_in_context(self._span, parent)
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, self._context)
        self._traceparent = carrier.get(_TRACEPARENT)

    @property
    def traceparent(self) -> str | None:
        """The context that messages of this request carry; None when nobody traces."""
        return self._traceparent

    def add_attribute(self, name: str, value: AttributeValue) -> None:
        """Note something that became known on the way."""
        self._span.set_attribute(name, value)

    def record_stage(self, name: str, *, start_ns: int, end_ns: int) -> None:
        """Write down a stage that has passed, with its times on the clock of `time.monotonic_ns()`."""
        if not self._span.is_recording():
            return
        span = _tracer().start_span(name, context=self._context, start_time=start_ns + self._wall_offset_ns)
        span.end(end_time=max(start_ns, end_ns) + self._wall_offset_ns)

    def end(self, error: BaseException | None = None) -> None:
        """End the span; an error is noted by its type, never by its text."""
        if error is not None:
            _mark_failed(self._span, error)
        self._span.end()


def _tracer() -> trace.Tracer:
    # Asked anew each time: a provider may be configured after this module is imported.
    return trace.get_tracer(names.INSTRUMENTATION)


def _mark_failed(span: Span, error: BaseException) -> None:
    span.set_attribute(names.ATTRIBUTE_ERROR, type(error).__name__)
    span.set_status(Status(StatusCode.ERROR))
