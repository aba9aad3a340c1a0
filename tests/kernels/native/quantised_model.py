"""A small qwen2 model of random quantised blocks, as a file would hold it; what threads and memory are tested with."""

from collections.abc import Callable

import numpy as np

from memra.engine.executor import RowBatch
from memra.layers.program import Program
from memra.loading.checkpoint import StoredTensor
from memra.models.registry import build_program
from tests.kernels.native.stored_blocks import random_stored

VOCAB_SIZE, WIDTH, FFN, KV_WIDTH = 112, 256, 512, 128
_LAYERS = 2
_METADATA = {
    "embedding_length": WIDTH,
    "block_count": _LAYERS,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "feed_forward_length": FFN,
    "context_length": 2048,
    "rope.freq_base": 100000.0,
}
_MATRICES = {
    "attn_q": (WIDTH, WIDTH, "Q4_K"),
    "attn_k": (KV_WIDTH, WIDTH, "Q8_0"),
    "attn_v": (KV_WIDTH, WIDTH, "Q6_K"),
    "attn_output": (WIDTH, WIDTH, "Q4_0"),
    "ffn_gate": (FFN, WIDTH, "Q4_K"),
    "ffn_up": (FFN, WIDTH, "Q4_K"),
    "ffn_down": (WIDTH, FFN, "Q5_K"),
}
"""Rows, columns and type of a layer's matrices: every kind of step, and rows that are no multiple of a tile nowhere
but in the head."""


def stored_matrix(name: str, quant_type: str, rows: int, columns: int) -> StoredTensor:
    """A matrix of random blocks with small finite scales."""
    seed = sum(name.encode())
    raw = random_stored(quant_type, rows, columns, seed=seed, scale=0.003 if quant_type.endswith("_K") else 0.01)
    return StoredTensor(name, (rows, columns), quant_type, raw.reshape(-1))


def make_tensors(matrix: Callable[[str, str, int, int], StoredTensor] = stored_matrix) -> dict[str, StoredTensor]:
    """All tensors by name; embedding and head are two matrices. `matrix` makes one as `stored_matrix` does."""
    tensors = [
        matrix("token_embd.weight", "Q8_0", VOCAB_SIZE, WIDTH),
        matrix("output.weight", "Q6_K", VOCAB_SIZE, WIDTH),
        _vector("output_norm.weight", np.ones(WIDTH)),
    ]
    for layer in range(_LAYERS):
        for name, (rows, columns, quant_type) in _MATRICES.items():
            tensors.append(matrix(f"blk.{layer}.{name}.weight", quant_type, rows, columns))
        tensors += [_vector(f"blk.{layer}.{name}_norm.weight", np.ones(WIDTH)) for name in ("attn", "ffn")]
        widths = {"q": WIDTH, "k": KV_WIDTH, "v": KV_WIDTH}
        tensors += [_vector(f"blk.{layer}.attn_{name}.bias", np.linspace(-1, 1, n)) for name, n in widths.items()]
    return {tensor.name: tensor for tensor in tensors}


def make_program(tensors: dict[str, StoredTensor]) -> Program:
    """The program that a file of these tensors has."""
    metadata = {f"qwen2.{key}": value for key, value in _METADATA.items()}
    return build_program("qwen2", metadata, {name: tensor.shape for name, tensor in tensors.items()})


def rows_of(tokens: list[int], pages: list[int], start: int = 0) -> RowBatch:
    """Rows of one sequence; only the last one gives logits."""
    rows = np.arange(len(tokens), dtype=np.int32)
    table = np.array([pages], np.int32)
    return RowBatch(np.array(tokens, np.int32), rows + np.int32(start), np.zeros_like(rows), table, rows[-1:])


def _vector(name: str, values: np.ndarray) -> StoredTensor:
    return StoredTensor(name, values.shape, "F32", values.astype(np.float32).view(np.uint8))
