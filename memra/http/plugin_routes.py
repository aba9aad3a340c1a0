"""Routes that plugins bring: put onto an application, with every clash found.

Trade: blueprints in, complaints out. quart itself takes a second route of the same path silently and lets the first
win, so the map of routes is compared before and after. Refuses to know plugins: it gets the words that name them.
Called before the doors open.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from quart import Blueprint
from quart_trio import QuartTrio
from werkzeug.routing import Rule

from memra.errors import UsageError

_VARIABLE = re.compile(r"<[^>]*>")
_AUTOMATIC = {"OPTIONS", "HEAD"}
"""quart answers these itself where the others are answered."""

_Place = tuple[str, str]


def mount_blueprints(app: QuartTrio, blueprints: Sequence[tuple[str, Any]]) -> None:
    """Register blueprints on an application.

    Args:
        app: with all routes of its own.
        blueprints: each with the plugin that brings it, in words.

    Raises:
        UsageError: names every route that somebody else has, and who that is.
    """
    owners = dict.fromkeys((place for rule in app.url_map.iter_rules() for place in _places(rule)), "memra itself")
    complaints = []
    for origin, blueprint in blueprints:
        known = {id(rule) for rule in app.url_map.iter_rules()}
        try:
            app.register_blueprint(_checked(blueprint))
        except Exception as error:  # noqa: BLE001  (a blueprint runs code of the plugin's while it is registered)
            complaints.append(f"plugin {origin}: its blueprint cannot be used: {error}")
            continue
        for rule in app.url_map.iter_rules():
            if id(rule) not in known:
                complaints += _claim(owners, rule, f"plugin {origin}")
    if complaints:
        raise UsageError("; ".join(complaints))


def list_routes(blueprints: Sequence[Any]) -> tuple[str, ...]:
    """Return the routes that blueprints bring, as `GET /path`, for somebody to read.

    Raises:
        UsageError: as for `mount_blueprints`.
    """
    app = QuartTrio("memra", static_folder=None, template_folder=None)
    mount_blueprints(app, [("", blueprint) for blueprint in blueprints])
    return tuple(f"{method} {rule.rule}" for rule in app.url_map.iter_rules() for _, method in _places(rule))


def _checked(blueprint: Any) -> Blueprint:
    if not isinstance(blueprint, Blueprint):
        raise TypeError(f"it is {type(blueprint).__name__}, and must be a quart.Blueprint")
    return blueprint


def _claim(owners: dict[_Place, str], rule: Rule, owner: str) -> Iterator[str]:
    for place in _places(rule):
        if owners.setdefault(place, owner) != owner:
            yield f"{owner}: its route {place[1]} {rule.rule} is already {owners[place]}'s"


def _places(rule: Rule) -> Iterator[_Place]:
    """Yield path and method, whatever the variables of the path are called."""
    path = _VARIABLE.sub("<>", rule.rule)
    for method in sorted((rule.methods or set()) - _AUTOMATIC) or ["HEAD"]:
        yield path, method
