"""WordPiece, the tokenizer of BERT: the longest known beginning of a word, then the longest known continuation.

Knows how GGUF writes such a vocabulary; refuses to know special tokens. Called by `tokenizer`. White space, and mostly
capitals and accents, are dropped on the way, so the way back to text is not exact.
"""

from collections.abc import Sequence

from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from memra.chat.text_encoder import UNSPEAKABLE, Algorithm
from memra.chat.token_pieces import WORD_START
from memra.types import TokenId

_CONTINUES = "##"
# BERT's own limit; it also bounds the search, whose cost grows with the square of a word's length.
_MAX_WORD_CHARS = 100


def build_wordpiece(names: Sequence[str], *, unknown_id: TokenId, lowercase: bool, strip_accents: bool) -> Algorithm:
    """WordPiece over a vocabulary in GGUF's spelling: words begin with a visible space, continuations do not.

    Args:
        names: what the algorithm may spell, by token id.
        unknown_id: stands for a word that no tokens make up.
        lowercase: capitals count as small letters.
        strip_accents: letters count without their accents.
    """
    spelled = {_original_spelling(name): token_id for token_id, name in enumerate(names)}
    model = WordPiece(
        vocab=spelled,
        unk_token=_original_spelling(names[unknown_id]),
        max_input_chars_per_word=_MAX_WORD_CHARS,
        continuing_subword_prefix=_CONTINUES,
    )
    return Algorithm(
        model=model,
        normalizer=BertNormalizer(
            clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase
        ),
        pre_tokenizer=BertPreTokenizer(),
    )


def _original_spelling(name: str) -> str:
    if name.startswith(UNSPEAKABLE):
        return name
    return name[1:] if name.startswith(WORD_START) else _CONTINUES + name
