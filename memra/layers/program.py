"""A model as a flat program: the one description that every executor runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from memra.layers.operators import Attention, HiddenOutput, Operator


@dataclass(frozen=True, slots=True)
class KvLayer:
    """What one attention layer keeps per token.

    Attributes:
        window: no query ever looks further back than this many tokens; None keeps everything.
        v_head_dim: elements of a value head; None is `head_dim`.
    """

    num_kv_heads: int
    head_dim: int
    window: int | None = None
    v_head_dim: int | None = None

    @property
    def value_dim(self) -> int:
        """Width of a value head."""
        return self.head_dim if self.v_head_dim is None else self.v_head_dim


@dataclass(frozen=True, slots=True)
class StateLayer:
    """What one recurrent operator keeps per sequence, however long it is: float32, all zeros before the first token.

    A convolution keeps its last inputs `[K - 1, C]`, oldest first; a delta rule `[value heads, value_dim, key_dim]`.
    """

    shape: tuple[int, ...]


class Pooling(StrEnum):
    """How an embedding model makes one vector of a sequence's rows."""

    CLS = "cls"
    """The first row."""
    MEAN = "mean"
    """The mean of all rows."""
    LAST = "last"
    """The last row."""
    RANK = "rank"
    """The program ends in a classifier: its output at an encoder's first row, or a decoder's last, is the score."""


@dataclass(frozen=True, slots=True)
class Program:
    """A flat list of operators over named buffers.

    Attributes:
        architecture: the family, as the file names it.
        vocab_size: number of tokens; of a language model also the width of the logits.
        context_tokens: longest sequence that the model was trained for.
        buffers: width of every activation buffer; float32 `[T, width]`.
        weights: expected shape of every weight, `(rows, columns)`, `(length,)` or `(experts, rows, columns)`,
            outermost first.
        kv_layers: one entry per attention layer that keeps keys and values of its own; an encoder's layers write over
            each other's.
        operators: in order of execution; the last one is the `Head`, or the `HiddenOutput` of an embedding model.
        state_layers: one entry per recurrent operator.
        pooling: of an embedding model; None for a language model.
        unused: tensors of the file that the program knows and does not read, with the reason.
    """

    architecture: str
    vocab_size: int
    context_tokens: int
    buffers: Mapping[str, int]
    weights: Mapping[str, tuple[int, ...]]
    kv_layers: tuple[KvLayer, ...]
    operators: tuple[Operator, ...]
    state_layers: tuple[StateLayer, ...] = ()
    pooling: Pooling | None = None
    unused: Mapping[str, str] | None = None

    def __iter__(self) -> Iterator[Operator]:
        """Iterate over the operators in order."""
        return iter(self.operators)

    @property
    def is_causal(self) -> bool:
        """Whether a token is computed without those after it; else whole sequences must lie in one step."""
        return all(operator.causal for operator in self.operators if isinstance(operator, Attention))

    @property
    def output_width(self) -> int:
        """Elements of an output row: logits, or a hidden row."""
        last = self.operators[-1]
        return self.buffers[last.x] if isinstance(last, HiddenOutput) else self.vocab_size
