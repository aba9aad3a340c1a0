"""The sub-command `memra doctor`: its options, and where its findings go.

Kept light: what measures and looks around is imported only when the command runs.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from memra.settings import read_settings, settings_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (MEMRA_CONFIG)")
    parser.add_argument("--json", action="store_true", help="write JSON instead of text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Say what memra finds on this machine: threads, memory, native library, devices, cache and plugins."""
    from memra.cli_doctor.findings import find_all  # noqa: PLC0415  (heavy, needed only here)
    from memra.cli_doctor.screen import render  # noqa: PLC0415  (as above)

    file = settings_file(options.config, os.environ)
    found = find_all(read_settings({}, file=file))
    if options.json:
        values = asdict(found)
        values["processors"]["num_usable"] = found.processors.num_usable
        sys.stdout.write(json.dumps(values, indent=2) + "\n")
    else:
        sys.stdout.write(render(found))
    return 0
