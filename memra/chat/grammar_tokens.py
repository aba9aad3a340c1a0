"""A model's tokenizer in the form in which llguidance takes it: the bytes of every token, and a way to cut text.

Knows which tokens may stand for text; refuses to know grammars and requests. Built once a model by
`memra.chat.grammar`; any number of threads may use it.
"""

from collections.abc import Mapping
from functools import cached_property

from llguidance import LLTokenizer, TokenizerWrapper

from memra.chat.tokenizer import Tokenizer
from memra.types import TokenId


class GrammarTokens:
    """What llguidance asks of a tokenizer, under the names by which it asks.

    Control tokens go by their names, apart from text: a grammar that spells a name out as text is answered with text.

    Attributes:
        tokens: the bytes of every token.
        special_token_ids: those whose bytes are a name and no text.
        eos_token_id, bos_token_id: as llguidance wants them; the tokens that end a turn are told apart from these.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Take a model's tokenizer, which must have a token that ends a turn."""
        self._tokenizer = tokenizer
        self.tokens = [
            tokenizer.tokens[token_id].encode() if token_id in tokenizer.control_ids else piece
            for token_id, piece in enumerate(tokenizer.pieces)
        ]
        self.special_token_ids = sorted(tokenizer.control_ids)
        self.eos_token_id = min(tokenizer.eos_ids)
        self.bos_token_id = tokenizer.bos_id

    def __call__(self, text: bytes) -> list[TokenId]:
        """Cut UTF-8 text as the model's tokenizer does, so that what a grammar forces is spelled as the model expects.

        Where that tokenizer changes the text, by a space in front, the longest tokens are taken instead.
        """
        ids = list(self._tokenizer.encode(text.decode(), add_special=False, parse_special=False))
        if b"".join([self._tokenizer.pieces[token_id] for token_id in ids]) == text:
            return ids
        return self._cut_greedily(text)

    def build(self) -> LLTokenizer:
        """Return llguidance's own form; takes up to a second for the largest vocabularies."""
        return LLTokenizer(TokenizerWrapper(self), eos_token=sorted(self._tokenizer.eos_ids))

    def _cut_greedily(self, text: bytes) -> list[TokenId]:
        ids: list[TokenId] = []
        while text:
            length = next((n for n in range(min(len(text), self._longest), 0, -1) if text[:n] in self._by_bytes), 0)
            if not length:
                break  # llguidance goes on from there by itself
            ids.append(self._by_bytes[text[:length]])
            text = text[length:]
        return ids

    @cached_property
    def _by_bytes(self) -> Mapping[bytes, TokenId]:
        control_ids = self._tokenizer.control_ids
        pieces = enumerate(self._tokenizer.pieces)
        return {piece: token_id for token_id, piece in pieces if piece and token_id not in control_ids}

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self._by_bytes))
