"""What a model's steps cost: running estimates of a decode step and of a prompt token, from measured steps.

Knows durations and counts only. The runner records every run of its executor; the tick plan asks how long a prompt
chunk may be.
"""

_WEIGHT = 0.25
"""Of the newest measurement in an estimate: a handful of steps and the machine's new mood is known."""
_FEWEST_PREFILL_ROWS = 16
"""Chunks below this say little of the cost of a token: the weights are read for each chunk anew."""
_MOST_OF_STEP = 0.8
"""A chunk beside decoding rows is never taken to have cost less than what this leaves."""


class StepTimes:
    """One model's estimates, in seconds; None until there was a measurement.

    Attributes:
        s_per_decode_step: one token of every sequence that decodes.
        s_per_prefill_token: one token of a prompt.
        mean_row_s: how long a sequence holds its row.
    """

    def __init__(self) -> None:
        self.s_per_decode_step: float | None = None
        self.s_per_prefill_token: float | None = None
        self.mean_row_s: float | None = None

    def note_run(self, seconds: float, *, num_decoding: int, num_prefill_rows: int) -> None:
        """Take in one run of the executor."""
        if num_prefill_rows == 0:
            self.s_per_decode_step = _blend(self.s_per_decode_step, seconds)
        elif num_prefill_rows >= _FEWEST_PREFILL_ROWS:
            decode_s = (self.s_per_decode_step or 0.0) if num_decoding else 0.0
            chunk_s = seconds - min(decode_s, _MOST_OF_STEP * seconds)
            self.s_per_prefill_token = _blend(self.s_per_prefill_token, chunk_s / num_prefill_rows)

    def note_row(self, seconds: float) -> None:
        """Take in how long a sequence held its row that came to its end."""
        self.mean_row_s = _blend(self.mean_row_s, seconds)

    def rows_within(self, seconds: float) -> int | None:
        """Return the prompt tokens that fit into a time; None before the first measurement."""
        if not self.s_per_prefill_token:
            return None
        return int(seconds / self.s_per_prefill_token)


def _blend(estimate: float | None, measured: float) -> float:
    return measured if estimate is None else (1 - _WEIGHT) * estimate + _WEIGHT * measured
