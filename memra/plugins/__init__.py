"""The public door: hook specifications and the plugin manager.

A plugin is a module (or object) named by an entry point of the group `memra`. It marks its functions with `hookimpl`:

    from memra.plugins import hookimpl

    @hookimpl
    def memra_request_ended(record): ...

Built-in features use the same door. No hook lies on the path of a token.
"""

from memra.plugins.markers import API_VERSION, hookimpl

__all__ = ["API_VERSION", "hookimpl"]
