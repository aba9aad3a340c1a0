"""What is measured: prompts of a length, and answers of a number of rows at a depth.

Plain values, made from what the user asked; refuses to know who is measured. Called by `command` and `model_bench`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from memra.types import TokenId

SHORT_PROMPT_TOKENS = 64
"""What stands before the timed tokens at depth 0."""


@dataclass(frozen=True, slots=True)
class PrefillCase:
    """One prompt of `num_tokens` tokens, from an empty cache to the logits of its last token."""

    num_tokens: int

    @property
    def label(self) -> str:
        """As the table shows it."""
        return f"prefill {self.num_tokens}"

    @property
    def num_sequences(self) -> int:
        """Sequences that run together."""
        return 1

    @property
    def end(self) -> int:
        """Tokens of a sequence when the case is over."""
        return self.num_tokens

    @property
    def num_timed_tokens(self) -> int:
        """Tokens that are counted."""
        return self.num_tokens


@dataclass(frozen=True, slots=True)
class DecodeCase:
    """`rows` sequences that each decode `num_tokens` tokens, one of each a step.

    Attributes:
        depth: position at which the last timed token stands, so that a depth equal to the model's context fits; 0 for
            a prompt of `SHORT_PROMPT_TOKENS`.
    """

    rows: int
    depth: int
    num_tokens: int

    @property
    def label(self) -> str:
        """As the table shows it."""
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"decode {rows}" + (f" at {self.depth}" if self.depth else "")

    @property
    def num_sequences(self) -> int:
        """Sequences that run together."""
        return self.rows

    @property
    def end(self) -> int:
        """Tokens of a sequence when the case is over."""
        return max(self.depth, self.num_tokens + 1) if self.depth else SHORT_PROMPT_TOKENS + self.num_tokens

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens before the timed ones."""
        return self.end - self.num_tokens

    @property
    def num_timed_tokens(self) -> int:
        """Tokens that are counted, of all rows together."""
        return self.rows * self.num_tokens


Case = PrefillCase | DecodeCase


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What the user asked for.

    Attributes:
        rows: numbers of sequences that decode together, at depth 0.
        depths: depths in tokens; 0 is the short prompt.
        deep_rows: numbers of rows that are measured at the depths other than 0; filling the cache costs the time.
        prefill_tokens: length of the measured prompt.
        decode_tokens: timed tokens of every row.
        rounds: how often everything is measured, after one round that warms up and is not counted.
    """

    rows: tuple[int, ...]
    depths: tuple[int, ...]
    deep_rows: tuple[int, ...]
    prefill_tokens: int
    decode_tokens: int
    rounds: int

    def cases(self) -> tuple[Case, ...]:
        """Everything that is measured, in the order of the table."""
        decodes = [
            DecodeCase(rows, depth, self.decode_tokens)
            for depth in self.depths
            for rows in (self.deep_rows if depth else self.rows)
        ]
        return PrefillCase(self.prefill_tokens), *decodes


def split_by_context(cases: Sequence[Case], context_tokens: int) -> tuple[list[Case], list[Case]]:
    """Return the cases that fit the model's context, and those that do not."""
    fitting = [case for case in cases if case.end <= context_tokens]
    return fitting, [case for case in cases if case.end > context_tokens]


def sequence_capacities(cases: Sequence[Case]) -> list[int]:
    """Tokens for which each sequence needs room, over all cases: the first sequences are used most."""
    num_sequences = max(case.num_sequences for case in cases)
    return [max(case.end for case in cases if case.num_sequences > index) for index in range(num_sequences)]


def make_token_ids(sequence: int, num_tokens: int, *, vocab_size: int) -> list[TokenId]:
    """Arbitrary tokens, the same for every engine; a longer list begins with every shorter one."""
    generator = Random(sequence)  # noqa: S311  (tokens to compute with, nothing secret)
    return [generator.randrange(vocab_size) for _ in range(num_tokens)]
