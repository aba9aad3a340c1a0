"""Log probabilities and biases: what they say, on either sampler and in any company."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from memra.engine.engine import EngineLimits
from memra.engine.native_sampler import NativeTokenSampler
from memra.engine.sampler import Sampler, TokenSampler
from memra.engine.token_window import TokenWindow
from memra.errors import EngineFaultError
from memra.messages.generation import TokenLogprob
from memra.messages.sampling import SamplingParams
from memra.messages.work import TokensGenerated

Make = Callable[..., Any]
MakeSampler = Callable[[int], TokenSampler]

CLOSE = 2e-6  # absolute, in nats: float32 near the largest of these values, and two exponentials' rounding


def _has_library() -> bool:
    try:
        native.library()
    except native.NativeUnavailableError:
        return False
    return True


SAMPLERS = [
    pytest.param(Sampler, id="numpy"),
    pytest.param(
        NativeTokenSampler, id="native", marks=pytest.mark.skipif(not _has_library(), reason="the library is not built")
    ),
]


def _rows(seed: int) -> Iterator[NDArray[np.float32]]:
    generator = np.random.default_rng(seed)
    for _ in range(60):
        size = int(generator.integers(1, 3000))
        row = (generator.standard_normal(size) * generator.choice([0.0, 1.0, 6.0])).astype(np.float32)
        if generator.random() < 0.5:  # ties
            row = np.round(row)
        if size > 40 and generator.random() < 0.3:
            row[generator.integers(0, size, 5)] = -np.inf
            row[0] = 1.0
        yield row


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_they_are_the_log_softmax_of_the_row_as_it_came(make_sampler: MakeSampler):
    for position, row in enumerate(_rows(1)):
        exact = row.astype(np.float64) - np.float64(row.max())
        exact -= np.log(np.exp(exact).sum())
        best_first = sorted(range(row.size), key=lambda token_id: (-row[token_id], token_id))
        window = TokenWindow([0, row.size - 1])
        params = SamplingParams(
            0.8, top_k=5, presence_penalty=0.5, logit_bias=((0, 3.5),), num_top_logprobs=20, seed=position
        )
        sampler = make_sampler(row.size)
        entry = sampler.sample_with_logprobs(row, params, position=position, window=window)
        assert entry.token_id == sampler.sample(row, params, position=position, window=window)
        assert [token_id for token_id, _ in entry.top] == best_first[:20]
        told = [entry.logprob, *(logprob for _, logprob in entry.top)]
        wanted = exact[[entry.token_id, *best_first[:20]]]
        finite = np.isfinite(wanted)
        assert (np.isfinite(told) == finite).all()
        assert np.abs(np.array(told)[finite] - wanted[finite]).max() < CLOSE


@pytest.mark.skipif(not _has_library(), reason="the library is not built")
def test_both_samplers_say_the_same():
    for position, row in enumerate(_rows(2)):
        params = SamplingParams(temperature=0, logit_bias=((row.size - 1, 2.0), (0, -1.5)), num_top_logprobs=7)
        one, other = (
            make(row.size).sample_with_logprobs(row, params, position=position)
            for make in (Sampler, NativeTokenSampler)
        )
        assert one.token_id == other.token_id
        assert [token_id for token_id, _ in one.top] == [token_id for token_id, _ in other.top]
        told = [[entry.logprob, *(logprob for _, logprob in entry.top)] for entry in (one, other)]
        assert told[0] == pytest.approx(told[1], abs=CLOSE)


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_without_likely_ones_the_chosen_token_has_its_own(make_sampler: MakeSampler):
    row = np.array([0.0, 0.0, -np.inf], np.float32)
    entry = make_sampler(3).sample_with_logprobs(row, SamplingParams(temperature=0, num_top_logprobs=0), position=0)
    assert entry == TokenLogprob(0, pytest.approx(-np.log(2), abs=CLOSE))


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_a_bias_of_minus_a_hundred_bans_and_one_of_a_hundred_forces(make_sampler: MakeSampler):
    row = np.random.default_rng(3).standard_normal(50).astype(np.float32) * 4
    best = int(row.argmax())
    sampler = make_sampler(50)

    def choose(*bias: tuple[int, float]) -> set[int]:
        params = SamplingParams(seed=1, logit_bias=bias)
        return {sampler.sample(row, params, position=position) for position in range(200)}

    assert choose((9, 100.0)) == {9}
    assert best in choose()
    assert best not in choose((best, -100.0))


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_bias_comes_before_penalties(make_sampler: MakeSampler):
    # Biased above zero first, token 1 is divided by the penalty; multiplied before the bias it would win.
    row = np.array([1.0, -1.0], np.float32)
    params = SamplingParams(temperature=0, repetition_penalty=4.0, logit_bias=((1, 4.5),))
    assert make_sampler(2).sample(row, params, position=0, window=TokenWindow([1])) == 0


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_a_bias_hides_no_broken_logits(make_sampler: MakeSampler):
    row = np.array([1.0, np.inf, 0.0], np.float32)
    params = SamplingParams(temperature=0, num_top_logprobs=1, logit_bias=((1, -100.0),))
    with pytest.raises(EngineFaultError, match="inf at token 1"):
        make_sampler(3).sample_with_logprobs(row, params, position=0)


def _entries(watched: Any, requests: list[Any]) -> dict[str, list[TokenLogprob]]:
    told: dict[str, list[TokenLogprob]] = {}
    for request in requests:
        watched.engine.submit(request)
    while watched.engine.has_work:
        for event in watched.step().events:
            if isinstance(event, TokensGenerated):
                assert len(event.logprobs) in {0, len(event.token_ids)}
                told.setdefault(event.request_id, []).extend(event.logprobs)
    return told


@pytest.mark.parametrize("make_sampler", SAMPLERS)
def test_they_do_not_depend_on_the_company(
    make_sampler: MakeSampler, make_model: Make, make_request: Make, watch: Make
):
    def request(name: str, num_top: int | None, **fields: Any) -> Any:
        sampling = SamplingParams(0.9, seed=len(name), num_top_logprobs=num_top, **fields)
        return make_request(name, range(len(name), 9), 12, sampling=sampling)

    requests = [
        request("a", 3),
        request("bb", None, presence_penalty=0.7),
        request("ccc", 0, logit_bias=((4, 2.0), (7, -9.0))),
        request("dddd", 20),
    ]
    together = _entries(watch(make_model(make_sampler=make_sampler)), requests)
    for one in requests:
        alone = _entries(watch(make_model(make_sampler=make_sampler, prefill_chunk_tokens=2)), [one])
        assert alone[one.request_id] == together[one.request_id]
    assert [len(together[request.request_id]) for request in requests] == [12, 0, 12, 12]


def test_an_ending_token_has_no_entry(make_model: Make, make_request: Make, watch: Make, fake_executor: Make):
    executor = fake_executor()
    ending = int(executor.compute_logits([1, 2]).argmax())
    sampling = SamplingParams(temperature=0, num_top_logprobs=2)
    request = make_request("a", [1, 2], 12, sampling=sampling, eos_ids=frozenset({ending}))
    assert _entries(watch(make_model(executor)), [request]) == {"a": []}


def test_choices_of_one_prompt_compute_it_once(make_model: Make, make_request: Make, watch: Make, fake_executor: Make):
    executor = fake_executor(page_tokens=4)
    watched = watch(make_model(executor), limits=EngineLimits(prefix_cache_bytes=1 << 20))
    sampling = SamplingParams(seed=5)
    prompt = [index % 40 for index in range(33)]
    for index in range(8):
        watched.engine.submit(make_request(f"r{index}", prompt, 1, sampling=replace(sampling, seed=5 + index)))
    watched.finish()
    num_rows = sum(len(batch.token_ids) for batch in executor.batches)
    assert num_rows == 33 + 7, "each further choice runs the prompt's last token alone"
    assert len({watched[f"r{index}"].token_ids[0] for index in range(8)}) > 1
