"""The qwen2 and qwen2moe families: Qwen 2 and 2.5, Coder included, and Qwen 1.5 and 2 with experts.

Llama's block with biases on q, k and v and rotation by halves (arXiv 2407.10671); beside the experts is one for all
rows, with a gate of its own, and the weights of the chosen ones are left as the softmax over all has them. Tensor names
and metadata keys are GGUF's. Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from memra.layers.operators import RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.mixtures import MIXTURE_KEY, add_dense, add_mixture, read_softmax_mixture
from memra.models.rotations import read_rotation


def build_qwen2(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen2 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    return _compose(program, metadata, shape, add_feed_forward=partial(add_dense, program))


def build_qwen2moe(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen2moe file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(MIXTURE_KEY, "rope.scaling.attn_factor")
    mixture = read_softmax_mixture(metadata, normalise=False, has_shared_expert=True)
    shape = read_decoder_shape(metadata, ffn_width=mixture.width)
    program = ProgramComposer(metadata.architecture, tensor_shapes, mixture.buffers(shape.buffers))
    return _compose(program, metadata, shape, add_feed_forward=partial(add_mixture, program, mixture=mixture))


def _compose(
    program: ProgramComposer, metadata: Metadata, shape: DecoderShape, *, add_feed_forward: Callable[[str], None]
) -> Program:
    if metadata.optional_number("attention.sliding_window") is not None:
        raise metadata.unsupported("attention.sliding_window", "a sliding window")
    q_rope = read_rotation(metadata, rotary_dims=shape.rotary_dims).rope(
        "q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
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
        add_feed_forward(layer)
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)
