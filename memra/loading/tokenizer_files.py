"""`tokenizer.json` and its companions turned into a `Vocabulary`.

Called by `safetensors_directory`. Knows where the files keep tokens, special ids and the chat template, and refuses to
know how text is tokenised: the whole `tokenizer.json` is handed on as text.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary

MAX_TOKENS: Final = 1 << 22
"""As for GGUF: the largest vocabularies known have 2**18 tokens."""


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file.

    Raises:
        SourceError: the file cannot be read.
        CorruptFileError: it holds no JSON object.
    """
    try:
        value: object = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path}: is not valid JSON ({error}): fetch it again") from None
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path}: is no JSON object: fetch it again")
    return value


def read_text(path: Path) -> str:
    """A UTF-8 text file.

    Raises:
        SourceError: the file cannot be read.
        CorruptFileError: it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CorruptFileError(f"{path}: is not UTF-8 text: fetch it again") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_tokenizer(directory: Path, config: Mapping[str, object]) -> Vocabulary:
    """The tokenizer of a model directory.

    Args:
        directory: holds `tokenizer.json`, and perhaps `tokenizer_config.json`, `generation_config.json` and
            `chat_template.jinja`.
        config: the contents of `config.json`; its `vocab_size` may be larger than the tokenizer, the rest is unused.

    Raises:
        SourceError: there is no `tokenizer.json`.
        CorruptFileError: a file contradicts itself.
        UnsupportedModelError: the vocabulary has a form that memra does not know.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise SourceError(f"{directory}: holds no tokenizer.json: choose a model that comes with a fast tokenizer")
    tokenizer = read_json(path)
    settings = _optional_json(directory / "tokenizer_config.json")
    generation = _optional_json(directory / "generation_config.json")
    types = _added_tokens(tokenizer, path)
    ids = _model_tokens(tokenizer, path) | {text: token_id for token_id, (text, _) in types.items()}
    tokens, token_types = _laid_out(ids, types, config.get("vocab_size"), path)
    special = _SpecialIds(ids, settings, (generation, config))
    eos_id = special.of("eos")
    return Vocabulary(
        kind=TokenizerKind.TOKENIZER_JSON,
        tokens=tokens,
        token_types=token_types,
        bos_id=special.of("bos"),
        eos_id=eos_id,
        eot_id=special.other_end(eos_id),
        unknown_id=special.of("unk"),
        padding_id=special.of("pad"),
        separator_id=special.of("sep"),
        mask_id=special.of("mask"),
        cls_id=special.of("cls"),
        add_bos=_flag(settings, "add_bos_token"),
        add_eos=_flag(settings, "add_eos_token"),
        chat_template=_chat_template(directory, settings),
        tokenizer_json=read_text(path),
    )


def _optional_json(path: Path) -> dict[str, object]:
    return read_json(path) if path.is_file() else {}


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
    num_tokens = max(max(ids.values()) + 1, vocab_size if isinstance(vocab_size, int) else 0)
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


def _chat_template(directory: Path, settings: Mapping[str, object]) -> str | None:
    """The template's own file wins over tokenizer_config.json, where several may be listed by name."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        return read_text(path)
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None
