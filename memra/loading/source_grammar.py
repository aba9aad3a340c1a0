"""What a user writes to name a model, read into values: `NAME=SOURCE`, alone or as a list separated by commas.

Called by the command line and the settings of the server, through `sources`. Knows the grammar and refuses to look at
disks or networks:

    models  := entry ("," entry)*                  blank entries are skipped
    entry   := name "=" model                      split at the first "="
    model   := source ("," override)*
    source  := file | directory | "hf:" owner "/" repository [":" substring] | "pypi:" member ("," member)*
    member  := [distribution "==" version "/"] path       without a distribution: the one before
    suffix  := "#sha256=" hex                      after a file or the last member
    override := "meta." key "=" type ":" value     what begins so is never an entry, unless it is the first

A comma may separate entries or members: after a `pypi:` entry, a piece continues it when it has no "=", or when its
first "=" belongs to "==".
"""

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from memra.errors import SourceError
from memra.loading.metadata_overrides import OVERRIDE_PREFIX, MetadataOverride, parse_override
from memra.types import ModelName

HUB_PREFIX: Final = "hf:"
PACKAGE_PREFIX: Final = "pypi:"

_log = logging.getLogger(__name__)

_BEFORE_OVERRIDE: Final = re.compile(rf"\s*,\s*(?={re.escape(OVERRIDE_PREFIX)})")

_SHA256_MARK: Final = "#sha256="
_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")
# Names and versions as PEP 508 and PEP 440 allow them; neither can be taken for an option of pip.
_DISTRIBUTION: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.!+_-]*")
_HUB_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class PathSource:
    """A file or directory on this machine.

    Attributes:
        text: as the user wrote it.
        sha256: lower-case hex that the file must have, or None.
    """

    text: str
    path: Path
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class HubSource:
    """A repository on the Hugging Face hub.

    Attributes:
        text: as the user wrote it.
        substring: part of the wanted GGUF file's name, or None.
    """

    text: str
    owner: str
    repository: str
    substring: str | None = None


@dataclass(frozen=True, slots=True)
class PackageMember:
    """A file in a published Python package; or a folder, where `path` ends in a slash."""

    distribution: str
    version: str
    path: str


@dataclass(frozen=True, slots=True)
class PackageSource:
    """Files in published Python packages, to be joined in order into one, or one folder.

    Attributes:
        text: as the user wrote it.
        members: at least one; a folder stands alone.
        sha256: lower-case hex of the joined file, or None.
    """

    text: str
    members: tuple[PackageMember, ...]
    sha256: str | None = None


ModelSource = PathSource | HubSource | PackageSource


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One model to serve: the name that clients ask for, and where it comes from.

    Attributes:
        overrides: keys of its GGUF file that are put right, in the order given.
    """

    name: ModelName
    source: ModelSource
    overrides: tuple[MetadataOverride, ...] = ()


def parse_models(text: str) -> tuple[ModelEntry, ...]:
    """Read a list of entries, as `MEMRA_MODELS` holds it; an entry without "=" is skipped with a warning.

    Raises:
        SourceError: an entry is malformed, or two have the same name.
    """
    entries: dict[str, ModelEntry] = {}
    for piece in _entry_texts(text):
        if "=" not in piece:
            _log.warning("model entry %r has no '='; skipped: write NAME=SOURCE", piece)
            continue
        entry = parse_model_argument(piece)
        if entry.name in entries:
            raise SourceError(f"model entry {piece!r}: the name {entry.name!r} appears twice: give each model its own")
        entries[entry.name] = entry
    return tuple(entries.values())


def parse_model_argument(text: str) -> ModelEntry:
    """Read one `NAME=SOURCE[,meta.KEY=TYPE:VALUE...]`, as `--model` takes it.

    Raises:
        SourceError: it is malformed.
    """
    name, equals, source = (part.strip() for part in text.partition("="))
    if not equals or not name or not source:
        raise SourceError(f"model entry {text.strip()!r}: a name and a source are needed: write NAME=SOURCE")
    if "," in name:
        raise SourceError(f"model entry {text.strip()!r}: a name cannot hold a comma: choose another")
    return ModelEntry(ModelName(name), *parse_model(source))


def parse_model(text: str) -> tuple[ModelSource, tuple[MetadataOverride, ...]]:
    """Read a source with the overrides behind it.

    Raises:
        SourceError: one of them is malformed, or two are of the same key.
    """
    source, *others = _BEFORE_OVERRIDE.split(text)
    overrides = tuple(parse_override(piece) for other in others for piece in other.split(","))
    keys = [override.key for override in overrides]
    for key in keys:
        if keys.count(key) > 1:
            raise SourceError(f"model source {text.strip()!r}: the override meta.{key} appears twice: leave one out")
    return parse_source(source), overrides


def parse_source(text: str) -> ModelSource:
    """Read one source.

    Raises:
        SourceError: it is malformed.
    """
    text = text.strip()
    if not text:
        raise SourceError("model source '': is empty: name a file, a directory, hf:OWNER/REPOSITORY or pypi:...")
    location, sha256 = _split_sha256(text)
    if text.startswith(PACKAGE_PREFIX):
        return _parse_package_source(text, location.removeprefix(PACKAGE_PREFIX), sha256)
    _refuse_draft(text, location)
    if text.startswith(HUB_PREFIX):
        if sha256 is not None:
            raise SourceError(f"model source {text!r}: a hub source takes no {_SHA256_MARK!r}: leave it out")
        return _parse_hub_source(text, location.removeprefix(HUB_PREFIX))
    return PathSource(text, Path(location), sha256)


def _entry_texts(text: str) -> Iterator[str]:
    """The comma-separated entries, with the members of a `pypi:` source kept together."""
    current: str | None = None
    for piece in (part.strip() for part in text.split(",")):
        if not piece:
            continue
        if current is not None and (piece.startswith(OVERRIDE_PREFIX) or _continues(current, piece)):
            current += "," + piece
            continue
        if current is not None:
            yield current
        current = piece
    if current is not None:
        yield current


def _continues(entry: str, piece: str) -> bool:
    """Whether a piece is one more member of a `pypi:` entry that has no override yet."""
    is_package = entry.partition("=")[2].strip().startswith(PACKAGE_PREFIX)
    return is_package and _continues_a_package(piece) and _BEFORE_OVERRIDE.search(entry) is None


def _continues_a_package(piece: str) -> bool:
    _, equals, rest = piece.partition("#")[0].partition("=")
    return not equals or rest.startswith("=")


def _split_sha256(text: str) -> tuple[str, str | None]:
    location, mark, sha256 = text.partition(_SHA256_MARK)
    if not mark:
        return text, None
    if not _SHA256.fullmatch(sha256):
        raise SourceError(f"model source {text!r}: {sha256!r} is no SHA-256: give 64 hexadecimal digits")
    return location, sha256.lower()


def _refuse_draft(text: str, location: str) -> None:
    if "+" in location:
        raise SourceError(
            f"model source {text!r}: draft models are not supported yet: leave out the '+' and what follows"
        )


def _parse_hub_source(text: str, location: str) -> HubSource:
    name, colon, substring = (part.strip() for part in location.partition(":"))
    owner, _, repository = name.partition("/")
    if not _HUB_PART.fullmatch(owner) or not _HUB_PART.fullmatch(repository) or (colon and not substring):
        raise SourceError(
            f"model source {text!r}: is no hub repository: write hf:OWNER/REPOSITORY or hf:OWNER/REPOSITORY:PART"
        )
    return HubSource(text, owner, repository, substring or None)


def _parse_package_source(text: str, location: str, sha256: str | None) -> PackageSource:
    members: list[PackageMember] = []
    for item in (part.strip() for part in location.split(",")):
        members.append(_parse_member(text, item, before=members[-1] if members else None))
    is_folder = any(member.path.endswith("/") for member in members)
    if is_folder and (len(members) > 1 or sha256 is not None):
        raise SourceError(f"model source {text!r}: a folder stands alone, without further members and {_SHA256_MARK!r}")
    return PackageSource(text, tuple(members), sha256)


def _parse_member(text: str, item: str, *, before: PackageMember | None) -> PackageMember:
    head, _, path = item.partition("/")
    distribution, equals, version = (part.strip() for part in head.partition("=="))
    if not equals:
        if before is None:
            raise SourceError(f"model source {text!r}: names no version: write pypi:DISTRIBUTION==VERSION/PATH")
        distribution, version, path = before.distribution, before.version, item
    if not _DISTRIBUTION.fullmatch(distribution) or not _VERSION.fullmatch(version):
        raise SourceError(f"model source {text!r}: {head!r} is no DISTRIBUTION==VERSION of a package: correct it")
    _refuse_draft(text, path)
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise SourceError(f"model source {text!r}: {path!r} is no path inside a package: write it without '..'")
    return PackageMember(distribution, version, path)
