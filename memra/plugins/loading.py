"""From entry points to plugins in use: found, imported, checked, configured, asked for what they declare.

Trade: everything that can be wrong with the installed plugins is found at start and told together. Refuses to know what
the declarations are good for. Called by the composition root and the command line, on the main thread, before anything
else runs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from memra import __version__
from memra.errors import UsageError
from memra.plugins.answers import DIALECT_PARTS, NonsenseError, a_list, having
from memra.plugins.builtin import BUILT_IN
from memra.plugins.commands import Command
from memra.plugins.config_schema import ConfigError, convert_table
from memra.plugins.feeds import Feed
from memra.plugins.markers import PROJECT
from memra.plugins.plugin import Implementation, Plugin
from memra.plugins.plugin_set import PluginSet

_FAULTS = (Exception, SystemExit)
"""What a plugin's code may raise while it is imported or configured, without a word to the user from Python."""


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """An entry point, not imported yet."""

    name: str
    distribution: str
    version: str
    point: EntryPoint = field(repr=False)

    @property
    def origin(self) -> str:
        """Name, distribution and version, for messages."""
        return f"{self.name} ({self.distribution} {self.version})" if self.distribution else self.name


@dataclass(frozen=True, slots=True)
class Declared:
    """What plugins add by name; every name once.

    Attributes:
        feeds: by schema, with the plugin that brings each.
        exporters: of spans, with the plugin's origin.
    """

    commands: Mapping[str, Command] = field(default_factory=dict)
    feeds: Mapping[str, tuple[Plugin, Feed]] = field(default_factory=dict)
    dialects: tuple[Any, ...] = ()
    exporters: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True)
class Complaints:
    """What is wrong, plugin by plugin."""

    by_plugin: dict[str, list[str]] = field(default_factory=dict)

    def add(self, plugin: str, complaint: str) -> None:
        """Note something about a plugin; the text names it in full."""
        self.by_plugin.setdefault(plugin, []).append(complaint)

    def raise_all(self) -> None:
        """Tell them all.

        Raises:
            UsageError: there are some.
        """
        complaints = [complaint for group in self.by_plugin.values() for complaint in group]
        if complaints:
            raise UsageError("; ".join(complaints))


def find_plugins() -> tuple[FoundPlugin, ...]:
    """Return what is installed, by name, memra's own included; nothing is imported."""
    found = [
        FoundPlugin(point.name, point.dist.name if point.dist else "", point.dist.version if point.dist else "", point)
        for point in entry_points(group=PROJECT)
    ]
    found += [
        FoundPlugin(name, PROJECT, __version__, EntryPoint(name, module, PROJECT)) for name, module in BUILT_IN.items()
    ]
    return tuple(sorted(found, key=lambda plugin: plugin.name))


def import_plugins(plugins: PluginSet, *, blocked: Collection[str], complaints: Complaints) -> None:
    """Put every installed plugin that is not blocked and can be used into a set."""
    found = [plugin for plugin in find_plugins() if plugin.name not in blocked]
    count = Counter(plugin.name for plugin in found)
    for plugin in found:
        if count[plugin.name] > 1:
            complaints.add(plugin.name, f"plugin {plugin.origin}: there are {count[plugin.name]} plugins of this name")
            continue
        try:
            module = plugin.point.load()
        except _FAULTS as error:
            complaints.add(plugin.name, f"plugin {plugin.origin}: cannot be imported: {_in_words(error)}")
            continue
        try:
            plugins.add(module, plugin.name, origin=plugin.origin)
        except UsageError as error:
            complaints.add(plugin.name, error.message)


def configure(plugins: PluginSet, name: str, table: Mapping[str, Any] | None) -> None:
    """Hand a plugin its own table.

    Args:
        plugins: that it is among.
        name: the plugin's.
        table: `[plugins.NAME]`, or None where there is none.

    Raises:
        UsageError: the table, or the schema that it should fit, cannot be used.
    """
    origin = plugins.find(name).origin
    schemas = plugins.implementations("memra_config_schema", of=name)
    takers = plugins.implementations("memra_configure", of=name)
    if table is not None and not schemas and not takers:
        raise UsageError(f"plugin {origin}: [plugins.{name}]: this plugin has no settings; take the table out")
    try:
        config: Any = dict(table or {})
        for implementation in schemas:
            config = convert_table(config, implementation.call())
        for implementation in takers:
            implementation.call(config=config)
    except ConfigError as error:
        raise UsageError(f"plugin {origin}: [plugins.{name}]: {error}") from error
    except _FAULTS as error:
        raise UsageError(f"plugin {origin}: [plugins.{name}]: {_in_words(error)}") from error


def configure_all(plugins: PluginSet, tables: Mapping[str, Mapping[str, Any]], complaints: Complaints) -> None:
    """Hand every plugin its own table; one that refuses it is in the set no more."""
    installed = {plugin.name for plugin in find_plugins()} | set(plugins.names)
    for name in sorted(set(tables) - installed):
        complaints.add(name, f"plugin {name}: configured, but not installed")
    for name in plugins.names:
        try:
            configure(plugins, name, tables.get(name))
        except UsageError as error:
            complaints.add(name, error.message)
            plugins.drop(name)


def collect_declared(
    plugins: PluginSet, complaints: Complaints, *, taken: Mapping[str, Collection[str]] | None = None
) -> Declared:
    """Ask all plugins for what they add by name.

    Args:
        plugins: that are asked; configured.
        complaints: takes clashes and failures.
        taken: names that are memra's own, by hook.
    """
    names = _Names(taken or {}, complaints)
    commands = collect_commands(plugins, complaints)
    feeds = _ask(plugins, "memra_feeds", complaints, having("schema", "render", what="Feeds"))
    dialects = _ask(plugins, "memra_tool_dialects", complaints, having(*DIALECT_PARTS, what="ToolDialects"))
    is_exporter = having("export", "shutdown", what="SpanExporters")
    exporters = _ask(plugins, "memra_telemetry_exporters", complaints, is_exporter)
    return Declared(
        commands={name: command for name, _, command in names.of("memra_commands", commands, _name)},
        feeds={name: (each.plugin, feed) for name, each, feed in names.of("memra_feeds", feeds, _schema)},
        dialects=tuple(dialect for _, _, dialect in names.of("memra_tool_dialects", dialects, _name)),
        exporters=tuple((implementation.plugin.origin, exporter) for implementation, exporter in exporters),
    )


def _name(item: Any) -> str:
    return str(item.name)


def _schema(feed: Any) -> str:
    return str(feed.schema)


def collect_commands(plugins: PluginSet, complaints: Complaints) -> Sequence[tuple[Implementation, Command]]:
    """Ask all plugins for their sub-commands; they need not be configured."""
    return tuple(_ask(plugins, "memra_commands", complaints, _a_command))


def _a_command(item: Any) -> Any:
    if not isinstance(item, Command):
        raise NonsenseError(item, "a list of Commands")
    return item


def _ask(
    plugins: PluginSet, hook: str, complaints: Complaints, check: Callable[[Any], Any]
) -> Iterator[tuple[Implementation, Any]]:
    """Yield what plugins answer to a hook that asks for lists, item by item."""
    for implementation in plugins.implementations(hook):
        try:
            items = [check(item) for item in a_list(implementation.call())]
        except _FAULTS as error:
            plugin = implementation.plugin
            complaints.add(plugin.name, f"plugin {plugin.origin}: {hook} failed: {_in_words(error)}")
            continue
        for item in items:
            yield implementation, item


class _Names:
    """Sees to it that no name is given twice."""

    def __init__(self, taken: Mapping[str, Collection[str]], complaints: Complaints) -> None:
        self._taken = taken
        self._complaints = complaints

    def of(
        self, hook: str, answers: Iterable[tuple[Implementation, Any]], name_of: Callable[[Any], str]
    ) -> Iterator[tuple[str, Implementation, Any]]:
        """Yield name, origin and item of what is the first of its name."""
        owners = dict.fromkeys(self._taken.get(hook, ()), "memra itself")
        for implementation, item in answers:
            plugin, name = implementation.plugin, name_of(item)
            if name in owners:
                self._complaints.add(
                    plugin.name, f"plugin {plugin.origin}: {hook}: {name!r} is taken by {owners[name]}; block one"
                )
                continue
            owners[name] = f"plugin {plugin.origin}"
            yield name, implementation, item


def _in_words(error: BaseException) -> str:
    """One line, also of errors that say nothing."""
    return " ".join(str(error).split()) or type(error).__name__
