"""The same model in `transformers`, built from GGUF metadata and dequantised GGUF tensors: an independent oracle."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from memra.engine.executor import WeightTensors

_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_FFN_NORM = {"llama": "post_attention_layernorm", "qwen2": "post_attention_layernorm"}
_GEMMA_NORMS = {
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_TOP_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def build_oracle(
    architecture: str,
    metadata: Mapping[str, object],
    tensors: WeightTensors,
    *,
    rope: Mapping[str, object] | None = None,
) -> Any:
    """Return the model in float32, ready for inference; `rope` overrides what the metadata says."""
    read = _Reader(architecture, metadata)
    rope = _read_rope(read) if rope is None else dict(rope)
    common = {
        "vocab_size": tensors["token_embd.weight"].shape[0],
        "hidden_size": read("embedding_length"),
        "intermediate_size": read("feed_forward_length"),
        "num_hidden_layers": read("block_count"),
        "num_attention_heads": read("attention.head_count"),
        "num_key_value_heads": read("attention.head_count_kv"),
        "head_dim": read("attention.key_length", None) or read("embedding_length") // read("attention.head_count"),
        "rms_norm_eps": read("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": read("context_length"),
        "tie_word_embeddings": "output.weight" not in tensors,
        "attn_implementation": "eager",
    }
    if architecture == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**common, rope_parameters=rope))
    elif architecture == "qwen2":
        model = transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**common, rope_parameters=rope))
    else:
        model = transformers.Gemma3ForCausalLM(_gemma3_config(read, common, rope))
    state = {
        _oracle_name(architecture, name): torch.from_numpy(_oracle_values(read, name, tensors[name].dequantise()))
        for name in tensors
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model.eval()


def oracle_logits(model: Any, token_ids: list[int]) -> NDArray[np.float32]:
    """Logits of every position, teacher-forced."""
    with torch.inference_mode():
        logits: NDArray[np.float32] = model(torch.tensor([token_ids])).logits[0].numpy()
    return logits


def _read_rope(read: "_Reader") -> dict[str, object]:
    rope: dict[str, object] = {"rope_type": "default", "rope_theta": read("rope.freq_base")}
    if read("rope.scaling.type", None) == "linear":
        rope |= {"rope_type": "linear", "factor": read("rope.scaling.factor")}
    return rope


class _Reader:
    def __init__(self, architecture: str, metadata: Mapping[str, object]) -> None:
        self.architecture = architecture
        self._metadata = metadata

    def __call__(self, name: str, *default: object) -> Any:
        key = f"{self.architecture}.{name}"
        return self._metadata.get(key, *default) if default else self._metadata[key]


def _gemma3_config(read: _Reader, common: dict[str, Any], rope: Mapping[str, object]) -> Any:
    local = {"rope_type": "default", "rope_theta": 10000.0}
    layers = range(common["num_hidden_layers"])
    return transformers.Gemma3TextConfig(
        **common,
        rope_parameters={"full_attention": dict(rope), "sliding_attention": local},
        layer_types=["full_attention" if index % 6 == 5 else "sliding_attention" for index in layers],
        sliding_window=read("attention.sliding_window"),
        query_pre_attn_scalar=common["head_dim"],
        final_logit_softcapping=read("final_logit_softcapping", None),
        hidden_activation="gelu_pytorch_tanh",
    )


def _oracle_name(architecture: str, name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    matched = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
    if matched is None:
        return f"{_TOP_NAMES[stem]}.{kind}"
    names = _LAYER_NAMES | (_GEMMA_NORMS if architecture == "gemma3" else {"ffn_norm": _FFN_NORM[architecture]})
    return f"model.layers.{matched[1]}.{names[matched[2]]}.{kind}"


def _oracle_values(read: _Reader, name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Undo what the converter to GGUF did: llama's rows of q and k are interleaved, gemma's norms have one added."""
    if read.architecture == "gemma3" and "norm" in name:
        return values - np.float32(1.0)
    if read.architecture == "llama" and ("attn_q." in name or "attn_k." in name):
        num_heads = read("attention.head_count" if "attn_q." in name else "attention.head_count_kv")
        pairs = values.reshape(num_heads, -1, 2, values.shape[1])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)
    return values.copy()
