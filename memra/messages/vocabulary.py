"""What a model file says about text: crosses from loading to chat, which may not know each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum


class TokenizerKind(StrEnum):
    """The tokenizer algorithm, as GGUF's `tokenizer.ggml.model` distinguishes them."""

    BYTE_BPE = "gpt2"
    SENTENCEPIECE_BPE = "llama"
    UNIGRAM = "t5"
    WORDPIECE = "bert"
    GEMMA4_BPE = "gemma4"
    TOKENIZER_JSON = "tokenizer.json"


class TokenType(IntEnum):
    """What one vocabulary entry is, as GGUF's `tokenizer.ggml.token_type` numbers them."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A tokenizer in plain values, whatever file it came from.

    Attributes:
        kind: the algorithm.
        pre: the name of the pre-tokenizer rule (`tokenizer.ggml.pre`); `default` when the file has none.
        tokens: text of every token as the file stores it, indexed by id.
        scores: one score per token for SentencePiece kinds; empty otherwise.
        token_types: one `TokenType` value per token; empty when the file has none (all normal).
        merges: merge rules `left right`, best first; empty for kinds without.
        bos_id, eos_id, unknown_id, padding_id, separator_id, mask_id, cls_id: special ids, None where absent.
        eot_id: end-of-turn token where the file names one.
        end_ids: every token that the file says ends an answer, `eos_id` and `eot_id` among them or not.
        add_bos, add_eos, add_space_prefix, remove_extra_whitespaces: None when the file does not say.
        lowercase, strip_accents: what WordPiece does to text first; None when the file does not say.
        precompiled_charsmap: SentencePiece's normaliser table, or None.
        chat_template: the Jinja source, or None when the model has none.
        named_templates: further Jinja sources by purpose, such as `tool_use`.
        tokenizer_json: the whole `tokenizer.json` text for that kind, else None.
    """

    kind: TokenizerKind
    tokens: tuple[str, ...]
    pre: str = "default"
    scores: tuple[float, ...] = ()
    token_types: tuple[int, ...] = ()
    merges: tuple[str, ...] = ()
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None
    end_ids: tuple[int, ...] = ()
    unknown_id: int | None = None
    padding_id: int | None = None
    separator_id: int | None = None
    mask_id: int | None = None
    cls_id: int | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool | None = None
    remove_extra_whitespaces: bool | None = None
    lowercase: bool | None = None
    strip_accents: bool | None = None
    precompiled_charsmap: bytes | None = None
    chat_template: str | None = None
    named_templates: Mapping[str, str] = field(default_factory=dict)
    tokenizer_json: str | None = None

    @property
    def family(self) -> str | None:
        """What readers of a catalogue call the tokenizer: its rule, as llama.cpp names it, else its algorithm."""
        if self.pre != "default":
            return self.pre
        return None if self.kind is TokenizerKind.TOKENIZER_JSON else self.kind.value

    def __repr__(self) -> str:
        """Sizes instead of contents."""
        return f"Vocabulary(kind={self.kind.value!r}, pre={self.pre!r}, num_tokens={len(self.tokens)})"
