"""Random models of every family, small enough for a test: metadata and tensors as a GGUF file would hold them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memra.layers.program import Program
from memra.models.registry import build_program

VOCAB_SIZE = 97


@dataclass(frozen=True)
class ArrayTensor:
    """A tensor of float32 values in memory."""

    name: str
    values: NDArray[np.float32]
    quant_type: str = "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def release(self) -> None:
        """Values in memory stay."""

    @property
    def data(self) -> NDArray[np.uint8]:
        return self.values.reshape(-1).view(np.uint8)

    def dequantise(self) -> NDArray[np.float32]:
        return self.values


@dataclass
class TinyModel:
    """What a checkpoint holds."""

    architecture: str
    metadata: dict[str, object]
    tensors: dict[str, ArrayTensor]

    @property
    def tensor_shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def build_program(self) -> Program:
        return build_program(self.architecture, self.metadata, self.tensor_shapes)


def make_llama(*, frequency_factors: bool = False, **extra: object) -> TinyModel:
    """Interleaved rope, tied head."""
    model = _make("llama", width=48, layers=2, heads=6, kv_heads=2, head_dim=8, ffn=80, extra=extra)
    if frequency_factors:
        _put(model, "rope_freqs.weight", np.array([1.0, 1.5, 4.0, 8.0], dtype=np.float32))
    return model


def make_qwen2(*, tied: bool = True, **extra: object) -> TinyModel:
    """Biases on q, k and v, rope by halves."""
    model = _make("qwen2", width=64, layers=2, heads=4, kv_heads=2, head_dim=16, ffn=96, extra=extra)
    rng = np.random.default_rng(7)
    for layer in range(2):
        for name, rows in (("q", 64), ("k", 32), ("v", 32)):
            _put(model, f"blk.{layer}.attn_{name}.bias", rng.normal(size=rows) * 0.5)
    if not tied:
        _put(model, "output.weight", rng.normal(size=(VOCAB_SIZE, 64)) * 0.3)
    return model


def make_gemma3(**extra: object) -> TinyModel:
    """Seven layers, so that the sixth is global; a window of 20."""
    window = {"attention.sliding_window": 20}
    model = _make("gemma3", width=40, layers=7, heads=4, kv_heads=1, head_dim=16, ffn=72, extra=window | extra)
    for layer in range(7):
        for name, width in (("attn_q", 16), ("attn_k", 16), ("post_attention", 40), ("post_ffw", 40)):
            _put(model, f"blk.{layer}.{name}_norm.weight", _norm_weight(np.random.default_rng(layer), width))
    return model


def make_modern_bert(**extra: object) -> TinyModel:
    """An embedding model: three layers, of which the first sees everything and the others a window."""
    own = {"attention.layer_norm_epsilon": 1e-5, "attention.causal": False, "attention.sliding_window": 8}
    model = _make("modern-bert", width=32, layers=3, heads=2, kv_heads=2, head_dim=16, ffn=48, extra=own | extra)
    rng = np.random.default_rng(11)
    _put(model, "token_embd_norm.weight", _norm_weight(rng, 32))
    for layer in range(3):
        del model.tensors[f"blk.{layer}.ffn_gate.weight"]
        _put(model, f"blk.{layer}.ffn_up.weight", rng.normal(size=(96, 32)) / np.sqrt(32))
    return model


FAMILIES = {"llama": make_llama, "qwen2": make_qwen2, "gemma3": make_gemma3}


def _make(  # noqa: PLR0913
    architecture: str,
    *,
    width: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ffn: int,
    extra: Mapping[str, object],
) -> TinyModel:
    values = {
        "embedding_length": width,
        "block_count": layers,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "feed_forward_length": ffn,
        "context_length": 2048,
        "rope.freq_base": 100000.0,
    } | dict(extra)
    model = TinyModel(architecture, {f"{architecture}.{key}": value for key, value in values.items()}, {})
    rng = np.random.default_rng(3)
    _put(model, "token_embd.weight", rng.normal(size=(VOCAB_SIZE, width)) * 0.5)
    _put(model, "output_norm.weight", _norm_weight(rng, width))
    matrices = {
        "attn_q": (heads * head_dim, width),
        "attn_k": (kv_heads * head_dim, width),
        "attn_v": (kv_heads * head_dim, width),
        "attn_output": (width, heads * head_dim),
        "ffn_gate": (ffn, width),
        "ffn_up": (ffn, width),
        "ffn_down": (width, ffn),
    }
    for layer in range(layers):
        for name, shape in matrices.items():
            _put(model, f"blk.{layer}.{name}.weight", rng.normal(size=shape) / np.sqrt(shape[1]))
        for name in ("attn_norm", "ffn_norm"):
            _put(model, f"blk.{layer}.{name}.weight", _norm_weight(rng, width))
    return model


def _norm_weight(rng: np.random.Generator, width: int) -> NDArray[np.float64]:
    return 1.0 + 0.2 * rng.normal(size=width)


def _put(model: TinyModel, name: str, values: NDArray[np.floating]) -> None:
    model.tensors[name] = ArrayTensor(name, np.ascontiguousarray(values, dtype=np.float32))
