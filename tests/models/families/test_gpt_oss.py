"""The gpt-oss family, against transformers and in the form in which it is published."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from memra.errors import UnsupportedModelError
from memra.loading.safetensors_directory import open_directory
from memra.models.registry import build_program
from tests.engine.reference_driver import prefill
from tests.models.family_harness import (
    NUM_TOKENS,
    Bounds,
    check_family,
    native_executor,
    perturb,
    program_of,
    random_tokens,
    save_directory,
    sequence,
    torch_executor,
    transformers_logits,
    write_gguf,
)

SIZES: dict[str, Any] = {
    "vocab_size": 128,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": 24,
    "max_position_embeddings": 256,
    "num_local_experts": 6,
    "num_experts_per_tok": 2,
    "initializer_range": 0.2,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 4.0,
        "beta_fast": 4.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 64,
    },
    "attn_implementation": "eager",
}


def make_model() -> Any:
    torch.manual_seed(0)
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**SIZES))
    perturb(model)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.mlp.experts.gate_up_proj_bias.normal_(std=3.0)  # so that gates and ups reach their limits
            layer.mlp.experts.down_proj_bias.normal_(std=0.2)
            layer.self_attn.sinks.normal_()
    return model


def _pack_experts(model: Any, folder: Path) -> None:
    """Rewrite a saved directory with experts in MXFP4, and give the model the same values."""
    generator = torch.Generator().manual_seed(2)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        num_experts, columns, rows = tensors.pop(name).shape
        blocks = torch.randint(0, 256, (num_experts, rows, columns // 32, 16), generator=generator, dtype=torch.uint8)
        scales = torch.randint(121, 124, (num_experts, rows, columns // 32), generator=generator, dtype=torch.uint8)
        tensors |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        with torch.no_grad():
            model.get_parameter(name).copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
    save_file(tensors, path)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config))


def test_gpt_oss_is_what_transformers_computes(tmp_path: Path):
    check_family(make_model(), tmp_path, bounds=Bounds(held_rows=0.9))


def test_experts_of_four_bits_are_read_as_published(tmp_path: Path):
    model = make_model()
    save_directory(model, tmp_path / "directory")
    _pack_experts(model, tmp_path / "directory")
    directory = open_directory(tmp_path / "directory")
    kinds = {tensor.quant_type for name, tensor in directory.tensors.items() if name.endswith("_exps.weight")}
    assert kinds == {"MXFP4"}
    token_ids = random_tokens(SIZES["vocab_size"])
    wanted = transformers_logits(model, token_ids)
    with torch_executor(directory) as executor:
        logits = prefill(executor, sequence(executor, token_ids), NUM_TOKENS)
    assert np.abs(logits - wanted).max() < Bounds().oracle
    packed = write_gguf(directory, tmp_path / "packed.gguf")
    with torch_executor(packed) as executor:
        np.testing.assert_array_equal(prefill(executor, sequence(executor, token_ids), NUM_TOKENS), logits)
    with native_executor(packed) as executor:
        got = prefill(executor, sequence(executor, token_ids), NUM_TOKENS)
    rows = np.sqrt(np.mean((got - logits) ** 2, axis=1))
    assert np.median(rows) < Bounds().quantised * logits.std()


def test_layers_alternate_where_a_file_does_not_say(tmp_path: Path):
    checkpoint = save_directory(make_model(), tmp_path)
    metadata = dict(checkpoint.metadata)
    del metadata["gpt-oss.attention.sliding_window_pattern"]
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    assert build_program("gpt-oss", metadata, shapes) == program_of(checkpoint)
    assert [layer.window for layer in program_of(checkpoint).kv_layers] == [24, None, 24]


def test_another_limit_of_the_gate_is_refused(tmp_path: Path):
    save_directory(make_model(), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"swiglu_limit": 5.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModelError, match="'swiglu_limit' is 7"):
        open_directory(tmp_path)


def test_an_unknown_tensor_is_refused(tmp_path: Path):
    checkpoint = save_directory(make_model(), tmp_path)
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.tensors.items()}
    with pytest.raises(UnsupportedModelError, match=r"blk\.0\.ffn_gate_shexp\.weight"):
        build_program("gpt-oss", checkpoint.metadata, shapes | {"blk.0.ffn_gate_shexp.weight": (96, 64)})
