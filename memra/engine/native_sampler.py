"""The native sampler behind the engine's `TokenSampler` seam, for models whose executor is native.

It makes the numpy sampler's choices wherever the rounding of an exponential does not decide, in a tenth of the time.
Knows parameters and windows; the arithmetic is `memra_kernels.native_sampler`'s. Imported only where the native library
is built; never imports torch.
"""

from dataclasses import dataclass

import numpy as np
from memra_kernels.native_sampler import Adjustments, Choice, NativeSampler, NotFiniteError, SamplingOptions
from numpy.typing import NDArray

from memra.engine.token_window import TokenWindow
from memra.errors import EngineFaultError
from memra.messages.generation import TokenLogprob
from memra.messages.sampling import SamplingParams
from memra.types import TokenId


@dataclass(frozen=True, slots=True)
class _Bias:
    token_ids: NDArray[np.int64]
    values: NDArray[np.float32]


class NativeTokenSampler:
    """Chooses tokens for one model; holds scratch memory of 28 bytes per vocabulary entry. One thread at a time."""

    def __init__(self, vocab_size: int) -> None:
        """Make room for rows of `vocab_size` logits.

        Raises:
            NativeUnavailableError: the native library is not built.
        """
        self._sampler = NativeSampler(vocab_size)
        self._params: SamplingParams | None = None
        self._options = SamplingOptions()
        self._bias: _Bias | None = None

    def sample(
        self,
        logits: NDArray[np.float32],
        params: SamplingParams,
        *,
        position: int,
        window: TokenWindow | None = None,
        mask: NDArray[np.uint32] | None = None,
    ) -> TokenId:
        """Choose the token that comes at `position`; arguments and errors as for `memra.engine.sampler.Sampler`."""
        return self._choose(logits, params, position, window, mask).token_id

    def sample_with_logprobs(
        self,
        logits: NDArray[np.float32],
        params: SamplingParams,
        *,
        position: int,
        window: TokenWindow | None = None,
        mask: NDArray[np.uint32] | None = None,
    ) -> TokenLogprob:
        """Choose that token and tell how likely it was; as `memra.engine.sampler.Sampler`, but for float32 rounding."""
        choice = self._choose(logits, params, position, window, mask)
        # A request that wants none has no business here; the assertion is for the type.
        assert choice.logprob is not None  # noqa: S101
        return TokenLogprob(choice.token_id, choice.logprob, top=choice.top)

    def _choose(
        self,
        logits: NDArray[np.float32],
        params: SamplingParams,
        position: int,
        window: TokenWindow | None,
        mask: NDArray[np.uint32] | None,
    ) -> Choice:
        if params is not self._params:  # mostly the same sequence samples again
            self._params, self._options, self._bias = params, _translate(params), _bias_of(params)
        adjustments = _adjustments(self._bias, window, mask)
        try:
            return self._sampler.choose(
                logits, self._options, seed=params.seed, position=position, adjustments=adjustments
            )
        except NotFiniteError as error:
            raise EngineFaultError(
                f"the logits for position {position} hold {error.value} at token {error.token_id}"
            ) from error


def _bias_of(params: SamplingParams) -> _Bias | None:
    if not params.logit_bias:
        return None
    ids, values = zip(*params.logit_bias, strict=True)
    return _Bias(np.array(ids, np.int64), np.array(values, np.float32))


def _adjustments(bias: _Bias | None, window: TokenWindow | None, mask: NDArray[np.uint32] | None) -> Adjustments | None:
    if bias is None and window is None and mask is None:
        return None
    return Adjustments(
        None if window is None else window.token_ids,
        None if window is None else window.counts,
        None if bias is None else bias.token_ids,
        None if bias is None else bias.values,
        mask,
    )


def _translate(params: SamplingParams) -> SamplingOptions:
    return SamplingOptions(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
        num_top_logprobs=params.num_top_logprobs,
    )
