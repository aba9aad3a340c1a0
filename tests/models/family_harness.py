"""A family held against transformers: one random checkpoint, both formats, both executors.

A family's test makes a small model; everything that must be true of every family is checked here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import gguf.quants
import numpy as np
import torch
from numpy.typing import NDArray

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.executor import Executor
from memra.engine.reference_executor import ReferenceExecutor
from memra.layers.program import Program
from memra.loading.checkpoint import Checkpoint
from memra.loading.gguf_file import open_gguf
from memra.loading.model_tensor import FLOAT_TYPES
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.engine.reference_driver import Run, prefill, run_rows

NUM_TOKENS = 96
CUTS = (1, 7, 64)
NUM_STATES = 8
_PAGES = [0, 1]
_OTHER_PAGES = [2, 3]
_QUANT_BLOCK = 32


@dataclass(frozen=True)
class Bounds:
    """Errors that a family may have.

    Attributes:
        oracle: largest difference of a logit between the torch executor and transformers, both in float32.
        native: largest difference between the native and the torch executor on float32 weights, relative to the
            largest logit; float16 keys and values stand between the two.
        quantised: root mean square difference of a row's logits on Q8_0 weights, relative to the standard deviation of
            all; int8 activations stand between the two.
        held_rows: share of the rows that are held to `native` and `quantised`, the best ones: where a router's choice
            is nearly a tie, the two executors may choose different experts.
    """

    oracle: float = 1e-3
    native: float = 5e-3
    quantised: float = 0.05
    held_rows: float = 1.0


def perturb(model: Any, *, seed: int = 0, scale: float = 0.1) -> None:
    """Move every vector away from the constants it starts with, so that a forgotten one shows."""
    generator = torch.Generator().manual_seed(seed)
    corrections = (buffer for name, buffer in model.named_buffers() if name.endswith("bias"))
    with torch.no_grad():
        for vector in (*(parameter for parameter in model.parameters() if parameter.ndim == 1), *corrections):
            vector.add_(scale * torch.randn(vector.shape, generator=generator))


def random_tokens(vocab_size: int, length: int = NUM_TOKENS, *, seed: int = 1) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab_size, length).tolist()


def transformers_logits(model: Any, token_ids: list[int]) -> NDArray[np.float32]:
    """Logits of every position, teacher-forced, in float32."""
    with torch.inference_mode():
        logits: NDArray[np.float32] = model.float().eval()(torch.tensor([token_ids])).logits[0].float().numpy()
    return logits


def save_directory(model: Any, folder: Path) -> Checkpoint:
    """Save as transformers does, and open the directory."""
    model.save_pretrained(folder)
    return open_directory(folder)


def program_of(checkpoint: Checkpoint) -> Program:
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    return build_program(checkpoint.architecture, checkpoint.metadata, shapes)


def write_gguf(checkpoint: Checkpoint, path: Path, *, quantised: bool = False) -> Checkpoint:
    """Write an opened checkpoint as a GGUF file, and open that.

    Quantised tensors stay as they are; other matrices become Q8_0 if asked for and possible, else float32.
    """
    writer = gguf.GGUFWriter(path, checkpoint.architecture)
    for key, value in checkpoint.metadata.items():
        if key != "general.architecture":
            _add_metadata(writer, key, value)
    matrices = _matrices(program_of(checkpoint)) if quantised else frozenset()
    for name, tensor in checkpoint.tensors.items():
        if tensor.quant_type not in FLOAT_TYPES:
            kind = gguf.GGMLQuantizationType[tensor.quant_type]
            writer.add_tensor(name, tensor.data.reshape(*tensor.shape[:-1], -1), raw_dtype=kind)
            continue
        values = np.ascontiguousarray(tensor.dequantise())
        if name in matrices and values.shape[-1] % _QUANT_BLOCK == 0:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return open_gguf(path)


def _add_metadata(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    kinds: dict[type, Callable[..., None]] = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float64,
        str: writer.add_string,
        tuple: writer.add_array,
    }
    kinds[type(value)](key, value)


def _matrices(program: Program) -> frozenset[str]:
    """Weights that files keep quantised: those of linear operators, heads, embeddings and experts."""
    names = ("Linear", "Head", "Embed", "Experts")
    found = set()
    for operator in program:
        if type(operator).__name__ in names:
            found |= {
                getattr(operator, field) for field in ("weight", "gate", "up", "down") if hasattr(operator, field)
            }
    return frozenset(name for name in found if len(program.weights.get(name, ())) > 1 and "gate_inp" not in name)


@contextmanager
def torch_executor(checkpoint: Checkpoint) -> Iterator[Executor]:
    program = program_of(checkpoint)
    executor = ReferenceExecutor(
        program,
        checkpoint.tensors,
        device="cpu",
        dtype="float32",
        num_pages=8,
        num_states=NUM_STATES if program.state_layers else 0,
    )
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def native_executor(checkpoint: Checkpoint, **settings: Any) -> Iterator[Executor]:
    program = program_of(checkpoint)
    settings = {"num_threads": 2, "num_pages": 8} | settings
    executor = CpuExecutor(
        program, checkpoint.tensors, num_states=NUM_STATES if program.state_layers else 0, **settings
    )
    try:
        yield executor
    finally:
        executor.close()


def sequence(executor: Executor, token_ids: list[int], *, other: bool = False, state: int = 0) -> Run:
    """A sequence with pages, and with a state where the model has any."""
    return Run(token_ids, _OTHER_PAGES if other else _PAGES, state_out=state if executor.num_states else None)


def check_cuts(executor: Executor, token_ids: list[int]) -> NDArray[np.float32]:
    """Return the logits, the same to the bit however the prompt is cut, beside another sequence, and resumed."""
    whole = sequence(executor, token_ids)
    logits = prefill(executor, whole, len(token_ids))
    pages = executor.export_pages(_PAGES)
    state = executor.export_state(0) if executor.num_states else b""
    for cut in CUTS:
        np.testing.assert_array_equal(prefill(executor, whole, cut), logits)
        assert executor.export_pages(_PAGES) == pages
        assert (executor.export_state(0) if executor.num_states else b"") == state
    neighbour = sequence(executor, token_ids[::-1][:40], other=True, state=2)
    beside, alone = run_rows(executor, [neighbour, whole])
    np.testing.assert_array_equal(alone, logits)
    np.testing.assert_array_equal(run_rows(executor, [neighbour])[0], beside)
    if executor.num_states:
        half = len(token_ids) // 2
        run_rows(executor, [Run(token_ids[:half], _PAGES, state_out=4)])
        resumed = run_rows(executor, [Run(token_ids[half:], _PAGES, half, state_in=4, state_out=5)])[0]
        np.testing.assert_array_equal(resumed, logits[half:])
        assert executor.export_state(5) == state
    return logits


def check_family(model: Any, folder: Path, *, bounds: Bounds | None = None) -> None:
    """Hold one model against everything that is true of every family."""
    bounds = bounds or Bounds()
    directory = save_directory(model, folder / "directory")
    token_ids = random_tokens(program_of(directory).vocab_size)
    wanted = transformers_logits(model, token_ids)
    with torch_executor(directory) as executor:
        logits = check_cuts(executor, token_ids)
    assert np.abs(logits - wanted).max() < bounds.oracle
    plain = write_gguf(directory, folder / "plain.gguf")
    with torch_executor(plain) as executor:
        np.testing.assert_array_equal(prefill(executor, sequence(executor, token_ids), NUM_TOKENS), logits)
    with native_executor(plain) as executor:
        got = check_cuts(executor, token_ids)
    held = np.sort(np.abs(got - logits).max(axis=1))[: int(bounds.held_rows * NUM_TOKENS)]
    assert held.max() < bounds.native * np.abs(logits).max()
    quantised = write_gguf(directory, folder / "quantised.gguf", quantised=True)
    with torch_executor(quantised) as executor:
        rounded = prefill(executor, sequence(executor, token_ids), NUM_TOKENS)
    with native_executor(quantised) as executor:
        got = check_cuts(executor, token_ids)
    held = np.sort(np.mean((got - rounded) ** 2, axis=1))[: int(bounds.held_rows * NUM_TOKENS)]
    assert np.sqrt(held.mean()) < bounds.quantised * rounded.std()
    with native_executor(quantised, variant="scalar", num_threads=1) as executor:
        np.testing.assert_array_equal(prefill(executor, sequence(executor, token_ids), 50), got)
