"""The keys of many tenants: a closed set that is read whole or refused whole, and asked for one key at a time.

What a look-up takes depends on nothing that a client could learn a key by: the set is indexed by a digest that is keyed
with a secret of this process, and what is found is compared in constant time. It knows no file and no clock. Called by
`memra.gate.keys`, and by whoever reads keyrings.
"""

import tomllib
from collections.abc import Callable, Iterable
from hashlib import blake2b
from hmac import compare_digest
from secrets import token_bytes
from typing import TypeVar

from memra.errors import ConfigurationError
from memra.gate.key_entry import KeyEntry, digest_of, read_inline, read_table

_Written = TypeVar("_Written")

_NO_DIGEST = bytes(32)
"""Stands in for the digest of an entry that is not there; no key is known that has it."""


class Keyring:
    """Immutable; a changed keyring is another one."""

    def __init__(self, entries: Iterable[KeyEntry] = ()) -> None:
        """Take the entries.

        Raises:
            ConfigurationError: two are of the same key.
        """
        self.entries = tuple(entries)
        self._secret = token_bytes(32)
        self._by_mark: dict[bytes, KeyEntry] = {}
        for number, entry in enumerate(self.entries, start=1):
            other = self._by_mark.setdefault(self._mark(entry.digest), entry)
            if other is not entry:
                raise ConfigurationError(f"key {number}: is the same key as {other.prefix}; each may stand here once")

    def __repr__(self) -> str:
        """Return the number of keys."""
        return f"Keyring(num_keys={len(self.entries)})"

    def find(self, presented: str) -> KeyEntry | None:
        """Return the entry of a key, disabled ones too; None where there is none."""
        digest = digest_of(presented)
        entry = self._by_mark.get(self._mark(digest))
        is_same = compare_digest(digest, _NO_DIGEST if entry is None else entry.digest)
        return entry if is_same else None

    def _mark(self, digest: bytes) -> bytes:
        return blake2b(digest, key=self._secret, digest_size=16).digest()


def parse_keyring(text: str) -> Keyring:
    """Read the text of a keyring file: any number of `[[keys]]` tables and nothing else.

    Raises:
        ConfigurationError: names the first entry that cannot be used; then none of them is.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"not valid TOML: {error}") from None
    unknown = sorted(set(document) - {"keys"})
    if unknown:
        raise ConfigurationError(f"{unknown[0]!r} is no part of a keyring, which holds [[keys]] alone")
    tables = document.get("keys", [])
    if not isinstance(tables, list):
        raise ConfigurationError("keys must be written as [[keys]]")
    return Keyring(_read_each(tables, read_table))


def parse_inline(text: str) -> Keyring:
    """Read `tenant:sha256[:lane],...`.

    Raises:
        ConfigurationError: as `parse_keyring`.
    """
    return Keyring(_read_each(text.split(","), read_inline))


def _read_each(written: Iterable[_Written], read: Callable[[_Written], KeyEntry]) -> Iterable[KeyEntry]:
    for number, one in enumerate(written, start=1):
        try:
            yield read(one)
        except ConfigurationError as error:
            raise ConfigurationError(f"key {number}: {error.message}") from None
