"""Who a request belongs to: the one API key of a server, or nobody in particular on an open one.

It compares, and knows neither lanes nor limits. Called by the admission actor alone.
"""

from hashlib import sha256
from hmac import compare_digest

from memra.errors import AuthenticationError

DEFAULT_TENANT = "default"
"""Who pays on an open server, and on one with a single key."""


class KeyCheck:
    """Holds the digest of the key that opens the server, or nothing when it is open to all."""

    def __init__(self, api_key: str | None) -> None:
        self._digest = None if api_key is None else _digest(api_key)

    def identify(self, presented: str | None) -> str:
        """Return the tenant that a key belongs to.

        Digests are compared in constant time, so that neither length nor content of the key can be measured.

        Raises:
            AuthenticationError: no key was sent, or not this one.
        """
        if self._digest is None:
            return DEFAULT_TENANT
        if presented is None:
            raise AuthenticationError("This server needs an API key; send it as `Authorization: Bearer KEY`.")
        if not compare_digest(_digest(presented), self._digest):
            raise AuthenticationError("The API key is not valid here; check the key that the server was started with.")
        return DEFAULT_TENANT


def _digest(api_key: str) -> bytes:
    # A client may send any bytes; surrogates stand for those that are not UTF-8.
    return sha256(api_key.encode("utf-8", "surrogateescape")).digest()
