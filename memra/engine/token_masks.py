"""Constraints of answers seen from the engine: which logits of a row count.

Knows words of bits and how wide a row is; refuses to know grammars and text. Used by `model_runner` and `sampler`, in
the worker's thread.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from memra.messages.constraint import TokenConstraint
from memra.types import TokenId

_WORD_BITS = 32


class MaskFitter:
    """Brings masks to the width of a model's logits, which may have more places than its tokenizer has tokens."""

    def __init__(self, vocab_size: int) -> None:
        """Make room for a mask over `vocab_size` logits."""
        self._words = np.zeros(-(-vocab_size // _WORD_BITS), np.uint32)
        self._others = np.zeros_like(self._words)

    def fit(self, constraint: TokenConstraint) -> NDArray[np.uint32]:
        """Return the mask of the next token, uint32 `[ceil(vocab_size / 32)]`; good until the next call.

        Places without a token are not allowed.

        Raises:
            GrammarDeadEndError: as `TokenConstraint.allowed`.
        """
        allowed = constraint.allowed()
        num_words = min(allowed.size, self._words.size)
        self._words[:num_words] = allowed[:num_words]
        self._words[num_words:] = 0
        return self._words

    def all_but(self, token_ids: Iterable[TokenId]) -> NDArray[np.uint32]:
        """Return the mask of all tokens but these; as `fit`, and good until the next call."""
        self._others.fill(np.iinfo(np.uint32).max)
        for token_id in token_ids:
            if token_id < self._others.size * _WORD_BITS:
                self._others[token_id // _WORD_BITS] &= ~np.uint32(1 << token_id % _WORD_BITS)
        return self._others


def unpack_mask(mask: NDArray[np.uint32], vocab_size: int) -> NDArray[np.bool_]:
    """Return a mask as bool `[vocab_size]`."""
    little_endian = mask.astype("<u4", copy=False).view(np.uint8)
    return np.unpackbits(little_endian, count=vocab_size, bitorder="little").view(np.bool_)
