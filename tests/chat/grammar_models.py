"""A small vocabulary, a model that says anything at all, and a check of what it said against a schema."""

import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from memra.chat.byte_alphabet import BYTE_OF_CHAR
from memra.chat.tokenizer import Tokenizer, build_tokenizer
from memra.messages.constraint import TokenConstraint
from memra.messages.vocabulary import TokenizerKind, TokenType, Vocabulary

SPECIALS = ("<s>", "</s>", "<|im_end|>", "<think>", "</think>")
WORDS = ('{"', '":', '",', '"}', "}}", "]}", "tr", "ue", "nu", "ll", "Ċ" * 2, "</", "12")
"""Longer tokens than bytes, across JSON's own borders; `Ċ` is how byte vocabularies spell a newline."""
BOS, EOS, END, THINK, UNTHINK = range(256, 261)
_CLOSING = b'"]}0'


def make_vocabulary(**changes: Any) -> Vocabulary:
    """261 bytes and special tokens, then some words."""
    types = [TokenType.NORMAL] * 256 + [TokenType.CONTROL] * 3 + [TokenType.USER_DEFINED] * 2
    values: dict[str, Any] = {
        "kind": TokenizerKind.BYTE_BPE,
        "tokens": (*BYTE_OF_CHAR, *SPECIALS, *WORDS),
        "merges": tuple(f"{word[0]} {word[1]}" for word in WORDS),
        "token_types": (*types, *[TokenType.NORMAL] * len(WORDS)),
        "bos_id": BOS,
        "eos_id": EOS,
    }
    return Vocabulary(**(values | changes))


def make_tokenizer(**changes: Any) -> Tokenizer:
    """Of `make_vocabulary`."""
    return build_tokenizer(make_vocabulary(**changes))


def read_mask(constraint: TokenConstraint) -> list[int]:
    """The allowed ids."""
    words = constraint.allowed()
    return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()


def speak(constraint: TokenConstraint, tokenizer: Tokenizer, *, seed: int, max_tokens: int = 2000) -> bytes:
    """Choose at random among what is allowed until the answer ends; after a while, what brings the end nearer."""
    random = np.random.default_rng(seed)
    said = b""
    for position in range(max_tokens):
        allowed = read_mask(constraint)
        if position > 60:
            if tokenizer.eos_ids & set(allowed):
                return said
            allowed = [token for token in allowed if tokenizer.pieces[token][-1:] in _CLOSING] or allowed
        token_id = int(random.choice(allowed))
        if token_id in tokenizer.eos_ids:
            return said
        said += tokenizer.pieces[token_id]
        if not constraint.accept(token_id):
            return said
    raise AssertionError(f"still at it after {max_tokens} tokens: {said[-200:]!r}")


def is_valid(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether a value is one that a schema allows, for the keywords that the tests use."""
    if "$ref" in schema:
        return is_valid(value, root["$defs"][schema["$ref"].removeprefix("#/$defs/")], root)
    if "anyOf" in schema:
        return any(is_valid(value, option, root) for option in schema["anyOf"])
    if "enum" in schema:
        return any(type(value) is type(option) and value == option for option in schema["enum"])
    return _CHECKS[schema["type"]](value, schema, root)


def _is_object(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    properties = schema.get("properties", {})
    return (
        isinstance(value, dict)
        and set(schema.get("required", ())) <= set(value)
        and (schema.get("additionalProperties", True) is True or set(value) <= set(properties))
        and all(is_valid(value[name], inner, root) for name, inner in properties.items() if name in value)
    )


def _is_array(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    return (
        isinstance(value, list)
        and schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value))
        and all(is_valid(item, schema["items"], root) for item in value)
    )


def _is_string(value: Any, schema: Mapping[str, Any], _root: Mapping[str, Any]) -> bool:
    return (
        isinstance(value, str)
        and schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
        and re.search(schema.get("pattern", ""), value) is not None
    )


def _is_integer(value: Any, schema: Mapping[str, Any], _root: Mapping[str, Any]) -> bool:
    return type(value) is int and schema.get("minimum", value) <= value <= schema.get("maximum", value)


_CHECKS = {
    "object": _is_object,
    "array": _is_array,
    "string": _is_string,
    "integer": _is_integer,
    "number": lambda value, *_: type(value) in (int, float),
    "boolean": lambda value, *_: type(value) is bool,
    "null": lambda value, *_: value is None,
}


def is_valid_text(text: bytes, schema: Mapping[str, Any]) -> bool:
    """Whether a text is JSON that a schema allows."""
    return is_valid(json.loads(text), schema, schema)
