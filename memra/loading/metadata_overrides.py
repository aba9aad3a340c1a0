"""A model file's own statements, put right by the user: `meta.KEY=TYPE:VALUE` behind a source.

Some files were converted with a wrong key, such as the length of the context or a missing end of turn, and converting
them again takes hours. Called by `source_grammar` for the reading and by `gguf_file` for the applying. Knows types and
refuses to know what a key means, the few aside that say where things lie in the file.
"""

import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memra.errors import ConfigurationError, SourceError

OVERRIDE_PREFIX: Final = "meta."
"""Begins every override in a list of entries; no model but the first of a list can have a name that begins so."""

_log = logging.getLogger(__name__)

_KEY: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_INTEGER_RANGE: Final = (-(1 << 63), (1 << 64) - 1)
"""What GGUF's 64-bit types hold."""
_BOOLEANS: Final = {"true": True, "false": False}
_LAYOUT_KEYS: Final = re.compile(r"general\.alignment|split\..*")
"""Say where the file's data lies: they were obeyed before anything could be put in their place."""
_SHOWN_CHARS: Final = 60

OverrideValue = str | bool | int | float


@dataclass(frozen=True, slots=True)
class MetadataOverride:
    """One key of a GGUF file and the value that takes its place."""

    key: str
    value: OverrideValue


def parse_override(text: str) -> MetadataOverride:
    """Read one `meta.KEY=TYPE:VALUE`; TYPE is `int`, `float`, `bool` or `str`, as llama.cpp names them.

    Raises:
        SourceError: it is malformed, or the value is none of its type.
    """
    name, _, typed = text.partition("=")
    key = name.strip().removeprefix(OVERRIDE_PREFIX)
    kind, colon, value = typed.strip().partition(":")
    if not name.strip().startswith(OVERRIDE_PREFIX) or not _KEY.fullmatch(key) or not colon:
        raise SourceError(
            f"metadata override {text.strip()!r}: write meta.KEY=TYPE:VALUE without commas; TYPE is int, float, bool "
            "or str"
        )
    if _LAYOUT_KEYS.fullmatch(key):
        raise SourceError(f"metadata override {text!r}: {key} describes how the file is laid out: leave it out")
    return MetadataOverride(key, _read_value(text.strip(), kind, value))


def apply_overrides(
    metadata: Mapping[str, object], overrides: Iterable[MetadataOverride], *, path: Path
) -> dict[str, object]:
    """The metadata with the overrides in place, each said in the log.

    Raises:
        ConfigurationError: the file's own value is of another type; an integer may stand for a number.
    """
    changed = dict(metadata)
    for override in overrides:
        old = metadata.get(override.key)
        changed[override.key] = _fitting(override, old, path)
        was = "which the file does not have" if old is None else f"instead of {_shown(old)}"
        _log.info("%s: %s is set to %s, %s", path.name, override.key, _shown(changed[override.key]), was)
    return changed


def _read_value(text: str, kind: str, value: str) -> OverrideValue:
    match kind:
        case "str":
            return value
        case "bool" if value in _BOOLEANS:
            return _BOOLEANS[value]
        case "int" if _INTEGER.fullmatch(value) and _INTEGER_RANGE[0] <= int(value) <= _INTEGER_RANGE[1]:
            return int(value)
        case "float" if (number := _finite(value)) is not None:
            return number
        case "bool" | "int" | "float":
            wanted = {"bool": "true or false", "int": "a whole number of 64 bits", "float": "a finite number"}[kind]
            raise SourceError(f"metadata override {text!r}: {value!r} is not {wanted}: correct it")
        case _:
            raise SourceError(f"metadata override {text!r}: there is no type {kind!r}: write int, float, bool or str")


def _finite(value: str) -> float | None:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _fitting(override: MetadataOverride, old: object, path: Path) -> OverrideValue:
    value = override.value
    if isinstance(old, float) and type(value) is int:
        return float(value)
    if old is None or type(old) is type(value):
        return value
    what = "an array, which cannot be set" if isinstance(old, tuple) else f"of type {_TYPE_NAMES[type(old)]}"
    raise ConfigurationError(
        f"{path}: the key {override.key} is {what}, not of type {_TYPE_NAMES[type(value)]}: correct the override "
        f"meta.{override.key}"
    )


_TYPE_NAMES: Final[Mapping[type, str]] = {str: "str", bool: "bool", int: "int", float: "float"}


def _shown(value: object) -> str:
    """A value for the log: templates and the like are cut."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}... ({len(text)} characters)"
