"""Directories of the granite family: llama with scales; granitemoe keeps gate and up of its experts in one tensor."""

from typing import Final

from memra.errors import CorruptFileError
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.families.llama import add_rope_factors
from memra.loading.huggingface.family import ATTENTION_NAMES, PLAIN_NORMS, Family, Tensors, decoder_metadata
from memra.loading.huggingface.tensor_edits import take_expert_rows, take_rows
from memra.loading.model_tensor import ModelTensor

_SCALES: Final = {
    "attention_multiplier": "attention.scale",
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "logits_scaling": "logit_scale",
}
_FUSED_EXPERTS: Final = ".ffn_gate_up_exps.weight"
_FUSED_SHARED: Final = ".ffn_gate_up_shexp.weight"
_MOE_NAMES: Final = {
    **ATTENTION_NAMES,
    **PLAIN_NORMS,
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.input_linear": "ffn_gate_up_exps",
    "block_sparse_moe.output_linear": "ffn_down_exps",
    "shared_mlp.input_linear": "ffn_gate_up_shexp",
    "shared_mlp.output_linear": "ffn_down_shexp",
}


def _read_granite(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = decoder_metadata(config, prefix)
    return metadata | {f"{prefix}.{name}": config.number(key, 1.0) for key, name in _SCALES.items()}


def _read_granitemoe(config: Configuration, prefix: str) -> dict[str, object]:
    metadata = _read_granite(config, prefix) | {
        f"{prefix}.expert_count": config.integer("num_local_experts"),
        f"{prefix}.expert_used_count": config.integer("num_experts_per_tok"),
    }
    if config.values.get("shared_intermediate_size"):
        metadata[f"{prefix}.expert_shared_feed_forward_length"] = config.integer("shared_intermediate_size")
    return metadata


def _cut_fused(tensors: Tensors, config: Configuration) -> Tensors:
    """Cut each `[gate; up]` in two, rows for one expert, rows of every expert for many."""
    result: Tensors = {}
    for name, tensor in tensors.items():
        if not name.endswith((_FUSED_EXPERTS, _FUSED_SHARED)):
            result[name] = tensor
            continue
        for part in ("gate", "up"):
            half = _half(tensor, name.replace("gate_up", part), is_second=part == "up", path=str(config.path))
            result[half.name] = half
    return add_rope_factors(result, config)


def _half(tensor: ModelTensor, name: str, *, is_second: bool, path: str) -> ModelTensor:
    """One half of the rows of a matrix, or of each matrix of a stack."""
    height = tensor.shape[-2] // 2
    if tensor.shape[-2] % 2:
        raise CorruptFileError(f"{path}: {tensor.name} has an odd number of rows: fetch the weights again")
    half = range(height * is_second, height * is_second + height)
    is_stack = name.endswith("_exps.weight")
    return take_expert_rows(tensor, name, half) if is_stack else take_rows(tensor, name, half)


_MOE: Final = Family("granitemoe", layer_names=_MOE_NAMES, read_metadata=_read_granitemoe, adjust=_cut_fused)
FAMILIES: Final = {
    "GraniteForCausalLM": Family("granite", read_metadata=_read_granite, adjust=add_rope_factors),
    "GraniteMoeForCausalLM": _MOE,
    "GraniteMoeSharedForCausalLM": _MOE,
}
