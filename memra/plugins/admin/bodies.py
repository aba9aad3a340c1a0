"""Bodies of the admin routes, and what values they take.

Unknown fields are refused: an order that is misspelt must not be half carried out.
"""

import re

import msgspec

from memra.errors import DeniedError
from memra.messages.identity import KeyClass

_TENANT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_PREFIX_CHARS = 256


class Export(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`POST /admin/kv-host/export`."""

    force: bool = False


class Load(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`POST /admin/models/load`; `source` as in `NAME=SOURCE`."""

    name: str
    source: str | None = None


class Unload(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`POST /admin/models/unload`."""

    name: str


class CreateKey(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`POST /admin/keys`."""

    tenant: str
    lane: str = "interactive"
    rate_limit: int | None = None

    def check(self) -> None:
        """Look at the values.

        Raises:
            DeniedError: names the field that is wrong.
        """
        if not _TENANT.fullmatch(self.tenant):
            raise DeniedError(
                "tenant must be 1 to 64 of the characters A-Z a-z 0-9 _ -.",
                param="tenant",
                status=400,
                code="invalid_tenant",
            )
        if self.lane not in set(KeyClass):
            raise DeniedError("lane must be interactive or batch.", param="lane", status=400, code="invalid_lane")
        if self.rate_limit is not None and self.rate_limit < 1:
            raise DeniedError(
                "rate_limit must be a whole number from 1; leave it out for none.",
                param="rate_limit",
                status=400,
                code="invalid_rate_limit",
            )

    @property
    def key_class(self) -> KeyClass:
        """What the key may ask for."""
        return KeyClass(self.lane)


class RevokeKey(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """`POST /admin/keys/revoke`."""

    prefix: str

    def check(self) -> None:
        """Look at the value.

        Raises:
            DeniedError: it is no beginning of a key.
        """
        if not 0 < len(self.prefix) <= _MAX_PREFIX_CHARS or not (self.prefix.isascii() and self.prefix.isprintable()):
            raise DeniedError(
                f"prefix must be 1 to {_MAX_PREFIX_CHARS} printable ASCII characters.",
                param="prefix",
                status=400,
                code="invalid_prefix",
            )
