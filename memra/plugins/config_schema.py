"""A plugin's own table of the configuration file, held against the schema that the plugin declares.

Trade: `[plugins.NAME]` to an instance of a frozen dataclass or msgspec struct. Unknown keys are refused at every depth,
which msgspec does for some of its types alone; all of them are named at once, by their path. Refuses to know what a
setting means.
"""

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect


class ConfigError(Exception):
    """The table does not fit the schema, or the schema cannot be used; the message is a list of complaints."""


def convert_table(table: Mapping[str, Any], schema: Any) -> Any:
    """Return an instance of a schema.

    Args:
        table: as read from TOML.
        schema: what `memra_config_schema` returned.

    Raises:
        ConfigError: says which keys are unknown, or which value does not fit.
    """
    if not _is_schema(schema):
        raise ConfigError("memra_config_schema must return a frozen dataclass or a msgspec struct")
    try:
        shape = inspect.type_info(schema)
    except Exception as error:  # whatever an annotation may do
        raise ConfigError(f"its schema cannot be used: {error}") from error
    unknown = tuple(_unknown_keys(table, shape, ""))
    if unknown:
        raise ConfigError("; ".join(unknown))
    try:
        return msgspec.convert(table, schema, builtin_types=(datetime, date, time), dec_hook=_read_other)
    except msgspec.ValidationError as error:
        raise ConfigError(_in_words(str(error))) from error


def _is_schema(schema: Any) -> bool:
    if not isinstance(schema, type):
        return False
    if issubclass(schema, msgspec.Struct):
        return True
    return is_dataclass(schema) and schema.__dataclass_params__.frozen  # type: ignore[attr-defined]


def _read_other(kind: type, value: Any) -> Any:
    """Read what TOML has no type for: a path."""
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise ValueError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")


def _in_words(message: str) -> str:
    """Put msgspec's path first: `Expected ... - at `$.a.b`` becomes `a.b: Expected ...`."""
    what, _, path = message.partition(" - at `$.")
    return f"{path.rstrip('`')}: {what}" if path else what


def _unknown_keys(value: Any, shape: inspect.Type, path: str) -> Iterator[str]:
    match shape:
        case inspect.StructType() | inspect.DataclassType() if isinstance(value, Mapping):
            yield from _unknown_in_object(value, shape, path)
        case inspect.DictType() if isinstance(value, Mapping):
            for key, item in value.items():
                yield from _unknown_keys(item, shape.value_type, f"{path}{key}.")
        case inspect.CollectionType() if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _unknown_keys(item, shape.item_type, f"{path[:-1]}[{index}].")
        case inspect.UnionType():
            # Of several tables, the one that fits best: what does not fit any of them, msgspec tells.
            fitting = (kind for kind in shape.types if _is_of_kind(value, kind))
            yield from min((tuple(_unknown_keys(value, kind, path)) for kind in fitting), key=len, default=())


def _is_of_kind(value: Any, shape: inspect.Type) -> bool:
    kinds: tuple[type[inspect.Type], ...] = (inspect.StructType, inspect.DataclassType, inspect.DictType)
    return isinstance(shape, kinds if isinstance(value, Mapping) else inspect.CollectionType)


def _unknown_in_object(
    value: Mapping[str, Any], shape: inspect.StructType | inspect.DataclassType, path: str
) -> Iterator[str]:
    known = {field.encode_name: field.type for field in shape.fields}
    tag = getattr(shape, "tag_field", None)
    for key, item in value.items():
        if key in known:
            yield from _unknown_keys(item, known[key], f"{path}{key}.")
        elif key != tag:
            yield f"unknown key {path}{key}; known are {', '.join(known) or 'none'}"
