"""A tiny model whose heads have sinks and whose value heads are narrower than its key heads."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from memra.layers.operators import Attention, Operator
from memra.layers.program import Program
from tests.models.tiny_models import ArrayTensor, TinyModel, make_qwen2

_LAYERS, _HEADS, _KV_HEADS, _HEAD_DIM, _VALUE_DIM, _WIDTH = 2, 4, 2, 32, 16, 64


@dataclass
class SinkModel(TinyModel):
    """A qwen2 model with keys of 32, values of 16 and a sink for each head; one layer has a window."""

    @property
    def tensor_shapes(self) -> Mapping[str, tuple[int, ...]]:
        """What the family asks for: values as wide as keys, and no sinks."""
        shapes = dict(super().tensor_shapes)
        for layer in range(_LAYERS):
            del shapes[f"blk.{layer}.attn_sinks.weight"]
            shapes[f"blk.{layer}.attn_v.weight"] = (_KV_HEADS * _HEAD_DIM, _WIDTH)
            shapes[f"blk.{layer}.attn_v.bias"] = (_KV_HEADS * _HEAD_DIM,)
            shapes[f"blk.{layer}.attn_output.weight"] = (_WIDTH, _HEADS * _HEAD_DIM)
        return shapes

    def build_program(self) -> Program:
        """The family's program with another attention."""
        program = super().build_program()
        sinks = [f"blk.{layer}.attn_sinks.weight" for layer in range(_LAYERS)]
        return replace(
            program,
            operators=tuple(_with_sinks(operator) for operator in program),
            kv_layers=tuple(replace(layer, v_head_dim=_VALUE_DIM) for layer in program.kv_layers),
            weights={name: self.tensors[name].shape for name in (*program.weights, *sinks)},
            buffers={**program.buffers, "v": _KV_HEADS * _VALUE_DIM, "attended": _HEADS * _VALUE_DIM},
        )


def _with_sinks(operator: Operator) -> Operator:
    if not isinstance(operator, Attention):
        return operator
    layer = operator.layer
    window = 100 if layer else None
    return replace(operator, sinks=f"blk.{layer}.attn_sinks.weight", v_head_dim=_VALUE_DIM, window=window)


def make_sink_model() -> SinkModel:
    """The model, with random weights."""
    rng = np.random.default_rng(5)
    base = make_qwen2(**{"attention.key_length": _HEAD_DIM, "attention.value_length": _HEAD_DIM})
    model = SinkModel(base.architecture, base.metadata, dict(base.tensors))
    rows = {"q": _HEADS * _HEAD_DIM, "k": _KV_HEADS * _HEAD_DIM, "v": _KV_HEADS * _VALUE_DIM}
    for layer in range(_LAYERS):
        for name, height in rows.items():
            _put(model, f"blk.{layer}.attn_{name}.weight", rng.normal(size=(height, _WIDTH)) / np.sqrt(_WIDTH))
            _put(model, f"blk.{layer}.attn_{name}.bias", rng.normal(size=height) * 0.5)
        _put(model, f"blk.{layer}.attn_output.weight", rng.normal(size=(_WIDTH, _HEADS * _VALUE_DIM)) / 8)
        _put(model, f"blk.{layer}.attn_sinks.weight", rng.normal(size=_HEADS) * 2)
    return model


def _put(model: TinyModel, name: str, values: NDArray[np.floating]) -> None:
    model.tensors[name] = ArrayTensor(name, np.ascontiguousarray(values, np.float32))
