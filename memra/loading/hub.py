"""Models from the Hugging Face hub, kept under `hf/OWNER--REPOSITORY` in the cache directory.

Called by `sources`. Knows how the files of a repository make up a model, and refuses to ask the hub for what is already
here. Authentication, mirrors and offline mode are the `huggingface_hub` client's own.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, Protocol, cast

from memra.errors import SourceError
from memra.loading.cache import default_cache_dir, exclusive_workspace
from memra.loading.progress import announce
from memra.loading.source_grammar import HubSource

_SHARD: Final = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.(?:gguf|safetensors)", re.IGNORECASE)
_INDEX: Final = "model.safetensors.index.json"
_SINGLE: Final = "model.safetensors"
_REQUIRED: Final = "config.json"
_TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model")
_OPTIONAL: Final = (
    *("tokenizer_config.json", "generation_config.json", "added_tokens.json"),
    *("chat_template.jinja", "chat_template.json"),
)
_TEMPLATE_FOLDER: Final = "additional_chat_templates/"
_MAX_LISTED: Final = 20


class HubClient(Protocol):
    """The part of `huggingface_hub.HfApi` that is used here."""

    def list_repo_files(self, repo_id: str) -> list[str]:
        """Names of all files in a repository."""
        ...

    def hf_hub_download(self, repo_id: str, filename: str, *, local_dir: Path) -> str:
        """Fetch one file below `local_dir`, atomically; returns its path."""
        ...


def fetch_hub_source(
    source: HubSource, *, cache_dir: Path | None = None, progress: bool = True, client: HubClient | None = None
) -> Path:
    """The GGUF file (first shard), or the model directory, that a `hf:` source names.

    Nothing is asked of the hub when a complete choice is already here.

    Raises:
        SourceError: nothing, or more than one file, fits; or it cannot be fetched or stored.
    """
    folder = (cache_dir or default_cache_dir()) / "hf" / f"{source.owner}--{source.repository}"
    chosen = _local_choice(source, folder)
    if chosen is None:
        with exclusive_workspace(folder, source.text):
            chosen = _local_choice(source, folder)  # another process may have fetched it meanwhile
            if chosen is None:
                chosen = _download(source, folder, client or _hub_client(), progress=progress)
    return folder if _is_directory_choice(chosen) else folder / chosen[0]


def choose_files(names: Iterable[str], source: HubSource, *, complete_only: bool = False) -> tuple[str, ...] | None:
    """Which of a repository's files make up the model: a GGUF with its shards, or a safetensors directory.

    Vision projectors (`mmproj*`) are never chosen.

    Args:
        names: all files.
        source: says what is wanted.
        complete_only: answer None, instead of an error, where files are missing or several fit.

    Raises:
        SourceError: nothing, or more than one model, fits.
    """
    names = sorted(names)
    groups = _gguf_groups(names)
    fitting = _fitting(groups, source.substring)
    if len(fitting) == 1:
        return fitting[0] if _is_whole(fitting[0]) or not complete_only else None
    if complete_only:
        return _directory_files(names, complete_only=True) if not groups and source.substring is None else None
    if fitting:
        raise SourceError(
            f"{source.text}: several GGUF files fit: {_listing(fitting)}: add ':' and a part of the wanted one's name"
        )
    directory = _directory_files(names) if source.substring is None else None
    if directory is None:
        offer = f"it has {_listing(groups)}" if groups else "it has no GGUF file and no complete safetensors model"
        raise SourceError(f"{source.text}: nothing in the repository fits; {offer}: name another")
    return directory


def _gguf_groups(names: Sequence[str]) -> list[tuple[str, ...]]:
    """GGUF files, the shards of one model together, in order."""
    groups: dict[str, list[str]] = {}
    for name in names:
        path = PurePosixPath(name)
        if path.suffix.lower() != ".gguf" or path.name.lower().startswith("mmproj"):
            continue
        match = _SHARD.fullmatch(name)
        groups.setdefault(f"{match['stem']}/{match['count']}" if match else name, []).append(name)
    return [tuple(group) for group in groups.values()]


def _fitting(groups: list[tuple[str, ...]], substring: str | None) -> list[tuple[str, ...]]:
    if substring is None:
        return groups
    wanted = substring.lower()
    exact = [group for group in groups if group[0].lower() == wanted]
    return exact or [group for group in groups if wanted in group[0].lower()]


def _is_whole(group: tuple[str, ...]) -> bool:
    match = _SHARD.fullmatch(group[0])
    return match is None or int(match["count"]) == len(group)


def _directory_files(names: Sequence[str], *, complete_only: bool = False) -> tuple[str, ...] | None:
    present = set(names)
    tokenizer = next((name for name in _TOKENIZERS if name in present), None)
    if _REQUIRED not in present or tokenizer is None:
        return None
    described = [_REQUIRED, tokenizer, *(name for name in _OPTIONAL if name in present)]
    described += [name for name in names if name.startswith(_TEMPLATE_FOLDER) and name.endswith(".jinja")]
    if _INDEX in present:
        shards = [name for name in names if name.endswith(".safetensors") and _SHARD.fullmatch(name)]
        return (*described, _INDEX, *shards) if shards and (_is_whole(tuple(shards)) or not complete_only) else None
    return (*described, _SINGLE) if _SINGLE in present else None


def _is_directory_choice(chosen: tuple[str, ...]) -> bool:
    return chosen[0] == _REQUIRED


def _local_choice(source: HubSource, folder: Path) -> tuple[str, ...] | None:
    """A complete model that is already here; the weights are fetched last, so what has them is complete."""
    local = _local_names(folder)
    return choose_files(local, source, complete_only=True) if local else None


def _local_names(folder: Path) -> list[str]:
    """Files below the folder; those of the client's own bookkeeping lie in hidden folders."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return [path.as_posix() for path in found if not any(part.startswith(".") for part in path.parts)]


def _download(source: HubSource, folder: Path, client: HubClient, *, progress: bool) -> tuple[str, ...]:
    repository = f"{source.owner}/{source.repository}"
    try:
        names = client.list_repo_files(repository)
    except Exception as error:  # the client raises whatever its HTTP library does, which changed
        raise _unreachable(source, error) from error
    chosen = choose_files([name for name in names if _is_inside(name)], source)
    if chosen is None:
        raise SourceError(f"{source.text}: nothing in the repository fits: name another")
    for name in chosen:
        announce(f"{source.text}: fetching {name}", shown=progress)
        try:
            client.hf_hub_download(repository, name, local_dir=folder)
        except Exception as error:  # as above
            raise _unreachable(source, error) from error
    return chosen


def _unreachable(source: HubSource, error: Exception) -> SourceError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return SourceError(
        f"{source.text}: cannot be fetched from the hub ({lines[0]}): "
        "check the name, the network, and for gated models that HF_TOKEN is set"
    )


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _listing(groups: Sequence[tuple[str, ...]]) -> str:
    names = [group[0] for group in groups]
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return ", ".join(names[:_MAX_LISTED]) + more


def _hub_client() -> HubClient:
    from huggingface_hub import HfApi  # noqa: PLC0415  (slow to import, and only needed for a first fetch)

    return cast("HubClient", HfApi())
