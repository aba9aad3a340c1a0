"""What is set at the front door and the gate: who may come in, how much, and which class of service makes way.

Each field says in its metadata how it is spelt in the environment, read from text and checked;
docs/reference/settings.md is held to this file by a test. Refuses to know where values come from: that is `reading`.
"""

from dataclasses import dataclass
from pathlib import Path

from memra.settings.fields import MIB, at_least, names, parse_switch, path, setting, web_origins, zero_or_at_least


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The front door."""

    address: str = setting("127.0.0.1:8080", "Where to listen, `host:port`; port 0 takes a free one.", env="MEMRA_ADDR")
    max_body_bytes: int = setting(
        32 * MIB, "Largest request body, bytes.", env="MEMRA_MAX_BODY_BYTES", parse=int, check=at_least(1024)
    )
    metrics_token: str | None = setting(
        None,
        "Token that alone opens /metrics, /yield/metrics and /cache/stats; without it a key does, but no tenant's.",
        env="MEMRA_METRICS_TOKEN",
        secret=True,
    )
    body_timeout_s: float = setting(
        90.0,
        "Longest time for a request body to arrive, seconds; one more for every 2 MiB of it, up to twice as long.",
        env="MEMRA_BODY_TIMEOUT_S",
        parse=float,
        check=at_least(0.001),
    )
    body_idle_s: float = setting(
        10.0,
        "A request body of which nothing comes for this long, seconds, is given up.",
        env="MEMRA_BODY_IDLE_S",
        parse=float,
        check=at_least(0.001),
    )
    head_timeout_s: float = setting(
        10.0,
        "Longest time for the head of a request to arrive once it has begun, seconds.",
        env="MEMRA_HEAD_TIMEOUT_S",
        parse=float,
        check=at_least(0.001),
    )
    max_connections: int = setting(
        1024,
        "Connections at once; past that the one that was idle longest makes room, or else the next is refused.",
        env="MEMRA_MAX_CONNECTIONS",
        parse=int,
        check=at_least(1),
    )
    connection_max_age_s: float = setting(
        300.0,
        "Age from which a connection is closed with its next answer, seconds.",
        env="MEMRA_CONNECTION_MAX_AGE_S",
        parse=float,
        check=at_least(0.001),
    )
    keep_alive_s: float = setting(
        75.0,
        "How long an idle connection is kept, seconds.",
        env="MEMRA_KEEP_ALIVE_S",
        parse=float,
        check=at_least(0.001),
    )
    write_timeout_s: float = setting(
        10.0,
        "A client that takes nothing for this long, seconds, is cut off.",
        env="MEMRA_WRITE_TIMEOUT_S",
        parse=float,
        check=at_least(0.001),
    )
    keepalive_comment_s: float = setting(
        5.0,
        "Pause after which a silent stream sends a comment, seconds.",
        env="MEMRA_SSE_KEEPALIVE_S",
        parse=float,
        check=at_least(0.001),
    )
    cors_origins: tuple[str, ...] = setting(
        (),
        "Web origins whose pages may call the server, as browsers send them, separated by commas.",
        env="MEMRA_CORS_ORIGINS",
        parse=names,
        check=web_origins,
    )
    compat: str | None = setting(
        None,
        "Shape of /v1/completions: `openai`, or any other word for native; unset: OpenAI if a key is set.",
        env="MEMRA_COMPAT",
    )
    allow_open_bind: bool = setting(
        False,
        "Allow an address other than loopback although the server has no keys.",
        env="MEMRA_ALLOW_OPEN_BIND",
        parse=parse_switch,
    )


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """The listener for whoever administers the server; off unless it has an address."""

    address: str | None = setting(
        None,
        "Where to listen for administration, `host:port`, on loopback alone; unset: nowhere.",
        env="MEMRA_ADMIN_ADDR",
    )
    token_file: Path | None = setting(
        None,
        "The file that holds the one token of the admin listener, readable for nobody but its owner and group.",
        env="MEMRA_ADMIN_TOKEN_FILE",
        parse=path,
    )
    audit_file: Path | None = setting(
        None,
        "The file that gets a line for every call of the admin listener, before the call is carried out.",
        env="MEMRA_ADMIN_AUDIT_FILE",
        parse=path,
    )


@dataclass(frozen=True, slots=True)
class MetadataSettings:
    """What the owner declares of the models: prices, limits, defaults."""

    file: Path | None = setting(
        None,
        "The file that declares what clients and marketplaces are told of the models; see docs/how-to/feeds.md.",
        env="MEMRA_MODEL_METADATA",
        parse=path,
    )


@dataclass(frozen=True, slots=True)
class GateSettings:
    """Who may come in, and how much."""

    api_key: str | None = setting(
        None,
        "The one bearer key that opens the server; unset, and no `api_keys`: open to all.",
        env="MEMRA_API_KEY",
        secret=True,
    )
    api_keys: str | None = setting(
        None,
        "The keys of tenants: a file that `memra keys` writes, or `tenant:sha256[:lane],...`; unset: none.",
        env="MEMRA_API_KEYS",
        secret=True,
    )
    context_tokens: int = setting(
        8192, "Context given to a request without `max_tokens`.", env="MEMRA_CTX", parse=int, check=at_least(16)
    )
    max_interactive: int = setting(
        64,
        "Interactive requests in the house at once; more may queue.",
        env="MEMRA_MAX_SESSIONS",
        parse=int,
        check=at_least(1),
    )
    max_judge: int = setting(
        4, "Judge requests at once; more are refused.", env="MEMRA_LANE_MAX_JUDGE", parse=int, check=at_least(0)
    )
    max_harvest: int = setting(
        8, "Harvest requests at once; more are refused.", env="MEMRA_LANE_MAX_HARVEST", parse=int, check=at_least(0)
    )
    response_cache_mb: int = setting(
        0,
        "Memory for whole answers that equal deterministic requests are given again, MiB; 0: none are kept.",
        env="MEMRA_RESPONSE_CACHE_MB",
        parse=int,
        check=at_least(0),
    )
    response_cache_ttl_s: float = setting(
        3600.0,
        "Age at which a kept answer is no longer given, seconds.",
        env="MEMRA_RESPONSE_CACHE_TTL_S",
        parse=float,
        check=at_least(0.001),
    )
    max_queue_depth: int = setting(
        0,
        "Interactive requests that may wait for their turn; 0: four times `max_interactive`.",
        env="MEMRA_MAX_QUEUE_DEPTH",
        parse=int,
        check=at_least(0),
    )
    queue_wait_ceiling_s: float = setting(
        0.0,
        "A request that would wait longer for its turn, seconds, is refused; 0: no bound but its own deadline.",
        env="MEMRA_QUEUE_WAIT_CEILING_S",
        parse=float,
        check=at_least(0),
    )
    timeout_ms_max: int = setting(
        90_000,
        "Longest `timeout_ms` that a request may ask for, milliseconds.",
        env="MEMRA_TIMEOUT_MS_MAX",
        parse=int,
        check=at_least(1000),
    )
    timeout_ms_default: int = setting(
        0,
        "Deadline of a request that does not ask for one, milliseconds; 0: it takes as long as it takes.",
        env="MEMRA_TIMEOUT_MS_DEFAULT",
        parse=int,
        check=zero_or_at_least(1000),
    )
    stream_timeout_ms_max: int = setting(
        0,
        "The same for the first token of a stream, where it differs; 0: as above.",
        env="MEMRA_STREAM_TTFT_MS_MAX",
        parse=int,
        check=zero_or_at_least(1000),
    )
    nonstream_deadline_gate: bool = setting(
        True,
        "Refuse an answer that is not streamed when its `max_tokens` cannot come in time at the two rates below.",
        env="MEMRA_NONSTREAM_DEADLINE_GATE",
        parse=parse_switch,
    )
    prefill_floor_tok_s: float = setting(
        2000.0,
        "Prompt tokens a second that the gate above counts on.",
        env="MEMRA_PREFILL_FLOOR_TOK_S",
        parse=float,
        check=at_least(0.001),
    )
    decode_floor_tok_s: float = setting(
        60.0,
        "Generated tokens a second that the gate above counts on.",
        env="MEMRA_DECODE_FLOOR_TOK_S",
        parse=float,
        check=at_least(0.001),
    )
    slot_reset_s: int = setting(
        2,
        "What `x-ratelimit-reset` says of a full lane before anything was measured, seconds.",
        env="MEMRA_RL_RESET_S",
        parse=int,
        check=at_least(1),
    )


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How the dark lanes (judge and harvest) make way for the interactive one."""

    slo_p99_ms: float = setting(
        0.0,
        "Aim for the 99th percentile of the steps that move an interactive answer on, ms; 0: 50 on a GPU, 200 without.",
        env="MEMRA_SLO_P99_MS",
        parse=float,
        check=at_least(0),
    )
    shed_judge: float = setting(
        1.0,
        "Fraction of the aim from which new judge requests are refused.",
        env="MEMRA_SHED_JUDGE",
        parse=float,
        check=at_least(0),
    )
    shed_harvest: float = setting(
        0.9,
        "Fraction of the aim from which new harvest requests are refused.",
        env="MEMRA_SHED_HARVEST",
        parse=float,
        check=at_least(0),
    )
    window_s: float = setting(
        30.0,
        "How far back the percentiles of step times look, seconds.",
        env="MEMRA_LANE_WINDOW_S",
        parse=float,
        check=at_least(0.001),
    )
    prefill_judge_tokens: int = setting(
        256,
        "Prompt tokens of the judge lane computed in one tick, at most.",
        env="MEMRA_PREFILL_TICK_JUDGE",
        parse=int,
        check=at_least(1),
    )
    prefill_harvest_tokens: int = setting(
        256,
        "Prompt tokens of the harvest lane computed in one tick, at most.",
        env="MEMRA_PREFILL_TICK_HARVEST",
        parse=int,
        check=at_least(1),
    )
