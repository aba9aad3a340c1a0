"""Where values of settings come from, and the complaint about one that cannot be used.

A value comes from the command line, else from the environment (`MEMRA_*`), else from the TOML file, else from the
default in `rooms`. Knows the three places and their precedence; refuses to know what any setting means.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any, cast

from memra.errors import ConfigurationError
from memra.settings.fields import parse_switch
from memra.settings.rooms import ROOMS, Settings

_OPEN_TABLES = {"models", "plugins"}
"""Tables of the file whose keys are the user's own names: they fill the room's field `table`.

In `[plugins]` that goes for the tables within it alone, `[plugins.NAME]`; what else stands there is a setting.
"""
_COLLECTIONS = {"table", "arguments", "blocked", "lazy", "pinned"}


def read_settings(
    overrides: Mapping[str, Mapping[str, Any]], *, environ: Mapping[str, str] | None = None, file: Path | None = None
) -> Settings:
    """Read every setting once.

    Args:
        overrides: values from the command line, by room and field name; they win.
        environ: the environment; None reads the process's own.
        file: the TOML file, or None.

    Raises:
        ConfigurationError: names the place and what is wrong with it.
    """
    environ = os.environ if environ is None else environ
    tables = _read_file(file) if file is not None else {}
    rooms = {
        room: kind(
            **_read_room(room, kind, overrides=overrides.get(room, {}), environ=environ, table=tables.get(room, {}))
        )
        for room, kind in ROOMS.items()
    }
    return Settings(**rooms)


def settings_file(option: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file that holds settings: from the command line, else `MEMRA_CONFIG`, else none."""
    if option is not None:
        return option
    return Path(environ["MEMRA_CONFIG"]) if environ.get("MEMRA_CONFIG") else None


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the `MEMRA_*` names of an environment that mean nothing here: usually a misspelling."""
    known = {place.metadata["env"] for kind in ROOMS.values() for place in fields(kind)} | {"MEMRA_CONFIG"}
    return tuple(sorted(name for name in environ if name.startswith("MEMRA_") and name not in known))


def _read_room(
    room: str,
    kind: type[Any],
    *,
    overrides: Mapping[str, Any],
    environ: Mapping[str, str],
    table: Mapping[str, Any],
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for place in fields(kind):
        variable = place.metadata["env"]
        if place.name in overrides:
            where, value = f"--{place.name.replace('_', '-')}", overrides[place.name]
        elif variable is not None and environ.get(variable, "") != "":
            where, value = variable, _parse(place, environ[variable], where=variable)
        elif table.get(place.name, "") != "":  # as in the environment, an empty text is no value
            where = f"[{room}] {place.name}"
            value = _from_toml(place, table[place.name], where=where)
        else:
            continue
        _check(place, value, where=where)
        values[place.name] = value
    return values


def _parse(place: "Field[Any]", text: str, *, where: str) -> Any:
    try:
        return place.metadata["parse"](text.strip())
    except ValueError:
        wanted = {int: "a whole number", float: "a number", parse_switch: "0 or 1"}.get(
            place.metadata["parse"], "valid"
        )
        raise ConfigurationError(f"{where}: {text!r} is not {wanted}") from None


def _from_toml(place: "Field[Any]", value: Any, *, where: str) -> Any:
    """Turn a TOML value into the field's type; a string is read as the environment's would be."""
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    if isinstance(value, str):
        return _parse(place, value, where=where)
    if place.metadata["parse"] is float and isinstance(value, int):
        return float(value)
    return value


def _check(place: "Field[Any]", value: Any, *, where: str) -> None:
    kind = {int: int, float: float, parse_switch: bool, str: str}.get(place.metadata["parse"])
    if kind is not None and type(value) is not kind and place.name not in _COLLECTIONS:
        raise ConfigurationError(f"{where}: {value!r} is not of type {kind.__name__}")
    check = cast("Callable[[Any], str | None] | None", place.metadata["check"])
    complaint = check(value) if check is not None else None
    if complaint is not None:
        raise ConfigurationError(f"{where}: {value!r} {complaint}")


def _read_file(file: Path) -> dict[str, dict[str, Any]]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(f"{file}: no such file; give --config an existing TOML file") from None
    except OSError as error:
        raise ConfigurationError(f"{file}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: not valid TOML: {error}") from None
    return {room: _check_table(file, room, table) for room, table in document.items()}


def _check_table(file: Path, room: str, table: Any) -> dict[str, Any]:
    if room not in ROOMS or not isinstance(table, dict):
        raise ConfigurationError(f"{file}: [{room}] is not a table of memra; known are {', '.join(ROOMS)}")
    own = {} if room not in _OPEN_TABLES else {name: value for name, value in table.items() if _is_own(room, value)}
    table = {name: value for name, value in table.items() if name not in own}
    names = {place.name for place in fields(ROOMS[room])} - {"table"}
    unknown = sorted(set(table) - names)
    if unknown:
        known = ", ".join(sorted(names))
        raise ConfigurationError(f"{file}: [{room}] has no setting {unknown[0]!r}; known are {known}")
    return {**table, "table": own} if own else table


def _is_own(room: str, value: Any) -> bool:
    """Whether an entry of an open table goes by a name of the user's own."""
    return room != "plugins" or isinstance(value, dict)
