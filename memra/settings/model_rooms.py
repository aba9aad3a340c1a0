"""What is set of models: which ones, how they lie in memory, how they are computed, what is kept of prompts.

Each field says in its metadata how it is spelt in the environment, read from text and checked;
docs/reference/settings.md is held to this file by a test. Refuses to know where values come from: that is `reading`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memra.settings.fields import at_least, between, device_name, names, one_of, parse_switch, path, setting, word


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Which models are served, and where fetched files are kept.

    The first of `arguments`, `plan` and `table` that is not empty wins; `memra.loading.sources` reads their grammar.
    """

    arguments: tuple[str, ...] = setting((), "`NAME=SOURCE`, from the command line.")
    plan: str = setting("", "Names and sources: `name=source,name2=source2`.", env="MEMRA_MODELS")
    table: Mapping[str, Any] = setting(
        {},
        'The `[models]` table of the file: `name = "source"`, or `[models.NAME]` with `source`, `lazy`, `pin`, '
        "`idle_ttl_s`, `kv_mb` and `generic_tools`, of which all but the source may be left out.",
    )
    generic_tools: tuple[str, ...] = setting(
        (),
        "Names of models that are told of tools in the prompt's words where their template has no place for them, "
        "separated by commas, or `*` for all; they may call badly.",
        env="MEMRA_GENERIC_TOOLS",
        parse=names,
    )
    ready_grammars: bool = setting(
        False,
        "Make models ready for grammars while they are loaded, for 0.1 to 1 s and 15 to 70 MB each; off: at a model's "
        "first grammar, when the whole server stands still for as long.",
        env="MEMRA_READY_GRAMMARS",
        parse=parse_switch,
    )
    cache_dir: Path | None = setting(
        None,
        "Where fetched models are kept; unset: the user's cache directory.",
        env="MEMRA_MODELS_DIR",
        parse=path,
    )


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Which models lie in memory, and for how long."""

    memory_mb: int = setting(
        0,
        "Memory for all models together, MiB: weights, keys, values and states. Unused ones make way for the one that "
        "is asked for; 0: no limit.",
        env="MEMRA_MEMORY_MB",
        parse=int,
        check=at_least(0),
    )
    idle_ttl_s: float = setting(
        0.0,
        "A model unused for longer, seconds, is unloaded, and loaded again when it is asked for; 0: never.",
        env="MEMRA_IDLE_TTL_S",
        parse=float,
        check=at_least(0),
    )
    lazy: tuple[str, ...] = setting(
        (),
        "Names of models that are loaded when they are first asked for, separated by commas, or `*` for all.",
        env="MEMRA_LAZY_MODELS",
        parse=names,
    )
    pinned: tuple[str, ...] = setting(
        (),
        "Names of models that are never unloaded to make room or for idleness, separated by commas, or `*` for all.",
        env="MEMRA_PINNED_MODELS",
        parse=names,
    )


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """The worker and its executors."""

    executor: str = setting(
        "auto",
        "`cpu` (native kernels), `torch`, or `auto`: native where it is built and no GPU is asked for or found.",
        env="MEMRA_EXECUTOR",
        check=one_of("auto", "cpu", "torch"),
    )
    num_threads: int = setting(
        0,
        "Threads of the native engine; 0: as many as the process may use processors.",
        env="MEMRA_THREADS",
        parse=int,
        check=at_least(0),
    )
    device: str = setting("auto", "`auto`, `cpu`, `cuda` or `cuda:N`.", env="MEMRA_DEVICE", check=device_name)
    dtype: str = setting(
        "float32",
        "Arithmetic of the torch executor, `float32` or `bfloat16`.",
        env="MEMRA_DTYPE",
        check=one_of("float32", "bfloat16"),
    )
    quant: str = setting(
        "none",
        "What weights of floating type become when they are loaded: `q8_0`, `q4_k`, or `none` to keep the file's.",
        env="MEMRA_QUANT",
        parse=word,
        check=one_of("none", "q8_0", "q4_k"),
    )
    prefill_chunk_tokens: int = setting(
        256, "Prompt tokens computed per model and tick.", env="MEMRA_PREFILL_TICK", parse=int, check=at_least(1)
    )
    max_rows: int = setting(
        16, "Sequences of one model that run at once.", env="MEMRA_MAX_ROWS", parse=int, check=at_least(1)
    )
    kv_memory_mb: int = setting(
        2048, "Memory for keys and values of each model, MiB.", env="MEMRA_KV_MB", parse=int, check=at_least(1)
    )
    prefix_cache_mb: int = setting(
        1024,
        "Memory for keys, values and states of known prefixes, of all models together, MiB; 0 remembers none.",
        env="MEMRA_PREFIX_CACHE_MB",
        parse=int,
        check=at_least(0),
    )
    repack_cache: Path | None = setting(
        None,
        "Folder where the native engine keeps repacked weights, for a start without repacking; unset: nowhere.",
        env="MEMRA_REPACK_CACHE",
        parse=path,
    )
    repack_cache_mb: int = setting(
        32768,
        "Most that the repack cache may hold, MiB; files unused for the longest time go first.",
        env="MEMRA_REPACK_CACHE_MB",
        parse=int,
        check=at_least(1),
    )
    kv_type: str = setting(
        "f16",
        "How the native engine keeps keys and values: `f16`, or `q8_0` in little more than half the memory.",
        env="MEMRA_KV_TYPE",
        check=one_of("f16", "q8_0"),
    )


@dataclass(frozen=True, slots=True)
class HostTierSettings:
    """Where cached prefixes go that no longer fit the model's own memory, and what a restart hands on."""

    memory_mb: int = setting(
        0,
        "Room for evicted prefixes, MiB: pinned memory beside a GPU, a file beside the native engine; 0: off.",
        env="MEMRA_KV_HOST_MB",
        parse=int,
        check=at_least(0),
    )
    directory: Path | None = setting(
        None,
        "Folder of that file, on a disk rather than in memory; unset: the system's folder for temporary files.",
        env="MEMRA_KV_HOST_DIR",
        parse=path,
    )
    verify: bool = setting(
        False,
        "Keep a digest of what is evicted and check it on the way back.",
        env="MEMRA_KV_HOST_VERIFY",
        parse=parse_switch,
    )
    tenant_percent: int = setting(
        50,
        "Most of the room that one tenant may fill, percent.",
        env="MEMRA_KV_HOST_TENANT_PCT",
        parse=int,
        check=between(1, 100),
    )
    handoff: Path | None = setting(
        None,
        "File that a drained server leaves its cached prefixes in, and the next one reads; unset: none.",
        env="MEMRA_KV_HOST_HANDOFF",
        parse=path,
    )
    handoff_mb: int = setting(
        0,
        "Most that the hand-off file takes, MiB, the newest first; 0: everything.",
        env="MEMRA_KV_HOST_HANDOFF_MB",
        parse=int,
        check=at_least(0),
    )
    handoff_io: str = setting(
        "buffered",
        "How the hand-off file is read and written: `buffered`, or `direct`, past the system's page cache.",
        env="MEMRA_KV_HOST_HANDOFF_IO",
        parse=word,
        check=one_of("buffered", "direct"),
    )
