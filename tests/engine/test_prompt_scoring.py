"""How likely a prompt's own tokens are: the same bits however the prompt is cut, and whatever is remembered of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memra.engine.engine import EngineLimits
from memra.engine.sampler import score_token
from memra.messages.generation import TokenLogprob
from memra.messages.sampling import SamplingParams
from memra.messages.work import PromptScored, RequestFailed, TokensGenerated
from memra.types import Lane, StopCause

Make = Callable[..., Any]

PROMPT = [index * 7 % 20 for index in range(75)]  # more than twice as many rows as one step scores
SAMPLING = SamplingParams(temperature=0, num_top_logprobs=2)
REMEMBERING = EngineLimits(prefix_cache_bytes=1 << 20)


def run(watched: Any, *requests: Any) -> list[Any]:
    """Everything that happens to these requests."""
    for request in requests:
        watched.engine.submit(request)
    events = []
    while watched.engine.has_work:
        events += watched.step().events
    return events


def scores_of(events: list[Any], name: str) -> list[TokenLogprob]:
    return [
        entry
        for event in events
        if isinstance(event, PromptScored) and event.request_id == name
        for entry in event.logprobs
    ]


@pytest.fixture
def ask(make_request: Make) -> Make:
    """A request that wants its prompt's likelihoods."""

    def make(name: str = "a", *, prompt: list[int] = PROMPT, num_new: int = 3, **fields: Any) -> Any:
        return replace(make_request(name, prompt, num_new, sampling=SAMPLING, **fields), scores_prompt=True)

    return make


def test_every_token_has_the_likelihood_that_its_prefix_gives_it(
    ask: Make, make_model: Make, fake_executor: Make, watch: Make
):
    executor = fake_executor()
    scores = scores_of(run(watch(make_model(executor, context_tokens=128)), ask()), "a")
    assert scores[0] == TokenLogprob(PROMPT[0], None)
    assert scores[1:] == [
        score_token(executor.compute_logits(PROMPT[:position]), PROMPT[position], position=position, num_top=2)
        for position in range(1, len(PROMPT))
    ]


@pytest.mark.parametrize("chunk", [1, 7, 32, 256])
def test_they_do_not_depend_on_how_the_prompt_is_cut(ask: Make, make_model: Make, watch: Make, chunk: int):
    whole = run(watch(make_model(context_tokens=128)), ask())
    cut = run(watch(make_model(context_tokens=128, prefill_chunk_tokens=chunk)), ask())
    assert scores_of(cut, "a") == scores_of(whole, "a")


def test_they_come_before_the_first_new_token_and_the_answer_is_the_same_with_them(
    ask: Make, make_model: Make, make_request: Make, watch: Make
):
    events = run(watch(make_model(context_tokens=128)), ask())
    plain = run(watch(make_model(context_tokens=128)), make_request("a", PROMPT, 3, sampling=SAMPLING))
    answer = [event for event in events if isinstance(event, TokensGenerated)]
    assert answer == [event for event in plain if isinstance(event, TokensGenerated)]
    assert events.index(answer[0]) > max(place for place, event in enumerate(events) if isinstance(event, PromptScored))


def test_a_remembered_prompt_is_computed_again_for_them(ask: Make, make_model: Make, watch: Make):
    watched = watch(make_model(context_tokens=128), limits=REMEMBERING)
    first, again = run(watched, ask("a")), run(watched, ask("b"))
    assert scores_of(again, "b") == scores_of(first, "a")


def test_requests_that_come_together_are_scored_one_after_the_other(
    ask: Make, make_model: Make, make_request: Make, watch: Make
):
    other = make_request("c", PROMPT[::-1], 5, sampling=SamplingParams(seed=3))
    together = run(watch(make_model(context_tokens=128), limits=REMEMBERING), ask("a"), ask("b"), other)
    alone = run(watch(make_model(context_tokens=128)), ask("a"))
    assert scores_of(together, "a") == scores_of(together, "b") == scores_of(alone, "a")


def test_a_prompt_can_be_scored_without_an_answer(ask: Make, make_model: Make, watch: Make):
    watched = watch(make_model(context_tokens=128), limits=REMEMBERING)
    events = run(watched, ask(num_new=0))
    assert len(scores_of(events, "a")) == len(PROMPT)
    assert events[-1] == TokensGenerated("a", (), num_generated=0, stop=StopCause.MAX_TOKENS)
    watched.engine.check_integrity()


def test_a_prompt_of_one_token_has_no_likelihood(ask: Make, make_model: Make, watch: Make):
    assert scores_of(run(watch(make_model(context_tokens=128)), ask(prompt=[5])), "a") == [TokenLogprob(5, None)]


def test_broken_logits_fail_the_request_that_wants_them_alone(
    ask: Make, make_model: Make, make_request: Make, fake_executor: Make, watch: Make
):
    executor = fake_executor(nan_tokens=[39])
    other = make_request("c", [1, 2], 4, sampling=SAMPLING)
    events = run(watch(make_model(executor, context_tokens=256)), ask(prompt=[*PROMPT, 39, *PROMPT]), other)
    failed = [event.request_id for event in events if isinstance(event, RequestFailed)]
    assert failed == ["a"]
    assert [event.num_generated for event in events if isinstance(event, TokensGenerated)] == [1, 2, 3, 4]


def test_one_that_makes_way_tells_nothing_twice(ask: Make, make_model: Make, make_request: Make, watch: Make):
    watched = watch(make_model(context_tokens=128, max_rows=1, prefill_chunk_tokens=16))
    watched.engine.submit(ask(lane=Lane.HARVEST))
    events = [*watched.step().events, *watched.step().events]
    events += run(watched, make_request("b", [1, 2, 3], 2))
    assert watched.engine.report().num_preempted == 1
    assert [entry.token_id for entry in scores_of(events, "a")] == PROMPT
