"""Safetensors files and model directories made by hand, small, and able to be wrong in one place."""

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, VOCAB = 2, 16, 24, 4, 2, 12
HEAD_DIM = HIDDEN // HEADS

CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu"},
    "gemma3": {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_activation": "gelu_pytorch_tanh",
        "sliding_window": 8,
        "query_pre_attn_scalar": 16,
        "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0,
    },
}


def config(family: str, **changes: Any) -> dict[str, Any]:
    shared = {
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 5e5,
        "tie_word_embeddings": False,
    }
    return {**shared, **CONFIGS[family], **changes}


def tensors(family: str) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (VOCAB, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCAB, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        parts = {
            "input_layernorm.weight": (HIDDEN,),
            "post_attention_layernorm.weight": (HIDDEN,),
            "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            "mlp.gate_proj.weight": (FFN, HIDDEN),
            "mlp.up_proj.weight": (FFN, HIDDEN),
            "mlp.down_proj.weight": (HIDDEN, FFN),
        }
        if family == "qwen2":
            parts["self_attn.q_proj.bias"] = (HEADS * HEAD_DIM,)
            parts["self_attn.k_proj.bias"] = (KV_HEADS * HEAD_DIM,)
            parts["self_attn.v_proj.bias"] = (KV_HEADS * HEAD_DIM,)
        if family == "gemma3":
            parts["pre_feedforward_layernorm.weight"] = (HIDDEN,)
            parts["post_feedforward_layernorm.weight"] = (HIDDEN,)
            parts["self_attn.q_norm.weight"] = (HEAD_DIM,)
            parts["self_attn.k_norm.weight"] = (HEAD_DIM,)
        shapes.update({prefix + part: shape for part, shape in parts.items()})
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def safetensors_bytes(
    values: dict[str, NDArray[np.float32]], *, dtype: str = "F32", header: dict[str, Any] | None = None
) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, array in values.items():
        raw = stored(array, dtype)
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps({**entries, **(header or {})}).encode()
    return struct.pack("<Q", len(text)) + text + data


def raw_safetensors(parts: dict[str, tuple[str, NDArray[Any]]]) -> bytes:
    """A file of tensors of any element type: name to type and array, whose bytes are written as they are."""
    entries: dict[str, Any] = {}
    data = b""
    for name, (dtype, array) in parts.items():
        raw = np.ascontiguousarray(array).tobytes()
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The upper halves, for values that need no more."""
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)


def stored(array: NDArray[np.float32], dtype: str) -> bytes:
    if dtype == "F16":
        return array.astype(np.float16).tobytes()
    if dtype == "BF16":
        return (array.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return array.tobytes()


TOKENIZER: dict[str, Any] = {
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "c": 3}, "merges": ["a b"]},
    "added_tokens": [
        {"id": 4, "content": "<s>", "special": True},
        {"id": 5, "content": "</s>", "special": True},
        {"id": 6, "content": "<end_of_turn>", "special": True},
        {"id": 7, "content": "<think>", "special": False},
    ],
}


def write_directory(path: Path, family: str, *, dtype: str = "F32", **changes: Any) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / "config.json", config(family, **changes))
    write_json(path / "tokenizer.json", TOKENIZER)
    tokenizer_config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "add_bos_token": True}
    write_json(path / "tokenizer_config.json", {**tokenizer_config, "chat_template": "{{ messages }}"})
    (path / "model.safetensors").write_bytes(safetensors_bytes(tensors(family), dtype=dtype))
    return path


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value), encoding="utf-8")
