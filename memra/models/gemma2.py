"""The gemma2 family: Gemma 2, 2B to 27B.

Norms before and after each branch, caps on attention scores and on logits, and layers that see a window in turn with
layers that see everything (arXiv 2408.00118). Tensor names and metadata keys are GGUF's, whose norm weights already
contain the family's `+ 1`. Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape, read_position_scale
from memra.models.sliding_windows import read_local_layers, read_window

_WINDOW = 4096
"""Of all published sizes; files need not say so."""
_PATTERN_LAYERS = 2
"""Every second layer is global, in all published sizes; files need not say so."""
_SCORE_CAP = 50.0
_LOGIT_CAP = 30.0
"""Of all published sizes, and what llama.cpp takes where a file says nothing."""
_LAYERS_OF_27B = 46
"""The one size whose query scale is not that of its head; files do not say so, and llama.cpp tells it by this."""


def build_gemma2(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a gemma2 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported()
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    window = read_window(metadata, _WINDOW)
    is_local = read_local_layers(metadata, shape.num_layers, period=_PATTERN_LAYERS)
    rope = _read_rope(metadata, shape)
    scale = metadata.optional_number("attention.scale") or _query_scale(shape)
    score_cap = _read_cap(metadata, "attn_logit_softcapping", _SCORE_CAP)

    program.embed("token_embd.weight", "x", scale=math.sqrt(shape.width))
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        for name in ("q", "k", "v"):
            program.linear("normed", name, f"{layer}.attn_{name}")
        program.rope(rope)
        program.rope(replace(rope, x="k", num_heads=shape.num_kv_heads))
        program.attention(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=scale,
            window=window if is_local[index] else None,
            softcap=score_cap,
        )
        program.linear("attended", "branch", f"{layer}.attn_output")
        program.norm("branch", "branch", f"{layer}.post_attention_norm.weight", eps=shape.eps)
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        program.linear("normed", "gate", f"{layer}.ffn_gate")
        program.linear("normed", "up", f"{layer}.ffn_up")
        program.gated_product(Activation.GELU_TANH)
        program.linear("gate", "branch", f"{layer}.ffn_down")
        program.norm("branch", "branch", f"{layer}.post_ffw_norm.weight", eps=shape.eps)
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    logit_cap = _read_cap(metadata, "final_logit_softcapping", _LOGIT_CAP)
    program.head("normed", embedding="token_embd.weight", softcap=logit_cap)
    return program.finish(shape.context_tokens)


def _read_cap(metadata: Metadata, name: str, default: float) -> float | None:
    """Return a cap; absence is the default, 0 is none."""
    return default if metadata.get(name) is None else metadata.optional_number(name)


def _query_scale(shape: DecoderShape) -> float:
    """Return the factor on scores: by the head's size, but by the width's share of a head in the 27B."""
    if shape.num_layers == _LAYERS_OF_27B:
        return 1.0 / math.sqrt(shape.width // shape.num_heads)
    return 1.0 / math.sqrt(shape.head_dim)


def _read_rope(metadata: Metadata, shape: DecoderShape) -> Rope:
    """Build the rotation of q, which is that of all layers."""
    return Rope(
        x="q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
        base=metadata.positive_number("rope.freq_base", 10000.0),
        position_scale=read_position_scale(metadata),
    )
