"""The plugins in use, and in which order their hooks are asked.

Trade: takes plugin objects, refuses those that cannot be used, and finds implementations. Refuses to know where plugins
come from (`loading`) and how they are called (`calling`). pluggy keeps the register and checks names and arguments; it
calls nothing, since it knows no coroutines and no time limits. Order: `tryfirst` before the rest before `trylast`, and
within these as they were added, which is by name.
"""

from collections.abc import Iterator

import pluggy

from memra.errors import UsageError
from memra.plugins import hookspecs
from memra.plugins.inspection import complaints_about_hook, complaints_about_plugin, uses_asyncio
from memra.plugins.markers import PROJECT
from memra.plugins.plugin import Implementation, Plugin


class PluginSet:
    """The register of one server or command."""

    def __init__(self) -> None:
        """Start with no plugin."""
        self._manager = pluggy.PluginManager(PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._plugins: dict[str, Plugin] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the plugins, in the order in which they were added."""
        return tuple(self._plugins)

    def find(self, name: str) -> Plugin:
        """Return a plugin by its name.

        Raises:
            KeyError: there is none.
        """
        return self._plugins[name]

    def add(self, module: object, name: str, *, origin: str | None = None) -> Plugin:
        """Add one plugin object.

        Raises:
            UsageError: a hook is misspelt, takes an unknown argument or has the wrong shape, or the plugin needs a
                later memra; it is not added then.
        """
        origin = origin or name
        complaints = self._register(module, name)
        if complaints:
            raise UsageError("; ".join(f"plugin {origin}: {complaint}" for complaint in complaints))
        self._plugins[name] = Plugin(name, origin, module, uses_asyncio=uses_asyncio(module))
        return self._plugins[name]

    def drop(self, name: str) -> None:
        """Take a plugin out again; nothing happens where there is none."""
        if self._plugins.pop(name, None) is not None:
            self._manager.unregister(name=name)

    def hooks_of(self, name: str) -> tuple[str, ...]:
        """Return the names of the hooks that a plugin implements."""
        callers = self._manager.get_hookcallers(self._plugins[name].module) or []
        return tuple(sorted(caller.name for caller in callers))

    def implementations(self, hook: str, *, of: str | None = None) -> tuple[Implementation, ...]:
        """Return the functions for a hook, in the order in which they are asked.

        Args:
            hook: its name.
            of: only this plugin's; None for all.
        """
        order = {name: position for position, name in enumerate(self._plugins)}
        found = [each for each in getattr(self._manager.hook, hook).get_hookimpls() if each.plugin_name in order]
        found.sort(key=lambda each: (each.trylast - each.tryfirst, order[each.plugin_name]))
        return tuple(
            Implementation(self._plugins[each.plugin_name], hook, each.function, tuple(each.argnames))
            for each in found
            if of in (None, each.plugin_name)
        )

    def _register(self, module: object, name: str) -> list[str]:
        """Let pluggy have a plugin; return complaints, after which it has it no more."""
        try:
            complaints = list(complaints_about_plugin(module))
            if not complaints:
                self._manager.register(module, name=name)
                self._manager.check_pending()
                complaints = list(self._complaints_about_hooks(module))
        except Exception as error:  # noqa: BLE001  (the plugin's own attributes are looked at, and may do anything)
            complaints = [" ".join(str(error).split())]
        if complaints and name not in self._plugins and self._manager.has_plugin(name):
            self._manager.unregister(name=name)
        return complaints

    def _complaints_about_hooks(self, module: object) -> Iterator[str]:
        for caller in self._manager.get_hookcallers(module) or []:
            for each in caller.get_hookimpls():
                if each.plugin is module:
                    is_wrapper = each.wrapper or each.hookwrapper
                    yield from complaints_about_hook(caller.name, each.function, is_wrapper=is_wrapper)
