"""Every hook, in the order of a server's life: when it is called, on which thread, and what an exception does."""

from collections.abc import Mapping
from typing import Any

from memra.messages.admission import RequestEnded
from memra.plugins.markers import hookspec


@hookspec
def memra_configure(config: Mapping[str, Any]) -> None:
    """Take the plugin's own table, `[plugins.NAME]` of the configuration file; empty when there is none.

    Called once per plugin before any model is loaded, on the main thread. An exception stops the start with exit code 2
    and names the plugin; so a plugin refuses here what it does not understand.
    """


@hookspec
def memra_request_ended(record: RequestEnded) -> None:
    """Take the one usage record of an admitted request, whatever its end was.

    Called when generation has ended, on the loop's thread, while the last bytes may still be on their way: return
    quickly. Every plugin is called; an exception is logged with the plugin's name and disturbs nobody.
    """
