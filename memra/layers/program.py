"""A model as a flat program: the one description that every executor runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from memra.layers.operators import Operator


@dataclass(frozen=True, slots=True)
class KvLayer:
    """What one attention layer keeps per token.

    Attributes:
        window: no query ever looks further back than this many tokens; None keeps everything.
    """

    num_kv_heads: int
    head_dim: int
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Program:
    """A flat list of operators over named buffers.

    Attributes:
        architecture: the family, as the file names it.
        vocab_size: number of logits.
        context_tokens: longest sequence that the model was trained for.
        buffers: width of every activation buffer; float32 `[T, width]`.
        weights: expected shape of every weight, `(rows, columns)` or `(length,)`, outermost first.
        kv_layers: one entry per attention layer.
        operators: in order of execution; the last one is the `Head`.
    """

    architecture: str
    vocab_size: int
    context_tokens: int
    buffers: Mapping[str, int]
    weights: Mapping[str, tuple[int, ...]]
    kv_layers: tuple[KvLayer, ...]
    operators: tuple[Operator, ...]

    def __iter__(self) -> Iterator[Operator]:
        """Iterate over the operators in order."""
        return iter(self.operators)
