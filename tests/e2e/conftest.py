"""Servers that end with the tests that started them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.server_process import Server, Start, launch


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Start servers; whatever still runs at the end is drained, and must end cleanly."""
    servers: list[Server] = []

    def start_one(*arguments: str, **options: Any) -> Server:
        servers.append(launch(*arguments, **options))
        return servers[-1]

    yield start_one
    for server in servers:
        server.end()
