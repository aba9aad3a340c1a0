"""The qwen2 family: Qwen 2 and 2.5, Coder included.

Llama's block with biases on q, k and v and rotation by halves (arXiv 2407.10671). Tensor names and metadata keys are
GGUF's. Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import Metadata, read_decoder_shape, read_position_scale


def build_qwen2(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen2 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported()
    if metadata.optional_number("attention.sliding_window") is not None:
        raise metadata.unsupported("attention.sliding_window", "a sliding window")
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    q_rope = Rope(
        x="q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
        base=metadata.positive_number("rope.freq_base", 10000.0),
        position_scale=read_position_scale(metadata),
    )
    k_rope = replace(q_rope, x="k", num_heads=shape.num_kv_heads)
    scale = 1.0 / math.sqrt(shape.head_dim)

    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        for name in ("q", "k", "v"):
            program.linear("normed", name, f"{layer}.attn_{name}", bias=True)
        program.rope(q_rope)
        program.rope(k_rope)
        program.attention(
            num_heads=shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, scale=scale
        )
        program.linear("attended", "branch", f"{layer}.attn_output")
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        program.linear("normed", "gate", f"{layer}.ffn_gate")
        program.linear("normed", "up", f"{layer}.ffn_up")
        program.gated_product(Activation.SILU)
        program.linear("gate", "branch", f"{layer}.ffn_down")
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)
