"""Floating-point work whose bits do not depend on how much of it is done at once.

Trade: sums in one stated order, and functions of single elements that never meet a vector loop's remainder. Both exist
because a library is free to reorder a sum, or to take another code path for the last few elements of an array, as soon
as the array grows; a row would then depend on its neighbours. Refuses to know which operator calls.
"""

from collections.abc import Callable

import torch

VECTOR_ELEMENTS = 64
"""A multiple of every vector loop's step: 16 float32 or 32 bfloat16 lanes of AVX-512, twice unrolled."""

CHUNK_ELEMENTS = 32_768
"""torch splits elementwise work among threads above this many elements (`at::internal::GRAIN_SIZE`)."""


def sum_by_halving(terms: torch.Tensor) -> torch.Tensor:
    """Sum over the last dimension by adding the upper half to the lower half until one element is left.

    Only elementwise additions are used, so the order depends on the length alone: the part beyond the largest power of
    two is added to the front first.

    Args:
        terms: `[..., L]`, L at least 1; overwritten.

    Returns:
        `[...]`, a view into `terms`.
    """
    length = terms.shape[-1]
    half = 1 << (length.bit_length() - 1)
    if half < length:
        terms[..., : length - half] += terms[..., half:]
    while half > 1:
        half //= 2
        terms[..., :half] += terms[..., half : 2 * half]
    return terms[..., 0]


def apply_elementwise(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Replace every element of `x` by `function` of it, in pieces of whole vectors on one thread.

    torch computes `exp`, `tanh` and their like by a vector routine and the remainder of an array by a scalar one whose
    bits differ. Here no call has a remainder.

    Args:
        function: maps a one-dimensional tensor to one of the same shape, element by element.
        x: contiguous, any shape; overwritten.

    Returns:
        `x`.
    """
    for chunk in torch.split(x.view(-1), CHUNK_ELEMENTS):
        num_missing = -chunk.numel() % VECTOR_ELEMENTS
        whole = torch.nn.functional.pad(chunk, (0, num_missing)) if num_missing else chunk
        chunk.copy_(function(whole)[: chunk.numel()])
    return x
