"""The llama4 family: Scout and Maverick, as text models.

Three layers of four rotate and attend within chunks, with normalised queries and keys; the fourth sees everything,
without positions, and sharpens far queries. Experts' inputs are weighted, not their outputs, and one expert sees every
row (Llama 4 in transformers and llama.cpp). Tensor names and metadata keys are GGUF's. Refuses to know where the file
came from and what computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memra.layers.operators import Rope, RopeStyle, RouterFunction, Routing, ScaleByPosition
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.feed_forward import SHARED, add_gated, add_routed
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.rotations import read_rotation
from memra.models.sliding_windows import read_local_layers

QK_NORM_KEY = "memra.qk_norm"
"""Metadata key without a counterpart in GGUF: whether queries and keys are normalised in rotated layers."""
_PERIOD = 4
"""The last layer of each four has no positions; files need not say so."""
_CHUNK = 8192
_TEMPERATURE_LENGTH, _TEMPERATURE_SCALE = 8192, 0.1
"""Published sizes; files do not say them, and llama.cpp has them built in."""
_EXPERTS_OF_MAVERICK = 128
"""The one size that does not normalise; files do not say so, and llama.cpp tells it by this."""


@dataclass(frozen=True, slots=True)
class _Positions:
    """How queries know positions; `temperature` has none below its interval, None is off."""

    chunk: int
    rope: Rope
    normalises: bool
    temperature: ScaleByPosition | None


def build_llama4(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a llama4 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("expert_count", "rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    positions = _read_positions(metadata, shape, has_factors=program.has_tensor("rope_freqs.weight"))
    is_chunked = read_local_layers(metadata, shape.num_layers, period=_PERIOD)
    routing = Routing(
        num_experts=metadata.positive_integer("expert_count"),
        num_used=metadata.positive_integer("expert_used_count"),
        function=RouterFunction.SIGMOID,
        scale=metadata.optional_number("expert_weights_scale") or 1.0,
        scales_input=True,
    )
    expert_width = metadata.positive_integer("expert_feed_forward_length")

    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        _add_attention(program, layer, shape, positions=positions, is_chunked=is_chunked[index])
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        if program.has_tensor(f"{layer}.ffn_gate_inp.weight"):
            add_routed(program, layer, routing, width=expert_width)
            program.buffer("shared", shape.width)
            add_gated(program, layer, SHARED, width=expert_width, out="shared")
            program.add("branch", "shared")
        else:
            add_gated(program, layer, width=shape.ffn_width, out="branch")
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)


def _add_attention(
    program: ProgramComposer, layer: str, shape: DecoderShape, *, positions: _Positions, is_chunked: bool
) -> None:
    """Attend from `normed` into `branch`."""
    for name in ("q", "k", "v"):
        program.linear("normed", name, f"{layer}.attn_{name}", bias=None)
    if is_chunked:
        for name, num_heads in (("q", shape.num_heads), ("k", shape.num_kv_heads)):
            program.rope(replace(positions.rope, x=name, num_heads=num_heads))
            if positions.normalises:
                program.norm(name, name, None, eps=shape.eps, group_width=shape.head_dim)
    elif positions.temperature is not None:
        program.append(positions.temperature)
    program.attention(
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        scale=1.0 / math.sqrt(shape.head_dim),
        chunk=positions.chunk if is_chunked else None,
    )
    program.linear("attended", "branch", f"{layer}.attn_output", bias=None)


def _read_positions(metadata: Metadata, shape: DecoderShape, *, has_factors: bool) -> _Positions:
    """Read the chunks, the rotation, and how queries grow where there are no positions.

    Raises:
        UnsupportedModelError: a model without chunks.
    """
    if metadata.get("attention.sliding_window") == 0:
        raise metadata.unsupported("attention.sliding_window", "attention without chunks")
    rotation = read_rotation(
        metadata, rotary_dims=shape.rotary_dims, frequency_factors="rope_freqs.weight" if has_factors else None
    )
    rope = rotation.rope(
        "q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.INTERLEAVED,
    )
    normalises = metadata.get_global(QK_NORM_KEY)
    if normalises is None:
        normalises = metadata.positive_integer("expert_count") != _EXPERTS_OF_MAVERICK
    slope = _TEMPERATURE_SCALE
    if metadata.get("attention.temperature_scale") is not None:
        slope = metadata.optional_number("attention.temperature_scale") or 0.0
    interval = metadata.positive_integer("attention.temperature_length", _TEMPERATURE_LENGTH)
    return _Positions(
        chunk=metadata.positive_integer("attention.sliding_window", _CHUNK),
        rope=rope,
        normalises=normalises is True,
        temperature=ScaleByPosition("q", "q", slope, interval, offset=1) if slope else None,
    )
