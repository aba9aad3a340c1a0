"""Q4_K made from floats: four-bit codes with a six-bit scale and a six-bit minimum for each 32 of 256 values.

Trade: the block format of ggml (`block_q4_K`, as `gguf.quants.Q4_K` reads it) and a search for scales that lose little.
Refuses to know tensors. Called by `requantisation`.

A value is `d * scale * code - dmin * minimum`: `d` and `dmin` are float16 for the whole block. For each 32 values, some
widths of the code range around the full one are tried; for each, codes are rounded, and scale and minimum are fitted
to them by least squares. The pair with the smallest squared error stays.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

BLOCK: Final = 256
_SUB_BLOCKS: Final = 8
_SUB: Final = 32
_TOP_CODE: Final = 15
_TOP_SIX_BITS: Final = 63
_TOP_HALF: Final = 65504.0
_WIDTHS: Final = (14.2, 14.6, 15.0, 15.4, 15.8)
"""Steps that the range of 32 values is divided into; above 15 the ends are cut."""


def quantise_q4_k(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Rows of finite float32 `[rows, columns]` as Q4_K, uint8 `[rows, columns / 256 * 144]`.

    Values beyond what float16 scales reach are cut.
    """
    rows = values.shape[0]
    x = values.reshape(-1, _SUB_BLOCKS, _SUB)
    scales, minima = _fit(x)
    d, d_codes = _six_bits(scales)
    dmin, min_codes = _six_bits(minima)
    step = d * d_codes
    inverse = np.divide(1, step, out=np.zeros_like(step), where=step > 0)
    codes = np.rint((x + (dmin * min_codes)[..., None]) * inverse[..., None])
    codes = codes.clip(0, _TOP_CODE).astype(np.uint8)
    blocks = (
        d.astype(np.float16).view(np.uint8),
        dmin.astype(np.float16).view(np.uint8),
        _packed_scales(d_codes.astype(np.uint8), min_codes.astype(np.uint8)),
        _packed_codes(codes),
    )
    return np.concatenate(blocks, axis=1).reshape(rows, -1)


def _fit(x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Scale and minimum (not negative, to be subtracted) of every 32 values, `[blocks, 8]` each."""
    low = np.minimum(x.min(axis=-1), 0)
    raised = x - low[..., None]
    span, total = raised.max(axis=-1), x.sum(axis=-1)
    inverse = np.divide(1, span, out=np.zeros_like(span), where=span > 0)
    best = _Line(span / _TOP_CODE, -low)
    best_error = np.full(span.shape, np.inf, np.float32)
    codes, products = np.empty_like(x), np.empty_like(x)
    for width in _WIDTHS:
        np.multiply(raised, (inverse * np.float32(width))[..., None], out=codes)
        np.minimum(np.rint(codes, out=codes), _TOP_CODE, out=codes)
        # Sums of codes are whole numbers, the same in any order; the other one is added up in numpy's fixed order.
        num_steps = codes.sum(axis=-1)
        sums = _Sums(
            codes=num_steps,
            squares=np.einsum("bsk,bsk->bs", codes, codes),
            products=np.multiply(raised, codes, out=products).sum(axis=-1) + low * num_steps,
            values=total,
        )
        line = _least_squares(sums)
        error = line.error(sums)
        best = best.where(error < best_error, line)
        best_error = np.minimum(error, best_error)
    return best.scale, best.minimum


@dataclass(frozen=True, slots=True)
class _Sums:
    """Sums over 32 values, `[blocks, 8]` each: of codes, their squares, code times value, and the values."""

    codes: NDArray[np.float32]
    squares: NDArray[np.float32]
    products: NDArray[np.float32]
    values: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Line:
    """`scale * code - minimum`, `[blocks, 8]` each; neither is below zero."""

    scale: NDArray[np.float32]
    minimum: NDArray[np.float32]

    def error(self, sums: _Sums) -> NDArray[np.float32]:
        """Squared error over 32 values, less the squares of the values themselves."""
        of_scale = self.scale * (self.scale * sums.squares - 2 * (self.minimum * sums.codes + sums.products))
        return of_scale + self.minimum * (_SUB * self.minimum + 2 * sums.values)

    def where(self, is_other: NDArray[np.bool_], other: "_Line") -> "_Line":
        """The other line where it is asked for, this one elsewhere."""
        return _Line(np.where(is_other, other.scale, self.scale), np.where(is_other, other.minimum, self.minimum))


def _least_squares(sums: _Sums) -> _Line:
    """The line that comes closest to 32 values."""
    variance = _SUB * sums.squares - np.square(sums.codes)
    covariance = _SUB * sums.products - sums.codes * sums.values
    scale = np.divide(covariance, variance, out=np.zeros_like(variance), where=variance > 0)
    scale = np.maximum(scale, 0)
    minimum = (scale * sums.codes - sums.values) / _SUB
    through_zero = np.divide(sums.products, sums.squares, out=np.zeros_like(scale), where=sums.squares > 0)
    return _Line(np.where(minimum < 0, np.maximum(through_zero, 0), scale), np.maximum(minimum, 0))


def _six_bits(values: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A float16 unit `[blocks, 1]` and codes 0 to 63 `[blocks, 8]`, whose product comes close to the values."""
    unit = (values.max(axis=-1, keepdims=True) / _TOP_SIX_BITS).clip(0, _TOP_HALF)
    unit = unit.astype(np.float16).astype(np.float32)
    inverse = np.divide(1, unit, out=np.zeros_like(unit), where=unit > 0)
    return unit, np.rint(values * inverse).clip(0, _TOP_SIX_BITS)


def _packed_scales(scales: NDArray[np.uint8], minima: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Six-bit codes `[blocks, 8]` as twelve bytes: the first four of each whole, the others split."""
    low = np.concatenate((scales[:, :4], minima[:, :4]), axis=1)
    high = np.concatenate((scales[:, 4:] >> 4, minima[:, 4:] >> 4), axis=1)
    return np.concatenate((low | high << 6, (scales[:, 4:] & 15) | (minima[:, 4:] & 15) << 4), axis=1)


def _packed_codes(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes `[blocks, 8, 32]` as 128 bytes: of each pair of sub-blocks the first in the low four bits."""
    pairs = codes.reshape(-1, _SUB_BLOCKS // 2, 2, _SUB)
    return (pairs[:, :, 0] | pairs[:, :, 1] << np.uint8(4)).reshape(-1, BLOCK // 2)
