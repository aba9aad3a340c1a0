"""Thousands of damaged GGUF files: each opens or ends in one clear error, with bounded memory and time.

All run in one child process, so that a crash, a hang or a large allocation fails the test instead of ending it.
"""

import json
import os
import random
import resource
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import gguf
import numpy as np

from memra.chat.chat_format import ChatFormat
from memra.errors import MemraError
from memra.loading.gguf_file import open_gguf
from memra.models.registry import build_program
from tests.loading.gguf_bytes import GgufBytes, Tensor, default_keys, of_model, u32
from tests.models.tiny_models import make_gemma3, make_llama, make_qwen2

REPOSITORY = Path(__file__).parents[2]
NUM_FILES = 5000
MEMORY_BYTES = 1 << 30
"""More than the process has when the files begin."""
FILE_LIMIT_S = 5.0
CHILD_LIMIT_S = 120.0
SEED = 20240607

EXTREMES = (0, 1, 7, 31, 255, 1 << 16, (1 << 31) - 1, (1 << 32) - 1, 1 << 40, 1 << 60, (1 << 63) - 1, (1 << 64) - 1)
TYPE_NUMBERS = (*range(14), 39, 77, (1 << 32) - 1)

CANNOT_BE_DEQUANTISED = {"Q1_0", "I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}
WHOLE_MODELS = {2, 3, 4}
"""Of the sources: the others are sound files without a model in them."""

Mutation = Callable[[bytearray, int, random.Random], None]


def _flip_bits(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 5)):
        data[rng.randrange(header_bytes)] ^= 1 << rng.randrange(8)


def _replace_bytes(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(header_bytes)] = rng.randrange(256)


def _truncate(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    del data[rng.randrange(header_bytes if rng.random() < 0.7 else len(data)) :]


def _remove_some(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    at = rng.randrange(header_bytes)
    del data[at : at + rng.randint(1, 16)]


def _insert_some(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    at = rng.randrange(header_bytes)
    data[at:at] = rng.randbytes(rng.randint(1, 16))


def _repeat_some(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    """Keys, tensors and strings that occur twice."""
    start = rng.randrange(header_bytes)
    at = rng.randrange(header_bytes)
    data[at:at] = data[start : start + rng.randint(1, 200)]


def _set_a_length(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    """An extreme where eight bytes look like a length, a count or a dimension: small, and not 0."""
    places = [at for at in range(4, header_bytes - 8) if data[at] and not any(data[at + 2 : at + 8])]
    _put(data, rng.choice(places), struct.pack("<Q", rng.choice(EXTREMES)))


def _set_a_word(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    _put(data, rng.randrange(header_bytes - 4), struct.pack("<I", rng.choice(EXTREMES) & 0xFFFFFFFF))


def _swap_a_type(data: bytearray, header_bytes: int, rng: random.Random) -> None:
    """Another number where four bytes look like the type of a value or a tensor."""
    places = [at for at in range(24, header_bytes - 4) if data[at] < 42 and not any(data[at + 1 : at + 4])]
    _put(data, rng.choice(places), struct.pack("<I", rng.choice(TYPE_NUMBERS)))


def _put(data: bytearray, at: int, value: bytes) -> None:
    data[at : at + len(value)] = value


MUTATIONS: tuple[Mutation, ...] = (
    _flip_bits,
    _replace_bytes,
    _truncate,
    _remove_some,
    _insert_some,
    _repeat_some,
    _set_a_length,
    _set_a_word,
    _swap_a_type,
)


def _of_every_type() -> GgufBytes:
    tensors = []
    for quant_type, (block_size, type_size) in gguf.GGML_QUANT_SIZES.items():
        tensors.append(Tensor(quant_type.name, (block_size, 2), kind=quant_type.value, data=bytes(2 * type_size)))
    arrays: dict[str | bytes, bytes] = {
        f"array.{number}": struct.pack("<IIQ", 9, number, 3) + np.array([0, 1, 1], dtype=dtype).tobytes()
        for number, dtype in ((0, "u1"), (3, "i2"), (5, "i4"), (7, "?"), (10, "u8"), (12, "f8"))
    }
    return GgufBytes(keys={**default_keys(), **arrays, "general.alignment": u32(64)}, tensors=tensors, alignment=64)


def _sources() -> list[GgufBytes]:
    return [
        GgufBytes(),
        _of_every_type(),
        of_model(make_llama(frequency_factors=True)),
        of_model(make_qwen2(tied=False)),
        of_model(make_gemma3()),
    ]


def _mutated_files() -> Iterator[bytes]:
    rng = random.Random(SEED)  # noqa: S311  (reproducible, not secret)
    sources = [(content.build(), len(content.header())) for content in _sources()]
    for index in range(NUM_FILES):
        whole, header_bytes = sources[index % len(sources)]
        data = bytearray(whole)
        for _ in range(1 + (rng.random() < 0.2)):
            rng.choice(MUTATIONS)(data, min(header_bytes, len(data)), rng) if len(data) > 64 else None
        yield bytes(data)


def _open_wholly(path: Path, outcomes: Counter[str]) -> None:
    """As the server does, up to the weights, which are only made into numbers."""
    with open_gguf(path) as checkpoint:
        for tensor in checkpoint.tensors.values():
            if tensor.quant_type not in CANNOT_BE_DEQUANTISED:
                tensor.dequantise()
        vocabulary = checkpoint.vocabulary
        outcomes["read"] += 1
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        ChatFormat.build(vocabulary, context_tokens=program.context_tokens)
        outcomes["understood"] += 1


@contextmanager
def _limited_memory() -> Iterator[None]:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def _run_all(path: Path) -> dict[str, object]:
    """What became of each file; runs in the child."""
    for number, content in enumerate(_sources()):
        path.write_bytes(content.build())
        undamaged: Counter[str] = Counter()
        with nullcontext() if number in WHOLE_MODELS else suppress(MemraError):
            _open_wholly(path, undamaged)
        assert undamaged["read"] == 1, number
    outcomes: Counter[str] = Counter()
    strange: list[str] = []
    slowest_s = 0.0
    with _limited_memory():
        for index, data in enumerate(_mutated_files()):
            path.write_bytes(data)
            began_s = time.perf_counter()
            try:
                _open_wholly(path, outcomes)
            except MemraError as error:
                outcomes[type(error).__name__] += 1
                if "\n" in error.message or len(error.message) > 1000:
                    strange.append(f"file {index}: {error.message[:300]!r}")
            except BaseException as error:  # noqa: BLE001  (what it is, is the finding)
                strange.append(f"file {index}: {error!r:.300}")
            slowest_s = max(slowest_s, time.perf_counter() - began_s)
    return {"outcomes": outcomes, "strange": strange, "slowest_s": slowest_s}


def test_every_one_of_five_thousand_damaged_files_opens_or_ends_in_a_clear_error(tmp_path):
    finished = subprocess.run(
        [sys.executable, "-m", "tests.loading.test_gguf_fuzzing", str(tmp_path / "model.gguf")],
        check=False,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"},
        timeout=CHILD_LIMIT_S,
    )
    assert finished.returncode == 0, finished.stderr[-2000:]
    found = json.loads(finished.stdout.splitlines()[-1])
    assert found["strange"] == []
    assert found["slowest_s"] < FILE_LIMIT_S
    assert found["outcomes"]["read"] > NUM_FILES // 20
    assert found["outcomes"]["understood"] > NUM_FILES // 50
    assert found["outcomes"]["CorruptFileError"] > NUM_FILES // 2


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_run_all(Path(sys.argv[1]))) + "\n")
