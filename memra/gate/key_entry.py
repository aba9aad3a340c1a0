"""One key of a keyring: what is written down of it, how that is checked, and how a new key is made.

Of a key only its SHA-256 is kept, and a public beginning that tells it from others in logs and lists. It knows no file
and no request. Called by `memra.gate.keyring` and by `memra keys`.
"""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_hex
from typing import Any

from memra.errors import ConfigurationError
from memra.messages.identity import MAX_TENANT_CHARS, Identity, KeyClass, is_tenant

_KEY_BYTES = 24
_PUBLIC_DIGITS = 12
"""Of the 48 hexadecimal digits of a key: 36 stay secret, 144 bits, and 48 bits tell keys apart."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]+")
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_FIELDS = ("prefix", "sha256", "tenant", "lane", "enabled", "rate_limit", "created_unix")


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """A key as the keyring has it.

    Attributes:
        digest: SHA-256 of the whole key.
        prefix: the public beginning of the key; names it within the keyring.
        rate_limit: requests of the whole tenant in the house at once; None: as many as the lane takes.
        created_unix: seconds; None where nobody wrote it down.
    """

    digest: bytes = field(repr=False)
    tenant: str
    prefix: str
    key_class: KeyClass = KeyClass.INTERACTIVE
    is_enabled: bool = True
    rate_limit: int | None = None
    created_unix: int | None = None

    @property
    def identity(self) -> Identity:
        """Who comes with this key."""
        return Identity(self.tenant, self.prefix, self.key_class, max_inflight=self.rate_limit, is_named=True)

    def to_toml(self) -> str:
        """Return the entry as a table of the keyring file."""
        lines = [
            "[[keys]]",
            f'prefix = "{self.prefix}"',
            f'sha256 = "{self.digest.hex()}"',
            f'tenant = "{self.tenant}"',
            f'lane = "{self.key_class.value}"',
            f"enabled = {'true' if self.is_enabled else 'false'}",
        ]
        if self.rate_limit is not None:
            lines.append(f"rate_limit = {self.rate_limit}")
        if self.created_unix is not None:
            lines.append(f"created_unix = {self.created_unix}")
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made; its text is nowhere else."""

    text: str = field(repr=False)
    entry: KeyEntry


def digest_of(key: str) -> bytes:
    """Return the SHA-256 of a key; a client may send any bytes, and surrogates stand for those that are not UTF-8."""
    return sha256(key.encode("utf-8", "surrogateescape")).digest()


def make_key(tenant: str, *, key_class: KeyClass = KeyClass.INTERACTIVE, rate_limit: int | None = None) -> NewKey:
    """Make a key, `mk-TENANT-` and 48 random hexadecimal digits.

    Raises:
        ConfigurationError: the tenant's name or the limit cannot be used.
    """
    _check_tenant(tenant)
    _check_limit(rate_limit)
    secret = token_hex(_KEY_BYTES)
    text = f"mk-{tenant}-{secret}"
    prefix = f"mk-{tenant}-{secret[:_PUBLIC_DIGITS]}"
    entry = KeyEntry(digest_of(text), tenant, prefix, key_class, rate_limit=rate_limit, created_unix=int(time.time()))
    return NewKey(text, entry)


def read_table(table: Any) -> KeyEntry:
    """Read one `[[keys]]` table of a keyring file.

    Raises:
        ConfigurationError: names the field and what is wrong with it, never a secret.
    """
    if not isinstance(table, Mapping):
        raise ConfigurationError("is not a table")
    unknown = sorted(set(table) - set(_FIELDS))
    if unknown:
        raise ConfigurationError(f"{unknown[0]!r} is no field of a key; known are {', '.join(_FIELDS)}")
    return KeyEntry(
        digest=_read_digest(table.get("sha256")),
        tenant=_check_tenant(table.get("tenant")),
        prefix=_check_prefix(table.get("prefix")),
        key_class=_read_class(table.get("lane", KeyClass.INTERACTIVE)),
        is_enabled=_check_switch(table.get("enabled", True)),
        rate_limit=_check_limit(table.get("rate_limit")),
        created_unix=_check_time(table.get("created_unix")),
    )


def read_inline(text: str) -> KeyEntry:
    """Read `tenant:sha256[:lane]`; its beginning is that of the digest, since that of the key is not known.

    Raises:
        ConfigurationError: as `read_table`.
    """
    tenant, *rest = text.strip().split(":")
    if len(rest) not in {1, 2}:
        raise ConfigurationError("must be tenant:sha256 or tenant:sha256:lane")
    digest = _read_digest(rest[0])
    key_class = _read_class(rest[1]) if len(rest) > 1 else KeyClass.INTERACTIVE
    return KeyEntry(digest, _check_tenant(tenant), f"sha256-{digest.hex()[:_PUBLIC_DIGITS]}", key_class)


def _check_tenant(value: Any) -> str:
    if not is_tenant(value):
        raise ConfigurationError(f"tenant must be 1 to {MAX_TENANT_CHARS} of the characters A-Z a-z 0-9 _ -")
    return str(value)


def _check_prefix(value: Any) -> str:
    longest = len("mk--") + MAX_TENANT_CHARS + _PUBLIC_DIGITS
    if not isinstance(value, str) or not _PREFIX.fullmatch(value) or len(value) > longest:
        # A whole key is longer than any beginning of one, and must not be written down.
        raise ConfigurationError(f"prefix must be the public beginning of the key, at most {longest} characters")
    return value


def _read_digest(value: Any) -> bytes:
    if not isinstance(value, str) or not _DIGEST.fullmatch(value):
        raise ConfigurationError("sha256 must be the 64 hexadecimal digits of the SHA-256 of the key")
    return bytes.fromhex(value)


def _read_class(value: Any) -> KeyClass:
    if value not in set(KeyClass):
        raise ConfigurationError(f"lane must be {' or '.join(kind.value for kind in KeyClass)}")
    return KeyClass(value)


def _check_switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigurationError("enabled must be true or false")
    return value


def _check_limit(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise ConfigurationError("rate_limit must be a whole number from 1; leave it out for none")
    return value


def _check_time(value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 0):
        raise ConfigurationError("created_unix must be whole seconds since 1970")
    return value
