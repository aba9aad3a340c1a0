"""When a slot of a full lane may be free again, for the `x-ratelimit-reset` header.

Arithmetic over what recent answers came to; refuses to know lanes and clocks. Called by the admission actor alone.
"""

import math

MAX_RESET_S = 600
"""Longest wait that is ever told."""


class SlotReset:
    """Remembers how long answers are."""

    def __init__(self, unknown_s: int = 2) -> None:
        """Begin without answers; `unknown_s` is said until something was measured."""
        self._unknown_s = unknown_s
        self._num_answers = 0
        self._num_tokens = 0

    def note_answer(self, num_tokens: int) -> None:
        """Take in the length of an answer that came to its end."""
        self._num_answers += 1
        self._num_tokens += num_tokens

    def reset_s(self, step_p50_ms: float | None) -> int:
        """Return whole seconds, from 1 to `MAX_RESET_S`: what an average answer takes.

        Args:
            step_p50_ms: median time of a step, that is of one token; None where none was measured.
        """
        if step_p50_ms is None or not self._num_tokens:
            return self._unknown_s
        answer_s = self._num_tokens / self._num_answers * step_p50_ms / 1000.0
        return max(1, min(MAX_RESET_S, math.ceil(answer_s)))
