"""The tokenizer keys of GGUF turned into a `Vocabulary`.

Called by `gguf_file`. Knows the names and types of the `tokenizer.*` keys (gguf-py's constants; `seperator` is spelled
so there) and refuses to know how text is tokenised.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.messages.vocabulary import TokenizerKind, Vocabulary

_log = logging.getLogger(__name__)
_Scalar = TypeVar("_Scalar", str, bool, int, float)

_PREFIX = "tokenizer.ggml."
_END_KEYS = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")
"""As in llama.cpp."""
_RAW_BPE = frozenset({"gemma4", "granite-embed-multi-311m", "sarvam-moe"})
"""Rules under which a `gpt2` vocabulary merges characters, not bytes, as one that calls itself `gemma4` does."""


def read_vocabulary(metadata: Mapping[str, object], *, path: Path) -> Vocabulary:
    """The tokenizer that a GGUF file describes.

    A special token id outside the vocabulary, which some converters write for "none", is dropped with a warning.

    Raises:
        CorruptFileError: a key is missing, has the wrong type, or its length contradicts the number of tokens.
        UnsupportedModelError: the file names a tokenizer algorithm that memra does not know, or none.
    """
    keys = _TokenizerKeys(metadata, path)
    tokens = keys.array("tokens", str)
    if not tokens:
        keys.refuse("has no tokens")
    num_tokens = len(tokens)
    return Vocabulary(
        kind=_tokenizer_kind(keys),
        pre=keys.scalar("pre", str) or "default",
        tokens=tokens,
        scores=keys.array("scores", float, length=num_tokens),
        token_types=keys.array("token_type", int, length=num_tokens),
        merges=keys.array("merges", str),
        bos_id=keys.token_id("bos_token_id", num_tokens),
        eos_id=keys.token_id("eos_token_id", num_tokens),
        eot_id=keys.token_id("eot_token_id", num_tokens),
        end_ids=_end_ids(keys, num_tokens),
        unknown_id=keys.token_id("unknown_token_id", num_tokens),
        padding_id=keys.token_id("padding_token_id", num_tokens),
        separator_id=keys.token_id("seperator_token_id", num_tokens),
        mask_id=keys.token_id("mask_token_id", num_tokens),
        cls_id=keys.token_id("cls_token_id", num_tokens),
        add_bos=keys.scalar("add_bos_token", bool),
        add_eos=keys.scalar("add_eos_token", bool),
        add_space_prefix=keys.scalar("add_space_prefix", bool),
        remove_extra_whitespaces=keys.scalar("remove_extra_whitespaces", bool),
        lowercase=keys.scalar("normalizer.lowercase", bool),
        strip_accents=keys.scalar("normalizer.strip_accents", bool),
        precompiled_charsmap=bytes(value & 0xFF for value in keys.array("precompiled_charsmap", int)) or None,
        chat_template=keys.scalar("tokenizer.chat_template", str),
        named_templates=_named_templates(keys),
    )


def _end_ids(keys: "_TokenizerKeys", num_tokens: int) -> tuple[int, ...]:
    """Tokens that end an answer, those among them with which a model of code would go on to another file."""
    found = (keys.token_id(f"{name}_token_id", num_tokens) for name in _END_KEYS)
    return tuple(dict.fromkeys(token_id for token_id in found if token_id is not None))


def _named_templates(keys: "_TokenizerKeys") -> dict[str, str]:
    names = keys.array("tokenizer.chat_templates", str)
    found = {name: keys.scalar(f"tokenizer.chat_template.{name}", str) for name in names}
    return {name: template for name, template in found.items() if template is not None}


def _tokenizer_kind(keys: "_TokenizerKeys") -> TokenizerKind:
    name = keys.scalar("model", str)
    if name is None:
        keys.refuse("names no tokenizer algorithm")
    if name == TokenizerKind.BYTE_BPE and keys.scalar("pre", str) in _RAW_BPE:
        return TokenizerKind.GEMMA4_BPE
    try:
        return TokenizerKind(name)
    except ValueError:
        raise UnsupportedModelError(
            f"{keys.path}: the tokenizer {name!r} is not supported: use another model"
        ) from None


class _TokenizerKeys:
    """Looks a key up and sees that its value has the type that GGUF states for it."""

    def __init__(self, metadata: Mapping[str, object], path: Path) -> None:
        self.metadata = metadata
        self.path = path

    def refuse(self, reason: str) -> NoReturn:
        raise CorruptFileError(f"{self.path}: the tokenizer {reason}: fetch or convert the model again")

    def lookup(self, key: str) -> object:
        return self.metadata.get(key if key.startswith("tokenizer.") else _PREFIX + key)

    def scalar(self, key: str, kind: type[_Scalar]) -> _Scalar | None:
        value = self.lookup(key)
        if value is None:
            return None
        if type(value) is not kind:
            self.refuse(f"key {key!r} is of type {type(value).__name__}, not {kind.__name__}")
        return value

    def array(self, key: str, kind: type[_Scalar], *, length: int | None = None) -> tuple[_Scalar, ...]:
        value = self.lookup(key)
        if value is None:
            return ()
        if not isinstance(value, tuple) or (value and type(value[0]) is not kind):
            self.refuse(f"key {key!r} is no array of {kind.__name__}")
        if length is not None and len(value) != length:
            self.refuse(f"key {key!r} has {len(value)} entries for {length} tokens")
        return value

    def token_id(self, key: str, num_tokens: int) -> int | None:
        value = self.scalar(key, int)
        if value is None or 0 <= value < num_tokens:
            return value
        _log.warning("%s: %s is %d, outside the vocabulary of %d tokens; ignored", self.path, key, value, num_tokens)
        return None
