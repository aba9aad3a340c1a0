"""Texts become vectors beside sequences that decode: same bits in any company, nobody starves, no page is lost."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memra.engine.engine import Engine
from memra.engine.loaded_model import LoadedModel
from memra.engine.pooled_embeddings import PooledEmbeddings
from memra.errors import EngineFaultError
from memra.layers.operators import Attention, Embed
from memra.layers.program import Pooling, Program
from memra.messages.work import PoolTexts, PromptStarted, RequestFailed, TextsPooled, TokensGenerated, WorkEvent
from memra.types import Lane, ModelName, RequestId

CONTEXT = 60
TEXTS = ((3, 4, 5), (6,), tuple(range(1, 38)), (7, 8) * 20, (9,) * CONTEXT, (1, 2, 3))


class Clock:
    """Every look costs a millisecond."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def make_program(pooling: Pooling, *, is_causal: bool) -> Program:
    operators: tuple[Any, ...] = (Embed("token_embd.weight", "x"),)
    if not is_causal:
        attention = object.__new__(Attention)
        object.__setattr__(attention, "causal", False)
        operators = (attention, *operators)
    return Program("fake", 40, CONTEXT, {"x": 8}, {}, (), operators, pooling=pooling)


@pytest.fixture
def embedder(fake_executor: Any) -> Callable[..., LoadedModel]:
    def make(
        name: str = "e", *, pooling: Pooling = Pooling.MEAN, is_causal: bool = True, **options: Any
    ) -> LoadedModel:
        executor = fake_executor(**{"num_pages": 40, **options})
        pooled = PooledEmbeddings(executor, make_program(pooling, is_causal=is_causal))
        return LoadedModel(ModelName(name), executor, CONTEXT, pooled=pooled)

    return make


def texts(request_id: str, *sequences: tuple[int, ...], model: str = "e", lane: Lane = Lane.INTERACTIVE) -> PoolTexts:
    return PoolTexts(RequestId(request_id), ModelName(model), sequences, lane=lane)


def make_engine(*models: LoadedModel) -> Engine:
    engine = Engine(clock=Clock())
    for model in models:
        engine.add_model(model)
    return engine


def step(engine: Engine) -> tuple[WorkEvent, ...]:
    events = engine.step().events
    engine.check_integrity()
    return events


def finish(engine: Engine, max_ticks: int = 500) -> list[WorkEvent]:
    events: list[WorkEvent] = []
    for _ in range(max_ticks):
        if not engine.has_work:
            return events
        events += step(engine)
    raise AssertionError("still at work")


def vectors_of(events: Any) -> dict[str, NDArray[np.float32]]:
    return {
        event.request_id: np.frombuffer(event.vectors, "<f4").reshape(-1, event.width)
        for event in events
        if isinstance(event, TextsPooled)
    }


def pool_pages(engine: Engine) -> int:
    return engine.load().models[ModelName("e")].num_pages_free


@pytest.fixture(params=[(15, False), (15, True), (40, False), (40, True)])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    num_pages, is_causal = request.param
    return {"num_pages": num_pages, "is_causal": is_causal}


@pytest.mark.parametrize("pooling", [Pooling.MEAN, Pooling.CLS, Pooling.LAST])
def test_vectors_are_the_same_bits_alone_together_and_beside_decoding_rows(
    embedder: Any, make_model: Any, make_request: Any, pooling: Pooling, options: dict[str, Any]
):
    options["pooling"] = pooling
    wanted = embedder(**options).pooled.embed(TEXTS)
    quiet = make_engine(embedder(**options))
    quiet.submit(texts("all", *TEXTS))
    np.testing.assert_array_equal(vectors_of(finish(quiet))["all"], wanted)
    busy = make_engine(make_model(max_rows=2), embedder(**options))
    busy.submit(make_request("chat", [1, 2, 3], max_new_tokens=40))
    busy.submit(texts("backwards", *TEXTS[::-1]))
    for index, token_ids in enumerate(TEXTS):
        busy.submit(texts(f"alone-{index}", token_ids))
    found = vectors_of(finish(busy))
    np.testing.assert_array_equal(found["backwards"][::-1], wanted)
    for index in range(len(TEXTS)):
        np.testing.assert_array_equal(found[f"alone-{index}"][0], wanted[index])
    assert pool_pages(busy) == options["num_pages"]


def test_every_tick_of_a_large_request_moves_a_decoding_sequence_on(embedder: Any, make_model: Any, make_request: Any):
    model = embedder()
    engine = make_engine(make_model(), model)
    engine.submit(make_request("chat", [1, 2, 3], max_new_tokens=30))
    step(engine)
    engine.submit(texts("large", *[tuple(range(1, 40))] * 200))
    for _ in range(29):
        (token,) = [event for event in step(engine) if isinstance(event, TokensGenerated)]
        assert token.request_id == "chat"
    assert token.stop is not None
    beside = [len(batch.token_ids) for batch in model.executor.batches]
    assert len(beside) == 29, "texts waited although there was a turn for them"
    assert beside[0] == 64, "nothing is measured yet"
    # The clock says 1 ms a step whatever its rows, and a quarter of 50 ms may be taken: soon the pages are the bound.
    assert beside[-1] == 156
    finish(engine)


def test_a_slow_model_takes_short_steps_while_somebody_decodes(
    embedder: Any, make_model: Any, make_request: Any, monkeypatch: pytest.MonkeyPatch
):
    model, clock = embedder(), Clock()
    run = model.executor.run

    def slow_run(batch: Any) -> Any:
        clock.now += 0.001 * len(batch.token_ids)
        return run(batch)

    monkeypatch.setattr(model.executor, "run", slow_run)
    engine = Engine(clock=clock)
    for each in (make_model(), model):
        engine.add_model(each)
    engine.submit(make_request("chat", [1, 2, 3], max_new_tokens=20))
    engine.submit(texts("large", *[tuple(range(1, 40))] * 20))
    for _ in range(20):
        step(engine)
    beside = [len(batch.token_ids) for batch in model.executor.batches]
    assert beside[1:20] == [16] * 19, "12.5 ms hold less than the smallest step"


def test_a_short_request_does_not_wait_for_the_end_of_a_large_one(embedder: Any):
    engine = make_engine(embedder(num_pages=16))
    engine.submit(texts("large", *[tuple(range(1, 40))] * 100))
    step(engine)
    engine.submit(texts("short", (1, 2, 3)))
    ended = [event.request_id for event in finish(engine) if isinstance(event, TextsPooled)]
    assert ended == ["short", "large"]


def test_better_lanes_come_first(embedder: Any):
    engine = make_engine(embedder(num_pages=16))
    for lane in (Lane.HARVEST, Lane.JUDGE, Lane.INTERACTIVE):
        engine.submit(texts(lane.value, *[tuple(range(1, 40))] * 4, lane=lane))
    ended = [event.request_id for event in finish(engine) if isinstance(event, TextsPooled)]
    assert ended == ["interactive", "judge", "harvest"]


def test_two_embedding_models_take_turns_while_somebody_decodes(embedder: Any, make_model: Any, make_request: Any):
    first, second = embedder("e"), embedder("f")
    engine = make_engine(make_model(), first, second)
    engine.submit(make_request("chat", [1, 2, 3], max_new_tokens=20))
    for name in ("e", "f"):
        engine.submit(texts(name, *[tuple(range(1, 40))] * 60, model=name))
    for _ in range(12):
        step(engine)
    assert (len(first.executor.batches), len(second.executor.batches)) in {(6, 6), (7, 6), (6, 7)}


def test_an_aborted_request_frees_its_pages_at_once_and_is_heard_of_no_more(
    embedder: Any, make_model: Any, make_request: Any
):
    engine = make_engine(make_model(), embedder(num_pages=200))
    engine.submit(make_request("chat", [1], max_new_tokens=9))
    engine.submit(texts("gone", *[tuple(range(1, 40))] * 30))
    engine.submit(texts("kept", (5, 6)))
    step(engine)
    assert pool_pages(engine) < 200, "a text was cut"
    engine.abort(RequestId("gone"))
    engine.abort(RequestId("gone"))
    engine.check_integrity()
    assert pool_pages(engine) == 200
    assert "gone" not in {event.request_id for event in finish(engine)}
    assert engine.report().num_aborted == 1


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_fault_fails_the_request_that_causes_it_and_no_other(embedder: Any, is_causal: Any):
    engine = make_engine(embedder(is_causal=is_causal, raising={13: ValueError("thirteen")}))
    engine.submit(texts("good", (1, 2), (3, 4)))
    engine.submit(texts("bad", (5, 6), (12, 13), (7, 8), (9, 9)))
    engine.submit(texts("late", (5, 6)))
    events = finish(engine)
    failed = [event for event in events if isinstance(event, RequestFailed)]
    assert [(event.request_id, event.detail, event.overloaded) for event in failed] == [
        ("bad", "ValueError: thirteen", False)
    ]
    assert set(vectors_of(events)) == {"good", "late"}
    assert pool_pages(engine) == 40
    report = engine.report()
    assert (report.num_admitted, report.num_completed, report.num_failed) == (3, 2, 1)


@pytest.mark.parametrize("sequence", [(), (1,) * (CONTEXT + 1), (40,)])
def test_a_text_that_can_never_be_computed_fails_its_request(embedder: Any, sequence: tuple[int, ...]):
    engine = make_engine(embedder())
    engine.submit(texts("bad", (1, 2), sequence))
    engine.submit(texts("none"))
    first, second = finish(engine)
    assert isinstance(first, RequestFailed)
    assert isinstance(second, RequestFailed)
    assert "Sequence 1" in first.detail


def test_a_model_that_generates_takes_no_texts_and_an_embedding_model_no_prompt(
    embedder: Any, make_model: Any, make_request: Any
):
    engine = make_engine(make_model(), embedder())
    engine.submit(texts("a", (1, 2), model="m"))
    engine.submit(make_request("b", [1, 2], model="e"))
    assert [type(event) for event in finish(engine)] == [RequestFailed, RequestFailed]


def test_an_id_that_is_in_use_is_refused(embedder: Any):
    engine = make_engine(embedder())
    engine.submit(texts("a", (1, 2)))
    with pytest.raises(EngineFaultError, match="worked on already"):
        engine.submit(texts("a", (1, 2)))


def test_a_removed_model_fails_its_requests_as_overloaded_and_gives_every_page_back(
    embedder: Any, make_model: Any, make_request: Any
):
    engine = make_engine(make_model(), embedder())
    engine.submit(make_request("chat", [1], max_new_tokens=3))
    engine.submit(texts("a", *[tuple(range(1, 40))] * 9))
    started = [event for event in step(engine) if isinstance(event, PromptStarted)]
    assert {event.request_id for event in started} == {"chat", "a"}
    model = engine.remove_model(ModelName("e"))
    assert model.pool.num_free == model.pool.num_pages
    (failed,) = [event for event in finish(engine) if isinstance(event, RequestFailed)]
    assert failed.overloaded
    engine.add_model(model)


def test_the_gauges_count_what_waits(embedder: Any):
    engine = make_engine(embedder(num_pages=15))
    engine.submit(texts("a", *[tuple(range(1, 40))] * 9))
    engine.submit(texts("b", (1, 2), lane=Lane.HARVEST))
    load = engine.load().models[ModelName("e")]
    assert (load.num_active, load.num_queued[Lane.HARVEST], load.num_queued_tokens) == (0, 1, 9 * 39 + 2)
    assert engine.load().num_interactive == 1
    step(engine)
    load = engine.load().models[ModelName("e")]
    assert (load.num_active, load.num_queued[Lane.HARVEST], load.num_queued_tokens) == (1, 1, 8 * 39 + 2)
    assert (engine.report().num_active, engine.report().num_queued) == (1, 1)
    finish(engine)


def test_an_encoders_scores_lie_between_0_and_1_and_a_decoders_are_left_as_they_are(embedder: Any):
    encoder, decoder = (embedder(pooling=Pooling.RANK, is_causal=causal) for causal in (False, True))
    raw = encoder.pooled.embed(TEXTS)
    engine = make_engine(encoder)
    engine.submit(texts("a", *TEXTS))
    scores = vectors_of(finish(engine))["a"]
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-raw.astype(np.float64))), rtol=1e-6)
    engine = make_engine(decoder)
    engine.submit(texts("a", *TEXTS))
    np.testing.assert_array_equal(vectors_of(finish(engine))["a"], decoder.pooled.embed(TEXTS))
