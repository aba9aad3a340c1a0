"""Every setting of the house: frozen dataclasses, one per room, read once at start.

A value comes from the command line, else from the environment (`MEMRA_*`), else from the TOML file, else from the
default that stands here. Each field says in its metadata how it is spelt in each of them; docs/reference/settings.md is
held to this file by a test.
"""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from memra.errors import ConfigurationError

_MIB = 1 << 20


def _setting(  # noqa: PLR0913  (one keyword for each place where a setting is spelt)
    default: Any,
    doc: str,
    *,
    env: str | None = None,
    parse: Callable[[str], Any] = str,
    check: Callable[[Any], str | None] | None = None,
    secret: bool = False,
) -> Any:
    metadata = {"doc": doc, "env": env, "parse": parse, "check": check, "secret": secret}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata, repr=not secret)


def _at_least(minimum: float) -> Callable[[Any], str | None]:
    return lambda value: None if value >= minimum else f"must be at least {minimum:g}"


def _one_of(*names: str) -> Callable[[Any], str | None]:
    return lambda value: None if value in names else f"must be one of {', '.join(names)}"


def _device(value: str) -> str | None:
    kind, _, index = value.partition(":")
    if value in {"auto", "cpu"} or (kind == "cuda" and (index.isdigit() or value == "cuda")):
        return None
    return "must be auto, cpu, cuda or cuda:N"


def _path(text: str) -> Path:
    return Path(text).expanduser()


def parse_switch(text: str) -> bool:
    """Read an on/off setting: 1, true, yes, on against 0, false, no, off.

    Raises:
        ValueError: for anything else.
    """
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError(text)


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The front door."""

    address: str = _setting(
        "127.0.0.1:8080", "Where to listen, `host:port`; port 0 takes a free one.", env="MEMRA_ADDR"
    )
    max_body_bytes: int = _setting(
        32 * _MIB, "Largest request body, bytes.", env="MEMRA_MAX_BODY_BYTES", parse=int, check=_at_least(1024)
    )
    body_timeout_s: float = _setting(
        60.0,
        "Longest time for a request body to arrive, seconds.",
        env="MEMRA_BODY_TIMEOUT_S",
        parse=float,
        check=_at_least(0.001),
    )
    keep_alive_s: float = _setting(
        75.0,
        "How long an idle connection is kept, seconds.",
        env="MEMRA_KEEP_ALIVE_S",
        parse=float,
        check=_at_least(0.001),
    )
    write_timeout_s: float = _setting(
        10.0,
        "A client that takes nothing for this long, seconds, is cut off.",
        env="MEMRA_WRITE_TIMEOUT_S",
        parse=float,
        check=_at_least(0.001),
    )
    keepalive_comment_s: float = _setting(
        5.0,
        "Pause after which a silent stream sends a comment, seconds.",
        env="MEMRA_SSE_KEEPALIVE_S",
        parse=float,
        check=_at_least(0.001),
    )
    compat: str | None = _setting(
        None,
        "Shape of /v1/completions: `openai`, or any other word for native; unset: OpenAI if a key is set.",
        env="MEMRA_COMPAT",
    )
    allow_open_bind: bool = _setting(
        False,
        "Allow an address other than loopback although no API key is set.",
        env="MEMRA_ALLOW_OPEN_BIND",
        parse=parse_switch,
    )


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Who may come in, and how much."""

    api_key: str | None = _setting(
        None, "The one bearer key that opens the server; unset: open to all.", env="MEMRA_API_KEY", secret=True
    )
    context_tokens: int = _setting(
        8192, "Context given to a request without `max_tokens`.", env="MEMRA_CTX", parse=int, check=_at_least(16)
    )
    max_interactive: int = _setting(
        64,
        "Interactive requests in the house at once; four times as many more may queue.",
        env="MEMRA_MAX_SESSIONS",
        parse=int,
        check=_at_least(1),
    )
    max_judge: int = _setting(
        4, "Judge requests at once; more are refused.", env="MEMRA_LANE_MAX_JUDGE", parse=int, check=_at_least(0)
    )
    max_harvest: int = _setting(
        8, "Harvest requests at once; more are refused.", env="MEMRA_LANE_MAX_HARVEST", parse=int, check=_at_least(0)
    )


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models are served, and where fetched files are kept.

    The first of `arguments`, `plan` and `table` that is not empty wins; `memra.loading.sources` reads their grammar.
    """

    arguments: tuple[str, ...] = _setting((), "`NAME=SOURCE`, from the command line.")
    plan: str = _setting("", "Names and sources: `name=source,name2=source2`.", env="MEMRA_MODELS")
    table: Mapping[str, str] = _setting({}, 'The `[models]` table of the file: `name = "source"`.')
    cache_dir: Path | None = _setting(
        None,
        "Where fetched models are kept; unset: the user's cache directory.",
        env="MEMRA_MODELS_DIR",
        parse=_path,
    )


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The worker and its executors."""

    executor: str = _setting(
        "auto",
        "`cpu` (native kernels), `torch`, or `auto`: native where it is built and no GPU is asked for or found.",
        env="MEMRA_EXECUTOR",
        check=_one_of("auto", "cpu", "torch"),
    )
    num_threads: int = _setting(
        0,
        "Threads of the native engine; 0: as many as the process may use processors.",
        env="MEMRA_THREADS",
        parse=int,
        check=_at_least(0),
    )
    device: str = _setting("auto", "`auto`, `cpu`, `cuda` or `cuda:N`.", env="MEMRA_DEVICE", check=_device)
    dtype: str = _setting(
        "float32",
        "Arithmetic of the torch executor, `float32` or `bfloat16`.",
        env="MEMRA_DTYPE",
        check=_one_of("float32", "bfloat16"),
    )
    prefill_chunk_tokens: int = _setting(
        256, "Prompt tokens computed per model and tick.", env="MEMRA_PREFILL_TICK", parse=int, check=_at_least(1)
    )
    max_rows: int = _setting(
        16, "Sequences of one model that run at once.", env="MEMRA_MAX_ROWS", parse=int, check=_at_least(1)
    )
    kv_memory_mb: int = _setting(
        2048, "Memory for keys and values of each model, MiB.", env="MEMRA_KV_MB", parse=int, check=_at_least(1)
    )


@dataclass(frozen=True, slots=True)
class LifecycleSettings:
    """Start, supervision and the way down."""

    host_loop: str = _setting(
        "trio",
        "Event loop: `trio`, or trio as a guest on `asyncio`.",
        env="MEMRA_HOST_LOOP",
        check=_one_of("trio", "asyncio"),
    )
    drain_s: float = _setting(
        30.0,
        "Time for running requests to finish after SIGTERM, seconds.",
        env="MEMRA_DRAIN_S",
        parse=float,
        check=_at_least(0),
    )
    stall_s: float = _setting(
        120.0,
        "A busy worker silent for longer, seconds, counts as hung.",
        env="MEMRA_HEALTH_STALL_S",
        parse=float,
        check=_at_least(1),
    )
    worker_respawns: int = _setting(
        1, "Restarts of a worker that died.", env="MEMRA_WORKER_RESPAWN", parse=int, check=_at_least(0)
    )


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Which plugins are loaded, and what they are told."""

    blocked: tuple[str, ...] = _setting(
        (),
        "Names of installed plugins that are not loaded, separated by commas.",
        env="MEMRA_PLUGINS_BLOCK",
        parse=lambda text: tuple(name.strip() for name in text.split(",") if name.strip()),
    )
    table: Mapping[str, Mapping[str, Any]] = _setting({}, "One `[plugins.NAME]` table per plugin, in the file only.")


@dataclass(frozen=True, slots=True)
class Settings:
    """All rooms together."""

    http: HttpSettings = field(default_factory=HttpSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    models: ModelSettings = field(default_factory=ModelSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    lifecycle: LifecycleSettings = field(default_factory=LifecycleSettings)
    plugins: PluginSettings = field(default_factory=PluginSettings)


ROOMS: Mapping[str, type[Any]] = {
    "http": HttpSettings,
    "gate": GateSettings,
    "models": ModelSettings,
    "engine": EngineSettings,
    "lifecycle": LifecycleSettings,
    "plugins": PluginSettings,
}
_OPEN_TABLES = {"models", "plugins"}
"""Tables of the file whose keys are the user's own names: they fill the room's field `table`."""
_COLLECTIONS = {"table", "arguments", "blocked"}


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
    if room in _OPEN_TABLES:
        return {"table": table}
    names = {place.name for place in fields(ROOMS[room])}
    unknown = sorted(set(table) - names)
    if unknown:
        known = ", ".join(sorted(names))
        raise ConfigurationError(f"{file}: [{room}] has no setting {unknown[0]!r}; known are {known}")
    return table
