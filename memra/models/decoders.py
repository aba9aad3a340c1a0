"""The decoder that most families are: attention and a feed-forward branch in each layer, with norms around them.

Trade: writes such a model down from the sizes that its file gives and the layout that its family names: where norms
stand, how heads are turned, what a layer sees, which branch it has. Fused matrices of queries, keys and values are cut
after the product. Refuses to know families, and how they read their keys. Called by the family files.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from memra.layers.operators import Activation, RopeStyle, ScaleByPosition
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata
from memra.models.rotations import Rotation, read_rotation

TensorShapes = Mapping[str, tuple[int, ...]]
FeedForward = Callable[[ProgramComposer, int, str], None]
"""Writes down the second branch of a layer, by its number, from the named buffer to `branch`."""


class HeadNorms(Enum):
    """What is normed of queries and keys."""

    NONE = auto()
    EACH_HEAD = auto()
    """Head by head, before the rotation."""
    EACH_HEAD_ROTATED = auto()
    """Head by head, after the rotation."""
    WHOLE_ROW = auto()
    """All heads together, before the rotation."""


@dataclass(frozen=True, slots=True)
class Temperature:
    """Queries are multiplied by `1 + slope * ln(1 + floor(position / interval))`."""

    slope: float
    interval: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How a family arranges its layers.

    Attributes:
        rotation: the angles of a layer, by its number; None turns nothing.
        temperature: how queries grow with the position; None leaves them.
        style: which elements of a head are turned together.
        window: tokens that a layer sees, by its number, None for all; None where the family knows no windows.
        before_attention, before_feed_forward: the norm of a branch's input; None takes the residual as it is.
        after_attention, after_feed_forward: the norm of what a branch adds to the residual; None is none.
        head_norms: of queries and keys.
        attention_scale: factor on scores; None is `1 / sqrt(head_dim)`.
        embedding_scale: embeddings are multiplied by this.
        residual_scale: what a branch adds to the residual is multiplied by this.
        logit_scale: logits are multiplied by this.
        feed_forward: the second branch; None is the dense one of `ffn_gate`, `ffn_up` and `ffn_down`.
        num_draft_layers: layers at the end that guess further tokens and answer nothing themselves.
        unused: further tensors that are known and not read, with the reason.
    """

    rotation: Callable[[int], Rotation | None]
    temperature: Temperature | None = None
    style: RopeStyle = RopeStyle.HALVES
    window: Callable[[int], int | None] | None = None
    before_attention: str | None = "attn_norm"
    after_attention: str | None = None
    before_feed_forward: str | None = "ffn_norm"
    after_feed_forward: str | None = None
    head_norms: HeadNorms = HeadNorms.NONE
    attention_scale: float | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    feed_forward: FeedForward | None = None
    num_draft_layers: int = 0
    unused: Mapping[str, str] = field(default_factory=dict)


def plain_rotation(metadata: Metadata, shape: DecoderShape, tensor_shapes: TensorShapes) -> Callable[[int], Rotation]:
    """Read the one rotation of all layers, with Llama 3's factors where the file has them."""
    factors = "rope_freqs.weight" if "rope_freqs.weight" in tensor_shapes else None
    rotation = read_rotation(metadata, rotary_dims=shape.rotary_dims, frequency_factors=factors)
    return lambda _: rotation


def compose_decoder(
    metadata: Metadata,
    tensor_shapes: TensorShapes,
    shape: DecoderShape,
    layout: Layout,
) -> Program:
    """Write a decoder down.

    Args:
        metadata: of the file, checked for what the family does not run.
        tensor_shapes: of the file, outermost first.
        shape: the sizes that it gives.
        layout: of the family.

    Raises:
        CorruptFileError: a tensor is missing or of another shape.
        UnsupportedModelError: the file asks for something, or holds a tensor, that the layout has no place for.
    """
    _refuse_what_is_missing(metadata, layout)
    buffers = {name: width for name, width in shape.buffers.items() if name not in {"gate", "up"}}
    program = ProgramComposer(metadata.architecture, tensor_shapes, buffers)
    feed_forward = layout.feed_forward or dense_feed_forward(shape)
    num_layers = shape.num_layers - layout.num_draft_layers
    program.embed("token_embd.weight", "x", scale=layout.embedding_scale)
    for index in range(num_layers):
        layer = f"blk.{index}"
        x = _add_norm(program, layer, layout.before_attention, eps=shape.eps)
        _add_queries(program, layer, x, shape)
        _turn_heads(program, layer, shape, layout, layout.rotation(index))
        if layout.temperature is not None:
            program.append(ScaleByPosition("q", "q", layout.temperature.slope, layout.temperature.interval))
        program.attention(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=layout.attention_scale or 1.0 / math.sqrt(shape.head_dim),
            window=layout.window(index) if layout.window is not None else None,
        )
        program.linear("attended", "branch", f"{layer}.attn_output", bias=None)
        _add_branch(program, layer, layout.after_attention, eps=shape.eps, scale=layout.residual_scale)
        x = _add_norm(program, layer, layout.before_feed_forward, eps=shape.eps)
        feed_forward(program, index, x)
        _add_branch(program, layer, layout.after_feed_forward, eps=shape.eps, scale=layout.residual_scale)
    for index in range(num_layers, shape.num_layers):
        program.leave_unused(f"blk.{index}.", "a layer that guesses further tokens")
    for name, reason in layout.unused.items():
        program.leave_unused(name, reason)
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight", scale=layout.logit_scale)
    return program.finish(shape.context_tokens)


def _refuse_what_is_missing(metadata: Metadata, layout: Layout) -> None:
    """Refuse keys that only some layouts carry out."""
    missing = {
        "attention.sliding_window": (layout.window is None, "a sliding window"),
        "attention.scale": (layout.attention_scale is None, "a scale of attention scores"),
        "attention.temperature_scale": (layout.temperature is None, "queries that grow with the position"),
        "attn_logit_softcapping": (True, "a cap on attention scores"),
        "final_logit_softcapping": (True, "a cap on logits"),
    }
    for name, (is_missing, meaning) in missing.items():
        if is_missing and metadata.optional_number(name) is not None:
            raise metadata.unsupported(name, meaning)


def dense_feed_forward(shape: DecoderShape) -> FeedForward:
    """Return the gated branch of three matrices."""

    def feed_forward(program: ProgramComposer, index: int, x: str) -> None:
        layer = f"blk.{index}"
        for part in ("gate", "up"):
            program.linear(x, program.buffer(part, shape.ffn_width), f"{layer}.ffn_{part}", bias=None)
        program.gated_product(Activation.SILU)
        program.linear("gate", "branch", f"{layer}.ffn_down", bias=None)

    return feed_forward


def fused_feed_forward(shape: DecoderShape) -> FeedForward:
    """Return the gated branch whose `ffn_up` holds the rows of gate and then those of up."""

    def feed_forward(program: ProgramComposer, index: int, x: str) -> None:
        layer = f"blk.{index}"
        program.linear(x, program.buffer("gate_up", 2 * shape.ffn_width), f"{layer}.ffn_up", bias=None)
        program.slice("gate_up", program.buffer("gate", shape.ffn_width), offset=0)
        program.slice("gate_up", program.buffer("up", shape.ffn_width), offset=shape.ffn_width)
        program.gated_product(Activation.SILU)
        program.linear("gate", "branch", f"{layer}.ffn_down", bias=None)

    return feed_forward


def _add_norm(program: ProgramComposer, layer: str, norm: str | None, *, eps: float) -> str:
    """Norm the residual for a branch; returns the branch's input."""
    if norm is None:
        return "x"
    program.norm("x", "normed", f"{layer}.{norm}.weight", eps=eps)
    return "normed"


def _add_branch(program: ProgramComposer, layer: str, norm: str | None, *, eps: float, scale: float) -> None:
    """Add a branch to the residual, normed first where the family does so."""
    if norm is not None:
        program.norm("branch", "branch", f"{layer}.{norm}.weight", eps=eps)
    program.add("x", "branch", scale=scale)


def _add_queries(program: ProgramComposer, layer: str, x: str, shape: DecoderShape) -> None:
    """Make queries, keys and values, of a matrix each or of one for all."""
    if not program.has_tensor(f"{layer}.attn_qkv.weight"):
        for name in ("q", "k", "v"):
            program.linear(x, name, f"{layer}.attn_{name}", bias=None)
        return
    heads, kv_heads = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    program.linear(x, program.buffer("qkv", heads + 2 * kv_heads), f"{layer}.attn_qkv", bias=None)
    for name, offset in (("q", 0), ("k", heads), ("v", heads + kv_heads)):
        program.slice("qkv", name, offset=offset)


def _turn_heads(
    program: ProgramComposer, layer: str, shape: DecoderShape, layout: Layout, rotation: Rotation | None
) -> None:
    """Norm and rotate queries and keys, in the family's order."""
    for name, num_heads in (("q", shape.num_heads), ("k", shape.num_kv_heads)):
        weight = f"{layer}.attn_{name}_norm.weight"
        if layout.head_norms is HeadNorms.EACH_HEAD:
            program.norm(name, name, weight, eps=shape.eps, group_width=shape.head_dim)
        elif layout.head_norms is HeadNorms.WHOLE_ROW:
            program.norm(name, name, weight, eps=shape.eps)
        if rotation is not None:
            rope = rotation.rope(
                name,
                num_heads=num_heads,
                head_dim=shape.head_dim,
                rotary_dims=shape.rotary_dims,
                style=layout.style,
            )
            program.rope(rope)
        if layout.head_norms is HeadNorms.EACH_HEAD_ROTATED:
            program.norm(name, name, weight, eps=shape.eps, group_width=shape.head_dim)
