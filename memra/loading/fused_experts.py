"""Experts whose gate and up matrices lie in one tensor, shown as the two that every family asks for.

Trade: `*_gate_up_exps.weight`, `[experts, 2 * width, columns]` with the gate's rows before the up's rows of each
expert, as GGUF converters may write it and transformers stores it. Called by whoever opens a file. Refuses to know
families.
"""

from collections.abc import Mapping
from typing import Final

from memra.loading.huggingface.tensor_edits import take_expert_rows
from memra.loading.model_tensor import ModelTensor

FUSED: Final = "_gate_up_exps.weight"
_DIMENSIONS: Final = 3


def split_fused_experts(tensors: Mapping[str, ModelTensor]) -> dict[str, ModelTensor]:
    """Put two tensors in the place of each fused one; nothing is read. Odd shapes stay, for the family to refuse."""
    shown: dict[str, ModelTensor] = {}
    for name, tensor in tensors.items():
        if name.endswith(FUSED) and len(tensor.shape) == _DIMENSIONS and tensor.shape[1] % 2 == 0:
            stem, half = name.removesuffix(FUSED), tensor.shape[1] // 2
            for part, rows in (("gate", range(half)), ("up", range(half, 2 * half))):
                part_name = f"{stem}_{part}_exps.weight"
                shown[part_name] = take_expert_rows(tensor, part_name, rows)
        else:
            shown[name] = tensor
    return shown
