"""The sampler in numpy over a full sort: the definition. See README.md.

Slow and plain on purpose. Knows arrays, not sequences: the caller brings the uniform number that decides the draw.
"""

import numpy as np
from numpy.typing import NDArray

from memra_kernels.native_sampler import Adjustments, SamplingOptions

MIN_TEMPERATURE = 1e-5
"""Lower temperatures act like this one, which separates neighbouring logits already; float32 would make them zero."""


def adjust(logits: NDArray[np.float32], options: SamplingOptions, adjustments: Adjustments) -> NDArray[np.float32]:
    """Add the bias, lower what occurred, rule out what is masked; returns a new row `[V]`."""
    row = logits.copy()
    if adjustments.bias_ids is not None and adjustments.bias_values is not None:
        np.add.at(row, adjustments.bias_ids, adjustments.bias_values)
    if adjustments.window_ids is not None and adjustments.window_counts is not None:
        values, repetition = row[adjustments.window_ids], np.float32(options.repetition_penalty)
        values = np.where(values > 0, values / repetition, values * repetition)
        values -= adjustments.window_counts * options.frequency_penalty + options.presence_penalty
        row[adjustments.window_ids] = values
    if adjustments.mask is not None:
        allowed = np.unpackbits(adjustments.mask.view(np.uint8), bitorder="little")[: row.size]
        row[allowed == 0] = -np.inf
    return row


def filter_tokens(row: NDArray[np.float32], options: SamplingOptions) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Return the tokens that may be drawn, ascending, and their weights as fractions of the likeliest token's.

    Args:
        row: float32 `[V]`, adjusted; its largest value is finite.
        options: temperature above 0, and the filters.
    """
    temperature = np.float32(max(options.temperature, MIN_TEMPERATURE))
    with np.errstate(over="ignore"):  # what falls below all float32 numbers has no weight
        exponents = (row - row.max()) / temperature
    token_ids = np.arange(row.size)
    if options.top_k > 0:
        token_ids = np.sort(np.argsort(-row, kind="stable")[: options.top_k])
    weights = np.exp(exponents[token_ids])
    if options.typical_p < 1.0:
        present = weights > 0
        token_ids, weights, kept = token_ids[present], weights[present], exponents[token_ids[present]]
        mean = (weights * kept).sum(dtype=np.float64) / weights.sum(dtype=np.float64)
        kept = keep_mass(np.abs(kept - np.float32(mean)), weights, options.typical_p)
        token_ids, weights = token_ids[kept], weights[kept]
    heaviest = weights.max()
    if options.top_p < 1.0:
        kept = keep_mass(-weights, weights, options.top_p)
        token_ids, weights = token_ids[kept], weights[kept]
    kept = np.flatnonzero(weights >= np.float32(options.min_p) * heaviest)
    return token_ids[kept], weights[kept]


def keep_mass(ranks: NDArray[np.float32], weights: NDArray[np.float32], share: float) -> NDArray[np.intp]:
    """Return the places, ascending, of the smallest set of lowest rank whose mass reaches a share, at least one.

    Args:
        ranks: `[D]`; of equal ones lower places come first.
        weights: `[D]`.
        share: of the sum of the weights.
    """
    order = np.argsort(ranks, kind="stable")
    mass = np.cumsum(weights[order], dtype=np.float64)
    return np.sort(order[: int(mass.searchsorted(share * mass[-1])) + 1])


def draw(token_ids: NDArray[np.intp], weights: NDArray[np.float32], fraction: float) -> int:
    """Walk over the tokens in order of id until more than `fraction` of their mass lies behind."""
    mass = np.cumsum(weights, dtype=np.float64)
    place = int(mass.searchsorted(fraction * mass[-1], side="right"))
    return int(token_ids[place if place < mass.size else mass.searchsorted(mass[-1])])


def choose(row: NDArray[np.float32], options: SamplingOptions, fraction: float) -> int:
    """Choose a token of an adjusted row; `fraction` is uniform in [0, 1)."""
    if options.temperature <= 0.0:
        return int(row.argmax())
    return draw(*filter_tokens(row, options), fraction)


def logprobs(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Natural logs of the model's own probabilities `[V]`: the unchanged logits at temperature 1."""
    shifted = logits.astype(np.float64) - float(logits.max())
    logs: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
    return logs
