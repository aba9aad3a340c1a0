"""The gemma3 family: text models of Gemma 3, 270M to 27B.

Norms before and after each branch, norms on every q and k head, and mostly local attention: five layers that see a
window, then one that sees everything (arXiv 2503.19786). Tensor names and metadata keys are GGUF's, whose norm weights
already contain the family's `+ 1`. Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape, read_position_scale
from memra.models.sliding_windows import read_local_layers, read_window

_PATTERN_LAYERS = 6
"""Every sixth layer is global, in all published sizes; files need not say so."""
_LOCAL_ROPE_BASE = 10000.0
"""Local layers keep the base of Gemma 2; files need not say so."""
_LAYERS_OF_27B = 62
"""The one size whose query scale is not that of its head; files do not say so, and llama.cpp tells it by this."""


def build_gemma3(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a gemma3 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported()
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    add_gemma3_layers(program, metadata, shape)
    softcap = metadata.optional_number("final_logit_softcapping")
    program.head("normed", embedding="token_embd.weight", softcap=softcap)
    return program.finish(shape.context_tokens)


def add_gemma3_layers(
    program: ProgramComposer, metadata: Metadata, shape: DecoderShape, *, causal: bool = True
) -> None:
    """Go from tokens to the normed rows of the last layer, in the buffer `normed`.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    if metadata.optional_number("attn_logit_softcapping") is not None:
        # Gemma 3 replaced Gemma 2's cap by the norms on q and k; other implementations ignore the key.
        raise metadata.unsupported("attn_logit_softcapping", "a cap on attention scores")
    window = read_window(metadata)
    is_local = [False] * shape.num_layers
    if window is not None:
        is_local = read_local_layers(metadata, shape.num_layers, period=_PATTERN_LAYERS)
    global_rope, local_rope = _read_ropes(metadata, shape)
    scale = metadata.optional_number("attention.scale") or _query_scale(shape)

    program.embed("token_embd.weight", "x", scale=math.sqrt(shape.width))
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        for name in ("q", "k", "v"):
            program.linear("normed", name, f"{layer}.attn_{name}")
        rope = local_rope if is_local[index] else global_rope
        for name, num_heads in (("q", shape.num_heads), ("k", shape.num_kv_heads)):
            program.norm(name, name, f"{layer}.attn_{name}_norm.weight", eps=shape.eps, group_width=shape.head_dim)
            program.rope(replace(rope, x=name, num_heads=num_heads))
        program.attention(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=scale,
            window=window if is_local[index] else None,
            causal=causal,
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


def _query_scale(shape: DecoderShape) -> float:
    """Return the factor on scores: by the head's size, but by the width's share of a head in the 27B."""
    if shape.num_layers == _LAYERS_OF_27B:
        return 1.0 / math.sqrt(shape.width // shape.num_heads)
    return 1.0 / math.sqrt(shape.head_dim)


def _read_ropes(metadata: Metadata, shape: DecoderShape) -> tuple[Rope, Rope]:
    """Build the rotations of global and of local layers; only the global ones are scaled."""
    global_rope = Rope(
        x="q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
        base=metadata.positive_number("rope.freq_base", 1_000_000.0),
        position_scale=read_position_scale(metadata),
    )
    local_base = metadata.positive_number("rope.freq_base_swa", _LOCAL_ROPE_BASE)
    return global_rope, replace(global_rope, base=local_base, position_scale=1.0)
