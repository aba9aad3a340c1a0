"""What each token of a vocabulary is for, once the known mistakes of model files are put right.

Files mark tokens as control, user-defined and so on, and often wrongly: an end-of-turn token that is "normal" would be
shown to the client and would never end the answer. Knows the names of such tokens, following llama.cpp's list of
end-of-generation tokens; refuses to know text and algorithms. Called by `tokenizer`.
"""

from dataclasses import dataclass

from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary
from memra.types import TokenId

# Names that no text holds by accident: such a token ends a turn whatever type the file gives it.
_TURN_ENDS = frozenset(
    {
        *("<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>"),
        *("<|endoftext|>", "<|end_of_text|>", "<end_of_turn>", "<turn|>", "<end_of_utterance>", "<|tool_response>"),
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    }
)
# Names that are also plain text (`</s>` closes a struck-out passage in HTML, and Gemma has a token for that): these
# need the file's word for it.
_TURN_ENDS_IF_CONTROL = frozenset({"</s>", "<eos>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "[e~["})
# A model that wants to go on with another file has ended its answer too.
_FILE_ENDS = frozenset(
    {
        *("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
        *("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>"),
    }
)
# The frame of the harmony format: without it an answer's channels cannot be told apart, so it is shown.
_SHOWN_FRAME = frozenset({"<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"})
# In vocabularies with one of these sets `<|end|>` closes a message and not the turn.
_MESSAGE_END = "<|end|>"
_TURN_END_SETS = (frozenset({"<|return|>", "<|call|>"}), frozenset({"<|flush|>", "<|calls|>"}))

_SPECIAL = frozenset({TokenType.CONTROL, TokenType.USER_DEFINED, TokenType.UNKNOWN})
_HIDDEN = frozenset({TokenType.CONTROL, TokenType.UNKNOWN})

_PHI3_MARK = "<|placeholder1|>"
_PHI3_NOT_GREEDY = frozenset({"<unk>", "<s>", "<|endoftext|>"})


@dataclass(frozen=True, slots=True)
class TokenRoles:
    """The roles of all tokens.

    Attributes:
        types: one per token, corrected.
        eos_ids: tokens with which the model ends its turn.
        hidden_ids: tokens that never show in an answer.
        greedy_ids: tokens that swallow the white space after them.
    """

    types: tuple[TokenType, ...]
    eos_ids: frozenset[TokenId]
    hidden_ids: frozenset[TokenId]
    greedy_ids: frozenset[TokenId]


def assign_roles(vocabulary: Vocabulary, *, eos_id: TokenId | None) -> TokenRoles:
    """Read the roles off a vocabulary.

    Args:
        vocabulary: types that the file lacks count as normal.
        eos_id: the model's end of sequence, defaults applied.
    """
    types = _file_types(vocabulary)
    ends = {_MESSAGE_END} if any(names <= set(vocabulary.tokens) for names in _TURN_END_SETS) else set()
    eos_ids = {token_id for token_id in (eos_id, vocabulary.eot_id, *vocabulary.end_ids) if token_id is not None}
    shown_ids = set()
    for token_id, text in enumerate(vocabulary.tokens):
        if text in _TURN_ENDS and text not in ends:
            types[token_id] = TokenType.CONTROL
            eos_ids.add(token_id)
        elif types[token_id] is TokenType.CONTROL and text in _TURN_ENDS_IF_CONTROL:
            eos_ids.add(token_id)
        elif types[token_id] in _SPECIAL and text in _FILE_ENDS:
            types[token_id] = TokenType.CONTROL
            eos_ids.add(token_id)
        elif text in _SHOWN_FRAME | ends and types[token_id] in _SPECIAL:
            shown_ids.add(token_id)
    hidden_ids = {token_id for token_id, kind in enumerate(types) if kind in _HIDDEN} - shown_ids
    return TokenRoles(
        types=tuple(types),
        eos_ids=frozenset(eos_ids),
        hidden_ids=frozenset(hidden_ids),
        greedy_ids=_greedy_ids(vocabulary, types),
    )


def _greedy_ids(vocabulary: Vocabulary, types: list[TokenType]) -> frozenset[TokenId]:
    """Phi-3's special tokens, which its own tokenizer declares so and GGUF has no key for."""
    if vocabulary.kind is not TokenizerKind.SENTENCEPIECE_BPE or _PHI3_MARK not in vocabulary.tokens:
        return frozenset()
    return frozenset(
        token_id
        for token_id, text in enumerate(vocabulary.tokens)
        if types[token_id] in _SPECIAL and text not in _PHI3_NOT_GREEDY
    )


def _file_types(vocabulary: Vocabulary) -> list[TokenType]:
    known = {int(kind): kind for kind in TokenType}
    types = [known.get(number, TokenType.NORMAL) for number in vocabulary.token_types]
    return types + [TokenType.NORMAL] * (len(vocabulary.tokens) - len(types))
