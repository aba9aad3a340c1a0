"""The file of model metadata: read, checked against the models that are served, and turned into rules.

Everything that is wrong with a file is told at once, by its place. Refuses to know requests and feeds. Called by the
composition root before any model is loaded, and by whoever reads the file again.
"""

import math
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from memra.errors import ConfigurationError
from memra.messages.model_rules import IS_THINKING, NO_RULES, ModelRules
from memra.metadata.tables import ModelTable, ProviderTable
from memra.plugins.config_schema import ConfigError, convert_table
from memra.types import ModelName

_Table = TypeVar("_Table", bound=msgspec.Struct)

_SECTIONS = ("models", "planned_models", "provider")
_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metadata:
    """What is declared.

    Attributes:
        declared: of models that are served, as plain values by the names of the file; undeclared ones are left out.
        rules: of the same models.
        provider: whoever runs the server, as plain values.
    """

    declared: Mapping[ModelName, Mapping[str, Any]] = field(default_factory=dict)
    rules: Mapping[ModelName, ModelRules] = field(default_factory=dict)
    provider: Mapping[str, Any] = field(default_factory=dict)

    def rules_of(self, name: ModelName) -> ModelRules:
        """Return what is laid down for a model."""
        return self.rules.get(name, NO_RULES)


def read_metadata(path: Path, names: Collection[ModelName]) -> Metadata:
    """Read a file.

    Args:
        path: TOML with `[models."NAME"]`, `[planned_models."NAME"]` and `[provider]`.
        names: that are served.

    Raises:
        ConfigurationError: names everything that is wrong with it.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: the model metadata cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: the model metadata is not valid TOML: {error}") from None
    complaints: list[str] = []
    metadata = _Reader(complaints, names).read(document)
    if complaints:
        raise ConfigurationError(f"{path}: {'; '.join(complaints)}")
    return metadata


class _Reader:
    """Turns one document into metadata, and collects what is wrong with it."""

    def __init__(self, complaints: list[str], names: Collection[ModelName]) -> None:
        self._complaints = complaints
        self._names = names

    def read(self, document: Mapping[str, Any]) -> Metadata:
        for section in document:
            if section not in _SECTIONS:
                self._complaints.append(f"there is no [{section}]; known are {', '.join(_SECTIONS)}")
        models = dict(self._tables(document, "models", are_served=True))
        for _ in self._tables(document, "planned_models", are_served=False):
            pass  # they are checked, and not shown to anybody
        provider = self._convert(document.get("provider", {}), ProviderTable, "[provider]")
        return Metadata(
            declared={name: msgspec.to_builtins(table) for name, table in models.items()},
            rules={name: _rules(table) for name, table in models.items()},
            provider={} if provider is None else msgspec.to_builtins(provider),
        )

    def _tables(
        self, document: Mapping[str, Any], section: str, *, are_served: bool
    ) -> Iterator[tuple[ModelName, ModelTable]]:
        tables = document.get(section, {})
        if not isinstance(tables, dict):
            self._complaints.append(f"[{section}] holds one table for each model")
            return
        for name, value in tables.items():
            place = f'[{section}."{name}"]'
            if are_served and name not in self._names:
                known = ", ".join(self._names)
                self._complaints.append(f"{place}: no model of this name is served; there are: {known}")
            if not are_served and name in self._names:
                self._complaints.append(f"{place}: this model is served; move the table to [models]")
            table = self._convert(value, ModelTable, place)
            if table is not None:
                self._complaints += [f"{place} {complaint}" for complaint in _contradictions(table)]
                yield ModelName(name), table

    def _convert(self, value: Any, kind: type[_Table], place: str) -> _Table | None:
        if not isinstance(value, dict):
            self._complaints.append(f"{place} is not a table")
            return None
        try:
            table: _Table = convert_table(value, kind)
        except ConfigError as error:
            self._complaints.append(f"{place} {error}")
            return None
        return table


def _contradictions(table: ModelTable) -> Iterator[str]:
    """Say what the types of a table's values let through."""
    for name in table.__struct_fields__:
        value = getattr(table, name)
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{name}: {value} is not a finite number"
    largest, default = table.max_output_length, table.default_output_length
    if largest is not None and default is not None and default > largest:
        yield f"default_output_length: {default} is more than max_output_length, {largest}"
    if table.deprecation_date is not None and table.lifecycle in {"preview", "stable"}:
        yield f'deprecation_date: the model is {table.lifecycle}; write lifecycle = "deprecated", or take one out'


def _rules(table: ModelTable) -> ModelRules:
    effort = table.default_reasoning_effort
    return ModelRules(
        max_prompt_tokens=table.max_prompt_length,
        max_output_tokens=table.max_output_length,
        default_output_tokens=table.default_output_length,
        template_options={} if effort is None else {"enable_thinking": IS_THINKING[effort], "reasoning_effort": effort},
        sampling=_sampling(table, prefix="default_"),
        non_thinking_sampling=_sampling(table.non_thinking_sampling, prefix=""),
    )


def _sampling(table: msgspec.Struct | None, *, prefix: str) -> Mapping[str, Any]:
    values = {name: getattr(table, prefix + name, None) for name in _SAMPLING}
    return {name: value for name, value in values.items() if value is not None}
