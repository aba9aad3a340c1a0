"""`memra plugins`: what is installed, from which package, with which hooks and routes, and what is wrong with it.

Shows what `roll` finds, as a table or as JSON. Nothing heavy is imported before it runs.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from memra.settings import read_settings, settings_file

if TYPE_CHECKING:
    from memra.cli_plugins.roll import PluginRow

_HEADINGS = ("name", "package", "state", "hooks and routes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (MEMRA_CONFIG)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """List the plugins that are installed, with their hooks and routes, and what is wrong with them."""
    from memra.cli_plugins.roll import call_roll  # noqa: PLC0415  (imports quart)

    settings = read_settings({}, file=settings_file(options.config, os.environ))
    rows = call_roll(settings.plugins)
    if options.json:
        sys.stdout.write(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_table(rows)) + "\n" if rows else "no plugin is installed\n")
    return 0


def _table(rows: "Sequence[PluginRow]") -> Iterable[str]:
    heads = [
        (row.name, f"{row.distribution} {row.version}".strip() or "not installed", row.state.value) for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(_HEADINGS[:3], *heads, strict=True)]
    yield _line((*_HEADINGS,), widths)
    for row, head in zip(rows, heads, strict=True):
        details = [*row.hooks, *row.routes, *row.complaints] or [""]
        yield _line((*head, details[0]), widths)
        for detail in details[1:]:
            yield _line(("", "", "", detail), widths)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    *heads, last = cells
    return "  ".join([*(cell.ljust(width) for cell, width in zip(heads, widths, strict=True)), last]).rstrip()
