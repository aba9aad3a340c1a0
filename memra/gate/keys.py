"""Who a request belongs to: the tenant of its key, the one tenant of the server's single key, or nobody in particular.

The law, in order: a server without keys is open to all; a key of the keyring is its tenant's, unless it is disabled;
then the single key is asked; then the request is refused. It compares, and knows neither lanes nor limits. Called by
`memra.actors.doorkeeper`.
"""

from dataclasses import replace
from hmac import compare_digest

from memra.errors import AuthenticationError, ForbiddenError
from memra.gate.key_entry import digest_of
from memra.gate.keyring import Keyring
from memra.messages.identity import ANYBODY, Identity

_AMONG_TENANTS = replace(ANYBODY, is_named=True)
"""Whoever comes with the single key of a server that has tenants: none of them can share a namespace with it."""


class KeyLaw:
    """Holds the digest of the server's single key, where it has one."""

    def __init__(self, api_key: str | None) -> None:
        """Take the single key."""
        self._digest = None if api_key is None else digest_of(api_key)

    def identify(self, presented: str | None, keyring: Keyring | None = None) -> Identity:
        """Return whose key was presented.

        Digests are compared in constant time, so that neither length nor content of a key can be measured.

        Args:
            presented: the key as sent.
            keyring: None where the server has none; an empty one opens nothing.

        Raises:
            AuthenticationError: no key was sent, or none that opens this server.
            ForbiddenError: the key is known, and disabled.
        """
        if self._digest is None and keyring is None:
            return ANYBODY
        if presented is None:
            raise AuthenticationError("This server needs an API key; send it as `Authorization: Bearer KEY`.")
        entry = None if keyring is None else keyring.find(presented)
        if entry is not None:
            if not entry.is_enabled:
                raise ForbiddenError(f"The API key {entry.prefix} is disabled; ask whoever gave it to you for another.")
            return entry.identity
        if self._digest is None or not compare_digest(digest_of(presented), self._digest):
            raise AuthenticationError("The API key is not valid here; check it, or ask whoever runs this server.")
        return ANYBODY if keyring is None else _AMONG_TENANTS
