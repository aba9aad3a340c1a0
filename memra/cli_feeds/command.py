"""The sub-command `memra feeds`: writes a feed of a plugin without serving anything.

Trade: models are opened, none is loaded; the cards are those that the server would give to the same plugin. Refuses to
know schemas. What is heavy is imported only when the command runs.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, cast

from memra.errors import ConfigurationError, UsageError
from memra.settings import Settings, read_settings, settings_file

if TYPE_CHECKING:
    from memra.plugins.feeds import Feed, FileFeed, ModelCard


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("schema", metavar="SCHEMA", help="whose words: openrouter, openmodels, or a plugin's")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write the files of the feed's registry into DIR")
    parser.add_argument("-m", "--model", metavar="NAME=SOURCE", action="append", help="as for `memra run`")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in TOML (MEMRA_CONFIG)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what `GET /models?schema=SCHEMA` would answer, or write the files that its registry takes.

    Exit codes: 0 done, 1 something is not declared or cannot be opened, 2 there is no such feed.
    """
    from memra.cli_feeds.cards import find_feed, read_cards  # noqa: PLC0415  (imports torch)
    from memra.plugins.feeds import FeedUnavailableError  # noqa: PLC0415

    given = {} if options.model is None else {"models": {"arguments": tuple(options.model)}}
    settings: Settings = read_settings(given, file=settings_file(options.config, os.environ))
    feed, plugins = find_feed(options.schema, settings.plugins)
    cards = read_cards(settings, plugins)
    try:
        if options.out is None:
            sys.stdout.write(json.dumps(feed.render(cards), indent=2, ensure_ascii=False) + "\n")
        else:
            _write(_files(feed, cards), options.out)
    except FeedUnavailableError as error:
        raise ConfigurationError(f"there is no {options.schema} feed: {error}") from error
    return 0


def _files(feed: "Feed", cards: "Sequence[ModelCard]") -> Mapping[str, str]:
    if not hasattr(feed, "files"):
        raise UsageError(f"the feed {feed.schema} has no files; leave --out away to print it")
    return cast("FileFeed", feed).files(cards)


def _write(files: Mapping[str, str], folder: Path) -> None:
    """Write the files, and print their paths; nothing lands outside of the folder.

    Raises:
        ConfigurationError: a path leads outside, or cannot be written.
    """
    for name in files:
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise ConfigurationError(f"the feed wants to write to {name!r}, outside of {folder}; nothing was written")
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be written: {error.strerror}") from None
        sys.stdout.write(f"{path}\n")
