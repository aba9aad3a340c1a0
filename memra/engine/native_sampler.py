"""The native sampler behind the engine's `TokenSampler` seam, for models whose executor is native.

It makes the numpy sampler's choices wherever the rounding of an exponential does not decide, in a tenth of the time.
Knows parameters and windows; the arithmetic is `memra_kernels.native_sampler`'s. Imported only where the native library
is built; never imports torch.
"""

import numpy as np
from memra_kernels.native_sampler import Adjustments, NativeSampler, NotFiniteError, SamplingOptions
from numpy.typing import NDArray

from memra.engine.token_window import TokenWindow
from memra.errors import EngineFaultError
from memra.messages.sampling import SamplingParams
from memra.types import TokenId


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

    def sample(
        self, logits: NDArray[np.float32], params: SamplingParams, *, position: int, window: TokenWindow | None = None
    ) -> TokenId:
        """Choose the token that comes at `position`; arguments and errors as for `memra.engine.sampler.Sampler`."""
        if params is not self._params:  # mostly the same sequence samples again
            self._params, self._options = params, _translate(params)
        adjustments = None if window is None else Adjustments(window.token_ids, window.counts)
        try:
            choice = self._sampler.choose(
                logits, self._options, seed=params.seed, position=position, adjustments=adjustments
            )
        except NotFiniteError as error:
            raise EngineFaultError(
                f"the logits for position {position} hold {error.value} at token {error.token_id}"
            ) from error
        return choice.token_id


def _translate(params: SamplingParams) -> SamplingOptions:
    return SamplingOptions(
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        repetition_penalty=params.repetition_penalty,
        frequency_penalty=params.frequency_penalty,
        presence_penalty=params.presence_penalty,
    )
