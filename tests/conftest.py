"""Fixtures that the whole suite shares."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import assets

# As the server does, before torch is imported: its threads must not spin while other processes want the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_as_in_a_terminal() -> Iterator[None]:
    """A shell's background job ignores Ctrl-C, and its children inherit that; tests about signals need the default."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def _asset(fetch: Callable[[], Path]) -> Path:
    return assets.available(fetch, otherwise=pytest.fail if assets.must_be_available() else pytest.skip)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    return _asset(assets.smollm2)


@pytest.fixture(scope="session")
def qwen_path() -> Path:
    return _asset(assets.qwen)


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    return _asset(assets.gemma)


@pytest.fixture(scope="session")
def minilm_directory() -> Path:
    return _asset(assets.minilm_directory)


@pytest.fixture(scope="session")
def llama_cpp_models_dir() -> Path:
    return _asset(assets.llama_cpp_models_dir)
