"""Every setting of the house: frozen dataclasses, one per room, with defaults and meanings.

Each field says in its metadata how it is spelt in the environment, read from text and checked;
docs/reference/settings.md is held to this file by a test. Refuses to know where values come from: that is `reading`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


def _between(minimum: int, maximum: int) -> Callable[[Any], str | None]:
    return lambda value: None if minimum <= value <= maximum else f"must be from {minimum} to {maximum}"


def _zero_or_at_least(minimum: int) -> Callable[[Any], str | None]:
    return lambda value: None if value == 0 or value >= minimum else f"must be 0 or at least {minimum}"


def _one_of(*names: str) -> Callable[[Any], str | None]:
    return lambda value: None if value in names else f"must be one of {', '.join(names)}"


def _device(value: str) -> str | None:
    kind, _, index = value.partition(":")
    if value in {"auto", "cpu"} or (kind == "cuda" and (index.isdigit() or value == "cuda")):
        return None
    return "must be auto, cpu, cuda or cuda:N"


def _path(text: str) -> Path:
    return Path(text).expanduser()


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(count) for count in text.split(",") if count.strip())


def _word(text: str) -> str:
    return text.lower()


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
        "Interactive requests in the house at once; more may queue.",
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
    response_cache_mb: int = _setting(
        0,
        "Memory for whole answers that equal deterministic requests are given again, MiB; 0: none are kept.",
        env="MEMRA_RESPONSE_CACHE_MB",
        parse=int,
        check=_at_least(0),
    )
    response_cache_ttl_s: float = _setting(
        3600.0,
        "Age at which a kept answer is no longer given, seconds.",
        env="MEMRA_RESPONSE_CACHE_TTL_S",
        parse=float,
        check=_at_least(0.001),
    )
    max_queue_depth: int = _setting(
        0,
        "Interactive requests that may wait for their turn; 0: four times `max_interactive`.",
        env="MEMRA_MAX_QUEUE_DEPTH",
        parse=int,
        check=_at_least(0),
    )
    queue_wait_ceiling_s: float = _setting(
        0.0,
        "A request that would wait longer for its turn, seconds, is refused; 0: no bound but its own deadline.",
        env="MEMRA_QUEUE_WAIT_CEILING_S",
        parse=float,
        check=_at_least(0),
    )
    timeout_ms_max: int = _setting(
        90_000,
        "Longest `timeout_ms` that a request may ask for, milliseconds.",
        env="MEMRA_TIMEOUT_MS_MAX",
        parse=int,
        check=_at_least(1000),
    )
    timeout_ms_default: int = _setting(
        0,
        "Deadline of a request that does not ask for one, milliseconds; 0: it takes as long as it takes.",
        env="MEMRA_TIMEOUT_MS_DEFAULT",
        parse=int,
        check=_zero_or_at_least(1000),
    )
    stream_timeout_ms_max: int = _setting(
        0,
        "The same for the first token of a stream, where it differs; 0: as above.",
        env="MEMRA_STREAM_TTFT_MS_MAX",
        parse=int,
        check=_zero_or_at_least(1000),
    )
    nonstream_deadline_gate: bool = _setting(
        True,
        "Refuse an answer that is not streamed when its `max_tokens` cannot come in time at the two rates below.",
        env="MEMRA_NONSTREAM_DEADLINE_GATE",
        parse=parse_switch,
    )
    prefill_floor_tok_s: float = _setting(
        2000.0,
        "Prompt tokens a second that the gate above counts on.",
        env="MEMRA_PREFILL_FLOOR_TOK_S",
        parse=float,
        check=_at_least(0.001),
    )
    decode_floor_tok_s: float = _setting(
        60.0,
        "Generated tokens a second that the gate above counts on.",
        env="MEMRA_DECODE_FLOOR_TOK_S",
        parse=float,
        check=_at_least(0.001),
    )
    slot_reset_s: int = _setting(
        2,
        "What `x-ratelimit-reset` says of a full lane before anything was measured, seconds.",
        env="MEMRA_RL_RESET_S",
        parse=int,
        check=_at_least(1),
    )


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How the dark lanes (judge and harvest) make way for the interactive one."""

    slo_p99_ms: float = _setting(
        0.0,
        "Aim for the 99th percentile of the steps that move an interactive answer on, ms; 0: 50 on a GPU, 200 without.",
        env="MEMRA_SLO_P99_MS",
        parse=float,
        check=_at_least(0),
    )
    shed_judge: float = _setting(
        1.0,
        "Fraction of the aim from which new judge requests are refused.",
        env="MEMRA_SHED_JUDGE",
        parse=float,
        check=_at_least(0),
    )
    shed_harvest: float = _setting(
        0.9,
        "Fraction of the aim from which new harvest requests are refused.",
        env="MEMRA_SHED_HARVEST",
        parse=float,
        check=_at_least(0),
    )
    window_s: float = _setting(
        30.0,
        "How far back the percentiles of step times look, seconds.",
        env="MEMRA_LANE_WINDOW_S",
        parse=float,
        check=_at_least(0.001),
    )
    prefill_judge_tokens: int = _setting(
        256,
        "Prompt tokens of the judge lane computed in one tick, at most.",
        env="MEMRA_PREFILL_TICK_JUDGE",
        parse=int,
        check=_at_least(1),
    )
    prefill_harvest_tokens: int = _setting(
        256,
        "Prompt tokens of the harvest lane computed in one tick, at most.",
        env="MEMRA_PREFILL_TICK_HARVEST",
        parse=int,
        check=_at_least(1),
    )


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models are served, and where fetched files are kept.

    The first of `arguments`, `plan` and `table` that is not empty wins; `memra.loading.sources` reads their grammar.
    """

    arguments: tuple[str, ...] = _setting((), "`NAME=SOURCE`, from the command line.")
    plan: str = _setting("", "Names and sources: `name=source,name2=source2`.", env="MEMRA_MODELS")
    table: Mapping[str, Any] = _setting(
        {},
        'The `[models]` table of the file: `name = "source"`, or `[models.NAME]` with `source`, `lazy`, `pin`, '
        "`idle_ttl_s` and `kv_mb`, of which all but the source may be left out.",
    )
    cache_dir: Path | None = _setting(
        None,
        "Where fetched models are kept; unset: the user's cache directory.",
        env="MEMRA_MODELS_DIR",
        parse=_path,
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Which models lie in memory, and for how long."""

    memory_mb: int = _setting(
        0,
        "Memory for all models together, MiB: weights, keys, values and states. Unused ones make way for the one that "
        "is asked for; 0: no limit.",
        env="MEMRA_MEMORY_MB",
        parse=int,
        check=_at_least(0),
    )
    idle_ttl_s: float = _setting(
        0.0,
        "A model unused for longer, seconds, is unloaded, and loaded again when it is asked for; 0: never.",
        env="MEMRA_IDLE_TTL_S",
        parse=float,
        check=_at_least(0),
    )
    lazy: tuple[str, ...] = _setting(
        (),
        "Names of models that are loaded when they are first asked for, separated by commas, or `*` for all.",
        env="MEMRA_LAZY_MODELS",
        parse=_names,
    )
    pinned: tuple[str, ...] = _setting(
        (),
        "Names of models that are never unloaded to make room or for idleness, separated by commas, or `*` for all.",
        env="MEMRA_PINNED_MODELS",
        parse=_names,
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
    quant: str = _setting(
        "none",
        "What weights of floating type become when they are loaded: `q8_0`, `q4_k`, or `none` to keep the file's.",
        env="MEMRA_QUANT",
        parse=_word,
        check=_one_of("none", "q8_0", "q4_k"),
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
    prefix_cache_mb: int = _setting(
        1024,
        "Memory for keys, values and states of known prefixes, of all models together, MiB; 0 remembers none.",
        env="MEMRA_PREFIX_CACHE_MB",
        parse=int,
        check=_at_least(0),
    )
    repack_cache: Path | None = _setting(
        None,
        "Folder where the native engine keeps repacked weights, for a start without repacking; unset: nowhere.",
        env="MEMRA_REPACK_CACHE",
        parse=_path,
    )
    repack_cache_mb: int = _setting(
        32768,
        "Most that the repack cache may hold, MiB; files unused for the longest time go first.",
        env="MEMRA_REPACK_CACHE_MB",
        parse=int,
        check=_at_least(1),
    )
    kv_type: str = _setting(
        "f16",
        "How the native engine keeps keys and values: `f16`, or `q8_0` in little more than half the memory.",
        env="MEMRA_KV_TYPE",
        check=_one_of("f16", "q8_0"),
    )


@dataclass(frozen=True, slots=True)
class HostTierSettings:
    """Where cached prefixes go that no longer fit the model's own memory, and what a restart hands on."""

    memory_mb: int = _setting(
        0,
        "Room for evicted prefixes, MiB: pinned memory beside a GPU, a file beside the native engine; 0: off.",
        env="MEMRA_KV_HOST_MB",
        parse=int,
        check=_at_least(0),
    )
    directory: Path | None = _setting(
        None,
        "Folder of that file, on a disk rather than in memory; unset: the system's folder for temporary files.",
        env="MEMRA_KV_HOST_DIR",
        parse=_path,
    )
    verify: bool = _setting(
        False,
        "Keep a digest of what is evicted and check it on the way back.",
        env="MEMRA_KV_HOST_VERIFY",
        parse=parse_switch,
    )
    tenant_percent: int = _setting(
        50,
        "Most of the room that one tenant may fill, percent.",
        env="MEMRA_KV_HOST_TENANT_PCT",
        parse=int,
        check=_between(1, 100),
    )
    handoff: Path | None = _setting(
        None,
        "File that a drained server leaves its cached prefixes in, and the next one reads; unset: none.",
        env="MEMRA_KV_HOST_HANDOFF",
        parse=_path,
    )
    handoff_mb: int = _setting(
        0,
        "Most that the hand-off file takes, MiB, the newest first; 0: everything.",
        env="MEMRA_KV_HOST_HANDOFF_MB",
        parse=int,
        check=_at_least(0),
    )
    handoff_io: str = _setting(
        "buffered",
        "How the hand-off file is read and written: `buffered`, or `direct`, past the system's page cache.",
        env="MEMRA_KV_HOST_HANDOFF_IO",
        parse=_word,
        check=_one_of("buffered", "direct"),
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
    gpu_watch: bool = _setting(
        True,
        "Watch the GPU's driver and the kernel log for faults, where a GPU does the work.",
        env="MEMRA_GPU_WATCH",
        parse=parse_switch,
    )
    gpu_watch_s: float = _setting(
        60.0,
        "Pause between two questions to the GPU's driver, seconds.",
        env="MEMRA_GPU_WATCH_S",
        parse=float,
        check=_at_least(0.1),
    )
    gpu_probe_timeout_s: float = _setting(
        10.0,
        "A driver that does not answer for this long, seconds, counts as hung.",
        env="MEMRA_GPU_PROBE_TIMEOUT_S",
        parse=float,
        check=_at_least(0.1),
    )


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """Faults on demand, for tests of the server as a whole; each strikes once in a process."""

    panic_after: tuple[int, ...] = _setting(
        (),
        "Steps of the engine, counted over restarts and separated by commas, in which the worker dies.",
        env="MEMRA_PANIC_AFTER",
        parse=_counts,
        check=lambda counts: None if all(type(n) is int and n > 0 for n in counts) else "must be text such as 20,40",
    )
    fault_after: int | None = _setting(
        None,
        "The request, by its number, that the engine fails on.",
        env="MEMRA_FAULT_AFTER",
        parse=int,
        check=_at_least(1),
    )
    hang_after: int | None = _setting(
        None,
        "The step of the engine, by its number, that never ends.",
        env="MEMRA_HANG_AFTER",
        parse=int,
        check=_at_least(1),
    )


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Which plugins are loaded, and what they are told."""

    blocked: tuple[str, ...] = _setting(
        (),
        "Names of installed plugins that are not loaded, separated by commas.",
        env="MEMRA_PLUGINS_BLOCK",
        parse=_names,
    )
    table: Mapping[str, Mapping[str, Any]] = _setting({}, "One `[plugins.NAME]` table per plugin, in the file only.")


@dataclass(frozen=True, slots=True)
class Settings:
    """All rooms together."""

    http: HttpSettings = field(default_factory=HttpSettings)
    gate: GateSettings = field(default_factory=GateSettings)
    lanes: LaneSettings = field(default_factory=LaneSettings)
    models: ModelSettings = field(default_factory=ModelSettings)
    pool: PoolSettings = field(default_factory=PoolSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    host_tier: HostTierSettings = field(default_factory=HostTierSettings)
    lifecycle: LifecycleSettings = field(default_factory=LifecycleSettings)
    faults: FaultSettings = field(default_factory=FaultSettings)
    plugins: PluginSettings = field(default_factory=PluginSettings)


ROOMS: Mapping[str, type[Any]] = {
    "http": HttpSettings,
    "gate": GateSettings,
    "lanes": LaneSettings,
    "models": ModelSettings,
    "pool": PoolSettings,
    "engine": EngineSettings,
    "host_tier": HostTierSettings,
    "lifecycle": LifecycleSettings,
    "faults": FaultSettings,
    "plugins": PluginSettings,
}
