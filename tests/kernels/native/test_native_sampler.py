"""The native sampler against its numpy definition, and against itself on every instruction set."""

import itertools
import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from memra_kernels.native_sampler import (
    Adjustments,
    Choice,
    NativeSampler,
    NotFiniteError,
    SamplingOptions,
    usable_variants,
)
from memra_kernels.sampler import reference
from numpy.typing import NDArray

from tests.kernels.native.sampler_cases import (
    CLOSE,
    SHIFT,
    Row,
    find_margin,
    find_neighbours,
    make_options,
    make_row,
    uniform,
)


def _row(*logits: float) -> Row:
    return np.array(logits, np.float32)


def _choose(row: Row, options: SamplingOptions, position: int = 0, adjustments: Adjustments | None = None) -> int:
    sampler = NativeSampler(row.size)
    return sampler.choose(row, options, seed=1, position=position, adjustments=adjustments).token_id


def _drawable(row: Row, num_draws: int = 300, adjustments: Adjustments | None = None, **fields: float) -> set[int]:
    sampler, options = NativeSampler(row.size), SamplingOptions(**fields)  # type: ignore[arg-type]
    return {
        sampler.choose(row, options, seed=5, position=position, adjustments=adjustments).token_id
        for position in range(num_draws)
    }


def _make_adjustments(generator: np.random.Generator, size: int) -> Adjustments:
    num = int(generator.integers(1, min(size, 60) + 1))
    window = generator.choice(size, num, replace=False).astype(np.int64)
    bias = generator.integers(0, size, 5).astype(np.int64)
    mask = np.frombuffer(generator.bytes(4 * -(-size // 32)), np.uint32).copy()
    mask[:] |= np.uint32(1 << int(generator.integers(32))) if size >= 32 else np.uint32(0xFFFFFFFF)
    return Adjustments(
        window_ids=window,
        window_counts=generator.integers(1, 9, num).astype(np.int32),
        bias_ids=bias if generator.random() < 0.5 else None,
        bias_values=(generator.standard_normal(5) * 3).astype(np.float32),
        mask=mask if generator.random() < 0.5 else None,
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_choice_is_the_one_that_a_full_sort_gives(seed: int):
    generator = np.random.default_rng(seed)
    num_cases, num_close, num_tied = 400, 0, 0
    for case in range(num_cases):
        logits, options = make_row(generator), make_options(generator)
        adjustments = _make_adjustments(generator, logits.size) if generator.random() < 0.4 else Adjustments()
        row = reference.adjust(logits, options, adjustments)
        if not np.isfinite(row.max()):
            with pytest.raises(NotFiniteError):
                _choose(logits, options, case, adjustments)
            continue
        fraction = uniform(1, case)
        chosen, wanted = _choose(logits, options, case, adjustments), reference.choose(row, options, fraction)
        is_close = options.temperature > 0.0 and find_margin(row, options, fraction) < CLOSE
        num_close += is_close
        num_tied += np.unique(row).size < row.size
        assert chosen == wanted or (is_close and chosen in find_neighbours(row, options, fraction)), (case, options)
    assert num_close < 0.05 * num_cases
    assert num_tied > 0.4 * num_cases


@pytest.mark.parametrize("spread", [0.0, 0.02, 0.5, 3.2])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"top_k": 40},
        {"top_k": 200},
        {"top_k": 5000},
        {"top_p": 0.9},
        {"top_p": 0.999},
        {"typical_p": 0.8},
        {"min_p": 0.2},
    ],
)
def test_a_large_vocabulary_is_filtered_as_by_a_full_sort(spread: float, fields: dict[str, float]):
    row = (np.random.default_rng(2).standard_normal(151_936) * spread).astype(np.float32)
    options = SamplingOptions(**fields)  # type: ignore[arg-type]
    token_ids, weights = reference.filter_tokens(row, options)
    sampler = NativeSampler(row.size)
    mass = np.cumsum(weights, dtype=np.float64)
    for position in range(200):
        chosen = sampler.choose(row, options, seed=9, position=position).token_id
        target = uniform(9, position) * mass[-1]
        place = int(token_ids.searchsorted(chosen))
        assert token_ids[place] == chosen
        below, above = mass[place] - weights[place], mass[place]
        assert below - SHIFT * mass[-1] <= target <= above + SHIFT * mass[-1]


def test_greedy_takes_the_largest_and_the_lowest_id_of_equals():
    greedy = SamplingOptions(temperature=0.0)
    assert _choose(_row(1, 3, 2, 3, 3), greedy) == 1
    assert _choose(_row(-0.0, 0.0), greedy) == 0
    row = np.zeros(3000, np.float32)
    row[[700, 2999]] = 1.0
    assert _choose(row, greedy) == 700


def test_equals_at_a_border_give_way_to_lower_ids():
    assert _drawable(_row(0, 1, 5, 1, 1, 5, 1), top_k=4) == {1, 2, 3, 5}
    assert _drawable(_row(-0.0, 0.0, -0.0), top_k=2) == {0, 1}
    assert _drawable(_row(0, 0, 0, 0, 0), top_p=0.5) == {0, 1, 2}
    assert _drawable(_row(0, 0, 0, 0), top_p=0.5) == {0, 1}
    assert _drawable(_row(0, 0, 0, 0), typical_p=0.5) == {0, 1}
    assert 4900 < max(_drawable(np.zeros(20_000, np.float32), 3000, top_p=0.25)) < 5000
    assert _drawable(np.zeros(20_000, np.float32), 3000, top_k=7) == set(range(7))


def test_top_p_keeps_at_least_one_token():
    assert _drawable(_row(0, 2, 2), top_p=0.0) == {1}
    assert _drawable(np.arange(2000, dtype=np.float32) / 9999, top_p=0.0) == {1999}


def test_typical_p_drops_what_is_too_likely():
    row = np.log(_row(0.4, 0.15, 0.15, 0.15, 0.15))
    # Surprise 0.92 and 1.90 (four times); their mean is 1.50: the four are nearer to it.
    assert _drawable(row, typical_p=0.59) == {1, 2, 3, 4}
    assert _drawable(row, typical_p=0.61) == {0, 1, 2, 3, 4}


def test_min_p_is_relative_to_the_likeliest_token_that_is_left():
    row = np.log(_row(0.4, 0.15, 0.15, 0.15, 0.15))
    assert _drawable(row, min_p=0.9) == {0}
    assert _drawable(row, typical_p=0.59, min_p=0.9) == {1, 2, 3, 4}


def test_bias_comes_before_penalties_and_mask():
    adjustments = Adjustments(
        bias_ids=np.array([0], np.int64),
        bias_values=_row(6),
        window_ids=np.array([0], np.int64),
        window_counts=np.array([1], np.int32),
    )
    options = SamplingOptions(temperature=0.0, repetition_penalty=4.0)
    assert _choose(_row(-2, 1.1), options, adjustments=adjustments) == 1  # (-2 + 6) / 4 = 1
    assert _choose(_row(-2, 0.9), options, adjustments=adjustments) == 0
    masked = replace(adjustments, mask=np.array([0b10], np.uint32))
    assert _choose(_row(100, 1, 2), options, adjustments=masked) == 1


@pytest.mark.parametrize("size", [1, 31, 32, 33, 64, 65, 97, 1000])
def test_a_mask_allows_exactly_its_tokens(size: int):
    generator = np.random.default_rng(size)
    allowed = generator.random(size) < 0.5
    allowed[size - 1] = True
    mask = np.zeros(-(-size // 32), np.uint32)
    for token_id in np.flatnonzero(allowed):
        mask[token_id // 32] |= np.uint32(1 << (token_id % 32))
    drawn = _drawable(np.zeros(size, np.float32), 20 * size, Adjustments(mask=mask))
    assert drawn <= set(np.flatnonzero(allowed).tolist())
    assert len(drawn) > 0.9 * allowed.sum()


def test_log_probabilities_are_those_of_the_unchanged_row():
    row = (np.random.default_rng(4).standard_normal(5000) * 3).astype(np.float32)
    row[[10, 4000]] = row.max() + 1
    row[3] = -np.inf
    wanted = reference.logprobs(row)
    options = SamplingOptions(temperature=0.2, top_k=3, frequency_penalty=2.0, num_top_logprobs=20)
    adjustments = Adjustments(
        window_ids=np.array([10], np.int64),
        window_counts=np.array([3], np.int32),
        mask=np.full(157, 0xFFFFFF0F, np.uint32),
    )
    choice = NativeSampler(row.size).choose(row, options, seed=1, position=1, adjustments=adjustments)
    order = np.argsort(-row, kind="stable")[:20]
    assert [token_id for token_id, _ in choice.top] == order.tolist()
    assert [logprob for _, logprob in choice.top] == pytest.approx(wanted[order], abs=2e-6)
    assert choice.logprob == pytest.approx(wanted[choice.token_id], abs=2e-6)


def test_log_probabilities_come_only_as_asked():
    row, sampler = _row(0, 1, -np.inf), NativeSampler(3)
    greedy = SamplingOptions(temperature=0.0)
    assert sampler.choose(row, greedy, seed=0, position=0) == Choice(1)
    chosen = sampler.choose(row, replace(greedy, num_top_logprobs=0), seed=0, position=0)
    assert chosen.logprob == pytest.approx(np.log(np.e / (1 + np.e)))
    assert chosen.top == ()
    listed = sampler.choose(row, replace(greedy, num_top_logprobs=20), seed=0, position=0)
    assert [token_id for token_id, _ in listed.top] == [1, 0, 2]
    assert listed.top[2][1] == -np.inf


def test_the_draw_follows_the_counter():
    row = np.zeros(1000, np.float32)
    sampler = NativeSampler(row.size)
    for seed, position in [(0, 0), (2**64 - 1, 7), (5, 2**33 + 1), (2**40, 3)]:
        chosen = sampler.choose(row, SamplingOptions(), seed=seed, position=position).token_id
        assert chosen == int(uniform(seed, position) * 1000)


def test_frequencies_follow_the_probabilities():
    probabilities = np.array([0.5, 0.25, 0.15, 0.1])
    sampler, row = NativeSampler(4), np.log(probabilities).astype(np.float32)
    draws = [sampler.choose(row, SamplingOptions(), seed=11, position=position).token_id for position in range(8000)]
    expected = probabilities * 8000
    chi_square = (((np.bincount(draws, minlength=4) - expected) ** 2) / expected).sum()
    assert chi_square < 16.3  # 3 degrees of freedom: one in a thousand exceeds this


GRID = [
    SamplingOptions(temperature=temperature, top_k=top_k, typical_p=typical_p, top_p=top_p, num_top_logprobs=5)
    for temperature, top_k, typical_p, top_p in itertools.product(
        (0.0, 0.8, 1.0), (0, 40, 3000), (1.0, 0.7), (1.0, 0.9)
    )
]


def _choices(sampler: NativeSampler, row: Row) -> Iterator[Choice]:
    adjustments = Adjustments(
        window_ids=np.arange(50, dtype=np.int64),
        window_counts=np.ones(50, np.int32),
        mask=np.full(-(-row.size // 32), 0xFFF7FFFF, np.uint32),
    )
    for position, options in enumerate(GRID):
        yield sampler.choose(row, options, seed=3, position=position)
        yield sampler.choose(
            row, replace(options, presence_penalty=0.5), seed=3, position=position, adjustments=adjustments
        )


@pytest.mark.parametrize("size", [151_936, 4099])
@pytest.mark.parametrize("decimals", [1, 9])
def test_every_instruction_set_gives_the_same_bits(size: int, decimals: int):
    row = (np.random.default_rng(size).standard_normal(size) * 3).round(decimals).astype(np.float32)
    first, *others = (list(_choices(NativeSampler(size, variant=variant), row)) for variant in usable_variants())
    for other in others:
        assert other == first


def test_addresses_and_earlier_calls_make_no_difference():
    size = 9001
    generator = np.random.default_rng(6)
    rows = (generator.standard_normal((3, size)) * 3).astype(np.float32)
    shifted = [np.concatenate((np.zeros(shift, np.float32), row))[shift:] for shift, row in enumerate(rows, start=1)]
    used = NativeSampler(size)
    fresh = [list(_choices(NativeSampler(size), row)) for row in rows]
    assert [list(_choices(used, row)) for row in shifted] == fresh
    assert [list(_choices(used, row)) for row in rows[::-1]] == fresh[::-1]


def test_samplers_of_several_threads_do_not_disturb_each_other():
    size = 20_000
    rows = (np.random.default_rng(8).standard_normal((4, size)) * 2).astype(np.float32)
    alone = [list(_choices(NativeSampler(size), row)) for row in rows]
    together: dict[int, list[Choice]] = {}

    def work(index: int) -> None:
        together[index] = list(_choices(NativeSampler(size), rows[index]))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(rows))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[index] for index in range(len(rows))] == alone


def test_the_row_is_left_alone():
    row = _row(1, 2, 3)
    row.flags.writeable = False
    mask = np.array([7], np.uint32)
    window = np.array([1], np.int64)
    adjustments = Adjustments(window_ids=window, window_counts=np.array([1], np.int32), mask=mask)
    _choose(row, SamplingOptions(presence_penalty=1.0, top_k=2, top_p=0.9, typical_p=0.9), adjustments=adjustments)
    assert row.tolist() == [1, 2, 3]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize(
    "options", [SamplingOptions(temperature=0.0), SamplingOptions(), SamplingOptions(num_top_logprobs=1)]
)
@pytest.mark.parametrize("place", [0, 2, 600])
def test_logits_that_are_no_numbers_are_refused_with_their_place(bad: float, options: SamplingOptions, place: int):
    row = np.zeros(700, np.float32)
    row[[place, 650]] = bad
    with pytest.raises(NotFiniteError) as caught:
        _choose(row, options)
    assert caught.value.token_id == place
    assert str(caught.value.value) == str(bad)


def test_a_row_that_rules_everything_out_is_refused():
    with pytest.raises(NotFiniteError, match="-inf"):
        _choose(_row(-np.inf, -np.inf), SamplingOptions())
    with pytest.raises(NotFiniteError, match="-inf"):
        _choose(_row(1, 2), SamplingOptions(), adjustments=Adjustments(mask=np.zeros(1, np.uint32)))


@pytest.mark.parametrize("temperature", [1e-300, 1e-6, 1e30])
def test_extreme_temperatures_and_logits_do_not_overflow(temperature: float):
    drawn = _drawable(_row(-3e38, 0, 3e4, 3.0e4 - 1), 100, temperature=temperature)
    assert drawn == ({2} if temperature < 1 else {1, 2, 3} | (drawn & {0}))


def test_wrong_arguments_are_refused_before_anything_is_read():
    sampler = NativeSampler(4)

    def choose(row: NDArray[np.generic] | None = None, **fields: NDArray[np.generic]) -> None:
        row = _row(1, 2, 3, 4) if row is None else row
        sampler.choose(row, SamplingOptions(), seed=0, position=0, adjustments=Adjustments(**fields))  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="float64"):
        choose(np.zeros(4))
    with pytest.raises(ValueError, match=r"\(3,\)"):
        choose(_row(1, 2, 3))
    with pytest.raises(ValueError, match="contiguous"):
        choose(np.zeros(8, np.float32)[::2])
    with pytest.raises(ValueError, match="uint32"):
        choose(mask=np.zeros(2, np.uint32))
    with pytest.raises(ValueError, match="int32"):
        choose(window_ids=np.zeros(2, np.int64), window_counts=np.zeros(3, np.int32))
    for outside in (-1, 4):
        with pytest.raises(ValueError, match="outside of the vocabulary of 4"):
            choose(bias_ids=np.array([outside], np.int64), bias_values=_row(1))
    with pytest.raises(ValueError, match="21"):
        sampler.choose(_row(1, 2, 3, 4), SamplingOptions(num_top_logprobs=21), seed=0, position=0)
    with pytest.raises(ValueError, match="nothing to choose"):
        NativeSampler(0)
