"""Random rows and options for samplers, and a judge of the decisions among them that rounding may take either way."""

import itertools
from dataclasses import replace

import numpy as np
from memra_kernels.native_sampler import SamplingOptions
from memra_kernels.sampler import reference
from numpy.typing import NDArray

Row = NDArray[np.float32]

CLOSE = 1e-6
"""Masses are sums of float32 exponentials, good to a few 1e-7: a decision nearer than this is up to rounding."""
SHIFT = 3e-6
"""What moves any such decision to either side."""


def uniform(seed: int, position: int) -> float:
    """Philox4x32-10, written down a second time."""
    words, keys = [position & 0xFFFFFFFF, position >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * words[0], 0xCD9E8D57 * words[2]
        words = [
            (second >> 32) ^ words[1] ^ keys[0],
            second & 0xFFFFFFFF,
            (first >> 32) ^ words[3] ^ keys[1],
            first & 0xFFFFFFFF,
        ]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    word: int = words[0] << 32 | words[1]
    return float((word >> 11) * 2.0**-53)


def _margin_of_mass(ranks: NDArray[np.float64], weights: NDArray[np.float64], share: float) -> float:
    """How near the set that `keep_mass` finds is to being another one."""
    order = np.argsort(ranks, kind="stable")
    mass = np.cumsum(weights[order]) / weights.sum()
    last = int(mass.searchsorted(share))
    border, others = ranks[order[min(last, mass.size - 1)]], np.delete(ranks, order[min(last, mass.size - 1)])
    others = others[others != border]  # equal logits are equal for everybody
    gap = float(np.abs(others - border).min(initial=1.0)) / max(abs(border), 0.1)
    return min(float(np.abs(mass[:-1] - share).min(initial=1.0)), float(gap))


def find_margin(row: Row, options: SamplingOptions, fraction: float) -> float:
    """The distance of the closest decision from its border, in float64, relative to what is compared."""
    token_ids, _ = reference.filter_tokens(row, replace(options, typical_p=1.0, top_p=1.0, min_p=0.0))
    with np.errstate(over="ignore"):
        scaled = ((row - row.max()) / np.float32(max(options.temperature, reference.MIN_TEMPERATURE)))[token_ids]
    exponents = np.maximum(scaled.astype(np.float64), -1e4)
    weights = np.exp(exponents)
    margins = []
    if options.typical_p < 1.0:
        distances = np.abs(exponents - (weights * exponents).sum() / weights.sum())
        margins.append(_margin_of_mass(distances, weights, options.typical_p))
        kept = reference.keep_mass(distances, weights, options.typical_p)
        token_ids, weights = token_ids[kept], weights[kept]
    heaviest = weights.max()
    if options.top_p < 1.0:
        margins.append(_margin_of_mass(-weights, weights, options.top_p))
        kept = reference.keep_mass(-weights, weights, options.top_p)
        token_ids, weights = token_ids[kept], weights[kept]
    if options.min_p > 0.0:
        others = weights[weights != heaviest] if options.min_p == 1.0 else weights
        margins.append(float(np.abs(others / heaviest - options.min_p).min(initial=1.0)))
        weights = weights[weights >= options.min_p * heaviest * (1 - CLOSE)]
    mass = np.cumsum(weights) / weights.sum()
    margins.append(float(np.abs(mass[:-1] - fraction).min(initial=1.0)))
    return min(margins)


def find_neighbours(row: Row, options: SamplingOptions, fraction: float) -> set[int]:
    """What the definition chooses when borders that are too close to call fall on either side."""
    shifts = (-SHIFT, 0.0, SHIFT)
    found = set()
    for shares in itertools.product(
        *(shifts if share < 1.0 else (0.0,) for share in (options.typical_p, options.top_p))
    ):
        for min_p, drawn in itertools.product(shifts if options.min_p else (0.0,), shifts):
            moved = replace(
                options,
                typical_p=max(options.typical_p + shares[0], 0.0),
                top_p=max(options.top_p + shares[1], 0.0),
                min_p=min(max(options.min_p * (1 + min_p), 0.0), 1.0),
            )
            found.add(reference.choose(row, moved, min(max(fraction + drawn, 0.0), 1.0 - 2.0**-53)))
    return found


def make_row(generator: np.random.Generator) -> Row:
    """Rows of every kind: coarse ones full of ties, fine ones, few and many tokens, with tokens ruled out."""
    size = int(generator.choice([1, 2, 7, 40, 255, 256, 257, 700, 1500, 3001, 9000]))
    spread = float(generator.choice([0.0, 0.4, 2.0, 5.0, 40.0]))
    noise = generator.standard_normal(size) * spread
    decimals = int(generator.choice([0, 1, 3, 9]))
    row = np.round(noise, decimals).astype(np.float32)
    if generator.random() < 0.3 and size > 1:
        row[generator.integers(0, size, size // 2)] = -np.inf
        row[generator.integers(size)] = 1.0
    return row


def make_options(generator: np.random.Generator) -> SamplingOptions:
    return SamplingOptions(
        temperature=float(generator.choice([0.0, 0.3, 0.7, 1.0, 1.0, 1.9, 1e-6])),
        top_k=int(generator.choice([0, 0, 0, 1, 2, 5, 40, 300, 1000])),
        typical_p=float(generator.choice([1.0, 1.0, 1.0, 0.92, 0.31])),
        top_p=float(generator.choice([1.0, 0.999, 0.93, 0.517, 0.07, 0.0])),
        min_p=float(generator.choice([0.0, 0.0, 0.031, 0.42, 1.0])),
        repetition_penalty=float(generator.choice([1.0, 1.3])),
        frequency_penalty=float(generator.choice([0.0, 0.37])),
        presence_penalty=float(generator.choice([0.0, -0.6, 1.1])),
    )
