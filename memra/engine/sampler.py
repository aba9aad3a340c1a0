"""One row of logits to one token: penalties, temperature, top-k, softmax, top-p, min-p, draw.

Knows no sequence, no batch and no text. A row is worked on alone, in one fixed order of operations, and the draw comes
from a counter-based generator, so a choice depends on the row, the parameters and the position only. Every tie goes to
the lower token id. The worker's thread calls it; the scratch arrays are shared between calls, never between threads.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memra.engine.philox import uniform
from memra.engine.token_window import TokenWindow
from memra.errors import EngineFaultError
from memra.messages.sampling import SamplingParams
from memra.types import TokenId

_MIN_TEMPERATURE = 1e-5
"""Lower temperatures act like this one, which separates neighbouring logits already; float32 would make them zero."""

_BLOCK_TOKENS = 512  # near the square root of the largest vocabularies: as many block sums as tokens in a block

# Where the search for the top-p set starts, as a divisor of the mass that may be missing, and how fast it widens. With
# these, one or two tries and at most a few hundred sorted tokens do for p ~ 1 / rank ** 1.5 and top_p up to 0.95.
_FIRST_THRESHOLD = 64.0
_THRESHOLD_STEP = 16.0


class TokenSampler(Protocol):
    """Chooses a model's tokens; `Sampler` below is the definition, and every other one makes its choices."""

    def sample(
        self, logits: NDArray[np.float32], params: SamplingParams, *, position: int, window: TokenWindow | None = None
    ) -> TokenId:
        """Choose the token that comes at `position`; arguments and errors as for `Sampler.sample`."""
        ...


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Tokens that may still be drawn.

    Attributes:
        token_ids: `[D]`, ascending; None stands for the whole vocabulary.
        weights: float32 `[D]`, probability as a fraction of the most likely token's.
    """

    token_ids: NDArray[np.intp] | None
    weights: NDArray[np.float32]

    def keep(self, chosen: NDArray[np.intp]) -> "_Candidates":
        """Return the candidates at these places, which are ascending."""
        token_ids = chosen if self.token_ids is None else self.token_ids[chosen]
        return _Candidates(token_ids, self.weights[chosen])


class Sampler:
    """Chooses tokens for one model; holds scratch memory of 8 bytes per vocabulary entry."""

    def __init__(self, vocab_size: int) -> None:
        """Make room for rows of `vocab_size` logits."""
        self._row = np.empty(vocab_size, np.float32)
        self._weights = np.empty(vocab_size, np.float32)

    def sample(
        self, logits: NDArray[np.float32], params: SamplingParams, *, position: int, window: TokenWindow | None = None
    ) -> TokenId:
        """Choose the token that comes at `position`.

        Args:
            logits: float32 `[vocab_size]`, contiguous; not changed. Minus infinity rules a token out.
            params: how to choose.
            position: of the new token in its sequence; counter of the generator.
            window: the tokens that penalties look at; None when no penalty is set.

        Raises:
            EngineFaultError: a logit is not a number, or the largest is infinite.
        """
        with np.errstate(over="ignore"):  # what falls below all float32 numbers has no weight
            row = logits if window is None else self._penalise(logits, params, window)
            best = int(row.argmax())  # the first of equals, and the first NaN where there is one
            peak = row[best]
            if not np.isfinite(peak):
                raise EngineFaultError(f"the logits for position {position} hold {peak} at token {best}")
            if params.is_greedy:
                return best
            candidates = self._weigh(row, peak, params)
        if params.top_p < 1.0:
            candidates = _keep_top_p(candidates, params.top_p)
        if params.min_p > 0.0:
            candidates = candidates.keep(np.flatnonzero(candidates.weights >= params.min_p))
        return _draw(candidates, uniform(params.seed, position))

    def _penalise(
        self, logits: NDArray[np.float32], params: SamplingParams, window: TokenWindow
    ) -> NDArray[np.float32]:
        """Lower the logits of earlier tokens, as llama.cpp's penalty sampler does, in a scratch copy."""
        np.copyto(self._row, logits)
        values = self._row[window.token_ids]
        repetition = np.float32(params.repetition_penalty)
        values = np.where(values > 0, values / repetition, values * repetition)
        values -= window.counts * params.frequency_penalty + params.presence_penalty
        self._row[window.token_ids] = values
        return self._row

    def _weigh(self, row: NDArray[np.float32], peak: np.float32, params: SamplingParams) -> _Candidates:
        """Apply temperature, top-k and the exponential; dividing by what is positive leaves top-k's order alone."""
        token_ids = None
        if 0 < params.top_k < row.size:
            border = np.partition(row, row.size - params.top_k)[row.size - params.top_k]
            token_ids = _find_largest(row, params.top_k, border=border)
            row = row[token_ids]
        weights = self._weights[: row.size]
        np.subtract(row, peak, out=weights)
        np.divide(weights, np.float32(max(params.temperature, _MIN_TEMPERATURE)), out=weights)
        np.exp(weights, out=weights)
        return _Candidates(token_ids, weights)


def _find_largest(values: NDArray[np.float32], num: int, *, border: np.float32) -> NDArray[np.intp]:
    """Return the places `[num]` of the largest values, ascending.

    Args:
        values: `[D]`.
        num: how many, 1 to D.
        border: the `num`-th largest value; of several equal to it the lower places are taken.
    """
    larger = np.flatnonzero(values > border)
    equal = np.flatnonzero(values == border)[: num - larger.size]
    return np.sort(np.concatenate((larger, equal)))


def _keep_top_p(candidates: _Candidates, top_p: float) -> _Candidates:
    """Keep the smallest set of most likely tokens whose mass reaches `top_p`, at least one."""
    weights = candidates.weights
    total = float(weights.sum(dtype=np.float64))
    # Tokens that together weigh less than half of what may be missing are never needed. (Half, so that rounding cannot
    # matter.) Mostly far fewer are, so higher thresholds are tried first, and only what lies above one is sorted.
    lowest = 0.5 * (1.0 - top_p) * total / weights.size
    threshold = max(min((1.0 - top_p) * total / _FIRST_THRESHOLD, 1.0), lowest)
    while True:
        heaviest_first = np.sort(weights[weights >= threshold])[::-1]
        mass = np.cumsum(heaviest_first, dtype=np.float64)
        if mass[-1] >= top_p * total or threshold <= lowest:
            break
        threshold = max(threshold / _THRESHOLD_STEP, lowest)
    num_kept = min(int(mass.searchsorted(top_p * total)) + 1, mass.size)
    return candidates.keep(_find_largest(weights, num_kept, border=heaviest_first[num_kept - 1]))


def _draw(candidates: _Candidates, fraction: float) -> TokenId:
    """Walk over the candidates in order of id until more than `fraction` of their mass lies behind.

    Sums of blocks come first: adding up one block token by token is far quicker than the whole vocabulary.
    """
    weights = candidates.weights
    sums = np.add.reduceat(weights, np.arange(0, weights.size, _BLOCK_TOKENS), dtype=np.float64)
    mass = np.cumsum(sums)
    target = fraction * mass[-1]
    block = _find_place(mass, target)
    if block:
        target -= mass[block - 1]
    start = block * _BLOCK_TOKENS
    place = start + _find_place(np.cumsum(weights[start : start + _BLOCK_TOKENS], dtype=np.float64), target)
    return place if candidates.token_ids is None else int(candidates.token_ids[place])


def _find_place(mass: NDArray[np.float64], target: float) -> int:
    """Return the first place where the running sum exceeds `target`; it has a weight above zero."""
    place = int(mass.searchsorted(target, side="right"))
    # Rounding may put the target at the whole mass: the last token with any weight is meant.
    return place if place < mass.size else int(mass.searchsorted(mass[-1]))
