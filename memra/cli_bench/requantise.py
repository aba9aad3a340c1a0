"""Makes a GGUF file of another type from one, with llama.cpp's own quantiser: files to measure with.

    PYTHON requantise.py INPUT.gguf OUTPUT.gguf TYPE

Run it with the Python that has llama-cpp-python; it imports nothing of memra. TYPE is Q4_0, Q8_0, Q4_K_M and so on, as
`LLAMA_FTYPE_MOSTLY_*` names them. Quantising a quantised file loses quality: such files are for speed alone.
"""

import ctypes
import importlib
import sys
from typing import Any

_NUM_ARGUMENTS = 3
_PREFIX = "LLAMA_FTYPE_MOSTLY_"


def requantise(source: str, target: str, type_name: str) -> None:
    """Write `target`.

    Raises:
        ValueError: llama.cpp knows no such type.
        RuntimeError: it refused, for the reason that it printed.
    """
    api: Any = importlib.import_module("llama_cpp")
    file_type = getattr(api, f"{_PREFIX}{type_name}", None)
    if file_type is None:
        known = sorted(name.removeprefix(_PREFIX) for name in dir(api) if name.startswith(_PREFIX))
        raise ValueError(f"there is no type {type_name!r}; known are {', '.join(known)}")
    parameters = api.llama_model_quantize_default_params()
    parameters.ftype = file_type
    parameters.allow_requantize = True
    if api.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(parameters)):
        raise RuntimeError(f"llama.cpp did not write {target}")


def _main(arguments: list[str]) -> str | None:
    if len(arguments) != _NUM_ARGUMENTS:
        return "usage: requantise.py INPUT.gguf OUTPUT.gguf TYPE"
    try:
        requantise(*arguments)
    except (ImportError, ValueError, RuntimeError) as error:
        return str(error)
    return None


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
