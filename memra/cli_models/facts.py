"""What there is to say about a model, as plain values: found by `inspection`, shown by `screen`. Knows no file."""

from dataclasses import dataclass
from enum import StrEnum

from memra.messages.vocabulary import TokenizerKind


class Verdict(StrEnum):
    """Whether memra runs a model."""

    SUPPORTED = "supported"
    UNSUPPORTED = "unsupported"
    DAMAGED = "damaged"


@dataclass(frozen=True, slots=True)
class QuantShare:
    """The tensors that are stored in one type."""

    quant_type: str
    num_tensors: int
    num_bytes: int


@dataclass(frozen=True, slots=True)
class VocabularyFacts:
    """The tokenizer.

    Attributes:
        kind: the algorithm.
        pre: the rule by which byte-level BPE cuts text into words; None for other kinds.
    """

    kind: TokenizerKind
    pre: str | None
    num_tokens: int


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """The chat template.

    Attributes:
        is_own: False where the model has none and plain ChatML stands in.
        thinking: variables that make the model think, or not.
    """

    is_own: bool
    supports_tools: bool
    thinking: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolingFacts:
    """What an embedding model or a reranker makes of a text.

    Attributes:
        pooling: how rows become one vector; `rank` gives scores.
        width: elements of the vector, or number of scores.
    """

    pooling: str
    width: int


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """What the model takes on the chosen executor, bytes; activations and the interpreter come on top.

    Attributes:
        context_tokens: the sum of tokens of all sequences for which there is room.
        kv_bytes_per_token: keys and values of all layers.
        state_bytes: recurrent states of as many sequences as run at once; 0 for a model without.
    """

    executor: str
    context_tokens: int
    weight_bytes: int
    kv_bytes_per_token: int
    state_bytes: int

    @property
    def kv_bytes(self) -> int:
        """Keys and values of the whole context."""
        return self.context_tokens * self.kv_bytes_per_token

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return self.weight_bytes + self.kv_bytes + self.state_bytes


@dataclass(frozen=True, slots=True)
class Inspection:
    """All findings about one model; what an obstacle hides is None.

    Attributes:
        path: where its file or directory is on this machine.
        name: as the file calls itself.
        context_tokens: longest sequence that the model was trained for.
        pooling: of an embedding model or a reranker; None for a language model.
        obstacle: the first error that a start would end with.
    """

    source: str
    path: str
    architecture: str
    name: str | None
    num_parameters: int
    size_bytes: int
    quant_types: tuple[QuantShare, ...]
    context_tokens: int | None
    vocabulary: VocabularyFacts | None
    template: TemplateFacts | None
    pooling: PoolingFacts | None
    memory: MemoryNeed | None
    verdict: Verdict
    obstacle: str | None
