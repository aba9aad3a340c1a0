"""The keyring's file: who may have written it, and how it is replaced.

A file that others could have changed, or that is not the one it seems, is refused rather than believed. It is replaced
as a whole, so that a reader sees the old one or the new one. Refuses to know what keys are for; `keyring` reads the
text. Called at the start, by whoever reloads, and by `memra keys`.
"""

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from memra.errors import ConfigurationError
from memra.gate.key_entry import KeyEntry
from memra.gate.keyring import Keyring, parse_keyring
from memra.gate.private_file import read_private_text

MAX_BYTES = 8 << 20
"""Some 30,000 keys; a larger file is a mistake."""


def read_keyring(path: Path, *, is_owner_checked: bool = True) -> Keyring:
    """Read a keyring file.

    Args:
        path: where it lies.
        is_owner_checked: refuse a file of anybody but the process's own user and root; whoever administers keys may be
            another than the server's.

    Raises:
        ConfigurationError: names the file, and what is wrong with it or within it.
    """
    try:
        return parse_keyring(read_private_text(path, max_bytes=MAX_BYTES, is_owner_checked=is_owner_checked))
    except ConfigurationError as error:
        raise ConfigurationError(f"keyring {path}: {error.message}") from None


def add_entry(path: Path, entry: KeyEntry) -> None:
    """Write a key into a keyring file, which is made, for its owner alone, where there is none.

    Raises:
        ConfigurationError: the file cannot be read or written, or has the key already; it is as it was.
    """
    with _locked(path):
        text = read_private_text(path, max_bytes=MAX_BYTES, is_owner_checked=False) if os.path.lexists(path) else ""
        gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
        changed = f"{text}{gap}{entry.to_toml()}"
        try:
            parse_keyring(changed)
        except ConfigurationError as error:
            raise ConfigurationError(f"keyring {path}: the key was not added: {error.message}") from None
        _replace(path, changed)


def disable_entry(path: Path, prefix: str) -> KeyEntry | None:
    """Disable the key with a public beginning, and leave all else in the file as it is written.

    Returns:
        The entry; None, and nothing is written, where there is none, or it is disabled already.

    Raises:
        ConfigurationError: the file cannot be read or written, or not be changed in the way it is written.
    """
    with _locked(path):
        text = read_private_text(path, max_bytes=MAX_BYTES, is_owner_checked=False)
        entries = parse_keyring(text).entries
        found = next((entry for entry in entries if entry.prefix == prefix and entry.is_enabled), None)
        if found is None:
            return None
        changed = _with_disabled(text, entries.index(found))
        if _states(changed) != _states(text, but_disabled=found):
            raise ConfigurationError(
                f"keyring {path}: {prefix} is not written in a [[keys]] table; set its enabled = false by hand"
            )
        _replace(path, changed)
        return found


def _states(text: str, *, but_disabled: KeyEntry | None = None) -> list[tuple[bytes, str, bool]] | None:
    """Return what a keyring says of each key; None where it cannot be read."""
    try:
        entries = parse_keyring(text).entries
    except ConfigurationError:
        return None
    return [(entry.digest, entry.prefix, entry.is_enabled and entry != but_disabled) for entry in entries]


def _with_disabled(text: str, index: int) -> str:
    """Write `enabled = false` into the table at a place, in the stead of what it says of that."""
    lines, at = text.splitlines(keepends=True), -1
    changed: list[str] = []
    for line in lines:
        words = line.strip()
        if at == index and words.partition("=")[0].strip() == "enabled":
            continue
        changed.append(line if line.endswith("\n") else f"{line}\n")
        if words.startswith("[["):
            at += 1
            if at == index:
                changed.append("enabled = false\n")
    return "".join(changed)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one at a time change the files of a directory; the lock goes with the process that holds it."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(f"keyring {path}: its directory cannot be opened: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    except ConfigurationError as error:
        message = error.message if error.message.startswith("keyring ") else f"keyring {path}: {error.message}"
        raise ConfigurationError(message) from None
    except OSError as error:
        raise ConfigurationError(f"keyring {path}: cannot be written: {error.strerror}") from None
    finally:
        os.close(folder)


def _replace(path: Path, text: str) -> None:
    """Put a new file in the place of the old one, with its owner and mode, at once and for good."""
    new = path.with_name(f".{path.name}.{token_hex(8)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            if path.exists():
                old = path.stat()
                os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            new.unlink()
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
