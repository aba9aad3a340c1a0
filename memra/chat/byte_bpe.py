"""Byte-level BPE: the GPT-2 family, where text is cut into words, words into bytes, and bytes are merged by rank.

Knows merge rules; refuses to know special tokens. Called by `tokenizer`; `sentencepiece` shares the reading of merges.
"""

from collections.abc import Sequence

from tokenizers import Regex
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, PreTokenizer, Split
from tokenizers.pre_tokenizers import Sequence as PreTokenizers

from memra.chat.pre_tokenizers import PreTokenizerRule
from memra.chat.text_encoder import Algorithm
from memra.errors import UnsupportedModelError


def build_byte_bpe(names: Sequence[str], merges: Sequence[str], rule: PreTokenizerRule) -> Algorithm:
    """Byte-level BPE over a vocabulary.

    Args:
        names: what the algorithm may spell, by token id.
        merges: rules `left right`, best first.
        rule: how text is cut into words.

    Raises:
        UnsupportedModelError: there are no merge rules.
    """
    vocabulary = {name: token_id for token_id, name in enumerate(names)}
    model = BPE(vocab=vocabulary, merges=split_merges(merges, vocabulary), ignore_merges=rule.ignore_merges)
    splits: list[PreTokenizer] = [Split(Regex(pattern), "isolated") for pattern in rule.patterns]
    bytes_only = ByteLevel(add_prefix_space=False, use_regex=False)
    return Algorithm(model=model, pre_tokenizer=PreTokenizers([*splits, bytes_only]))


def split_merges(merges: Sequence[str], vocabulary: dict[str, int]) -> list[tuple[str, str]]:
    """The merge rules as pairs; rules about tokens that the algorithm may not spell are left out.

    Raises:
        UnsupportedModelError: there are no merge rules.
    """
    if not merges:
        raise UnsupportedModelError("the tokenizer has no merge rules, which is not supported: convert the model again")
    pairs = []
    for rule in merges:
        # The first character is part of the left side even when it is a space.
        cut = rule.find(" ", 1)
        left, right = rule[:cut], rule[cut + 1 :]
        if cut > 0 and left in vocabulary and right in vocabulary and left + right in vocabulary:
            pairs.append((left, right))
    return pairs
