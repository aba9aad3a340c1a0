"""The settings of the house: one frozen dataclass per room, read once at start."""

from memra.settings.fields import parse_switch
from memra.settings.front_rooms import AdminSettings, GateSettings, HttpSettings, LaneSettings, MetadataSettings
from memra.settings.model_rooms import EngineSettings, HostTierSettings, ModelSettings, PoolSettings
from memra.settings.reading import read_settings, settings_file, unknown_variables
from memra.settings.rooms import ROOMS, FaultSettings, LifecycleSettings, PluginSettings, Settings

__all__ = [
    "ROOMS",
    "AdminSettings",
    "EngineSettings",
    "FaultSettings",
    "GateSettings",
    "HostTierSettings",
    "HttpSettings",
    "LaneSettings",
    "LifecycleSettings",
    "MetadataSettings",
    "ModelSettings",
    "PluginSettings",
    "PoolSettings",
    "Settings",
    "parse_switch",
    "read_settings",
    "settings_file",
    "unknown_variables",
]
