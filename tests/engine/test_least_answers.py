"""Answers of a least length: no token that ends them is chosen before."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from memra.engine.sampler import Sampler
from memra.engine.token_masks import MaskFitter
from memra.messages.sampling import SamplingParams
from memra.types import StopCause

Make = Callable[..., Any]


def test_all_but_some_tokens_may_be_chosen():
    masks = MaskFitter(40)
    row = np.arange(40, dtype=np.float32)
    params = SamplingParams(temperature=0)
    assert Sampler(40).sample(row, params, position=0, mask=masks.all_but({39, 38, 31, 32})) == 37
    assert Sampler(40).sample(row, params, position=0, mask=masks.all_but({39})) == 38, "nothing is left of the last"
    assert Sampler(40).sample(row, params, position=0, mask=masks.all_but({400})) == 39


@pytest.mark.parametrize("field", ["eos_ids", "stop_ids"])
def test_an_ending_token_comes_as_soon_as_it_may_and_not_before(
    make_model: Make, make_request: Make, watch: Make, field: str
):
    # Every token but two ends the answer.
    request = make_request("a", [1, 2], 12, **{field: frozenset(range(40)) - {3, 4}})
    for least in (0, 1, 5):
        watched = watch(make_model())
        watched.engine.submit(replace(request, min_new_tokens=least))
        watched.finish()
        ended = watched["a"]
        assert set(ended.token_ids[:least]) <= {3, 4}
        assert len(ended.token_ids) >= least
        assert ended.stop in {StopCause.END_OF_SEQUENCE, StopCause.STOP_TOKEN}


def test_the_rest_of_an_answer_is_that_of_its_tokens_alone(make_model: Make, make_request: Make, watch: Make):
    sampling = SamplingParams(0.9, seed=4)
    free = watch(make_model())
    free.engine.submit(make_request("a", [1, 2], 8, sampling=sampling))
    free.finish()
    least = watch(make_model())
    least.engine.submit(replace(make_request("a", [1, 2], 8, sampling=sampling), min_new_tokens=8))
    least.finish()
    assert least["a"].token_ids == free["a"].token_ids, "without ending tokens nothing is ruled out"
