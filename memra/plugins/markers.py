"""The two marks that tie a function to the door: one for the specification, one for a plugin's implementation."""

import pluggy

PROJECT = "memra"
API_VERSION = 1
"""Version of the hook set. A plugin that needs a later one says so in its attribute `memra_api`."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)
