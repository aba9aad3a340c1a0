"""The phi3 family: Phi 3, 3.5 and 4, mini and medium.

Llama's block with q, k and v in one matrix, gate and up in another, rotation by halves of a part of each head, and
longrope in the models with a long context (arXiv 2404.14219). A model with longrope turns by its long factors unless
the context that its file declares is at most the one before scaling; whoever serves short contexts alone can override
`phi3.context_length` and get the short ones. Tensor names and metadata keys are GGUF's. Refuses to know where the file
came from and what computes the program.
"""

import math
from collections.abc import Mapping

from memra.layers.operators import Activation, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.rotations import Rotation, read_longrope, read_rotation

_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"


def build_phi3(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a phi3 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    heads, kv_heads = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    fused = {"qkv": heads + 2 * kv_heads, "gate_up": 2 * shape.ffn_width}
    program = ProgramComposer(metadata.architecture, tensor_shapes, {**shape.buffers, **fused})
    rotation = _read_rotation(metadata, shape, program)
    window = _read_window(metadata, shape)

    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        program.linear("normed", "qkv", f"{layer}.attn_qkv", bias=None)
        for name, offset in (("q", 0), ("k", heads), ("v", heads + kv_heads)):
            program.slice("qkv", name, offset=offset)
        for name, num_heads in (("q", shape.num_heads), ("k", shape.num_kv_heads)):
            program.rope(
                rotation.rope(
                    name,
                    num_heads=num_heads,
                    head_dim=shape.head_dim,
                    rotary_dims=shape.rotary_dims,
                    style=RopeStyle.HALVES,
                )
            )
        program.attention(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=1.0 / math.sqrt(shape.head_dim),
            window=window,
        )
        program.linear("attended", "branch", f"{layer}.attn_output", bias=None)
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        add_fused_feed_forward(program, layer, shape)
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)


def add_fused_feed_forward(program: ProgramComposer, layer: str, shape: DecoderShape) -> None:
    """Write down a gated branch whose `ffn_up` holds the rows of gate and then of up: `normed` to `branch`."""
    program.linear("normed", "gate_up", f"{layer}.ffn_up")
    program.slice("gate_up", "gate", offset=0)
    program.slice("gate_up", "up", offset=shape.ffn_width)
    program.gated_product(Activation.SILU)
    program.linear("gate", "branch", f"{layer}.ffn_down")


def _read_rotation(metadata: Metadata, shape: DecoderShape, program: ProgramComposer) -> Rotation:
    if not program.has_tensor(_LONG):
        return read_rotation(metadata, rotary_dims=shape.rotary_dims)
    rotation = read_longrope(metadata, short=_SHORT, long=_LONG)
    other = _SHORT if rotation.frequency_factors == _LONG else _LONG
    program.leave_unused(other, "rotations for contexts of another length")
    return rotation


def _read_window(metadata: Metadata, shape: DecoderShape) -> int | None:
    """Read the window of all layers; the models with a long context have one that nothing reaches."""
    if metadata.optional_number("attention.sliding_window") is None:
        return None
    window = metadata.positive_integer("attention.sliding_window")
    return window if window < shape.context_tokens else None
