"""The audit of the admin listener: a JSON line for every call, on the disk before the call is carried out.

Refuses to know tokens and routes: it gets words. Called by the listener for every call, and once at the start.
"""

import json
import os
import time
from pathlib import Path

import trio

from memra.errors import ConfigurationError, DeniedError

FORMAT = "memra.admin-audit.v1"


class AuditFile:
    """One file, opened anew for every line, so that it may be moved away while the server runs."""

    def __init__(self, path: Path) -> None:
        """Take the path; nothing is opened yet."""
        self._path = path
        self._turn = trio.Lock()

    def check(self) -> None:
        """See to it that lines can be written.

        Raises:
            ConfigurationError: they cannot.
        """
        try:
            os.close(self._open())
        except OSError as error:
            raise ConfigurationError(f"admin audit {self._path}: cannot be written: {error.strerror}") from error

    async def write(self, *, method: str, path: str, is_authorized: bool) -> None:
        """Write one line, and wait until the disk has it.

        Args:
            method: of HTTP.
            path: template of the route, so that no name of a tenant or key stands there.
            is_authorized: whether the token was right.

        Raises:
            DeniedError: the line could not be written, so nothing may be done.
        """
        line = json.dumps(
            {
                "format": FORMAT,
                "unix_ms": time.time_ns() // 1_000_000,
                "method": method,
                "path": path,
                "authorization": "authorized" if is_authorized else "denied",
            }
        )
        async with self._turn:
            try:
                await trio.to_thread.run_sync(self._append, f"{line}\n".encode())
            except OSError as error:
                raise DeniedError(
                    f"The audit file cannot be written ({error.strerror}), so nothing was done.",
                    status=500,
                    code="admin_audit_unavailable",
                ) from error

    def _append(self, line: bytes) -> None:
        descriptor = self._open()
        try:
            with os.fdopen(descriptor, "wb", buffering=0, closefd=False) as file:
                written = file.write(line)
                if written != len(line):
                    raise OSError(0, "the disk is full")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(self._path, flags, 0o600)
