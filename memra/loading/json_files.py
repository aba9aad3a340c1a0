"""Small text and JSON files of a model directory, read with an error that names the file.

Trade: nothing but reading; refuses to know what is in them. Called by the modules that read a directory.
"""

import json
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError, SourceError

MAX_BYTES: Final = 1 << 28
"""Eight times the largest tokenizer.json known."""


def read_json(path: Path) -> dict[str, object]:
    """A JSON object from a file.

    Raises:
        SourceError: the file cannot be read.
        CorruptFileError: it holds no JSON object.
    """
    try:
        value: object = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path}: is not valid JSON ({error}): fetch it again") from None
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path}: is no JSON object: fetch it again")
    return value


def optional_json(path: Path) -> dict[str, object]:
    """A JSON object from a file; empty where there is no such file.

    Raises:
        SourceError: the file cannot be read.
        CorruptFileError: it holds no JSON object.
    """
    return read_json(path) if path.is_file() else {}


def read_text(path: Path) -> str:
    """A UTF-8 text file.

    Raises:
        SourceError: the file cannot be read.
        CorruptFileError: it is not UTF-8, or larger than any such file.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CorruptFileError(f"{path}: is larger than {MAX_BYTES:,} bytes: fetch it again")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CorruptFileError(f"{path}: is not UTF-8 text: fetch it again") from None
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror or error}") from error
