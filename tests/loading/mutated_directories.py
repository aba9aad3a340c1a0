"""Opens thousands of damaged model directories under a limit of memory, and counts how each ended.

    PYTHON -m tests.loading.mutated_directories FOLDER NUMBER SEED

Prints one JSON object. An end that is neither a clear error nor a usable model ends the run with its traceback.
"""

import json
import random
import resource
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from memra.errors import CorruptFileError, SourceError, UnsupportedModelError
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.loading.model_directory import config, raw_safetensors, tensors, write_directory

MEMORY_BYTES = 1 << 30
_JUNK = b'0123456789[]{}",:.-eE \x00\xff\\truefalsn'
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 2**31, 2**63, 10**40, 10**400, 1e308, -1e-308, float("nan"), float("inf"), 0.5),
    *("", "x", "linear", "llama3", [], {}, [[]], {"": {}}, [1] * 9, {"rope_type": []}, "\ud800"),
)


def main(folder: Path, number: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)  # noqa: S311  (reproducible, not secret)
    outcomes = {"opened": 0, "refused": 0}
    slowest_s = 0.0
    directories = {family: write_directory(folder / family, family) for family in ("llama", "gemma3")}
    directories["quantised"] = _quantised(folder / "quantised")
    whole = {family: _contents(path) for family, path in directories.items()}
    for _ in range(number):
        family = rng.choice(sorted(directories))
        path = directories[family]
        mutate = rng.choice((_header_bytes, _header_value, _config_bytes, _config_value, _config_value))
        for name, content in mutate(rng, dict(whole[family])).items():
            (path / name).write_bytes(content)
        began_s = time.monotonic()
        outcomes[_open(path)] += 1
        slowest_s = max(slowest_s, time.monotonic() - began_s)
    return {**outcomes, "slowest_s": slowest_s, "peak_bytes": _peak_bytes()}


def _peak_bytes() -> int:
    """Most memory of this program alone: `getrusage` would count what its parent held when it started this one."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _open(path: Path) -> str:
    try:
        with open_directory(path) as checkpoint:
            shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
            build_program(checkpoint.architecture, checkpoint.metadata, shapes)
            for tensor in checkpoint.tensors.values():
                with np.errstate(all="ignore"):
                    tensor.dequantise()
            _ = checkpoint.vocabulary
    except (CorruptFileError, SourceError, UnsupportedModelError) as error:
        if not error.message or len(error.message) > 2000:
            raise
        return "refused"
    return "opened"


def _quantised(path: Path) -> Path:
    """A llama whose matrices are GPTQ's, with config.json to match."""
    write_directory(path, "llama", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 8})
    parts: dict[str, Any] = {}
    for name, array in tensors("llama").items():
        stem, _, kind = name.rpartition(".")
        if array.ndim == 1 or "layers" not in name or kind != "weight":
            parts[name] = ("F32", array)
            continue
        rows, columns = array.shape
        parts[f"{stem}.qweight"] = ("I32", np.zeros((columns // 8, rows), np.int32))
        parts[f"{stem}.qzeros"] = ("I32", np.zeros((columns // 8, rows // 8), np.int32))
        parts[f"{stem}.scales"] = ("F16", np.ones((columns // 8, rows), np.float16))
        parts[f"{stem}.g_idx"] = ("I32", (np.arange(columns) // 8).astype(np.int32))
    (path / "model.safetensors").write_bytes(raw_safetensors(parts))
    return path


def _contents(path: Path) -> dict[str, bytes]:
    return {name: (path / name).read_bytes() for name in ("config.json", "model.safetensors")}


def _spoil(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        at = rng.randrange(len(data))
        if rng.random() < 0.6:
            data[at] = rng.choice(_JUNK)
        elif rng.random() < 0.5:
            del data[at : at + rng.randint(1, 40)]
        else:
            data[at:at] = data[: rng.randint(1, 60)]
        data = data or bytearray(b"\x00")
    return bytes(data)


def _split(content: bytes) -> tuple[bytes, bytes]:
    end = 8 + struct.unpack("<Q", content[:8])[0]
    return content[8:end], content[end:]


def _joined(header: bytes, data: bytes) -> bytes:
    return struct.pack("<Q", len(header)) + header + data


def _header_bytes(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    header, data = _split(files["model.safetensors"])
    if rng.random() < 0.2:  # the length too
        return {**files, "model.safetensors": _spoil(rng, files["model.safetensors"][:40]) + header[32:] + data}
    return {**files, "model.safetensors": _joined(_spoil(rng, header), data)}


def _header_value(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    header, data = _split(files["model.safetensors"])
    entries = json.loads(header)
    name = rng.choice(sorted(entries))
    change = rng.choice(("dtype", "shape", "data_offsets", "", "swap"))
    if change == "":
        entries[name] = rng.choice(_VALUES)
    elif change == "swap":
        other = rng.choice(sorted(entries))
        entries[name], entries[other] = entries[other], entries[name]
    elif change == "dtype":
        entries[name][change] = rng.choice(
            ("F32", "F16", "BF16", "F8_E4M3", "F8_E8M0", "I64", "I32", "I8", "U8", "F64")
        )
    else:
        sizes = entries[name].get(change) or [0]
        sizes[rng.randrange(len(sizes))] = rng.choice((0, 1, -1, 2**31, 2**63, 1.5, None, rng.randrange(5000)))
        entries[name][change] = sizes
    return {**files, "model.safetensors": _joined(json.dumps(entries).encode(), data)}


def _config_bytes(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    return {**files, "config.json": _spoil(rng, files["config.json"])}


def _config_value(rng: random.Random, files: dict[str, bytes]) -> dict[str, bytes]:
    values = json.loads(files["config.json"])
    extra = ("rope_scaling", "rope_parameters", "layer_types", "quantization_config", "eos_token_id", "sliding_window")
    target = values
    key = rng.choice([*config("gemma3"), *values, *extra])
    while isinstance(target.get(key), dict) and target[key] and rng.random() < 0.8:
        target = target[key]
        key = rng.choice(sorted(target))
    value = rng.choice(_VALUES)
    target[key] = {rng.choice(("rope_type", "factor", "rope_theta", "bits")): value} if rng.random() < 0.2 else value
    return {**files, "config.json": json.dumps(values).encode()}


if __name__ == "__main__":
    used_bytes = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
    # What the imports reserved is not the files' doing.
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + MEMORY_BYTES, used_bytes + MEMORY_BYTES))
    sys.set_int_max_str_digits(4300)
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
