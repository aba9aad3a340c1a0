"""Where a server's keyring comes from, and whether it has changed since.

A setting names a file or holds the keys itself. A file is looked at again when somebody asks, at most every two
seconds; a broken one is named in the log once, and the keys that were read last go on. `refresh` may wait for the disk,
so it is for a thread. Called by `memra.actors.doorkeeper` and at the start.
"""

import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from memra.errors import ConfigurationError
from memra.gate.keyring import Keyring, parse_inline
from memra.gate.keyring_file import read_keyring

CHECK_S = 2.0
"""A revoked key opens nothing after this time."""

log = logging.getLogger(__name__)

_Stamp = tuple[int, int, int, int]


class KeyringSource:
    """The keys as they were read last; one per server.

    Attributes:
        keyring: replaced as a whole; may be read from any thread.
    """

    def __init__(self, keyring: Keyring) -> None:
        """Take keys that do not change."""
        self.keyring = keyring
        self._path: Path | None = None
        self._stamp: _Stamp | None = None
        self._clock: Callable[[], float] = time.monotonic
        self._looked_at = 0.0

    @classmethod
    def of_file(cls, path: Path, *, clock: Callable[[], float] = time.monotonic) -> Self:
        """Read a file.

        Args:
            path: looked at again and again.
            clock: seconds.

        Raises:
            ConfigurationError: as `read_keyring`.
        """
        stamp = _stamp_of(path)  # of before: what is changed from here on is read the next time
        source = cls(read_keyring(path))
        source._path, source._stamp, source._clock, source._looked_at = path, stamp, clock, clock()
        return source

    @property
    def path(self) -> Path | None:
        """Where the keys are written down; None for keys that do not change."""
        return self._path

    def is_due(self) -> bool:
        """Tell whether it is time to `refresh`; whoever hears so once is the one to do it."""
        if self._path is None or self._clock() < self._looked_at + CHECK_S:
            return False
        self._looked_at = self._clock()
        return True

    def refresh(self) -> None:
        """Read the file again where it has changed; what is wrong with it is logged once."""
        if self._path is None:
            return
        stamp = _stamp_of(self._path)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.keyring = read_keyring(self._path)
        except ConfigurationError as error:
            log.error("%s; the keys that were read before go on", error.message)  # noqa: TRY400  (told in its own words)
        else:
            log.info("keyring %s was read again: %d keys", self._path, len(self.keyring.entries))


def open_keyring(value: str | None) -> KeyringSource | None:
    """Read the keys that a setting names.

    Args:
        value: the path of a file, or the keys themselves; None for a server without a keyring.

    Raises:
        ConfigurationError: it is neither, or something in it cannot be used.
    """
    if value is None:
        return None
    if is_file_name(value):
        return KeyringSource.of_file(Path(value).expanduser())
    try:
        return KeyringSource(parse_inline(value))
    except ConfigurationError as error:
        raise ConfigurationError(f"MEMRA_API_KEYS: {error.message}") from None


def is_file_name(value: str) -> bool:
    """Tell the path of a keyring file from keys that are written out.

    Raises:
        ConfigurationError: there is no such file, and no keys are written there.
    """
    if os.path.lexists(Path(value).expanduser()):
        return True
    if ":" in value:
        return False
    raise ConfigurationError(
        f"MEMRA_API_KEYS: there is no file {value}; `memra keys gen TENANT --keys {value}` makes one, with a key in it"
    )


def _stamp_of(path: Path) -> _Stamp | None:
    """Return what changes with a file; None where there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size
