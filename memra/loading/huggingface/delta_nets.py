"""Gated delta nets beside gated attention, as directories of transformers describe them.

Trade: the settings and tensors that qwen3_next, qwen3_5 and qwen3_5_moe share. Value heads keep the order of this
format, in which neighbours share a key head. Refuses to know feed-forward parts.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memra.errors import CorruptFileError
from memra.loading.checkpoint import StoredTensor
from memra.loading.huggingface.configuration import MAX_LAYERS, Configuration
from memra.loading.huggingface.family import ATTENTION_NAMES, Tensors, common_metadata, head_width
from memra.loading.huggingface.rotations import llama3_factors, rope_metadata, rope_parameters
from memra.loading.huggingface.tensor_edits import take_rows
from memra.loading.model_tensor import ModelTensor
from memra.loading.safetensors_file import with_values_changed

DELTA_NAMES: Final[Mapping[str, str]] = {
    **ATTENTION_NAMES,
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkvz": "attn_qkvz",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_ba": "ssm_ba",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
"""Parts of both kinds of layers without their feed-forward parts."""
_FUSED_SUFFIX: Final = ".attn_qkvz.weight"
_PARTIAL_ROTATION: Final = 0.25
"""Share of a head that is rotated; the default of the configurations in transformers."""
_ATTENTION_INTERVAL: Final = 4
"""The default of the same."""


def delta_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    """Sizes, rotation and kinds of layers under GGUF's keys."""
    num_values = config.integer("linear_num_value_heads")
    return {
        **common_metadata(config, prefix),
        **rope_metadata(config, prefix),
        f"{prefix}.rope.dimension_count": _rotary_dims(config),
        f"{prefix}.attention.recurrent_layers": _recurrent_layers(config),
        f"{prefix}.ssm.conv_kernel": config.integer("linear_conv_kernel_dim"),
        f"{prefix}.ssm.state_size": config.integer("linear_key_head_dim"),
        f"{prefix}.ssm.group_count": config.integer("linear_num_key_heads"),
        f"{prefix}.ssm.time_step_rank": num_values,
        f"{prefix}.ssm.inner_size": config.integer("linear_value_head_dim") * num_values,
    }


def adjust_delta_nets(tensors: Tensors, config: Configuration) -> Tensors:
    """Give decays, convolutions and fused projections GGUF's form, and add Llama 3's frequency factors if need be."""
    factors = llama3_factors(config, rotary_dims=_rotary_dims(config))
    found: Tensors = {} if factors is None else {factors.name: factors}
    for name, tensor in tensors.items():
        if name.endswith(".ssm_a"):
            found[name] = with_values_changed(tensor, _decays)
        elif name.endswith(".ssm_conv1d.weight"):
            found[name] = _without_middle_dimension(tensor)
        elif name.endswith(_FUSED_SUFFIX):
            found |= _cut_qkvz(tensor, config)
        else:
            found[name] = tensor
    return found


def _decays(values: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # a damaged value becomes infinite, which executors refuse
        return -np.exp(values)


def _without_middle_dimension(tensor: ModelTensor) -> ModelTensor:
    """A depthwise convolution's weight `[channels, 1, kernel]` as `[channels, kernel]`, float32 as in GGUF.

    Other shapes stay, for the family to refuse.
    """
    if tensor.shape[1:2] != (1,):
        return tensor
    values = np.ascontiguousarray(np.squeeze(tensor.dequantise(), 1), np.float32)
    return StoredTensor(tensor.name, values.shape, "F32", values.reshape(-1).view(np.uint8))


def _cut_qkvz(tensor: ModelTensor, config: Configuration) -> Tensors:
    """Cut `[key heads, (q, k, v, z), columns]` into `attn_qkv`, all q before all k before all v, and `attn_gate`."""
    num_heads, key_dim = config.integer("linear_num_key_heads"), config.integer("linear_key_head_dim")
    values = config.integer("linear_num_value_heads") * config.integer("linear_value_head_dim") // num_heads
    if tensor.shape[:1] != (2 * num_heads * (key_dim + values),):
        raise CorruptFileError(
            f"{config.path}: {tensor.name} has the shape {tuple(tensor.shape)}, which is not that of {num_heads} key "
            "heads with their values: fetch the files again"
        )
    rows = np.arange(tensor.shape[0]).reshape(num_heads, -1)
    q, k, v, z = (part.reshape(-1) for part in np.split(rows, np.cumsum([key_dim, key_dim, values]), axis=1))
    layer = tensor.name.removesuffix(_FUSED_SUFFIX)
    qkv = take_rows(tensor, f"{layer}.attn_qkv.weight", np.concatenate([q, k, v]))
    gate = take_rows(tensor, f"{layer}.attn_gate.weight", z)
    return {qkv.name: qkv, gate.name: gate}


def _rotary_dims(config: Configuration) -> int:
    """Elements of a head that are rotated; more than all of them are refused where the program is built."""
    rope = rope_parameters(config)
    key = "partial_rotary_factor"
    share = rope.number(key) if rope is not None and rope.has(key) else config.number(key, _PARTIAL_ROTATION)
    return int(head_width(config) * share)


def _recurrent_layers(config: Configuration) -> tuple[bool, ...]:
    """One entry per layer, True where it is a delta net."""
    num_layers = config.integer("num_hidden_layers", limit=MAX_LAYERS)
    kinds = config.values.get("layer_types")
    if kinds is None:
        interval = config.integer("full_attention_interval", _ATTENTION_INTERVAL)
        return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    known = {"linear_attention", "full_attention"}
    if not isinstance(kinds, list) or len(kinds) != num_layers or not all(kind in known for kind in kinds):
        raise CorruptFileError(
            f"{config.path}: 'layer_types' does not name linear_attention or full_attention for {num_layers} layers: "
            "fetch the file again"
        )
    return tuple(kind == "linear_attention" for kind in kinds)
