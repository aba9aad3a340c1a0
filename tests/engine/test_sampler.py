import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from memra.engine.philox import uniform
from memra.engine.sampler import Sampler, _Candidates, _draw, _keep_top_p
from memra.engine.token_window import TokenWindow
from memra.errors import EngineFaultError
from memra.messages.sampling import SamplingParams

Row = NDArray[np.float32]

CLOSE = 1e-5  # float32 weights of up to a few hundred tokens; a border nearer than this may fall on either side


def _row(*logits: float) -> Row:
    return np.array(logits, np.float32)


def _sample(logits: Row, params: SamplingParams, position: int = 0, window: TokenWindow | None = None) -> int:
    return Sampler(logits.size).sample(logits, params, position=position, window=window)


def _drawable(logits: Row, window: TokenWindow | None = None, num_draws: int = 300, **fields: float) -> set[int]:
    sampler = Sampler(logits.size)
    params = SamplingParams(**fields)
    return {sampler.sample(logits, params, position=position, window=window) for position in range(num_draws)}


def _filter_by_sorting(logits: Row, params: SamplingParams) -> dict[int, float]:
    """The definition, in float64 over a full sort; rejects examples with a border too close to call."""
    order = sorted(range(logits.size), key=lambda token_id: (-logits[token_id], token_id))
    order = order[: params.top_k or None]
    scaled = logits[order].astype(np.float64) / params.temperature
    probabilities = np.exp(scaled - scaled.max())
    probabilities /= probabilities.sum()
    mass = np.cumsum(probabilities)
    if params.top_p < 1.0:
        assume(np.abs(mass - params.top_p).min() > CLOSE)
        num_kept = max(1, int((mass < params.top_p).sum()) + 1)
        order, probabilities = order[:num_kept], probabilities[:num_kept]
    assume(np.abs(probabilities / probabilities[0] - params.min_p).min() > CLOSE)
    return {
        token_id: float(probability)
        for token_id, probability in zip(order, probabilities, strict=True)
        if probability >= params.min_p * probabilities[0]
    }


# Different logits are a thousandth apart: nearer ones may weigh the same in float32, and then the lower id wins.
LOGITS = st.one_of(
    st.lists(st.integers(-6, 6).map(lambda step: step / 2), min_size=1, max_size=60),
    st.lists(st.integers(-15_000, 15_000).map(lambda step: step / 1000), min_size=1, max_size=60),
    st.integers(0, 2**32 - 1).map(
        lambda seed: (np.random.default_rng(seed).standard_normal(1500) * 4).round(3).tolist()
    ),
)


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.3, 0.7, 1.0, 1.9]),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 17, 1000]),
    top_p=st.sampled_from([1.0, 0.999, 0.93, 0.51, 0.07, 0.0]),
    min_p=st.sampled_from([0.0, 0.0, 0.031, 0.42, 1.0]),
    seed=st.integers(0, 2**64 - 1),
)


@settings(derandomize=True, deadline=None, max_examples=600)
@given(LOGITS, PARAMS, st.integers(0, 10**6))
def test_a_draw_is_the_one_that_a_full_sort_gives(logits: list[float], params: SamplingParams, position: int):
    # The most likely token is kept at min_p 1 whatever the rounding, so its border is no border.
    reference = dataclasses.replace(params, min_p=min(params.min_p, 1.0 - 2 * CLOSE))
    kept = _filter_by_sorting(_row(*logits), reference)
    token_ids = sorted(kept)
    mass = np.cumsum([kept[token_id] for token_id in token_ids])
    target = uniform(params.seed, position) * mass[-1]
    assume(np.abs(mass - target).min() > CLOSE)
    assert _sample(_row(*logits), params, position) == token_ids[int((mass <= target).sum())]


def test_greedy_takes_the_largest_and_the_lowest_id_of_equals():
    assert _sample(_row(1, 3, 2, 3, 3), SamplingParams(temperature=0)) == 1
    assert _sample(_row(1, 3, 2, 3, 3), SamplingParams(temperature=-1)) == 1


def test_equals_at_the_border_of_top_k_give_way_to_lower_ids():
    assert _drawable(_row(0, 1, 5, 1, 1, 5, 1), top_k=4) == {1, 2, 3, 5}
    assert _drawable(_row(0, 0, 0, 0), top_k=2) == {0, 1}
    assert _drawable(_row(-np.inf, 0, 0, -np.inf), top_k=3) == {1, 2}


def test_equals_at_the_border_of_top_p_give_way_to_lower_ids():
    assert _drawable(_row(0, 0, 0, 0, 0), top_p=0.5) == {0, 1, 2}
    assert _drawable(_row(-9, 4, 4, -9, 4), top_p=0.6) == {1, 2}


@pytest.mark.parametrize("top_p", [0.0, 1e-9])
def test_top_p_keeps_at_least_one_token(top_p: float):
    assert _drawable(_row(0, 2, 2), top_p=top_p) == {1}


def test_top_p_counts_only_what_top_k_left():
    logits = np.log(_row(0.5, 0.3, 0.1, 0.1))
    assert _drawable(logits, top_p=0.6) == {0, 1}
    assert _drawable(logits, top_p=0.6, top_k=2) == {0}  # 0.5 of 0.8 is enough


def test_min_p_is_relative_to_the_most_likely_token():
    logits = np.log(_row(0.5, 0.3, 0.12, 0.08))
    assert _drawable(logits, min_p=0.5) == {0, 1}
    assert _drawable(logits, min_p=0.2) == {0, 1, 2}
    assert _drawable(logits, min_p=1.0) == {0}


def test_temperature_comes_before_top_p():
    logits = np.log(_row(0.6, 0.4))
    assert _drawable(logits, top_p=0.59) == {0}
    assert _drawable(logits, top_p=0.59, temperature=100.0) == {0, 1}


def test_repetition_penalty_divides_positive_and_multiplies_negative_logits():
    window = TokenWindow([0, 0, 2])
    params = SamplingParams(temperature=0, repetition_penalty=2.0)
    assert _sample(_row(8, 3.9, -1), params, window=window) == 0  # 8 / 2 = 4
    assert _sample(_row(8, 4.1, -1), params, window=window) == 1
    assert _sample(_row(-8, -1.9, -1), params, window=window) == 1  # -1 * 2 = -2
    assert _sample(_row(-8, -2.1, -1), params, window=window) == 2


def test_frequency_counts_occurrences_and_presence_does_not():
    window = TokenWindow([0, 0, 0, 1])
    frequency = SamplingParams(temperature=0, frequency_penalty=1.0)
    presence = SamplingParams(temperature=0, presence_penalty=1.0)
    assert _sample(_row(5, 2.9, 0), frequency, window=window) == 0  # 2 against 1.9
    assert _sample(_row(5, 3.1, 0), frequency, window=window) == 1
    assert _sample(_row(5, 4.9, 3.9), presence, window=window) == 0
    assert _sample(_row(5, 4.9, 4.1), presence, window=window) == 2
    assert _sample(_row(5, 4.9, 5.9), SamplingParams(temperature=0, presence_penalty=-1.0), window=window) == 0


def test_penalties_come_before_top_k():
    assert _drawable(_row(5, 4, 3), window=TokenWindow([0]), top_k=2, presence_penalty=4.0) == {1, 2}


def test_sampling_leaves_the_logits_alone():
    logits = _row(1, 2, 3)
    logits.flags.writeable = False
    params = SamplingParams(presence_penalty=1.0, temperature=0.5, top_k=2, top_p=0.9, min_p=0.1)
    _sample(logits, params, window=TokenWindow([1]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_no_numbers_are_refused_with_their_place(bad: float, temperature: float):
    with pytest.raises(EngineFaultError, match=r"position 9 hold .* at token 2"):
        _sample(_row(1, 7, bad, 3), SamplingParams(temperature=temperature), position=9)


def test_a_row_that_rules_everything_out_is_refused():
    with pytest.raises(EngineFaultError, match="-inf"):
        _sample(_row(-np.inf, -np.inf), SamplingParams())


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e30])
def test_extreme_temperatures_and_logits_do_not_overflow(temperature: float):
    logits = _row(-3e38, 0, 3e4, 3.0e4 - 1)
    drawn = _drawable(logits, temperature=temperature, num_draws=100)
    assert drawn == ({2} if temperature < 1 else {1, 2, 3} | (drawn & {0}))


CONFIGURATIONS = [
    {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "presence_penalty": penalty}
    for temperature, top_k, top_p, min_p, penalty in itertools.product(
        (0.0, 0.8), (0, 40), (1.0, 0.9), (0.0, 0.05), (0.0, 0.5)
    )
]


@pytest.mark.parametrize("vocab_size", [151_936, 4097])
def test_a_choice_depends_on_nothing_but_its_row(vocab_size: int):
    generator = np.random.default_rng(3)
    rows = (generator.standard_normal((3, vocab_size)) * 3).astype(np.float32)
    shifted = np.concatenate((_row(0), rows.ravel()))[1:].reshape(rows.shape)  # other addresses in memory
    shared = Sampler(vocab_size)
    window = TokenWindow(range(100))
    for fields, row in itertools.product(CONFIGURATIONS, range(3)):
        params = SamplingParams(seed=row, **fields)
        used = window if params.presence_penalty else None
        choices = {
            _sample(rows[row], params, 5, used),
            shared.sample(rows[row], params, position=5, window=used),
            shared.sample(shifted[row], params, position=5, window=used),
        }
        assert len(choices) == 1


def test_frequencies_follow_the_probabilities():
    probabilities = np.array([0.5, 0.25, 0.15, 0.1])
    sampler = Sampler(4)
    logits = np.log(probabilities).astype(np.float32)
    draws = [sampler.sample(logits, SamplingParams(seed=11), position=position) for position in range(8000)]
    expected = probabilities * 8000
    chi_square = (((np.bincount(draws, minlength=4) - expected) ** 2) / expected).sum()
    assert chi_square < 16.3  # 3 degrees of freedom: one in a thousand exceeds this


def test_the_whole_vocabulary_can_be_drawn_across_blocks():
    logits = np.zeros(1300, np.float32)
    assert len(_drawable(logits, num_draws=20_000)) > 1295


@pytest.mark.parametrize("num_tokens", [5, 1300])
@pytest.mark.parametrize(("fraction", "expected"), [(0.0, 1), (0.5, -2), (1.0, -2)])
def test_a_draw_at_the_edge_never_hits_a_token_without_weight(num_tokens: int, fraction: float, expected: int):
    weights = np.zeros(num_tokens, np.float32)
    weights[[1, -2]] = 1.0
    assert _draw(_Candidates(None, weights), fraction) == expected % num_tokens


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.99, 0.99999])
def test_the_top_p_set_is_found_however_flat_the_distribution(exponent: float, top_p: float):
    weights = ((1 + np.arange(50_000)) ** -exponent).astype(np.float32)
    np.random.default_rng(1).shuffle(weights)
    kept = _keep_top_p(_Candidates(None, weights), top_p)
    mass = np.cumsum(np.sort(weights)[::-1], dtype=np.float64)
    num_kept = int((mass < top_p * weights.sum(dtype=np.float64)).sum()) + 1
    assert kept.token_ids.tolist() == sorted(np.argsort(-weights, kind="stable")[:num_kept].tolist())
    assert kept.weights.tolist() == weights[kept.token_ids].tolist()


@pytest.mark.parametrize("fields", [{"temperature": 0}, {"temperature": 1.5}, {"top_k": 2}, {"top_p": 0.5}])
def test_a_token_outside_of_the_mask_is_never_chosen(fields: dict[str, float]):
    logits = np.arange(70, dtype=np.float32) / 7
    logits[69] = np.nan  # where the mask forbids it, nobody looks
    mask = np.array([1 << 3 | 1 << 31, 1 << 8, 1 << 1], np.uint32)
    sampler = Sampler(70)
    params = SamplingParams(**fields)
    window = TokenWindow([40, 40])
    for seen in (None, window):
        chosen = {sampler.sample(logits, params, position=place, window=seen, mask=mask) for place in range(200)}
        assert chosen <= {3, 31, 40, 65}
        assert 65 in chosen
    assert logits[0] == 0


def test_an_empty_mask_is_an_error():
    with pytest.raises(EngineFaultError):
        Sampler(3).sample(_row(1, 2, 3), SamplingParams(), position=0, mask=np.zeros(1, np.uint32))
