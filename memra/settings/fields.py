"""How one setting is declared: its default, its meaning, and how it is spelt, read from text and checked.

Called by the rooms' declarations; refuses to know any of them.
"""

import re
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

MIB = 1 << 20

_ORIGIN = re.compile(r"[a-z][a-z0-9+.\-]*://([a-z0-9_.\-]+|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?")
_OWN_PORT = re.compile(r"http://.*[^:]:80|https://.*[^:]:443")


def setting(  # noqa: PLR0913  (one keyword for each place where a setting is spelt)
    default: Any,
    doc: str,
    *,
    env: str | None = None,
    parse: Callable[[str], Any] = str,
    check: Callable[[Any], str | None] | None = None,
    secret: bool = False,
) -> Any:
    """Declare a setting, in place of `dataclasses.field`.

    Args:
        default: where no source says otherwise.
        doc: what it means, for its page.
        env: its name in the environment; None for one that is not read from there.
        parse: reads it from text.
        check: says what is wrong with a value, or None.
        secret: never shown.
    """
    metadata = {"doc": doc, "env": env, "parse": parse, "check": check, "secret": secret}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata, repr=not secret)


def at_least(minimum: float) -> Callable[[Any], str | None]:
    """Return the check of a number that has a least value."""
    return lambda value: None if value >= minimum else f"must be at least {minimum:g}"


def between(minimum: int, maximum: int) -> Callable[[Any], str | None]:
    """Return the check of a number that has a least and a largest value."""
    return lambda value: None if minimum <= value <= maximum else f"must be from {minimum} to {maximum}"


def zero_or_at_least(minimum: int) -> Callable[[Any], str | None]:
    """Return the check of a number that is 0, or has a least value."""
    return lambda value: None if value == 0 or value >= minimum else f"must be 0 or at least {minimum}"


def one_of(*names: str) -> Callable[[Any], str | None]:
    """Return the check of a word that is one of a few."""
    return lambda value: None if value in names else f"must be one of {', '.join(names)}"


def device_name(value: str) -> str | None:
    """Check the name of a device."""
    kind, _, index = value.partition(":")
    if value in {"auto", "cpu"} or (kind == "cuda" and (index.isdigit() or value == "cuda")):
        return None
    return "must be auto, cpu, cuda or cuda:N"


def web_origins(values: tuple[str, ...]) -> str | None:
    """Check origins as browsers send them: scheme, host and port, in small letters, without the scheme's own port."""
    if all(_ORIGIN.fullmatch(value) and not _OWN_PORT.fullmatch(value) for value in values):
        return None
    return "must be origins such as https://chat.example.org or http://localhost:3000, each named in full"


def path(text: str) -> Path:
    """Read a path; `~` is the user's home."""
    return Path(text).expanduser()


def counts(text: str) -> tuple[int, ...]:
    """Read whole numbers, separated by commas."""
    return tuple(int(count) for count in text.split(",") if count.strip())


def word(text: str) -> str:
    """Read a word; case does not matter."""
    return text.lower()


def parse_switch(text: str) -> bool:
    """Read an on/off setting: 1, true, yes, on against 0, false, no, off.

    Raises:
        ValueError: for anything else.
    """
    word = text.strip().lower()
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError(text)


def names(text: str) -> tuple[str, ...]:
    """Read names, separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
