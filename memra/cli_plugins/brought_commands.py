"""Sub-commands that plugins bring: found for the command line, and run with their plugin configured.

Trade: a plugin that is broken costs its own commands and a line on stderr, never somebody else's. Refuses to know what
a command does. Imported only where a command line asks for something that is not memra's own.
"""

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memra.cli_plugins.own_commands import OWN_COMMANDS
from memra.errors import MemraError
from memra.plugins.commands import Command
from memra.plugins.loading import Complaints, collect_commands, configure, import_plugins
from memra.plugins.plugin_set import PluginSet
from memra.settings import PluginSettings, read_settings, settings_file


@dataclass(frozen=True, slots=True)
class BroughtCommand:
    """One sub-command of a plugin."""

    command: Command
    plugin: str
    plugins: PluginSet = field(repr=False)
    tables: Mapping[str, Mapping[str, Any]] = field(repr=False)

    def run(self, options: argparse.Namespace) -> int:
        """Configure the plugin, run its command, and return the exit code.

        Raises:
            MemraError: the plugin's table cannot be used, or the command says what is wrong.
        """
        configure(self.plugins, self.plugin, self.tables.get(self.plugin))
        return self.command.run(options)


def find_commands() -> tuple[list[BroughtCommand], list[str]]:
    """Return the commands of all plugins that are installed and not blocked, and complaints about the others."""
    complaints = Complaints()
    settings = PluginSettings()
    try:
        settings = read_settings({}, file=settings_file(None, os.environ)).plugins
    except MemraError as error:
        complaints.add("", error.message)
    plugins = PluginSet()
    import_plugins(plugins, blocked=frozenset(settings.blocked), complaints=complaints)
    found: dict[str, BroughtCommand] = {}
    for implementation, command in collect_commands(plugins, complaints):
        plugin = implementation.plugin
        if command.name in found or command.name in OWN_COMMANDS:
            complaints.add(plugin.name, f"plugin {plugin.origin}: the command {command.name!r} is taken")
        else:
            found[command.name] = BroughtCommand(command, plugin.name, plugins, settings.table)
    return list(found.values()), [line for lines in complaints.by_plugin.values() for line in lines]
