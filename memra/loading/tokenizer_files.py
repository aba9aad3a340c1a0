"""`tokenizer.json` or `tokenizer.model`, and what lies beside it, turned into a `Vocabulary`.

Called by `safetensors_directory`. Knows where the files keep tokens and special ids, and refuses to know how text is
tokenised: the whole `tokenizer.json` is handed on as text.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.chat_template_files import read_templates
from memra.loading.json_files import optional_json, read_json, read_text
from memra.loading.sentencepiece_file import read_sentencepiece
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary

MAX_TOKENS: Final = 1 << 22
"""As for GGUF: the largest vocabularies known have 2**18 tokens."""
_MAX_ID_DIGITS: Final = 9
_ADDED_SCORE: Final = -1000.0
"""As in GGUF conversions; added tokens are found by their text, never put together."""


def read_tokenizer(directory: Path, config: Mapping[str, object]) -> Vocabulary:
    """The tokenizer of a model directory.

    Args:
        directory: holds `tokenizer.json` or, for want of it, `tokenizer.model`, and perhaps `tokenizer_config.json`,
            `generation_config.json` and chat templates.
        config: the contents of `config.json`; its `vocab_size` may be larger than the tokenizer, the rest is unused.

    Raises:
        SourceError: there is no tokenizer.
        CorruptFileError: a file contradicts itself.
        UnsupportedModelError: the vocabulary has a form that memra does not know.
    """
    settings = optional_json(directory / "tokenizer_config.json")
    path = directory / "tokenizer.json"
    if path.is_file():
        vocabulary = _from_json(path, config)
    elif (directory / "tokenizer.model").is_file():
        vocabulary = _from_sentencepiece(directory, settings, config)
    else:
        raise SourceError(
            f"{directory}: holds neither tokenizer.json nor tokenizer.model: choose a model that comes with one of them"
        )
    ids = {text: token_id for token_id, text in enumerate(vocabulary.tokens) if _is_used(vocabulary, token_id)}
    special = _SpecialIds(ids, settings, (optional_json(directory / "generation_config.json"), config))
    eos_id = _either(special.of("eos"), vocabulary.eos_id)
    templates = read_templates(directory, settings)
    return replace(
        vocabulary,
        bos_id=_either(special.of("bos"), vocabulary.bos_id),
        eos_id=eos_id,
        eot_id=special.other_end(eos_id),
        end_ids=tuple(dict.fromkeys(special.listed("eos"))),
        unknown_id=_either(special.of("unk"), vocabulary.unknown_id),
        padding_id=_either(special.of("pad"), vocabulary.padding_id),
        separator_id=special.of("sep"),
        mask_id=special.of("mask"),
        cls_id=special.of("cls"),
        add_bos=_flag(settings, "add_bos_token"),
        add_eos=_flag(settings, "add_eos_token"),
        chat_template=templates.default,
        named_templates=templates.named,
    )


def _from_json(path: Path, config: Mapping[str, object]) -> Vocabulary:
    tokenizer = read_json(path)
    added = _added_tokens(tokenizer, path)
    ids = _model_tokens(tokenizer, path) | {text: token_id for token_id, (text, _) in added.items()}
    tokens, token_types = _laid_out(ids, added, config.get("vocab_size"), path)
    return Vocabulary(
        kind=TokenizerKind.TOKENIZER_JSON,
        tokens=tokens,
        token_types=token_types,
        tokenizer_json=read_text(path),
    )


def _from_sentencepiece(directory: Path, settings: Mapping[str, object], config: Mapping[str, object]) -> Vocabulary:
    """SentencePiece's pieces, and the tokens that the other files add to them or give another type."""
    path = directory / "tokenizer.model"
    model = read_sentencepiece(path)
    added = _tokens_beside(directory, settings)
    if added and not 0 <= min(added) <= max(added) < MAX_TOKENS:
        raise CorruptFileError(f"{directory}: the added tokens have ids outside 0 to {MAX_TOKENS}: fetch it again")
    num_tokens = max(len(model.tokens), max(added, default=-1) + 1, _vocab_size(config.get("vocab_size")))
    missing = range(len(model.tokens), num_tokens)
    tokens = model.tokens + [f"[PAD{token_id}]" for token_id in missing]
    types = model.token_types + [int(TokenType.UNUSED)] * len(missing)
    for token_id, (text, kind) in added.items():
        tokens[token_id], types[token_id] = text, int(kind)
    return Vocabulary(
        kind=model.kind,
        tokens=tuple(tokens),
        scores=(*model.scores, *(_ADDED_SCORE for _ in missing)),
        token_types=tuple(types),
        bos_id=model.bos_id,
        eos_id=model.eos_id,
        unknown_id=model.unknown_id,
        padding_id=model.padding_id,
        add_space_prefix=model.add_space_prefix,
        remove_extra_whitespaces=model.remove_extra_whitespaces,
        precompiled_charsmap=model.precompiled_charsmap,
    )


def _tokens_beside(directory: Path, settings: Mapping[str, object]) -> dict[int, tuple[str, TokenType]]:
    """`added_tokens.json` and the `added_tokens_decoder` of tokenizer_config.json, which also tells types."""
    found = {
        token_id: (text, TokenType.USER_DEFINED)
        for text, token_id in optional_json(directory / "added_tokens.json").items()
        if type(token_id) is int
    }
    decoder = settings.get("added_tokens_decoder")
    for key, entry in decoder.items() if isinstance(decoder, dict) else ():
        content = entry.get("content") if isinstance(entry, dict) else None
        if not key.isascii() or not key.isdecimal() or len(key) > _MAX_ID_DIGITS or not isinstance(content, str):
            raise CorruptFileError(f"{directory}: tokenizer_config.json adds no token as {key!r}: fetch it again")
        found[int(key)] = (content, TokenType.CONTROL if entry.get("special") else TokenType.USER_DEFINED)
    return found


def _is_used(vocabulary: Vocabulary, token_id: int) -> bool:
    return vocabulary.token_types[token_id] != TokenType.UNUSED


def _either(stated: int | None, default: int | None) -> int | None:
    return default if stated is None else stated


def _vocab_size(value: object) -> int:
    return value if type(value) is int and value <= MAX_TOKENS else 0


def _flag(settings: Mapping[str, object], key: str) -> bool | None:
    value = settings.get(key)
    return value if isinstance(value, bool) else None


def _model_tokens(tokenizer: Mapping[str, object], path: Path) -> dict[str, int]:
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        if all(type(token_id) is int for token_id in vocabulary.values()):
            return vocabulary
    elif isinstance(vocabulary, list) and all(_is_unigram_piece(piece) for piece in vocabulary):
        return {piece[0]: token_id for token_id, piece in enumerate(vocabulary)}
    raise UnsupportedModelError(f"{path}: has no vocabulary of a known form: choose another model")


def _is_unigram_piece(piece: object) -> bool:
    return isinstance(piece, list) and bool(piece) and isinstance(piece[0], str)


def _added_tokens(tokenizer: Mapping[str, object], path: Path) -> dict[int, tuple[str, TokenType]]:
    added = tokenizer.get("added_tokens") or []
    if not isinstance(added, list):
        raise CorruptFileError(f"{path}: 'added_tokens' is no list: fetch the file again")
    found = {}
    for entry in added:
        token_id = entry.get("id") if isinstance(entry, dict) else None
        if type(token_id) is not int or not isinstance(entry.get("content"), str):
            raise CorruptFileError(f"{path}: 'added_tokens' holds something else than tokens: fetch the file again")
        found[token_id] = (entry["content"], TokenType.CONTROL if entry.get("special") else TokenType.USER_DEFINED)
    return found


def _laid_out(
    ids: Mapping[str, int], added: Mapping[int, tuple[str, TokenType]], vocab_size: object, path: Path
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Texts and types by id; ids that nothing uses get a placeholder text, as in GGUF conversions."""
    if not ids:
        raise CorruptFileError(f"{path}: has no tokens: fetch the file again")
    num_tokens = max(max(ids.values()) + 1, _vocab_size(vocab_size))
    if min(ids.values()) < 0 or num_tokens > MAX_TOKENS:
        raise CorruptFileError(f"{path}: has token ids outside 0 to {MAX_TOKENS}: fetch the file again")
    tokens = [f"[PAD{token_id}]" for token_id in range(num_tokens)]
    types = [int(TokenType.UNUSED)] * num_tokens
    for text, token_id in ids.items():
        tokens[token_id] = text
        types[token_id] = TokenType.NORMAL
    for token_id, (text, kind) in added.items():
        tokens[token_id] = text
        types[token_id] = kind
    return tuple(tokens), tuple(int(kind) for kind in types)


class _SpecialIds:
    """Special token ids: by name in tokenizer_config.json, else by number in generation_config.json or config.json."""

    def __init__(
        self, ids: Mapping[str, int], settings: Mapping[str, object], numbered: tuple[Mapping[str, object], ...]
    ) -> None:
        self.ids = ids
        self.settings = settings
        self.numbered = numbered
        self.known = frozenset(ids.values())

    def of(self, role: str) -> int | None:
        token = self.settings.get(f"{role}_token")
        text = token.get("content") if isinstance(token, dict) else token
        if isinstance(text, str) and text in self.ids:
            return self.ids[text]
        return next(iter(self.listed(role)), None)

    def other_end(self, eos_id: int | None) -> int | None:
        """The first further token that ends a generation, such as the end of a turn."""
        return next((token_id for token_id in self.listed("eos") if token_id != eos_id), None)

    def listed(self, role: str) -> list[int]:
        found = []
        for source in self.numbered:
            value = source.get(f"{role}_token_id")
            candidates = value if isinstance(value, list) else [value]
            found += [item for item in candidates if type(item) is int and item in self.known]
        return found
