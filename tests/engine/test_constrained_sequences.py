"""Answers that must follow rules, among others that need not: nobody's tokens depend on anybody else's rules."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from memra.engine.loaded_model import LoadedModel
from memra.engine.token_masks import MaskFitter, unpack_mask
from memra.errors import GrammarDeadEndError
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt
from memra.types import Lane

Make = Callable[..., SubmitPrompt]
END = 39
DRAWING = SamplingParams(temperature=0.9, seed=5, frequency_penalty=0.4)


class Stairs:
    """Allows three tokens at each place, which depend on all before; complete after a while, or stuck."""

    def __init__(self, *, num_tokens: int = 9, dead_end_at: int | None = None) -> None:
        self.known: list[int] = []
        self.num_tokens = num_tokens
        self.dead_end_at = dead_end_at

    def choices(self) -> set[int]:
        place = sum(self.known) + len(self.known)
        return {(place + step) % END for step in (0, 7, 19)}

    def allowed(self) -> NDArray[np.uint32]:
        if len(self.known) == self.dead_end_at:
            raise GrammarDeadEndError("stuck")
        words = np.zeros(2, np.uint32)
        for token_id in self.choices():
            words[token_id // 32] |= np.uint32(1 << (token_id % 32))
        return words

    def accept(self, token_id: int) -> bool:
        assert token_id in self.choices()
        self.known.append(token_id)
        return len(self.known) < self.num_tokens

    def copy(self) -> "Stairs":
        twin = Stairs(num_tokens=self.num_tokens, dead_end_at=self.dead_end_at)
        twin.known = list(self.known)
        return twin


@pytest.mark.parametrize("sampling", [SamplingParams(temperature=0), DRAWING])
def test_an_answer_follows_its_rules_and_ends_with_them(watch: Any, make_model: Any, make_request: Make, sampling):
    watched = watch(make_model())
    watched.engine.submit(make_request("r", range(5), 30, constraint=Stairs(), sampling=sampling))
    watched.finish()
    rules = Stairs()
    assert [rules.accept(token_id) for token_id in watched["r"].token_ids] == [True] * 8 + [False]
    assert watched["r"].stop == "end_of_sequence"
    assert watched["r"].last.num_generated == 9


def test_rules_that_end_with_the_last_token_there_is_room_for_are_kept_whole(
    watch: Any, make_model: Any, make_request: Make
):
    watched = watch(make_model())
    watched.engine.submit(make_request("whole", range(5), 9, constraint=Stairs()))
    watched.engine.submit(make_request("cut", range(5), 8, constraint=Stairs()))
    watched.finish()
    assert watched["whole"].stop == "end_of_sequence"
    assert watched["cut"].stop == "max_tokens"
    assert watched["cut"].token_ids == watched["whole"].token_ids[:8]


def test_bound_and_free_answers_in_one_batch_are_what_each_is_alone(watch: Any, make_model: Any, make_request: Make):
    def requests() -> list[SubmitPrompt]:
        return [
            make_request(
                f"r{number}",
                range(number, number + 6),
                20,
                constraint=Stairs(num_tokens=15) if number % 2 else None,
                sampling=DRAWING if number % 3 else SamplingParams(temperature=0),
                eos_ids=frozenset({END}),
            )
            for number in range(8)
        ]

    together = watch(make_model(max_rows=8))
    for request in requests():
        together.engine.submit(request)
    together.finish()
    for request in requests():
        alone = watch(make_model())
        alone.engine.submit(request)
        alone.finish()
        assert together[request.request_id].token_ids == alone[request.request_id].token_ids


def test_a_dead_end_fails_its_own_request_alone(watch: Any, make_model: Any, make_request: Make):
    watched = watch(make_model())
    watched.engine.submit(make_request("stuck", range(5), 9, constraint=Stairs(dead_end_at=3)))
    watched.engine.submit(make_request("other", range(5), 9, constraint=Stairs()))
    watched.finish()
    assert len(watched["stuck"].token_ids) == 3
    assert watched["stuck"].failed.is_dead_end
    assert "stuck" in watched["stuck"].failed.detail
    assert watched["other"].stop == "end_of_sequence"
    assert watched.engine.report().num_failed == 1


def test_other_faults_are_no_dead_ends(watch: Any, make_model: Any, make_request: Make, fake_executor: Any):
    watched = watch(make_model(fake_executor(nan_tokens={4})))
    watched.engine.submit(make_request("r", range(5), 9, constraint=Stairs()))
    watched.finish()
    assert "nan" in watched["r"].failed.detail
    assert not watched["r"].failed.is_dead_end


def test_a_bound_answer_goes_on_after_it_gave_way(watch: Any, make_model: Any, make_request: Make, fake_executor: Any):
    def harvest() -> SubmitPrompt:
        rules = Stairs(num_tokens=19)
        return make_request("harvest", range(10), 20, lane=Lane.HARVEST, sampling=DRAWING, constraint=rules)

    watched = watch(make_model(fake_executor(num_pages=12)))
    watched.engine.submit(harvest())
    for _ in range(6):
        watched.step()
    watched.engine.submit(make_request("urgent", range(20, 30), 20))
    watched.finish()
    assert watched.engine.report().num_preempted == 1
    alone = watch(make_model())
    alone.engine.submit(harvest())
    alone.finish()
    assert watched["harvest"].token_ids == alone["harvest"].token_ids
    assert watched["harvest"].stop == "end_of_sequence"


def test_a_prompt_that_is_run_again_begins_its_rules_again(watch: Any, make_model: Any, make_request: Make):
    request = make_request("r", range(5), 30, constraint=Stairs())
    answers = []
    for num_ticks in (4, 100):  # the first worker is lost halfway
        watched = watch(make_model())
        watched.engine.submit(request)
        for _ in range(num_ticks):
            watched.step()
        answers.append(watched["r"].token_ids)
    assert len(answers[1]) == 9
    assert answers[0] == answers[1][: len(answers[0])] != []
    assert request.constraint.known == []


def test_places_without_a_token_are_never_chosen():
    rules = Stairs()
    fitted = unpack_mask(MaskFitter(100).fit(rules), 100)
    assert set(np.flatnonzero(fitted).tolist()) == rules.choices()
    assert MaskFitter(64).fit(rules).tolist() == rules.allowed().tolist()
    assert MaskFitter(20).fit(rules).tolist() == rules.allowed().tolist()[:1]


def test_the_engine_runs_without_a_mask_where_there_are_no_rules(
    watch: Any, make_model: Any, make_request: Make, fake_executor: Any
):
    seen = []

    class Watching:
        def __init__(self, _vocab_size: int) -> None:
            pass

        def sample(self, *_: object, mask: Any = None, **_others: object) -> int:
            seen.append(mask)
            return 1

    model = LoadedModel("m", fake_executor(), context_tokens=64, make_sampler=Watching)
    watched = watch(model)
    watched.engine.submit(make_request("r", range(5), 3))
    watched.finish()
    assert seen == [None] * 3
