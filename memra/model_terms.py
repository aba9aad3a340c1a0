"""From settings to the terms on which each model lies in memory.

Trade: the `[models]` table, whose values are sources or tables with a source and options, and the lists of names in
other settings. Called by `served_models`; opens nothing.
"""

from collections.abc import Mapping
from typing import Any

from memra.errors import ConfigurationError
from memra.messages.models import ModelTerms
from memra.settings import Settings
from memra.types import ModelName

EVERY_MODEL = "*"
"""In a list of names: all of them."""

_OPTIONS: Mapping[str, tuple[type, ...]] = {
    "source": (str,),
    "lazy": (bool,),
    "pin": (bool,),
    "idle_ttl_s": (int, float),
    "kv_mb": (int,),
    "generic_tools": (bool,),
}


def source_of(name: str, value: Any) -> str:
    """The source in one value of the `[models]` table.

    Raises:
        ConfigurationError: names the place and what is wrong with it.
    """
    source = value if isinstance(value, str) else _options(name, value).get("source", "")
    if not source:
        raise ConfigurationError(f'[models.{name}] has no source; write source = "..."')
    return str(source)


def read_terms(settings: Settings, names: tuple[ModelName, ...]) -> Mapping[ModelName, ModelTerms]:
    """Return every model's terms: from its own table in the file, else from lists and defaults.

    Raises:
        ConfigurationError: an option is unknown or cannot be used, or a list holds a name that is not served.
    """
    lists = (
        ("MEMRA_LAZY_MODELS", settings.pool.lazy),
        ("MEMRA_PINNED_MODELS", settings.pool.pinned),
        ("MEMRA_GENERIC_TOOLS", settings.models.generic_tools),
    )
    for variable, listed in lists:
        for name in listed:
            if name != EVERY_MODEL and name not in names:
                known = ", ".join(names)
                raise ConfigurationError(f"{variable}: no model is named {name!r}; there are: {known}")
    return {name: _terms(settings, name) for name in names}


def _terms(settings: Settings, name: ModelName) -> ModelTerms:
    value = settings.models.table.get(name, "")
    options = {} if isinstance(value, str) else _options(name, value)
    return ModelTerms(
        is_lazy=options.get("lazy", _is_listed(name, settings.pool.lazy)),
        is_pinned=options.get("pin", _is_listed(name, settings.pool.pinned)),
        idle_ttl_s=float(options.get("idle_ttl_s", settings.pool.idle_ttl_s)),
        kv_memory_mb=options.get("kv_mb"),
        has_generic_tools=options.get("generic_tools", _is_listed(name, settings.models.generic_tools)),
    )


def _is_listed(name: ModelName, listed: tuple[str, ...]) -> bool:
    return name in listed or EVERY_MODEL in listed


def _options(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"[models] {name}: {value!r} is neither a source nor a table with one")
    for key, option in value.items():
        if key not in _OPTIONS:
            raise ConfigurationError(f"[models.{name}] has no option {key!r}; known are {', '.join(_OPTIONS)}")
        if type(option) not in _OPTIONS[key]:
            raise ConfigurationError(f"[models.{name}] {key}: {option!r} is not of type {_OPTIONS[key][-1].__name__}")
    if value.get("idle_ttl_s", 0) < 0:
        raise ConfigurationError(f"[models.{name}] idle_ttl_s: {value['idle_ttl_s']!r} must be at least 0")
    if value.get("kv_mb", 1) < 1:
        raise ConfigurationError(f"[models.{name}] kv_mb: {value['kv_mb']!r} must be at least 1")
    return value
