"""One row of logits to one token: bias, penalties, temperature, top-k, softmax, top-p, min-p, draw.

Knows no sequence, no batch and no text. A row is worked on alone, in one fixed order of operations, and the draw comes
from a counter-based generator, so a choice depends on the row, the parameters and the position only. Every tie goes to
the lower token id. The worker's thread calls it; the scratch arrays are shared between calls, never between threads.

Log probabilities are those of the model's own distribution, `log softmax` of the row as it came, before all of these
steps, as vLLM's `raw_logprobs`: they tell what the model thinks, and not what the request made of it.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memra.engine.philox import uniform
from memra.engine.token_masks import unpack_mask
from memra.engine.token_window import TokenWindow
from memra.errors import EngineFaultError
from memra.messages.generation import TokenLogprob
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
        self,
        logits: NDArray[np.float32],
        params: SamplingParams,
        *,
        position: int,
        window: TokenWindow | None = None,
        mask: NDArray[np.uint32] | None = None,
    ) -> TokenId:
        """Choose the token that comes at `position`; arguments and errors as for `Sampler.sample`."""
        ...

    def sample_with_logprobs(
        self,
        logits: NDArray[np.float32],
        params: SamplingParams,
        *,
        position: int,
        window: TokenWindow | None = None,
        mask: NDArray[np.uint32] | None = None,
    ) -> TokenLogprob:
        """Choose the same token, and tell how likely it was and what else was; as `Sampler.sample_with_logprobs`."""
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
        self,
        logits: NDArray[np.float32],
        params: SamplingParams,
        *,
        position: int,
        window: TokenWindow | None = None,
        mask: NDArray[np.uint32] | None = None,
    ) -> TokenId:
        """Choose the token that comes at `position`.

        Args:
            logits: float32 `[vocab_size]`, contiguous; not changed. Minus infinity rules a token out.
            params: how to choose.
            position: of the new token in its sequence; counter of the generator.
            window: the tokens that penalties look at; None when no penalty is set.
            mask: uint32 `[ceil(vocab_size / 32)]`, from the lowest bit on; a token whose bit is 0 is ruled out. None
                rules none out.

        Raises:
            EngineFaultError: a logit is not a number, or the largest is infinite.
        """
        with np.errstate(over="ignore"):  # what falls below all float32 numbers has no weight
            row = self._adjust(logits, params, window)
            row = row if mask is None else self._rule_out(row, mask)
            best = _find_peak(row, position)
            peak = row[best]
            if params.is_greedy:
                return best
            candidates = self._weigh(row, peak, params)
        if params.top_p < 1.0:
            candidates = _keep_top_p(candidates, params.top_p)
        if params.min_p > 0.0:
            candidates = candidates.keep(np.flatnonzero(candidates.weights >= params.min_p))
        return _draw(candidates, uniform(params.seed, position))

    def sample_with_logprobs(
        self,
        logits: NDArray[np.float32],
        params: SamplingParams,
        *,
        position: int,
        window: TokenWindow | None = None,
        mask: NDArray[np.uint32] | None = None,
    ) -> TokenLogprob:
        """Choose the token that comes at `position`, and list `params.num_top_logprobs` likely ones, or fewer.

        Arguments and errors are those of `sample`; a logit that is not a number is an error even where a bias or a
        penalty would hide it.
        """
        _find_peak(logits, position)
        token_id = self.sample(logits, params, position=position, window=window, mask=mask)
        return score_token(logits, token_id, position=position, num_top=params.num_top_logprobs or 0)

    def _adjust(
        self, logits: NDArray[np.float32], params: SamplingParams, window: TokenWindow | None
    ) -> NDArray[np.float32]:
        """Apply bias and penalties in a scratch copy; the row itself where there are none."""
        if window is None and not params.logit_bias:
            return logits
        np.copyto(self._row, logits)
        for token_id, bias in params.logit_bias:
            self._row[token_id] += np.float32(bias)
        if window is not None:
            self._penalise(params, window)
        return self._row

    def _penalise(self, params: SamplingParams, window: TokenWindow) -> None:
        """Lower the logits of earlier tokens in the scratch copy, as llama.cpp's penalty sampler does."""
        values = self._row[window.token_ids]
        repetition = np.float32(params.repetition_penalty)
        values = np.where(values > 0, values / repetition, values * repetition)
        values -= window.counts * params.frequency_penalty + params.presence_penalty
        self._row[window.token_ids] = values

    def _rule_out(self, row: NDArray[np.float32], mask: NDArray[np.uint32]) -> NDArray[np.float32]:
        """Give the tokens outside of the mask no chance, in the scratch copy."""
        np.copyto(self._row, row)
        self._row[~unpack_mask(mask, row.size)] = -np.inf
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


def score_token(logits: NDArray[np.float32], token_id: TokenId, *, position: int, num_top: int) -> TokenLogprob:
    """Tell how likely a token is at a position, and list the likeliest ones.

    Args:
        logits: float32 `[vocab_size]`, as they came.
        token_id: that stands there.
        position: of the token, for the error.
        num_top: how many to list, or fewer where there are fewer.

    Raises:
        EngineFaultError: a logit is not a number, or the largest is infinite.
    """
    peak = float(logits[_find_peak(logits, position)])
    weights = np.subtract(logits, np.float32(peak))
    np.exp(weights, out=weights)
    log_total = float(np.log(weights.sum(dtype=np.float64)))
    ids = [token_id, *_list_top(logits, min(num_top, logits.size))]
    chosen, *top = (float(np.float32(float(logits[place]) - peak - log_total)) for place in ids)
    return TokenLogprob(token_id, chosen, top=tuple(zip(ids[1:], top, strict=True)))


def _find_peak(row: NDArray[np.float32], position: int) -> int:
    """Return the place of the largest logit, the first of equals.

    Raises:
        EngineFaultError: a logit is not a number, or the largest is infinite.
    """
    best = int(row.argmax())  # the first NaN where there is one
    if not np.isfinite(row[best]):
        raise EngineFaultError(f"the logits for position {position} hold {row[best]} at token {best}")
    return best


def _list_top(logits: NDArray[np.float32], num: int) -> list[TokenId]:
    """Return the `num` most likely tokens, best first, the lower id first among equals."""
    if not num:
        return []
    border = np.partition(logits, logits.size - num)[logits.size - num]
    largest = _find_largest(logits, num, border=border)
    best_first: list[TokenId] = largest[np.argsort(-logits[largest], kind="stable")].tolist()
    return best_first


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
