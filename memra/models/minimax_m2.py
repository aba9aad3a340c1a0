"""The minimax-m2 family: MiniMax M2.

Norms over all queries and all keys of a row at once, rotation of a part of each head, and experts in every layer,
chosen by sigmoids with a correction. Tensor names and metadata keys are GGUF's. Refuses to know where the file came
from and what computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from memra.layers.operators import RopeStyle, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.feed_forward import add_routed
from memra.models.metadata import Metadata, read_decoder_shape
from memra.models.rotations import read_rotation

_SIGMOID = 2
"""`expert_gating_func` of llama.cpp."""


def build_minimax_m2(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a minimax-m2 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("expert_count", "rope.scaling.attn_factor")
    if metadata.get("expert_gating_func") not in {None, _SIGMOID}:
        raise metadata.unsupported("expert_gating_func", "this kind of router")
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    rope = read_rotation(metadata, rotary_dims=shape.rotary_dims).rope(
        "q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
    )
    routing = Routing(
        num_experts=metadata.positive_integer("expert_count"),
        num_used=metadata.positive_integer("expert_used_count"),
        function=RouterFunction.SIGMOID,
        normalise=True,
        scale=metadata.optional_number("expert_weights_scale") or 1.0,
    )
    expert_width = metadata.positive_integer("expert_feed_forward_length", shape.ffn_width)

    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        for name in ("q", "k", "v"):
            program.linear("normed", name, f"{layer}.attn_{name}")
        for name, num_heads in (("q", shape.num_heads), ("k", shape.num_kv_heads)):
            program.norm(name, name, f"{layer}.attn_{name}_norm.weight", eps=shape.eps)
            program.rope(replace(rope, x=name, num_heads=num_heads))
        program.attention(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=1.0 / math.sqrt(shape.head_dim),
        )
        program.linear("attended", "branch", f"{layer}.attn_output")
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        add_routed(program, layer, routing, width=expert_width)
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)
