"""Fixtures of the native engine's tests; without a built library they are skipped, with the remedy."""

from collections.abc import Iterator

import pytest
from memra_kernels import native


@pytest.fixture(scope="session", autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture
def pool() -> Iterator[native.ThreadPool]:
    made = native.ThreadPool(2)
    yield made
    made.close()
