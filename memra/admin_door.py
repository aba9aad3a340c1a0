"""The admin listener put together: what it needs is checked before any model is opened, and it is served with the rest.

Trade: a part of the composition root; it joins the gate's token with http's door and plugins' routes. Refuses to know
what the routes do.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from socket import socket
from typing import Any

import trio

from memra.errors import ConfigurationError
from memra.gate.admin_token import AdminToken, read_admin_token
from memra.http.address import address_of, bind_loopback
from memra.http.admin_app import build_admin_app
from memra.http.admin_audit import AuditFile
from memra.http.serve import serve
from memra.settings import AdminSettings, HttpSettings


@dataclass(frozen=True, slots=True)
class AdminDoor:
    """A bound listener, and who may come in by it."""

    listener: socket
    token: AdminToken
    audit: AuditFile

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{address_of(self.listener)}"

    async def serve(
        self,
        blueprints: Sequence[tuple[str, Any]],
        *,
        settings: HttpSettings,
        nursery: trio.Nursery,
        shutdown: trio.Event,
    ) -> None:
        """Serve routes in a nursery until `shutdown` is set; returns once connections are accepted.

        Raises:
            UsageError: two plugins bring the same route.
            AddressError: another process took the port since it was bound.
        """
        app = build_admin_app(self.token.matches, self.audit, blueprints)
        await nursery.start(partial(serve, app, self.listener, settings=settings, shutdown=shutdown))


@contextmanager
def open_admin_door(settings: AdminSettings) -> Iterator[AdminDoor | None]:
    """Bind the listener and check all that it needs; None where there is to be none.

    Raises:
        ConfigurationError: something that it needs is missing or cannot be used.
        AddressError: its address cannot be bound, or is open to others than this machine.
    """
    if settings.address is None:
        yield None
        return
    if settings.token_file is None or settings.audit_file is None:
        missing = "MEMRA_ADMIN_TOKEN_FILE" if settings.token_file is None else "MEMRA_ADMIN_AUDIT_FILE"
        raise ConfigurationError(f"MEMRA_ADMIN_ADDR is set, so {missing} must be; see docs/how-to/administer.md")
    token, audit = read_admin_token(settings.token_file), AuditFile(settings.audit_file)
    audit.check()
    with closing(bind_loopback(settings.address)) as listener:
        yield AdminDoor(listener, token, audit)
