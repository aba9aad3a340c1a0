"""Tensors of a safetensors directory, renamed and adjusted to GGUF's conventions.

Called by `safetensors_directory`. Works from a family's table of names, and refuses a name that it does not know, since
a weight left out changes what the model says.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from memra.errors import CorruptFileError, UnsupportedModelError
from memra.loading.converted_tensor import ConvertedTensor
from memra.loading.huggingface.configuration import Configuration
from memra.loading.huggingface.family import Family, Tensors
from memra.loading.huggingface.tensor_edits import Stack
from memra.loading.model_tensor import ModelTensor
from memra.loading.safetensors_file import with_values_changed

_LAYER: Final = re.compile(r"(?P<layer>\d+)\.(?P<part>.+?)(?P<kind>\.weight|\.bias)?")
_EXPERT: Final = re.compile(r"\.(\d+)\.")
_MODEL_PREFIX: Final = "model."
_RECOMPUTED_SUFFIX: Final = ".rotary_emb.inv_freq"
"""Old files carry the rope frequencies, which follow from the configuration."""
_PLAIN_NORM_SUFFIX: Final = ".ssm_norm.weight"
"""The gated norm of delta nets, which stores what it applies though the other norms of its families do not."""


def gguf_tensors(
    tensors: Mapping[str, ModelTensor], family: Family, config: Configuration, *, tied_embeddings: bool, path: Path
) -> Tensors:
    """All tensors under GGUF's names.

    The head is left out where the configuration ties it to the embeddings, stored or not. Norms that apply `1 + w`
    come out as `1 + w` in float32.

    Raises:
        CorruptFileError: there is neither a head nor a word that the embeddings serve as one, or an expert is missing.
        UnsupportedModelError: a tensor has a name that the family does not know.
    """
    tensors = _with_model_prefix(tensors, family)
    head = next((name for name, gguf_name in family.global_names.items() if gguf_name == "output.weight"), None)
    if family.has_head and not tied_embeddings and head not in tensors:
        raise CorruptFileError(
            f"{path}: holds no {head!r}, and config.json does not tie the head to the embeddings: fetch both again"
        )
    renamed: Tensors = {}
    experts: dict[str, dict[int, ModelTensor]] = {}
    for name, tensor in tensors.items():
        is_left_out = name.startswith(family.ignored) or (tied_embeddings and name == head)
        if is_left_out or name.endswith(_RECOMPUTED_SUFFIX):
            continue
        gguf_name, expert = _gguf_name(name, family)
        if gguf_name is None:
            raise UnsupportedModelError(
                f"{path}: the tensor {name!r} belongs to no part of a {family.gguf_name} model that memra runs"
            )
        if expert is not None:
            experts.setdefault(gguf_name, {})[expert] = tensor
        else:
            renamed[gguf_name] = _with_offset(tensor, family, gguf_name).renamed(gguf_name)
    for gguf_name, parts in experts.items():
        renamed[gguf_name] = ConvertedTensor(gguf_name, Stack.of(gguf_name, parts, path))
    return renamed if family.adjust is None else family.adjust(renamed, config)


def _with_model_prefix(tensors: Mapping[str, ModelTensor], family: Family) -> Mapping[str, ModelTensor]:
    """Complete the names of files that were saved from the model without its head, as embedding models are."""
    prefix, is_nested, _ = family.layers.partition(_MODEL_PREFIX)
    if prefix or not is_nested or any(name.startswith(_MODEL_PREFIX) for name in tensors):
        return tensors
    return {name if name in family.global_names else _MODEL_PREFIX + name: tensor for name, tensor in tensors.items()}


def _with_offset(tensor: ModelTensor, family: Family, gguf_name: str) -> ModelTensor:
    is_plain = gguf_name.endswith(_PLAIN_NORM_SUFFIX)
    if not family.norms_store_offset or is_plain or not gguf_name.endswith("norm.weight"):
        return tensor
    return with_values_changed(tensor, lambda values: values + np.float32(1))


def _gguf_name(name: str, family: Family) -> tuple[str | None, int | None]:
    """GGUF's name, or None; and the number of the expert where the tensor belongs to one."""
    if name in family.global_names:
        return family.global_names[name], None
    match = _LAYER.fullmatch(name.removeprefix(family.layers)) if name.startswith(family.layers) else None
    if match is None:
        return None, None
    expert = _EXPERT.search(f".{match['part']}.")
    part = _EXPERT.sub(".*.", match["part"]) if expert else match["part"]
    kind = match["kind"] or ""
    found = family.layer_names.get(part + kind) or _with_kind(family.layer_names.get(part), kind)
    number = int(expert[1]) if expert else None
    return (f"blk.{int(match['layer'])}.{found}" if found else None), number


def _with_kind(part: str | None, kind: str) -> str | None:
    return part + kind if part else None
