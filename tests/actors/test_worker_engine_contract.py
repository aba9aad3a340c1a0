"""What the worker relies on in an engine; whatever stands in for one keeps to it."""

from typing import Any

from memra.messages.work import PromptStarted, StepFinished, SubmitPrompt, TokensGenerated, WorkReported
from memra.types import ModelName, RequestId, StopCause


def run_to_the_end(engine: Any, *, within: int = 1000) -> list[Any]:
    events: list[Any] = []
    for _ in range(within):
        if not engine.has_work:
            return events
        step = engine.step()
        assert isinstance(step, StepFinished)
        events += step.events
    raise AssertionError("the engine does not come to an end")


def prompt(name: str, max_new_tokens: int) -> SubmitPrompt:
    return SubmitPrompt(RequestId(name), ModelName("fake"), (1, 2, 3), max_new_tokens)


def test_an_engine_without_prompts_has_no_work(kit: Any):
    engine = kit.Engine()
    assert not engine.has_work
    engine.abort(RequestId("unknown"))
    assert not engine.has_work
    assert isinstance(engine.report(), WorkReported)
    engine.check_integrity()


def test_each_request_starts_once_and_ends_once(kit: Any):
    engine = kit.Engine()
    for name in ("a", "b"):
        engine.submit(prompt(name, 4))
    assert engine.has_work
    events = run_to_the_end(engine)
    for name in ("a", "b"):
        mine = [event for event in events if event.request_id == name]
        assert isinstance(mine[0], PromptStarted)
        generated = [event for event in mine if isinstance(event, TokensGenerated)]
        assert len(generated) == len(mine) - 1
        assert [event.stop for event in generated[:-1]] == [None] * (len(generated) - 1)
        assert generated[-1].stop is StopCause.MAX_TOKENS
        assert generated[-1].num_generated == 4 == sum(len(event.token_ids) for event in generated)
    engine.check_integrity()
    engine.close()


def test_an_aborted_request_is_not_heard_of_again(kit: Any):
    engine = kit.Engine()
    engine.submit(prompt("a", 100))
    engine.submit(prompt("b", 2))
    engine.step()
    engine.abort(RequestId("a"))
    engine.abort(RequestId("a"))
    assert {event.request_id for event in run_to_the_end(engine)} <= {"b"}
    engine.submit(prompt("a", 1))
    assert run_to_the_end(engine), "the id can be used again"
