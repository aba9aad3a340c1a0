"""With an SDK in place, one request is one trace, through mailboxes and threads, without a word of the prompt."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memra.errors import TemplateError
from memra.messages.generation import TextPrompt
from memra.telemetry import names

STAGES = {names.SPAN_ADMISSION, names.SPAN_RENDER, names.SPAN_QUEUE, names.SPAN_PREFILL, names.SPAN_DECODE}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK for one test: the API lets a provider be set only once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    spans = exporter.get_finished_spans()
    assert len({span.name for span in spans}) == len(spans)
    return {span.name: span for span in spans}


async def test_all_stages_are_children_of_the_request_in_the_clients_trace(kit: Any, exporter: InMemorySpanExporter):
    traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with kit.open_house(make_engine=lambda: kit.Engine(prefill_steps=3)) as running:
        await kit.read(running.house, kit.request(traceparent=traceparent, prompt=TextPrompt("my secret words")))
        submitted = running.engine.submitted[0]
    spans = by_name(exporter)
    assert set(spans) == {*STAGES, names.SPAN_REQUEST}
    request = spans[names.SPAN_REQUEST]
    assert request.parent is not None
    assert f"{request.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331"
    for stage in STAGES:
        parent = spans[stage].parent
        assert parent is not None
        assert parent.span_id == request.context.span_id
        assert spans[stage].context.trace_id == request.context.trace_id
    assert submitted.traceparent is not None
    assert f"{request.context.span_id:016x}" in submitted.traceparent
    for span in spans.values():
        assert "secret" not in str(span.attributes)
        assert "abc" not in str(span.attributes)
        assert not span.events


async def test_the_stages_follow_each_other_without_gaps(kit: Any, exporter: InMemorySpanExporter):
    async with kit.open_house(make_engine=lambda: kit.Engine(prefill_steps=3)) as running:
        await kit.read(running.house, kit.request())
    spans = by_name(exporter)
    queue, prefill, decode = (spans[name] for name in (names.SPAN_QUEUE, names.SPAN_PREFILL, names.SPAN_DECODE))
    request = spans[names.SPAN_REQUEST]
    assert request.start_time <= queue.start_time <= queue.end_time == prefill.start_time
    assert prefill.start_time < prefill.end_time == decode.start_time <= decode.end_time <= request.end_time
    assert request.attributes is not None
    assert request.attributes[names.ATTRIBUTE_PROMPT_TOKENS] == 5
    assert request.attributes[names.ATTRIBUTE_COMPLETION_TOKENS] == 5
    assert request.attributes[names.ATTRIBUTE_CACHED_TOKENS] == 2
    assert request.attributes[names.ATTRIBUTE_STOP] == "max_tokens"
    assert request.attributes[names.ATTRIBUTE_TENANT] == "default"


async def test_a_request_that_fails_is_marked_by_type_and_not_by_words(kit: Any, exporter: InMemorySpanExporter):
    async with kit.open_house() as running:
        running.renderer.error = TemplateError("cannot render: secret words")
        with pytest.raises(TemplateError):
            await kit.read(running.house, kit.request())
    spans = by_name(exporter)
    assert set(spans) == {names.SPAN_REQUEST, names.SPAN_ADMISSION, names.SPAN_RENDER}
    for name in (names.SPAN_REQUEST, names.SPAN_RENDER):
        attributes = spans[name].attributes
        assert attributes is not None
        assert attributes[names.ATTRIBUTE_ERROR] == "TemplateError"
        assert not spans[name].status.is_ok
        assert "secret" not in spans[name].to_json()


async def test_a_client_that_leaves_the_queue_has_its_wait_recorded(kit: Any, exporter: InMemorySpanExporter):
    async with kit.open_house(make_engine=lambda: kit.Engine(is_manual=True)) as running:
        async with running.house.open_reply(kit.request()):
            pass
        running.engine.release()
        await running.is_empty()
    assert set(by_name(exporter)) == {names.SPAN_REQUEST, names.SPAN_ADMISSION, names.SPAN_RENDER, names.SPAN_QUEUE}


async def test_the_senders_context_is_current_while_a_message_is_handled(kit: Any, exporter: InMemorySpanExporter):
    seen: list[int] = []
    async with kit.open_house() as running:
        plain = running.renderer.render

        def look(message: Any) -> Any:
            seen.append(trace.get_current_span().get_span_context().span_id)
            return plain(message)

        running.renderer.render = look
        await kit.read(running.house, kit.request())
    assert seen == [by_name(exporter)[names.SPAN_REQUEST].context.span_id]
