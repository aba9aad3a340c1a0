"""What a family's module says about its directories, and what most families share.

Trade: the description that `metadata`, `tensors` and `directory` work from. Refuses to know any one family.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from memra.loading.huggingface.configuration import MAX_LAYERS, Configuration
from memra.loading.huggingface.rotations import rope_metadata, rope_parameters
from memra.loading.model_tensor import ModelTensor

ROPE_STYLE_KEY: Final = "memra.rope_style"
"""Metadata key without a counterpart in GGUF: `halves` where q and k keep the order of this format."""
_MAX_HEAD_DIM: Final = 1 << 16

GLOBAL_NAMES: Final[Mapping[str, str]] = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
"""Tensors outside of the layers, as most families call them."""
ATTENTION_NAMES: Final[Mapping[str, str]] = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
}
"""Parts of a layer's attention."""
DENSE_NAMES: Final[Mapping[str, str]] = {
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
"""Parts of a gated feed-forward block."""
PLAIN_NORMS: Final[Mapping[str, str]] = {"post_attention_layernorm": "ffn_norm"}
"""The second norm of a layer that norms before each branch."""
POST_NORMS: Final[Mapping[str, str]] = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""The further norms of a layer that norms before and after each branch."""
LLAMA_NAMES: Final[Mapping[str, str]] = {**ATTENTION_NAMES, **DENSE_NAMES, **PLAIN_NORMS}
"""All parts of a layer of most families."""


def common_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    """The sizes that every decoder has, under GGUF's keys."""
    num_heads = config.integer("num_attention_heads")
    head_dim = head_width(config)
    return {
        f"{prefix}.block_count": config.integer("num_hidden_layers", limit=MAX_LAYERS),
        f"{prefix}.context_length": config.integer("max_position_embeddings"),
        f"{prefix}.embedding_length": config.integer("hidden_size"),
        f"{prefix}.feed_forward_length": config.integer("intermediate_size"),
        f"{prefix}.vocab_size": config.integer("vocab_size"),
        f"{prefix}.attention.head_count": num_heads,
        f"{prefix}.attention.head_count_kv": config.integer("num_key_value_heads", num_heads),
        f"{prefix}.attention.key_length": head_dim,
        f"{prefix}.attention.value_length": head_dim,
        f"{prefix}.attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        f"{prefix}.rope.dimension_count": head_dim,
    }


def head_width(config: Configuration) -> int:
    """Elements of one attention head."""
    default = config.integer("hidden_size") // config.integer("num_attention_heads")
    return config.integer("head_dim", default, limit=_MAX_HEAD_DIM)


def rotary_width(config: Configuration, default_share: float = 1.0) -> int:
    """Elements of a head that are rotated, where the configuration gives their share of it."""
    rope = rope_parameters(config)
    share = config.number("partial_rotary_factor", default_share)
    return int(head_width(config) * (share if rope is None else rope.number("partial_rotary_factor", share)))


def decoder_metadata(config: Configuration, prefix: str) -> dict[str, object]:
    """What a plain decoder needs: its sizes and its rotation."""
    return common_metadata(config, prefix) | rope_metadata(config, prefix)


Tensors = dict[str, ModelTensor]


@dataclass(frozen=True, slots=True)
class Family:
    """How the directories of one architecture become GGUF's keys and tensors.

    Attributes:
        gguf_name: the architecture in GGUF's terms.
        activations: the values of `hidden_act` that the family's program computes; empty where `read_metadata` checks.
        layer_names: a layer's tensors: what follows `<layers><number>.` to what follows `blk.<number>.`, without
            `.weight` and `.bias`, or with them where both sides name a whole tensor. A `*` stands for an expert's
            number: tensors that differ in it are stacked in its order.
        global_names: whole names outside of the layers.
        layers: what comes before a layer's number.
        read_metadata: from the configuration and `gguf_name` to GGUF's keys.
        adjust: a last change of the renamed tensors: fused ones cut, rows put in another order, values changed.
        norms_store_offset: norm weights are stored as `w` where `1 + w` is applied; GGUF stores `1 + w`.
        ties_embeddings: the head is the embedding matrix unless the configuration says otherwise.
        has_head: False for a model that ends in hidden rows.
        has_dense_modules: matrices behind the pooling, in folders of their own, become `dense_2` and `dense_3`.
        text_config: the configuration of the language model is nested under this key where the file has it.
        ignored: prefixes of tensors that belong to parts that memra does not run: towers for images and sound.
    """

    gguf_name: str
    activations: tuple[str, ...] = ("silu",)
    layer_names: Mapping[str, str] = field(default_factory=lambda: LLAMA_NAMES)
    global_names: Mapping[str, str] = field(default_factory=lambda: GLOBAL_NAMES)
    layers: str = "model.layers."
    read_metadata: Callable[[Configuration, str], dict[str, object]] = decoder_metadata
    adjust: Callable[[Tensors, Configuration], Tensors] | None = None
    norms_store_offset: bool = False
    ties_embeddings: bool = False
    has_head: bool = True
    has_dense_modules: bool = False
    text_config: str | None = None
    ignored: tuple[str, ...] = ()
