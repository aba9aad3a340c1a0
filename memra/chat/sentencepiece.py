"""The SentencePiece family: BPE by score, BPE by merge rules on raw text, and unigram.

Knows visible spaces, byte fallback and the normaliser's table; refuses to know special tokens. Called by `tokenizer`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tokenizers import Regex
from tokenizers.models import BPE, Unigram
from tokenizers.normalizers import Normalizer, Precompiled, Prepend, Replace
from tokenizers.normalizers import Sequence as Normalizers
from tokenizers.pre_tokenizers import Split

from memra.chat.byte_bpe import split_merges
from memra.chat.text_encoder import UNSPEAKABLE, Algorithm
from memra.chat.token_pieces import WORD_START
from memra.errors import CorruptFileError
from memra.messages.vocabulary import TokenType
from memra.types import TokenId


def build_score_bpe(
    names: Sequence[str],
    scores: Sequence[float],
    types: Sequence[TokenType],
    *,
    unknown_id: TokenId | None,
    add_space_prefix: bool,
) -> Algorithm:
    """SentencePiece BPE, which has scores where others have merge rules.

    SentencePiece joins the neighbours whose joint text has the best score. Every way to put a token together from two
    others is therefore a merge rule, ranked by the score of the result. The two agree but for one tie: where both
    (a, b) and (b, a) make the same token and overlap in the text, SentencePiece takes the left one first.
    """
    _check_scores(names, scores)
    vocabulary = {name: token_id for token_id, name in enumerate(names)}
    model = BPE(
        vocab=vocabulary,
        merges=_merges_by_score(vocabulary, scores, types),
        byte_fallback=True,
        unk_token=None if unknown_id is None else names[unknown_id],
        fuse_unk=True,
    )
    return Algorithm(model=model, normalizer=_visible_spaces(prefix=add_space_prefix))


def build_raw_bpe(names: Sequence[str], merges: Sequence[str], *, unknown_id: TokenId | None) -> Algorithm:
    """Gemma 4's BPE: merge rules by rank on raw characters, with visible spaces and byte fallback; lines stay apart."""
    vocabulary = {name: token_id for token_id, name in enumerate(names)}
    model = BPE(
        vocab=vocabulary,
        merges=split_merges(merges, vocabulary),
        byte_fallback=True,
        unk_token=None if unknown_id is None else names[unknown_id],
        fuse_unk=True,
    )
    lines = Split(Regex(r"[^\n]+|\n+"), "isolated")
    return Algorithm(model=model, normalizer=_visible_spaces(prefix=False), pre_tokenizer=lines)


@dataclass(frozen=True, slots=True)
class UnigramNormalizer:
    """What a unigram model does to text before it looks at it.

    Attributes:
        charsmap: SentencePiece's compiled table, or None for characters as they are.
        add_space_prefix: a word at the start of text is written like any other.
        remove_extra_whitespaces: runs of spaces count as one, and spaces at the ends not at all.
    """

    charsmap: bytes | None
    add_space_prefix: bool
    remove_extra_whitespaces: bool


def build_unigram(
    names: Sequence[str], scores: Sequence[float], *, unknown_id: TokenId, normalizer: UnigramNormalizer
) -> Algorithm:
    """The unigram model: of all ways to cut a text, the one with the best sum of scores.

    Args:
        names: what the algorithm may spell, by token id.
        scores: log probabilities.
        unknown_id: stands for stretches that no token covers.
        normalizer: what happens to text before.
    """
    _check_scores(names, scores)
    steps: list[Normalizer] = [Precompiled(normalizer.charsmap)] if normalizer.charsmap else []
    # Hidden names of special tokens are in this model's vocabulary, so their first character must not reach it.
    steps.append(Replace(UNSPEAKABLE, ""))
    if normalizer.remove_extra_whitespaces:
        steps += [Replace(Regex(" {2,}"), " "), Replace(Regex("^ | $"), "")]
    model = Unigram(list(zip(names, scores, strict=True)), unk_id=unknown_id, byte_fallback=False)
    return Algorithm(model=model, normalizer=Normalizers([*steps, _visible_spaces(prefix=normalizer.add_space_prefix)]))


def _check_scores(names: Sequence[str], scores: Sequence[float]) -> None:
    if len(scores) != len(names):
        raise CorruptFileError(
            f"the tokenizer has {len(scores)} scores for {len(names)} tokens: fetch or convert the model again"
        )


def _visible_spaces(*, prefix: bool) -> Normalizer:
    escape = Replace(" ", WORD_START)
    return Normalizers([Prepend(WORD_START), escape]) if prefix else escape


def _merges_by_score(
    vocabulary: dict[str, int], scores: Sequence[float], types: Sequence[TokenType]
) -> list[tuple[str, str]]:
    """Every pair of tokens that makes a normal token, best result first; ties go to the lower id."""
    joined = [token_id for token_id, token_type in enumerate(types) if token_type is TokenType.NORMAL]
    joined.sort(key=lambda token_id: -scores[token_id])
    texts = list(vocabulary)
    return [
        (text[:cut], text[cut:])
        for text in map(texts.__getitem__, joined)
        for cut in range(1, len(text))
        if text[:cut] in vocabulary and text[cut:] in vocabulary
    ]
