"""The llama family: Llama 1 to 3, SmolLM2, Mistral 7B and all that share their layout.

Touvron et al., arXiv 2302.13971; grouped queries from arXiv 2307.09288. Tensor names and metadata keys are GGUF's.
Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from memra.errors import CorruptFileError
from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.rotations import read_rotation

_STYLE_KEY = "memra.rope_style"


def build_llama(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a llama file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    if metadata.optional_number("attention.sliding_window") is not None:
        raise metadata.unsupported("attention.sliding_window", "a sliding window")
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    q_rope, k_rope = _read_ropes(metadata, shape, program)
    scale = metadata.optional_number("attention.scale") or 1.0 / math.sqrt(shape.head_dim)

    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        for name in ("q", "k", "v"):
            _linear(program, "normed", name, f"{layer}.attn_{name}")
        program.rope(q_rope)
        program.rope(k_rope)
        program.attention(
            num_heads=shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, scale=scale
        )
        _linear(program, "attended", "branch", f"{layer}.attn_output")
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        _linear(program, "normed", "gate", f"{layer}.ffn_gate")
        _linear(program, "normed", "up", f"{layer}.ffn_up")
        program.gated_product(Activation.SILU)
        _linear(program, "gate", "branch", f"{layer}.ffn_down")
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)


def _linear(program: ProgramComposer, x: str, out: str, stem: str) -> None:
    """Multiply, with a bias where the file has one: some members of the family do."""
    program.linear(x, out, stem, bias=program.has_tensor(f"{stem}.bias"))


def _read_ropes(metadata: Metadata, shape: DecoderShape, program: ProgramComposer) -> tuple[Rope, Rope]:
    """Build the rotations of q and k.

    GGUF converters permute the rows of q and k so that pairs are neighbours; checkpoints in their original order say
    so in `memra.rope_style`. Llama 3's scaling comes as a tensor of frequency factors.
    """
    style = metadata.get_global(_STYLE_KEY) or RopeStyle.INTERLEAVED
    if style not in set(RopeStyle):
        raise CorruptFileError(f"The file's {_STYLE_KEY} is {style!r}, which is none of {[*map(str, RopeStyle)]}.")
    factors = "rope_freqs.weight" if program.has_tensor("rope_freqs.weight") else None
    q_rope = read_rotation(metadata, rotary_dims=shape.rotary_dims, frequency_factors=factors).rope(
        "q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle(str(style)),
    )
    return q_rope, replace(q_rope, x="k", num_heads=shape.num_kv_heads)
