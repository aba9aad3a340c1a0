"""Finds, checks and calls plugins; the rest of the house sees only its typed methods."""

import logging
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import pluggy

from memra.errors import UsageError
from memra.messages.admission import RequestEnded
from memra.plugins import hookspecs
from memra.plugins.markers import API_VERSION, PROJECT

log = logging.getLogger(__name__)


class Plugins:
    """The plugins of one server; closed sets after `load`."""

    def __init__(self) -> None:
        """Start with no plugin."""
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the loaded plugins, in order of loading."""
        return tuple(name for name, plugin in self._manager.list_name_plugin() if plugin is not None)

    def register(self, plugin: object, name: str) -> None:
        """Add one plugin object.

        Raises:
            UsageError: a hook is misspelt, takes an unknown argument, or needs a later memra.
        """
        wanted = getattr(plugin, "memra_api", API_VERSION)
        if wanted > API_VERSION:
            raise UsageError(f"plugin {name}: needs plugin API {wanted}, this memra has {API_VERSION}; upgrade memra")
        try:
            self._manager.register(plugin, name=name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._manager.has_plugin(name):
                self._manager.unregister(name=name)
            raise UsageError(f"plugin {name}: {' '.join(str(error).split())}") from error

    def load(self, *, blocked: Iterable[str], tables: Mapping[str, Mapping[str, Any]]) -> None:
        """Load every installed plugin that is not blocked, in the order of their names, and configure them.

        Args:
            blocked: entry-point names that are left out.
            tables: `[plugins.NAME]` tables of the configuration file.

        Raises:
            UsageError: names every plugin that cannot be used, all in one message.
        """
        blocked = frozenset(blocked)
        found = sorted(entry_points(group=PROJECT), key=lambda point: point.name)
        complaints = []
        for point in found:
            if point.name in blocked:
                continue
            try:
                self._load_one(point, tables.get(point.name, {}))
            except UsageError as error:
                complaints.append(error.message)
        unknown = sorted(set(tables) - {point.name for point in found})
        complaints += [f"plugin {name}: configured, but not installed" for name in unknown]
        if complaints:
            raise UsageError("; ".join(complaints))

    def _load_one(self, point: EntryPoint, table: Mapping[str, Any]) -> None:
        origin = f"{point.name} ({point.dist.name} {point.dist.version})" if point.dist else point.name
        try:
            plugin = point.load()
        except Exception as error:  # a plugin may fail in any way while it is imported
            raise UsageError(f"plugin {origin}: cannot be imported: {error}") from error
        self.register(plugin, point.name)
        try:
            self._manager.subset_hook_caller("memra_configure", self._all_but(plugin))(config=table)
        except Exception as error:  # a plugin may refuse its configuration in its own words
            raise UsageError(f"plugin {origin}: [plugins.{point.name}]: {error}") from error

    def _all_but(self, plugin: object) -> list[object]:
        return [other for other in self._manager.get_plugins() if other is not plugin]

    def request_ended(self, record: RequestEnded) -> None:
        """Hand a usage record to every plugin; one that raises is named in the log and disturbs nobody."""
        for implementation in self._manager.hook.memra_request_ended.get_hookimpls():
            try:
                implementation.function(*([record] if implementation.argnames else []))
            except Exception:
                log.exception("plugin %s: memra_request_ended failed", implementation.plugin_name)
