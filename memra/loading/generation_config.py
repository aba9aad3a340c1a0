"""`generation_config.json`: what the model's makers advise for sampling, in GGUF's keys.

Trade: a few checked numbers; what nobody here has a name for is left out. Refuses to know who uses them. Called by
`safetensors_directory`; the ids that end an answer are read by `tokenizer_files`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from memra.errors import CorruptFileError
from memra.loading.json_files import optional_json

FILE_NAME: Final = "generation_config.json"

_NUMBERS: Final[Mapping[str, str]] = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
_COUNTS: Final[Mapping[str, str]] = {"top_k": "general.sampling.top_k"}
_MAX_NUMBER: Final = 1e6
_MAX_COUNT: Final = 1 << 31


def sampling_metadata(directory: Path) -> dict[str, object]:
    """The advice as GGUF metadata: floats, and an int for `general.sampling.top_k`; empty without the file.

    Raises:
        CorruptFileError: a number is something else, or out of all proportion.
    """
    path = directory / FILE_NAME
    values = optional_json(path)
    found: dict[str, object] = {}
    for key, name in _NUMBERS.items():
        value = values.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_NUMBER:
            raise CorruptFileError(f"{path}: {key!r} is no number from 0 to {_MAX_NUMBER:g}: fetch the file again")
        found[name] = float(value)
    for key, name in _COUNTS.items():
        value = values.get(key)
        if value is None:
            continue
        if type(value) is not int or not 0 <= value < _MAX_COUNT:
            raise CorruptFileError(f"{path}: {key!r} is no whole number from 0: fetch the file again")
        found[name] = value
    return found
