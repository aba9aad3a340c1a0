"""The gpt-oss family: 20B and 120B.

Every layer is a mixture of experts with clamped gates; attention alternates between a window and everything, and every
head has a sink, a score without a value that takes its share of the softmax (OpenAI, arXiv 2508.10925). Tensor names
and metadata keys are GGUF's. Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from memra.layers.operators import Activation, Rope, RopeStyle, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.rotations import read_rotation
from memra.models.sliding_windows import read_local_layers

_WINDOW_PERIOD = 2
"""The last layer of each two sees everything; files need not say so."""


def build_gpt_oss(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a gpt-oss file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("expert_count", "rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    routing = Routing(
        num_experts=metadata.positive_integer("expert_count"),
        num_used=metadata.positive_integer("expert_used_count"),
        function=RouterFunction.SOFTMAX_OF_CHOSEN,
        scale=metadata.optional_number("expert_weights_scale") or 1.0,
    )
    program = ProgramComposer(metadata.architecture, tensor_shapes, {**shape.buffers, "router": routing.num_experts})
    window = metadata.positive_integer("attention.sliding_window")
    is_local = read_local_layers(metadata, shape.num_layers, period=_WINDOW_PERIOD)
    expert_width = metadata.positive_integer("expert_feed_forward_length", shape.ffn_width)
    rope = _read_rope(metadata, shape)

    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        _add_attention(program, shape, layer, rope=rope, window=window if is_local[index] else None)
        program.linear("attended", "branch", f"{layer}.attn_output", bias=None)
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.post_attention_norm.weight", eps=shape.eps)
        program.linear("normed", "router", f"{layer}.ffn_gate_inp", bias=True)
        program.experts(
            "normed",
            "router",
            "branch",
            routing=routing,
            stem=f"{layer}.ffn",
            width=expert_width,
            activation=Activation.SWIGLU_CLAMPED,
            biased=True,
        )
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)


def _read_rope(metadata: Metadata, shape: DecoderShape) -> Rope:
    rotation = read_rotation(metadata, rotary_dims=shape.rotary_dims, truncate=False)
    return rotation.rope(
        "q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
    )


def _add_attention(
    program: ProgramComposer, shape: DecoderShape, layer: str, *, rope: Rope, window: int | None
) -> None:
    """Attend from the normed row into `attended`; biases where the file has them, a sink for every head."""
    program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
    for name in ("q", "k", "v"):
        program.linear("normed", name, f"{layer}.attn_{name}", bias=None)
    program.rope(rope)
    program.rope(replace(rope, x="k", num_heads=shape.num_kv_heads))
    program.attention(
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        scale=1.0 / math.sqrt(shape.head_dim),
        window=window,
        sinks=f"{layer}.attn_sinks.weight",
    )
