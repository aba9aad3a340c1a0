"""Every setting of the house: frozen dataclasses, one per room, with defaults and meanings.

Each field says in its metadata how it is spelt in the environment, read from text and checked;
docs/reference/settings.md is held to this file by a test. Refuses to know where values come from: that is `reading`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memra.settings.fields import at_least, counts, names, one_of, parse_switch, setting
from memra.settings.front_rooms import AdminSettings, GateSettings, HttpSettings, LaneSettings, MetadataSettings
from memra.settings.model_rooms import EngineSettings, HostTierSettings, ModelSettings, PoolSettings


@dataclass(frozen=True, slots=True)
class LifecycleSettings:
    """Start, supervision and the way down."""

    host_loop: str = setting(
        "trio",
        "Event loop: `trio`, or trio as a guest on `asyncio`.",
        env="MEMRA_HOST_LOOP",
        check=one_of("trio", "asyncio"),
    )
    drain_s: float = setting(
        30.0,
        "Time for running requests to finish after SIGTERM, seconds.",
        env="MEMRA_DRAIN_S",
        parse=float,
        check=at_least(0),
    )
    stall_s: float = setting(
        120.0,
        "A busy worker silent for longer, seconds, counts as hung.",
        env="MEMRA_HEALTH_STALL_S",
        parse=float,
        check=at_least(1),
    )
    worker_respawns: int = setting(
        1, "Restarts of a worker that died.", env="MEMRA_WORKER_RESPAWN", parse=int, check=at_least(0)
    )
    gpu_watch: bool = setting(
        True,
        "Watch the GPU's driver and the kernel log for faults, where a GPU does the work.",
        env="MEMRA_GPU_WATCH",
        parse=parse_switch,
    )
    gpu_watch_s: float = setting(
        60.0,
        "Pause between two questions to the GPU's driver, seconds.",
        env="MEMRA_GPU_WATCH_S",
        parse=float,
        check=at_least(0.1),
    )
    gpu_probe_timeout_s: float = setting(
        10.0,
        "A driver that does not answer for this long, seconds, counts as hung.",
        env="MEMRA_GPU_PROBE_TIMEOUT_S",
        parse=float,
        check=at_least(0.1),
    )


@dataclass(frozen=True, slots=True)
class FaultSettings:
    """Faults on demand, for tests of the server as a whole; each strikes once in a process."""

    panic_after: tuple[int, ...] = setting(
        (),
        "Steps of the engine, counted over restarts and separated by commas, in which the worker dies.",
        env="MEMRA_PANIC_AFTER",
        parse=counts,
        check=lambda counts: None if all(type(n) is int and n > 0 for n in counts) else "must be text such as 20,40",
    )
    fault_after: int | None = setting(
        None,
        "The request, by its number, that the engine fails on.",
        env="MEMRA_FAULT_AFTER",
        parse=int,
        check=at_least(1),
    )
    hang_after: int | None = setting(
        None,
        "The step of the engine, by its number, that never ends.",
        env="MEMRA_HANG_AFTER",
        parse=int,
        check=at_least(1),
    )


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """Which plugins are loaded, and what they are told."""

    blocked: tuple[str, ...] = setting(
        (),
        "Names of installed plugins that are not loaded, separated by commas.",
        env="MEMRA_PLUGINS_BLOCK",
        parse=names,
    )
    timeout_s: float = setting(
        5.0,
        "Time that a plugin has to answer about a request, seconds; one that takes longer has failed.",
        env="MEMRA_PLUGINS_TIMEOUT_S",
        parse=float,
        check=at_least(0.01),
    )
    table: Mapping[str, Mapping[str, Any]] = setting({}, "One `[plugins.NAME]` table per plugin, in the file only.")


@dataclass(frozen=True, slots=True)
class Settings:
    """All rooms together."""

    http: HttpSettings = field(default_factory=HttpSettings)
    admin: AdminSettings = field(default_factory=AdminSettings)
    metadata: MetadataSettings = field(default_factory=MetadataSettings)
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
    "admin": AdminSettings,
    "metadata": MetadataSettings,
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
