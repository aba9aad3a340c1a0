"""The one token of the admin listener: read from its file, kept as a digest, compared in constant time.

Refuses to know what the token opens. Read by the composition root at the start; asked by the listener for every call.
"""

from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from memra.errors import ConfigurationError
from memra.gate.private_file import read_private_text

MIN_CHARS = 16
"""96 bits where it is written in base64; anything shorter is a password that somebody thought of."""

_MAX_BYTES = 4096


class AdminToken:
    """Holds the digest of the token, never the token."""

    def __init__(self, text: str) -> None:
        """Take the token itself."""
        self._digest = _digest(text)

    def matches(self, presented: str) -> bool:
        """Tell whether this is the token; digests are compared, so that neither length nor content can be measured."""
        return compare_digest(_digest(presented), self._digest)


def read_admin_token(path: Path) -> AdminToken:
    """Read the token's file: one line of printable ASCII without spaces.

    Raises:
        ConfigurationError: names the file, and what is wrong with it.
    """
    try:
        return AdminToken(_check_token(read_private_text(path, max_bytes=_MAX_BYTES).strip("\r\n")))
    except ConfigurationError as error:
        raise ConfigurationError(f"admin token {path}: {error.message}") from None


def _check_token(text: str) -> str:
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ConfigurationError("must hold one token of printable ASCII characters, without spaces")
    if len(text) < MIN_CHARS:
        raise ConfigurationError(f"must hold a token of at least {MIN_CHARS} characters")
    return text


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()
