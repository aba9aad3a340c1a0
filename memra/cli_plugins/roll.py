"""What every installed plugin is and does, found out without a server.

Trade: loads, configures and questions plugins as a start would, but goes on behind each complaint. Refuses to know how
the result is shown.
"""

from dataclasses import dataclass
from enum import StrEnum

from memra.cli_plugins.own_commands import OWN_COMMANDS
from memra.errors import MemraError
from memra.http.plugin_routes import list_routes
from memra.plugins.answers import a_list
from memra.plugins.closed_handles import closed_handles
from memra.plugins.loading import Complaints, FoundPlugin, collect_declared, configure_all, find_plugins, import_plugins
from memra.plugins.plugin_set import PluginSet
from memra.settings import PluginSettings


class PluginState(StrEnum):
    """What became of a plugin."""

    LOADED = "loaded"
    BLOCKED = "blocked"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class PluginRow:
    """One plugin, as it is listed.

    Attributes:
        distribution, version: of the package that brings it.
        hooks: that it implements; empty unless it is loaded.
        routes: public ones, and those of the admin listener with `admin` before them.
        complaints: why it is broken.
    """

    name: str
    distribution: str
    version: str
    state: PluginState
    hooks: tuple[str, ...] = ()
    routes: tuple[str, ...] = ()
    complaints: tuple[str, ...] = ()


def call_roll(settings: PluginSettings) -> tuple[PluginRow, ...]:
    """Look at every plugin that is installed or configured, by name."""
    plugins, complaints = PluginSet(), Complaints()
    import_plugins(plugins, blocked=frozenset(settings.blocked), complaints=complaints)
    hooks = {name: plugins.hooks_of(name) for name in plugins.names}
    configure_all(plugins, settings.table, complaints)
    collect_declared(plugins, complaints, taken={"memra_commands": OWN_COMMANDS})
    routes = {name: _routes(plugins, name, complaints) for name in plugins.names}
    found = {plugin.name: plugin for plugin in find_plugins()}
    return tuple(
        PluginRow(
            name,
            *_package(found.get(name)),
            state=_state(name, settings, complaints),
            hooks=hooks.get(name, ()),
            routes=routes.get(name, ()),
            complaints=tuple(complaints.by_plugin.get(name, ())),
        )
        for name in sorted(found.keys() | complaints.by_plugin.keys())
    )


def _package(found: FoundPlugin | None) -> tuple[str, str]:
    return ("", "") if found is None else (found.distribution, found.version)


def _state(name: str, settings: PluginSettings, complaints: Complaints) -> PluginState:
    if name in complaints.by_plugin:
        return PluginState.BROKEN
    return PluginState.BLOCKED if name in settings.blocked else PluginState.LOADED


def _routes(plugins: PluginSet, name: str, complaints: Complaints) -> tuple[str, ...]:
    """Return the routes of a plugin; one that needs a running server for saying them has complaints instead."""
    routes: list[str] = []
    for hook, prefix in (("memra_blueprints", ""), ("memra_admin_blueprints", "admin ")):
        for implementation in plugins.implementations(hook, of=name):
            origin = implementation.plugin.origin
            try:
                blueprints = a_list(implementation.call(handles=closed_handles()))
                routes += [f"{prefix}{route}" for route in list_routes(blueprints)]
            except MemraError as error:
                complaints.add(name, f"plugin {origin}: {error.message}")
            except Exception as error:  # noqa: BLE001  (a plugin's code)
                complaints.add(name, f"plugin {origin}: {hook} failed: {error}")
    return tuple(routes)
