"""Sub-commands of `memra` that plugins bring."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One sub-command.

    Attributes:
        name: the word behind `memra`.
        help: one line.
        add_arguments: declares what it takes.
        run: does it and returns the exit code; a `MemraError` ends in one line and code 1 or 2. Import what is heavy
            inside. The plugin was configured before, from the file that `MEMRA_CONFIG` names.
    """

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
