"""Plugins that memra itself brings: by name, and where each is found.

They go through the very door of everybody else's: named, blocked, configured and listed as those are. This table stands
in the place of entry points, so that they are there also where memra runs from its sources. Read by `loading`.
"""

from collections.abc import Mapping

BUILT_IN: Mapping[str, str] = {
    "admin": "memra.plugins.admin",
    "feeds_openmodels": "memra.plugins.feeds_openmodels",
    "feeds_openrouter": "memra.plugins.feeds_openrouter",
}
"""Modules by the name of the plugin; imported at start, so that they must not import anything heavy by themselves."""
