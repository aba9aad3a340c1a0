"""What a vocabulary leaves unsaid: special ids and the tokens around a text, by kind of tokenizer.

Knows llama.cpp's defaults for each kind, which is what files are written against; refuses to know how text is cut.
Called by `tokenizer`.
"""

from dataclasses import dataclass

from memra.chat.pre_tokenizers import find_rule
from memra.errors import CorruptFileError
from memra.messages.vocabulary import TokenizerKind, Vocabulary
from memra.types import TokenId

_MERGES_LIKE_GEMMA = "sarvam-moe"
"""The one rule of Gemma 4's kind whose models do not always begin with a token of their own."""


@dataclass(frozen=True, slots=True)
class _KindDefaults:
    bos_id: TokenId | None = None
    eos_id: TokenId | None = None
    unknown_id: TokenId | None = None
    add_bos: bool = False
    add_eos: bool = False
    add_space_prefix: bool = False


_BY_KIND = {
    TokenizerKind.BYTE_BPE: _KindDefaults(),
    TokenizerKind.SENTENCEPIECE_BPE: _KindDefaults(
        bos_id=1, eos_id=2, unknown_id=0, add_bos=True, add_space_prefix=True
    ),
    TokenizerKind.UNIGRAM: _KindDefaults(eos_id=1, unknown_id=2, add_eos=True),
    # Begin and end are BERT's [CLS] and [SEP].
    TokenizerKind.WORDPIECE: _KindDefaults(bos_id=101, eos_id=102, unknown_id=100, add_bos=True, add_eos=True),
    TokenizerKind.GEMMA4_BPE: _KindDefaults(add_bos=True),
}


@dataclass(frozen=True, slots=True)
class ResolvedTokens:
    """A vocabulary's special ids and habits, defaults applied.

    Attributes:
        unknown_id: None where the algorithm needs none.
        prefix_ids, suffix_ids: the tokens around a text.
    """

    bos_id: TokenId | None
    eos_id: TokenId | None
    unknown_id: TokenId | None
    prefix_ids: tuple[TokenId, ...]
    suffix_ids: tuple[TokenId, ...]
    add_space_prefix: bool


def resolve_tokens(vocabulary: Vocabulary) -> ResolvedTokens:
    """Apply the defaults of the vocabulary's kind.

    Raises:
        CorruptFileError: a token that has to stand around every text, or to stand for the unknown, does not exist.
    """
    defaults = _BY_KIND[vocabulary.kind]
    num_tokens = len(vocabulary.tokens)
    bos_id, eos_id = vocabulary.bos_id, vocabulary.eos_id
    if vocabulary.kind is TokenizerKind.WORDPIECE:
        bos_id, eos_id = _first(vocabulary.cls_id, bos_id), _first(vocabulary.separator_id, eos_id)
    elif vocabulary.kind is TokenizerKind.BYTE_BPE:  # encoders such as ModernBERT have no other begin and end
        bos_id = bos_id if bos_id is not None or not vocabulary.add_bos else vocabulary.cls_id
        eos_id = eos_id if eos_id is not None or not vocabulary.add_eos else vocabulary.separator_id
    bos_id = _first(bos_id, _within(defaults.bos_id, num_tokens))
    eos_id = _first(eos_id, _within(defaults.eos_id, num_tokens))
    prefix = vocabulary.add_space_prefix
    return ResolvedTokens(
        bos_id=bos_id,
        eos_id=eos_id,
        unknown_id=_first(vocabulary.unknown_id, _within(defaults.unknown_id, num_tokens)),
        prefix_ids=_surrounding("begin", bos_id, wanted=_adds_bos(vocabulary, defaults)),
        suffix_ids=_surrounding("end", eos_id, wanted=_adds_eos(vocabulary, defaults)),
        add_space_prefix=defaults.add_space_prefix if prefix is None else prefix,
    )


def _adds_bos(vocabulary: Vocabulary, defaults: _KindDefaults) -> bool:
    if vocabulary.kind is TokenizerKind.GEMMA4_BPE and vocabulary.pre == _MERGES_LIKE_GEMMA:
        return bool(vocabulary.add_bos)
    # Gemma 4 and BERT are of no use without, whatever their files say.
    if vocabulary.kind in {TokenizerKind.GEMMA4_BPE, TokenizerKind.WORDPIECE}:
        return True
    if vocabulary.add_bos is not None:
        return vocabulary.add_bos
    return defaults.add_bos or (vocabulary.kind is TokenizerKind.BYTE_BPE and find_rule(vocabulary.pre).add_bos)


def _adds_eos(vocabulary: Vocabulary, defaults: _KindDefaults) -> bool:
    if vocabulary.kind is TokenizerKind.WORDPIECE or vocabulary.add_eos is None:
        return defaults.add_eos
    return vocabulary.add_eos


def _surrounding(which: str, token_id: TokenId | None, *, wanted: bool) -> tuple[TokenId, ...]:
    if not wanted:
        return ()
    if token_id is None:
        raise CorruptFileError(
            f"the tokenizer asks for a token at the {which} of text but names none: convert it again"
        )
    return (token_id,)


def _first(stated: TokenId | None, default: TokenId | None) -> TokenId | None:
    return default if stated is None else stated


def _within(token_id: TokenId | None, num_tokens: int) -> TokenId | None:
    return token_id if token_id is not None and token_id < num_tokens else None
