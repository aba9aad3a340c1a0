"""How long a request may take, and whether what it asks for can be done in that time.

Arithmetic over what a client sent; refuses to know clocks and how busy anybody is. Called from the request's own path.
"""

import math
from dataclasses import dataclass

from memra.errors import InfeasibleDeadlineError, InvalidRequestError

MIN_TIMEOUT_MS = 1_000
"""Below a second no prompt is sure to be read."""

_SLACK = 1.5
"""A request is refused only when it would take half as long again as it may: the rates are rough."""


@dataclass(frozen=True, slots=True)
class DeadlineRules:
    """The bounds.

    Attributes:
        max_timeout_ms: the longest that may be asked for.
        max_stream_timeout_ms: the same for the first token of a stream.
        default_timeout_ms: what a request gets that does not ask; 0: as long as it takes.
        is_gated: refuse answers that cannot be complete in time.
        prefill_tok_s, decode_tok_s: rates that the gate counts on, tokens a second.
    """

    max_timeout_ms: int = 90_000
    max_stream_timeout_ms: int = 90_000
    default_timeout_ms: int = 0
    is_gated: bool = True
    prefill_tok_s: float = 2_000.0
    decode_tok_s: float = 60.0

    def timeout_s(self, timeout_ms: int | None, *, is_stream: bool) -> float:
        """Return how long a request may take, or, of a stream, its first token; seconds, infinity without a bound.

        Raises:
            InvalidRequestError: it asks for less than a second, or for more than anybody gets.
        """
        most_ms = self.max_stream_timeout_ms if is_stream else self.max_timeout_ms
        if timeout_ms is None:
            return self.default_timeout_ms / 1000.0 or math.inf
        if not MIN_TIMEOUT_MS <= timeout_ms <= most_ms:
            raise InvalidRequestError(f"`timeout_ms` must be from {MIN_TIMEOUT_MS} to {most_ms}.", param="timeout_ms")
        return timeout_ms / 1000.0

    def check_feasible(self, num_prompt_tokens: int, max_new_tokens: int, *, timeout_s: float) -> None:
        """Refuse an answer that is not streamed and cannot be complete in time.

        Args:
            num_prompt_tokens: length of the rendered prompt.
            max_new_tokens: as the client asked.
            timeout_s: what the request has, seconds.

        Raises:
            InfeasibleDeadlineError: it would take more than one and a half times that.
        """
        needed_s = num_prompt_tokens / self.prefill_tok_s + max_new_tokens / self.decode_tok_s
        if self.is_gated and needed_s > _SLACK * timeout_s:
            raise InfeasibleDeadlineError(
                f"{max_new_tokens} tokens would take about {needed_s:.0f} s, and the whole answer has {timeout_s:g} s; "
                "set `stream`, or ask for fewer tokens.",
                param="max_tokens",
            )
