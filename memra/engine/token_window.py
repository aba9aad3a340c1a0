"""How often each token occurred lately: what the sampling penalties look at.

Knows nothing of logits. Kept up to date token by token, so a step never walks the history. Belongs to one sequence.
"""

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from memra.types import TokenId

WINDOW_TOKENS = 8192
"""Penalties look at this many of the last tokens, prompt included."""


class TokenWindow:
    """Counts of the distinct tokens among the last `num_tokens` of a sequence."""

    def __init__(self, token_ids: Iterable[TokenId] = (), *, num_tokens: int = WINDOW_TOKENS) -> None:
        """Start with a prompt.

        Args:
            token_ids: in order; only the last `num_tokens` count.
            num_tokens: how far the window reaches back, at least 1.
        """
        self._recent: deque[TokenId] = deque()
        self._num_tokens = num_tokens
        self._slots: dict[TokenId, int] = {}
        self._token_ids = np.zeros(num_tokens, np.intp)
        self._counts = np.zeros(num_tokens, np.int32)
        for token_id in deque(token_ids, maxlen=num_tokens):
            self.append(token_id)

    @property
    def token_ids(self) -> NDArray[np.intp]:
        """The distinct tokens `[D]`, in no particular order; a view, valid until the next `append`."""
        return self._token_ids[: len(self._slots)]

    @property
    def counts(self) -> NDArray[np.int32]:
        """Occurrences `[D]` of each of `token_ids`, all at least 1; a view, valid until the next `append`."""
        return self._counts[: len(self._slots)]

    def append(self, token_id: TokenId) -> None:
        """Take the next token in, and let the oldest fall out of a full window."""
        if len(self._recent) == self._num_tokens:
            self._forget(self._recent.popleft())
        self._recent.append(token_id)
        slot = self._slots.setdefault(token_id, len(self._slots))
        self._token_ids[slot] = token_id
        self._counts[slot] += 1

    def _forget(self, token_id: TokenId) -> None:
        slot = self._slots[token_id]
        self._counts[slot] -= 1
        if self._counts[slot]:
            return
        # The last slot moves into the gap, so that the arrays stay dense.
        del self._slots[token_id]
        last = len(self._slots)
        if slot != last:
            moved = int(self._token_ids[last])
            self._slots[moved] = slot
            self._token_ids[slot], self._counts[slot] = moved, self._counts[last]
        self._counts[last] = 0
