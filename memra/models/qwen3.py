"""The qwen3 and qwen3moe families: Qwen 3, dense and with experts, Qwen3-Embedding and Qwen3-Reranker.

Llama's block with a norm on every q and k head, heads of a size of their own and rotation by halves (arXiv 2505.09388).
Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and what computes the program.
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
from memra.models.pooling import POOLING_KEY, end_decoder, read_pooling
from memra.models.rotations import read_rotation


def build_qwen3(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen3 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor", POOLING_KEY)
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    return _compose(program, metadata, shape, add_feed_forward=partial(add_dense, program))


def build_qwen3moe(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a qwen3moe file: the same block with experts, whose weights sum to 1.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(MIXTURE_KEY, "rope.scaling.attn_factor")
    mixture = read_softmax_mixture(metadata, normalise=True)
    shape = read_decoder_shape(metadata, ffn_width=mixture.width)
    program = ProgramComposer(metadata.architecture, tensor_shapes, mixture.buffers(shape.buffers))
    return _compose(program, metadata, shape, add_feed_forward=partial(add_mixture, program, mixture=mixture))


def _compose(
    program: ProgramComposer, metadata: Metadata, shape: DecoderShape, *, add_feed_forward: Callable[[str], None]
) -> Program:
    if metadata.optional_number("attention.sliding_window") is not None:
        raise metadata.unsupported("attention.sliding_window", "a sliding window")
    factors = "rope_freqs.weight" if program.has_tensor("rope_freqs.weight") else None
    rope = read_rotation(metadata, rotary_dims=shape.rotary_dims, frequency_factors=factors).rope(
        "q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
    )
    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        for name in ("q", "k", "v"):
            program.linear("normed", name, f"{layer}.attn_{name}", bias=None)
        for name, num_heads in (("q", shape.num_heads), ("k", shape.num_kv_heads)):
            program.norm(name, name, f"{layer}.attn_{name}_norm.weight", eps=shape.eps, group_width=shape.head_dim)
            program.rope(replace(rope, x=name, num_heads=num_heads))
        program.attention(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=1.0 / math.sqrt(shape.head_dim),
        )
        program.linear("attended", "branch", f"{layer}.attn_output", bias=None)
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        add_feed_forward(layer)
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    pooling = read_pooling(metadata)
    end_decoder(program, "normed", pooling, embedding="token_embd.weight")
    return program.finish(shape.context_tokens, pooling=pooling)
