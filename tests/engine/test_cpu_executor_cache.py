"""The native executor with the repack cache: the same bits, no weight touched, and two processes at once."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from memra_kernels import native
from numpy.typing import NDArray

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.executor import WeightTensor, WeightTensors
from memra.engine.repack_cache import RepackCache
from memra.errors import CorruptFileError
from memra.layers.operators import Embed, Head, Linear
from memra.layers.program import Program
from memra.loading.checkpoint import StoredTensor
from memra.loading.gguf_file import open_gguf
from memra.models.registry import build_program
from tests.engine.reference_driver import Run, make_batch
from tests.kernels.native.quantised_model import make_program, make_tensors
from tests.models.tiny_models import make_gemma3, make_qwen2

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _library() -> None:
    try:
        native.library()
    except native.NativeUnavailableError as error:
        pytest.skip(str(error))


class SealedTensor:
    """A tensor whose values nobody may ask for."""

    def __init__(self, tensor: WeightTensor) -> None:
        self.name, self.shape, self.quant_type = tensor.name, tensor.shape, tensor.quant_type

    @property
    def data(self) -> NDArray[np.uint8]:
        pytest.fail(f"{self.name} was read")

    def dequantise(self) -> NDArray[np.float32]:
        pytest.fail(f"{self.name} was read")

    def release(self) -> None:
        """Nothing was taken."""


def cache_in(folder: Path) -> RepackCache:
    return RepackCache(folder=folder, limit_bytes=1 << 40, identity="model")


def bits_of(
    program: Program, tensors: WeightTensors, cache: RepackCache | None, *, vocab_size: int = 90
) -> tuple[bytes, bytes]:
    """Logits of a prompt and of a decoded token, and the cache pages."""
    executor = CpuExecutor(program, tensors, num_threads=2, num_pages=3, cache=cache)
    tokens = np.random.default_rng(5).integers(0, vocab_size, 130).tolist()
    prompt = executor.run(make_batch([Run(tokens[:-1], [0, 1, 2])])).tobytes()
    decoded = executor.run(make_batch([Run(tokens[-1:], [0, 1, 2], 129)])).tobytes()
    pages = executor.export_pages([0, 1, 2])
    executor.close()
    return prompt + decoded, pages


def sealed(program: Program, tensors: WeightTensors) -> WeightTensors:
    """All matrices closed; embedding tables and vectors stay, for they are read where they are."""
    matrices = {operator.weight for operator in program.operators if isinstance(operator, Linear | Head)}
    tables = {operator.weight for operator in program.operators if isinstance(operator, Embed)}
    return tensors | {name: SealedTensor(tensors[name]) for name in matrices - tables}  # type: ignore[operator]


def _models() -> Iterator[tuple[str, Program, WeightTensors]]:
    tensors = make_tensors()
    yield "quantised", make_program(tensors), tensors
    for family in (make_qwen2, make_gemma3):  # float weights, tied to the embedding table
        model = family()
        yield model.architecture, model.build_program(), model.tensors


MODELS = {name: (program, tensors) for name, program, tensors in _models()}


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_changes_no_bit_and_the_second_start_reads_no_matrix(name: str, tmp_path: Path):
    program, tensors = MODELS[name]
    wanted = bits_of(program, tensors, None)
    assert bits_of(program, tensors, cache_in(tmp_path)) == wanted
    assert bits_of(program, sealed(program, tensors), cache_in(tmp_path)) == wanted
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.models
def test_the_cache_changes_no_bit_of_a_real_model(smollm2_path: Path, tmp_path: Path):
    with open_gguf(smollm2_path) as checkpoint:
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        tensors = dict(checkpoint.tensors)
        wanted = bits_of(program, tensors, None, vocab_size=49000)
        assert bits_of(program, tensors, cache_in(tmp_path), vocab_size=49000) == wanted
        assert bits_of(program, sealed(program, tensors), cache_in(tmp_path), vocab_size=49000) == wanted


def test_a_type_without_layout_goes_through_float32_into_the_cache(tmp_path: Path):
    tensors = make_tensors()
    name = "blk.0.attn_k.weight"
    raw = np.tile(np.array([0, 36] + [7] * 64, np.uint8), tensors[name].shape[0])  # a block of IQ2_XXS is 66 bytes
    tensors[name] = StoredTensor(name, tensors[name].shape, "IQ2_XXS", raw)
    program = make_program(tensors)
    wanted = bits_of(program, tensors, None)
    assert bits_of(program, tensors, cache_in(tmp_path)) == wanted
    assert bits_of(program, sealed(program, tensors), cache_in(tmp_path)) == wanted


def _poison(tensor: StoredTensor) -> StoredTensor:
    data = tensor.data.copy()
    data[:2] = 0xFF  # the first block's scale becomes a NaN
    return replace(tensor, data=data)


@pytest.mark.parametrize("name", ["blk.1.attn_output.weight", "token_embd.weight"])
def test_a_poisoned_scale_is_refused_by_name_and_leaves_no_file(name: str, tmp_path: Path):
    tensors = make_tensors()
    poisoned = tensors | {name: _poison(tensors[name])}
    with pytest.raises(CorruptFileError, match=rf"{name} .*NaN"):
        CpuExecutor(make_program(tensors), poisoned, num_threads=2, num_pages=1, cache=cache_in(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_and_a_misshapen_tensor_are_named_although_there_is_a_file(tmp_path: Path):
    tensors, name = make_tensors(), "blk.1.attn_output.weight"
    program = make_program(tensors)
    bits_of(program, tensors, cache_in(tmp_path))
    for changed, words in (
        ({key: tensor for key, tensor in tensors.items() if key != name}, f"no tensor {name}"),
        (tensors | {name: tensors["output.weight"]}, f"{name} has shape"),
    ):
        with pytest.raises(CorruptFileError, match=words):
            CpuExecutor(program, changed, num_threads=1, num_pages=1, cache=cache_in(tmp_path))


def test_a_cache_that_cannot_be_used_changes_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    program, tensors = MODELS["quantised"]
    (tmp_path / "file").touch()
    assert bits_of(program, tensors, cache_in(tmp_path / "file")) == bits_of(program, tensors, None)
    assert "cannot be used" in caplog.text


def test_the_size_of_an_executor_does_not_depend_on_where_its_weights_lie(tmp_path: Path):
    program, tensors = MODELS["quantised"]
    sizes = []
    for cache in (None, cache_in(tmp_path)):
        executor = CpuExecutor(program, tensors, num_threads=1, num_pages=1, cache=cache)
        sizes.append(executor.num_bytes)
        executor.close()
    assert sizes[0] == sizes[1]


_BUILD = """
import hashlib, sys
from pathlib import Path
from tests.engine.test_cpu_executor_cache import MODELS, bits_of, cache_in
print("ready", flush=True)
sys.stdin.readline()
print(hashlib.sha256(b"".join(bits_of(*MODELS["quantised"], cache_in(Path(sys.argv[1]))))).hexdigest())
"""


def test_two_processes_that_build_at_once_both_serve_and_leave_one_file(tmp_path: Path):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _BUILD, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=60)[0].strip() for process in processes]
    wanted = hashlib.sha256(b"".join(bits_of(*MODELS["quantised"], None))).hexdigest()
    assert answers == [wanted, wanted]
    assert len(list(tmp_path.iterdir())) == 1
