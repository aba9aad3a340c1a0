"""The desk where keys are made and disabled while the server runs: the keyring's file, and the ring that is in use.

Trade: writes the file as `memra keys` does and has it read again, so that a key opens, or opens no more, at once.
Refuses to know who asks. Its methods wait for the disk, so they are for a thread; the handles call them.
"""

from pathlib import Path

from memra.errors import ConfigurationError
from memra.gate.key_entry import make_key
from memra.gate.keyring_file import add_entry, disable_entry
from memra.gate.keyring_source import KeyringSource
from memra.messages.identity import KeyClass
from memra.plugins.handles import NewKey


class KeyDesk:
    """One per server."""

    def __init__(self, source: KeyringSource | None) -> None:
        """Take the keyring in use; None on a server without one."""
        self._source = source

    def create(self, tenant: str, *, key_class: KeyClass, rate_limit: int | None) -> NewKey:
        """Make a key.

        Raises:
            ConfigurationError: there is no keyring in a file, it cannot be written, or the values cannot be used.
        """
        source, path = self._ring()
        made = make_key(tenant, key_class=key_class, rate_limit=rate_limit)
        add_entry(path, made.entry)
        source.refresh()
        return NewKey(made.text, made.entry.prefix, tenant, key_class, rate_limit)

    def revoke(self, prefix: str) -> int:
        """Disable the one key of a public beginning, if it is not disabled yet, and say how many have it.

        Raises:
            ConfigurationError: there is no keyring in a file, or it cannot be written.
        """
        source, path = self._ring()
        source.refresh()
        num_found = sum(entry.prefix == prefix for entry in source.keyring.entries)
        if num_found == 1:
            disable_entry(path, prefix)
            source.refresh()
        return num_found

    def _ring(self) -> tuple[KeyringSource, Path]:
        if self._source is None or self._source.path is None:
            raise ConfigurationError(
                "this server has no keyring in a file, so no keys can be made or disabled here; name one with "
                "MEMRA_API_KEYS"
            )
        return self._source, self._source.path
