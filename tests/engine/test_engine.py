from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memra.errors import ConfigurationError, EngineFaultError, UnknownModelError
from memra.messages.sampling import SamplingParams
from memra.messages.work import PrefixReported, PromptStarted, TokensGenerated, WorkReported
from memra.types import StopCause

Make = Callable[..., Any]

BAD, GOOD = 39, 3


def _generate(executor: Any, prompt_ids: tuple[int, ...], num_tokens: int) -> list[int]:
    """Greedy, token by token, without an engine."""
    token_ids = list(prompt_ids)
    for _ in range(num_tokens):
        token_ids.append(int(executor.compute_logits(token_ids).argmax()))
    return token_ids[len(prompt_ids) :]


def test_a_prompt_is_prefilled_and_continued_to_its_limit(watch: Make, make_model: Make, make_request: Make):
    model = make_model()
    watched = watch(model)
    watched.engine.submit(make_request("a", (1, 2, 3, 4, 5), 6))
    first = watched.step()
    expected = _generate(model.executor, (1, 2, 3, 4, 5), 6)
    assert first.events == (
        PromptStarted("a", num_cached_tokens=0),
        TokensGenerated("a", (expected[0],), num_generated=1),
    )
    watched.finish()
    assert watched["a"].token_ids == expected
    assert watched["a"].last == TokensGenerated("a", (expected[-1],), num_generated=6, stop=StopCause.MAX_TOKENS)
    assert model.pool.num_free == model.pool.num_pages


@pytest.mark.parametrize(
    "case",
    [
        (("eos_ids",), StopCause.END_OF_SEQUENCE, 4),
        (("stop_ids",), StopCause.STOP_TOKEN, 3),
        (("stop_ids", "eos_ids"), StopCause.STOP_TOKEN, 3),
    ],
)
def test_the_models_own_end_counts_and_the_clients_comes_first_and_does_not(
    watch: Make, make_model: Make, make_request: Make, case: tuple[tuple[str, ...], StopCause, int]
):
    stopping, stop, num_generated = case
    model = make_model()
    expected = _generate(model.executor, (1, 2), 4)
    assert expected[3] not in expected[:3]
    watched = watch(model)
    watched.engine.submit(make_request("a", (1, 2), 30, **dict.fromkeys(stopping, frozenset({expected[3]}))))
    watched.finish()
    assert watched["a"].token_ids == expected[:3]
    assert watched["a"].last == TokensGenerated("a", (), num_generated=num_generated, stop=stop)
    assert watched.engine.report().num_generated_tokens == num_generated


def test_a_stop_token_on_the_last_allowed_place_is_still_a_stop(watch: Make, make_model: Make, make_request: Make):
    model = make_model()
    expected = _generate(model.executor, (1, 2), 1)
    watched = watch(model)
    watched.engine.submit(make_request("own", (1, 2), 1, eos_ids=frozenset(expected)))
    watched.engine.submit(make_request("client's", (1, 2), 1, stop_ids=frozenset(expected)))
    watched.finish()
    assert watched["own"].stop is StopCause.END_OF_SEQUENCE
    assert watched["client's"].stop is StopCause.STOP_TOKEN


def test_a_sequence_that_fills_the_context_says_so(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model(context_tokens=8))
    watched.engine.submit(make_request("over", range(5), 100))
    watched.engine.submit(make_request("exact", range(5), 3))
    watched.finish()
    assert (watched["over"].stop, len(watched["over"].token_ids)) == (StopCause.CONTEXT_FULL, 3)
    assert (watched["exact"].stop, len(watched["exact"].token_ids)) == (StopCause.MAX_TOKENS, 3)


def test_nothing_to_generate_ends_without_a_run(watch: Make, make_model: Make, make_request: Make):
    model = make_model()
    watched = watch(model)
    watched.engine.submit(make_request("a", (1, 2), 0))
    events = watched.step().events
    assert events == (
        PromptStarted("a", num_cached_tokens=0),
        TokensGenerated("a", (), num_generated=0, stop=StopCause.MAX_TOKENS),
    )
    assert not model.executor.batches
    assert not watched.engine.has_work


def test_a_model_runs_one_batch_a_tick_with_prompts_and_decoding_rows_together(
    watch: Make, make_model: Make, make_request: Make
):
    model = make_model(prefill_chunk_tokens=8)
    watched = watch(model)
    watched.engine.submit(make_request("a", (1, 2, 3), 20))
    watched.step()
    watched.engine.submit(make_request("b", range(5), 20))
    watched.engine.submit(make_request("c", range(6), 20))
    watched.step()
    watched.step()
    positions = [batch.positions.tolist() for batch in model.executor.batches]
    assert positions == [[0, 1, 2], [3, 0, 1, 2, 3, 4, 0, 1, 2], [4, 5, 3, 4, 5]]
    assert [batch.output_rows.tolist() for batch in model.executor.batches] == [[2], [0, 5], [0, 1, 4]]


@pytest.mark.parametrize("num_steps", [0, 1, 2, 5])
def test_abort_frees_row_and_pages_at_once_and_silences_the_request(
    watch: Make, make_model: Make, make_request: Make, num_steps: int
):
    model = make_model(prefill_chunk_tokens=8)
    watched = watch(model)
    watched.engine.submit(make_request("a", range(16), 20))
    for _ in range(num_steps):
        watched.step()
    num_batches, num_events = len(model.executor.batches), watched["a"].num_events
    watched.engine.abort("a")
    watched.engine.abort("a")
    assert model.pool.num_free == model.pool.num_pages
    assert not watched.engine.has_work
    watched.step()
    assert (len(model.executor.batches), watched["a"].num_events) == (num_batches, num_events)
    report = watched.engine.report()
    assert (report.num_aborted, report.num_active, report.num_queued) == (1, 0, 0)


def test_aborting_an_unknown_or_ended_request_does_nothing(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model())
    watched.engine.abort("never seen")
    watched.engine.submit(make_request("a", (1,), 1))
    watched.finish()
    watched.engine.abort("a")
    assert watched.engine.report().num_aborted == 0


def test_a_refused_request_that_is_aborted_is_not_spoken_of(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model())
    watched.engine.submit(make_request("a", (), 1))
    watched.engine.abort("a")
    assert not watched.engine.has_work
    assert watched.step().events == ()


def test_an_aborted_id_can_be_used_again(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model())
    watched.engine.submit(make_request("a", (1, 2), 9))
    watched.engine.abort("a")
    watched.engine.submit(make_request("a", (5,), 2))
    watched.finish()
    assert watched["a"].last.num_generated == 2


def test_an_id_that_is_at_work_is_refused(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model(), make_model(name="n"))
    watched.engine.submit(make_request("a", (1, 2), 9))
    with pytest.raises(EngineFaultError, match="request a is being worked on already"):
        watched.engine.submit(make_request("a", (1, 2), 9, model="n"))


@pytest.mark.parametrize(
    "case",
    [
        ("prompt is empty", (), 4),
        ("32 tokens does not fit a context of 32", range(32), 1),
        ("outside of the vocabulary of 40", (1, 40), 1),
        ("outside of the vocabulary of 40", (1, -1), 1),
        ("outside of the vocabulary of 40", (1, 10**30), 1),
        ("may need 6 cache pages, but the model has 5", (1, 2), 19),
    ],
)
def test_what_can_never_run_fails_in_the_next_step(
    watch: Make, make_model: Make, make_request: Make, fake_executor: Make, case: tuple[Any, ...]
):
    detail, *request_parts = case
    watched = watch(make_model(fake_executor(num_pages=5), context_tokens=32))
    watched.engine.submit(make_request("a", *request_parts))
    assert watched.engine.has_work
    watched.step()
    assert detail in watched["a"].failed.detail
    assert not watched["a"].failed.overloaded
    assert not watched.engine.has_work
    assert watched.engine.report().num_failed == 1


def test_a_request_for_a_model_that_is_not_there_fails(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model())
    watched.engine.submit(make_request("a", (1,), 1, model="gone"))
    watched.finish()
    assert watched["a"].failed.detail == "no model gone is served"


@pytest.mark.parametrize("num_states", [0, 32])
def test_a_failing_run_is_pinned_on_the_sequence_at_fault(
    watch: Make, make_model: Make, make_request: Make, fake_executor: Make, num_states: int
):
    model = make_model(fake_executor(raising={BAD: RuntimeError("kernel broke")}, num_states=num_states))
    watched = watch(model)
    watched.engine.submit(make_request("decoding", (1, 2), 8, stop_ids=frozenset({BAD})))
    watched.step()
    watched.engine.submit(make_request("bad", (4, BAD, 4), 8))
    watched.engine.submit(make_request("fresh", (GOOD, GOOD), 8, stop_ids=frozenset({BAD})))
    watched.step()
    assert watched["bad"].failed.detail == "RuntimeError: kernel broke"
    assert not watched["bad"].failed.overloaded
    assert [len(watched[name].token_ids) for name in ("decoding", "fresh")] == [2, 1]
    assert len(model.executor.batches) == 1 + 1 + 3
    watched.finish()
    assert watched["decoding"].token_ids == _generate(model.executor, (1, 2), 8)
    assert watched["fresh"].token_ids == _generate(model.executor, (GOOD, GOOD), 8)
    assert model.pool.num_free == model.pool.num_pages


def test_a_failing_run_of_one_sequence_is_not_tried_again(
    watch: Make, make_model: Make, make_request: Make, fake_executor: Make
):
    model = make_model(fake_executor(raising={BAD: RuntimeError("kernel broke")}))
    watched = watch(model)
    watched.engine.submit(make_request("bad", (4, BAD, 4), 8))
    watched.finish()
    assert watched["bad"].failed is not None
    assert len(model.executor.batches) == 1


@pytest.mark.parametrize("failure", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate")])
def test_want_of_memory_is_overload_and_the_engine_serves_on(
    watch: Make, make_model: Make, make_request: Make, fake_executor: Make, failure: Exception
):
    model = make_model(fake_executor(raising={BAD: failure}))
    watched = watch(model)
    for number in range(3):
        before, bad, after = (f"{name} {number}" for name in ("before", "bad", "after"))
        watched.engine.submit(make_request(before, (1, 2), 8, stop_ids=frozenset({BAD})))
        watched.step()
        watched.engine.submit(make_request(bad, (BAD,), 8))
        watched.step()
        assert watched[bad].failed.overloaded
        watched.engine.submit(make_request(after, (GOOD, GOOD), 8, stop_ids=frozenset({BAD})))
        watched.finish()
        assert watched[before].token_ids == _generate(model.executor, (1, 2), 8)
        assert watched[after].token_ids == _generate(model.executor, (GOOD, GOOD), 8)
    assert model.pool.num_free == model.pool.num_pages


def test_logits_that_are_no_numbers_fail_their_row_alone(
    watch: Make, make_model: Make, make_request: Make, fake_executor: Make
):
    model = make_model(fake_executor(nan_tokens={BAD}))
    watched = watch(model)
    watched.engine.submit(make_request("bad", (4, 5, BAD), 8))
    watched.engine.submit(make_request("good", (1, 2), 4, stop_ids=frozenset({BAD})))
    watched.finish()
    assert "nan at token 7" in watched["bad"].failed.detail
    assert watched["good"].token_ids == _generate(model.executor, (1, 2), 4)
    assert len(model.executor.batches) == 4
    assert model.pool.num_free == model.pool.num_pages


def test_penalties_look_at_the_prompt_and_at_the_answer(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model())
    prompt = range(10)
    sampling = SamplingParams(temperature=0, presence_penalty=1e6)
    watched.engine.submit(make_request("a", prompt, 25, sampling=sampling))
    watched.finish()
    assert len({*prompt, *watched["a"].token_ids}) == 35


def test_models_take_part_in_the_order_in_which_they_were_added(watch: Make, make_model: Make, make_request: Make):
    watched = watch(*(make_model(name=name) for name in "zma"))
    for name in "amz":
        watched.engine.submit(make_request(f"to {name}", (1,), 3, model=name))
    events = watched.step().events
    assert [event.request_id for event in events if isinstance(event, TokensGenerated)] == ["to z", "to m", "to a"]


def test_decoding_rows_move_on_one_token_a_tick_beside_endless_prompts(
    watch: Make, make_model: Make, make_request: Make
):
    watched = watch(
        make_model(name="busy", context_tokens=60, prefill_chunk_tokens=8), make_model(name="b"), make_model(name="c")
    )
    for name in ("busy", "b", "c"):
        watched.engine.submit(make_request(f"in {name}", (1, 2), 40, model=name))
    watched.step()
    for tick in range(2, 41):
        watched.engine.submit(make_request(f"endless {tick}", [tick % 40] * 50, 1, model="busy"))
        watched.step()
        assert [watched[f"in {name}"].last.num_generated for name in ("busy", "b", "c")] == [tick] * 3


def test_a_full_model_does_not_hold_up_another(watch: Make, make_model: Make, make_request: Make):
    watched = watch(make_model(name="full", max_rows=1), make_model(name="free"))
    watched.engine.submit(make_request("running", (1,), 50, model="full"))
    watched.engine.submit(make_request("waiting", (1,), 50, model="full"))
    watched.engine.submit(make_request("lucky", (1,), 50, model="free"))
    watched.step()
    assert watched["lucky"].num_started == 1
    assert watched["waiting"].num_started == 0


def test_removing_a_model_fails_its_requests_and_gives_it_back(watch: Make, make_model: Make, make_request: Make):
    model = make_model()
    watched = watch(model, make_model(name="n"))
    watched.engine.submit(make_request("running", (1,), 50))
    watched.engine.submit(make_request("elsewhere", (1,), 5, model="n"))
    watched.step()
    watched.engine.submit(make_request("queued", (1,), 50))
    assert watched.engine.remove_model("m") is model
    assert model.pool.num_free == model.pool.num_pages
    assert not model.executor.is_closed
    watched.finish()
    for name in ("running", "queued"):
        assert watched[name].failed.overloaded
        assert watched[name].failed.detail == "model m was removed"
    assert watched["elsewhere"].stop is StopCause.MAX_TOKENS
    with pytest.raises(UnknownModelError, match="no model m is served"):
        watched.engine.remove_model("m")
    watched.engine.add_model(model)


def test_close_drops_everything_and_closes_the_executors(watch: Make, make_model: Make, make_request: Make):
    models = [make_model(), make_model(name="n")]
    watched = watch(*models)
    for name in ("m", "n"):
        watched.engine.submit(make_request(name, (1,), 50, model=name))
    watched.step()
    watched.engine.close()
    assert all(model.executor.is_closed for model in models)
    assert all(model.pool.num_free == model.pool.num_pages for model in models)
    assert not watched.engine.has_work


def test_two_models_of_one_name_are_refused(watch: Make, make_model: Make):
    watched = watch(make_model())
    with pytest.raises(ConfigurationError, match="two models are named m"):
        watched.engine.add_model(make_model())


class Clock:
    """Every look takes a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_progress_is_reported_after_every_run(watch: Make, make_model: Make, make_request: Make, fake_executor: Make):
    beats: list[float] = []
    rows: list[int] = []

    def note(progress_at: float, num_prefill_rows: int) -> None:
        beats.append(progress_at)
        rows.append(num_prefill_rows)

    executor = fake_executor(raising={BAD: RuntimeError()})
    watched = watch(make_model(executor), make_model(name="n"), progress=note, clock=Clock())
    watched.engine.submit(make_request("a", (1,), 2))
    watched.engine.submit(make_request("bad", (BAD,), 2))
    watched.engine.submit(make_request("b", (1,), 2, model="n"))
    watched.step()
    assert beats == sorted(set(beats))
    assert rows == [0, 1, 0, 1]  # what fails together is run alone; what failed alone is no progress
    watched.step()
    assert rows[4:] == [0, 0]  # decoding


def test_the_report_counts_what_happened(watch: Make, make_model: Make, make_request: Make, fake_executor: Make):
    watched = watch(make_model(fake_executor(num_pages=10), max_rows=1), make_model(name="n"), clock=Clock())
    first = replace(watched.engine.report(), prefix=PrefixReported())
    assert first == WorkReported(num_pages_free=74, num_pages_total=74, idle_s=2.0)
    watched.engine.submit(make_request("a", range(5), 3))
    watched.engine.submit(make_request("b", (1, 2), 5))
    watched.engine.submit(make_request("c", (), 5))
    watched.step()
    report = watched.engine.report()
    assert (report.num_admitted, report.num_failed, report.num_active, report.num_queued) == (1, 1, 1, 1)
    assert (report.num_pages_free, report.num_prompt_tokens, report.num_generated_tokens) == (72, 5, 1)
    assert (report.step_p50_ms, report.idle_s) == (None, 0.0)
    watched.step()
    assert watched.engine.report().step_p50_ms == 4000.0  # looks at the clock: run, beat, run's end, end
    watched.finish()
    report = watched.engine.report()
    assert (report.num_admitted, report.num_completed, report.num_aborted, report.num_failed) == (2, 2, 0, 1)
    assert (report.num_prompt_tokens, report.num_generated_tokens, report.num_pages_free) == (7, 8, 74)
    assert report.idle_s == 2.0


def test_a_step_without_work_says_nothing(watch: Make, make_model: Make):
    watched = watch(make_model())
    assert watched.step().events == ()
    assert not watched.engine.has_work


def test_a_broken_contract_is_not_taken_for_a_fault_of_the_request(
    watch: Make, make_model: Make, make_request: Make, malformed_batch: type[BaseException]
):
    model = make_model()
    watched = watch(model)
    watched.engine.submit(make_request("a", range(5), 3))
    watched.step()
    next(iter(watched.engine._runners["m", 0]._sequences.values())).page_table[0] = 64
    with pytest.raises(malformed_batch, match="out of range"):
        watched.engine.step()
