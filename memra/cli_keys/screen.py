"""What `memra keys list` shows: a table for people and JSON for programs, without hashes. Knows entries and no file."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from memra.gate.key_entry import KeyEntry

_HEADS = ("KEY", "TENANT", "LANE", "LIMIT", "STATE", "MADE")


def as_table(entries: Sequence[KeyEntry]) -> str:
    """Return aligned columns, one key a line."""
    rows = [_HEADS, *map(_row, entries)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "".join(f"{line}\n" for line in lines)


def as_json(entries: Sequence[KeyEntry]) -> str:
    """Return a JSON array, one object a key, with the names that the file has."""
    rows = [
        {
            "prefix": entry.prefix,
            "tenant": entry.tenant,
            "lane": entry.key_class.value,
            "rate_limit": entry.rate_limit,
            "enabled": entry.is_enabled,
            "created_unix": entry.created_unix,
        }
        for entry in entries
    ]
    return f"{json.dumps(rows, indent=2)}\n"


def _row(entry: KeyEntry) -> tuple[str, ...]:
    made = entry.created_unix
    return (
        entry.prefix,
        entry.tenant,
        entry.key_class.value,
        "-" if entry.rate_limit is None else str(entry.rate_limit),
        "enabled" if entry.is_enabled else "disabled",
        "-" if made is None else datetime.fromtimestamp(made, UTC).strftime("%Y-%m-%d"),
    )
