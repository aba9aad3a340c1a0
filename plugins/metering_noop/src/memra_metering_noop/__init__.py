"""Metering that keeps nothing: the smallest real memra plugin."""

from collections.abc import Mapping
from typing import Any

from memra.messages.admission import RequestEnded
from memra.plugins import hookimpl


@hookimpl
def memra_configure(config: Mapping[str, Any]) -> None:
    """Refuse every key: there is nothing to configure.

    Raises:
        ValueError: names the first unknown key.
    """
    for key in config:
        raise ValueError(f"unknown key {key!r}; this plugin has no settings")


@hookimpl
def memra_request_ended(record: RequestEnded) -> None:
    """Take the record and keep nothing. A real plugin would write it down here, quickly."""
