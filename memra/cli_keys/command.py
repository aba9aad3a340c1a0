"""The sub-command `memra keys`: its options, where its findings go, and its exit codes.

Kept light: what reads keyrings is imported only when the command runs. A key is shown once, when it is made, on stdout
alone; everything said about it goes to stderr.
"""

import argparse
import os
import sys
from pathlib import Path

from memra.errors import UsageError
from memra.settings import read_settings, settings_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare `memra keys gen`, `revoke` and `list`, and their options."""
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    gen = commands.add_parser("gen", help="make a key and print it, once", description=_gen.__doc__)
    gen.add_argument("tenant", metavar="TENANT", help="whose key it is: letters, digits, - and _")
    gen.add_argument(
        "--lane",
        choices=["interactive", "batch"],
        default="interactive",
        help="batch: every lane but the interactive one (default: interactive)",
    )
    gen.add_argument(
        "--rate-limit", type=int, metavar="N", help="requests of the tenant at once (default: as the lane has it)"
    )
    revoke = commands.add_parser("revoke", help="disable a key", description=_revoke.__doc__)
    revoke.add_argument("prefix", metavar="PREFIX", help="public beginning of the key, as `memra keys list` shows it")
    listing = commands.add_parser("list", help="list the keys", description=_list.__doc__)
    listing.add_argument("--json", action="store_true", help="write JSON instead of text")
    for command, act in ((gen, _gen), (revoke, _revoke), (listing, _list)):
        command.add_argument("--keys", type=Path, metavar="FILE", help="the keyring's file (MEMRA_API_KEYS)")
        command.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (MEMRA_CONFIG)")
        command.set_defaults(run=run, act=act)


def run(options: argparse.Namespace) -> int:
    """Make, disable and list the API keys of tenants; a server that runs follows within 2 s.

    Exit codes: 0 done, 1 it cannot be done, 2 no keyring file is named.
    """
    return int(options.act(options, _keyring_file(options)))


def _keyring_file(options: argparse.Namespace) -> Path:
    if options.keys is not None:
        return Path(options.keys)
    settings = read_settings({}, file=settings_file(options.config, os.environ))
    value = settings.gate.api_keys
    if value is None:
        raise UsageError("no keyring is named; give --keys FILE or set MEMRA_API_KEYS")
    path = Path(value).expanduser()
    if ":" in value and not os.path.lexists(path):
        raise UsageError("MEMRA_API_KEYS holds the keys themselves; put them into a file to have them changed here")
    return path


def _gen(options: argparse.Namespace, path: Path) -> int:
    """Make a key for a tenant, write its hash into the keyring's file, and print the key, now and never again."""
    from memra.gate.key_entry import make_key  # noqa: PLC0415  (with what follows)
    from memra.gate.keyring_file import add_entry  # noqa: PLC0415  (needed only here)
    from memra.messages.identity import KeyClass  # noqa: PLC0415  (as above)

    made = make_key(options.tenant, key_class=KeyClass(options.lane), rate_limit=options.rate_limit)
    add_entry(path, made.entry)
    sys.stderr.write(f"{made.entry.prefix} is in {path}; this is the only time that the key is shown\n")
    sys.stdout.write(f"{made.text}\n")
    return 0


def _revoke(options: argparse.Namespace, path: Path) -> int:
    """Disable a key; requests that run go on, and the next one gets 403."""
    from memra.gate.keyring_file import disable_entry  # noqa: PLC0415  (needed only here)

    entry = disable_entry(path, options.prefix)
    if entry is None:
        sys.stderr.write(f"memra: no key {options.prefix} is enabled in {path}; see `memra keys list`\n")
        return 1
    sys.stderr.write(f"{entry.prefix} of {entry.tenant} is disabled\n")
    return 0


def _list(options: argparse.Namespace, path: Path) -> int:
    """List the keys of the keyring's file by their public beginnings."""
    from memra.cli_keys.screen import as_json, as_table  # noqa: PLC0415  (with what follows)
    from memra.gate.keyring_file import read_keyring  # noqa: PLC0415  (needed only here)

    entries = read_keyring(path, is_owner_checked=False).entries
    sys.stdout.write(as_json(entries) if options.json else as_table(entries))
    return 0
