"""The settings of the house: one frozen dataclass per room, read once at start."""

from memra.settings.reading import read_settings, settings_file, unknown_variables
from memra.settings.rooms import (
    ROOMS,
    EngineSettings,
    FaultSettings,
    GateSettings,
    HostTierSettings,
    HttpSettings,
    LaneSettings,
    LifecycleSettings,
    ModelSettings,
    PluginSettings,
    PoolSettings,
    Settings,
    parse_switch,
)

__all__ = [
    "ROOMS",
    "EngineSettings",
    "FaultSettings",
    "GateSettings",
    "HostTierSettings",
    "HttpSettings",
    "LaneSettings",
    "LifecycleSettings",
    "ModelSettings",
    "PluginSettings",
    "PoolSettings",
    "Settings",
    "parse_switch",
    "read_settings",
    "settings_file",
    "unknown_variables",
]
