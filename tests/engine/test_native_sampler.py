"""The native sampler behind the engine's seam: it takes the numpy sampler's place and makes its choices."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from memra_kernels import native
from memra_kernels.native_sampler import Adjustments, SamplingOptions
from memra_kernels.sampler import reference
from numpy.typing import NDArray

from memra.engine.native_sampler import NativeTokenSampler
from memra.engine.philox import uniform
from memra.engine.sampler import Sampler, TokenSampler
from memra.engine.token_window import TokenWindow
from memra.errors import EngineFaultError
from memra.messages.sampling import SamplingParams
from memra.types import TokenId
from tests.kernels.native.sampler_cases import CLOSE, find_margin, find_neighbours, make_options, make_row


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


def _make_options(params: SamplingParams) -> SamplingOptions:
    names = SamplingParams.__dataclass_fields__.keys() - {"seed", "logit_bias"}
    return SamplingOptions(**{name: getattr(params, name) for name in names})


def _make_params(options: SamplingOptions, seed: int) -> SamplingParams:
    names = SamplingParams.__dataclass_fields__.keys() - {"seed", "logit_bias", "num_top_logprobs"}
    return SamplingParams(seed=seed, **{name: getattr(options, name) for name in names})


@pytest.mark.parametrize("seed", range(6))
def test_a_choice_is_the_numpy_samplers_wherever_rounding_does_not_decide(seed: int):
    generator = np.random.default_rng(100 + seed)
    num_cases, num_close = 400, 0
    for position in range(num_cases):
        row = make_row(generator)
        params = _make_params(make_options(generator), seed=int(generator.integers(0, 2**63)))
        window = None if generator.random() < 0.5 else TokenWindow(generator.integers(0, row.size, 90).tolist())
        mask = None
        if generator.random() < 0.5:
            mask = generator.integers(0, 2**32, -(-row.size // 32), np.uint32)
            mask[row.argmax() // 32] |= np.uint32(1 << (row.argmax() % 32))  # something is left to choose
        wanted = Sampler(row.size).sample(row, params, position=position, window=window, mask=mask)
        chosen = NativeTokenSampler(row.size).sample(row, params, position=position, window=window, mask=mask)
        assert mask is None or mask[chosen // 32] >> np.uint32(chosen % 32) & 1
        if chosen == wanted:
            continue
        num_close += 1
        options = _make_options(params)
        if window is not None:
            row = reference.adjust(row, options, Adjustments(window.token_ids, window.counts, mask=mask))
        elif mask is not None:
            row = reference.adjust(row, options, Adjustments(mask=mask))
        fraction = uniform(params.seed, position)
        assert params.temperature > 0.0
        assert find_margin(row, options, fraction) < CLOSE, (position, params)
        assert chosen in find_neighbours(row, options, fraction), (position, params)
    assert num_close <= 0.01 * num_cases


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_bad_logits_are_refused_in_the_numpy_samplers_words(bad: float, temperature: float):
    row = np.array([1, 7, bad, 3], np.float32)
    params = SamplingParams(temperature=temperature)
    messages = []
    for sampler in (Sampler(4), NativeTokenSampler(4)):
        with pytest.raises(EngineFaultError) as caught:
            sampler.sample(row, params, position=9)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


class _Favourite:
    """A sampler that always takes the token just below the half of its vocabulary."""

    def __init__(self, vocab_size: int) -> None:
        self._token_id = vocab_size // 2 - 1

    def sample(self, logits: NDArray[np.float32], params: SamplingParams, **_: object) -> TokenId:
        assert logits.shape == (40,)
        assert params.seed in {0, 4}
        return self._token_id


def _run(sampler: Callable[[int], TokenSampler], make_model: Any, make_request: Any, watch: Any) -> list[list[int]]:
    watcher = watch(make_model(make_sampler=sampler))
    sampled = SamplingParams(temperature=0.8, top_k=20, top_p=0.9, presence_penalty=0.3, seed=4)
    watcher.engine.submit(make_request("greedy", [1, 2, 3], 12))
    watcher.engine.submit(make_request("sampled", [4, 5], 12, sampling=sampled))
    watcher.finish()
    return [watcher[name].token_ids for name in ("greedy", "sampled")]


def test_a_model_brings_its_sampler(make_model: Any, make_request: Any, watch: Any):
    assert _run(_Favourite, make_model, make_request, watch) == [[19] * 12] * 2


def test_an_engine_generates_the_same_with_either_sampler(make_model: Any, make_request: Any, watch: Any):
    arguments = (make_model, make_request, watch)
    assert _run(NativeTokenSampler, *arguments) == _run(Sampler, *arguments)
