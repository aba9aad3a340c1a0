"""Which build this is: one short id over memra's own sources, independent of git and of build time."""

import hashlib
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from memra import __version__

log = logging.getLogger(__name__)

_SOURCES = ("*.py", "*.cpp", "*.h", "*.cu")
_ID_HEX_DIGITS = 12


def system_fingerprint(backends: tuple[str, ...], *, quant: str = "none") -> str:
    """Return `memra-<version>-<12 hex>`: equal fingerprints promise equal bits for equal requests.

    Args:
        backends: names of the executors that serve; bits may differ between them, so they are part of the id.
        quant: what weights become when they are loaded (`MEMRA_QUANT`): other weights give other bits.
    """
    parts = backends if quant == "none" else (*backends, f"weights-{quant}")
    return f"memra-{__version__}-{_content_id(parts)}"


def build_line() -> str:
    """Return version and id of the sources alone in one line, as `memra --version` shows it."""
    note = "" if _read_sources() else "; its sources cannot be read, so the id stands for the version alone"
    return f"memra {__version__} (sources {_content_id(())}{note})"


def _content_id(parts: tuple[str, ...]) -> str:
    digest = hashlib.sha256("\0".join((__version__, *parts)).encode())
    sources = _read_sources()
    if not sources:
        log.warning("memra's sources cannot be read: the fingerprint stands for the version alone")
    for name, content in sources:
        digest.update(f"\0{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_ID_HEX_DIGITS]


def _read_sources() -> tuple[tuple[str, bytes], ...]:
    """Return all source files by path; nothing at all where one cannot be read, for half of them would be no id."""
    try:
        return tuple(_source_files())
    except OSError:
        return ()


def _source_files() -> Iterator[tuple[str, bytes]]:
    for package in ("memra", "memra_kernels"):
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec else ():
            found = {path for pattern in _SOURCES for path in Path(folder).rglob(pattern)}
            for path in sorted(found):
                yield f"{package}/{path.relative_to(folder).as_posix()}", path.read_bytes()
