"""The deepseek2 family: DeepSeek V2, V2-Lite, V3 and R1, Kimi K2, Moonlight, GLM 4.7 Flash.

Queries, keys and values come out of narrow rows with norms of their own, and only a part of each head is rotated, which
all heads' keys share (arXiv 2405.04434). Keys and values are computed for every head and cached so. The first layers
are dense, the others mix routed experts, chosen within groups where the file asks, with one that every row goes through
(arXiv 2412.19437). Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and what
computes the program.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memra.errors import CorruptFileError
from memra.layers.operators import RopeStyle, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.feed_forward import SHARED, add_gated, add_routed
from memra.models.metadata import Metadata
from memra.models.rotations import Rotation, read_rotation, read_yarn, yarn_magnitude

_ROUTERS: Mapping[object, RouterFunction] = {1: RouterFunction.SOFTMAX, 2: RouterFunction.SIGMOID}
"""`expert_gating_func` of llama.cpp.

Files of V2 do not say it, nor do some whose choice is corrected: those are sigmoids.
"""
_LOG_SLOPE = 0.1
"""Files hold `yarn_log_multiplier` times this, in this family alone: llama.cpp's converter."""


@dataclass(frozen=True, slots=True)
class _Shape:
    """The sizes of a file.

    Attributes:
        q_rank: elements of the row that queries come out of; None where they come out of the residual.
        kv_rank: the same for keys and values.
        plain_dim, rotary_dim: elements of a key head that are not rotated, and those after them that are.
        value_dim: elements of a value head.
    """

    num_layers: int
    width: int
    num_heads: int
    q_rank: int | None
    kv_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    eps: float

    @property
    def head_dim(self) -> int:
        """Elements of a query or key head."""
        return self.plain_dim + self.rotary_dim

    @property
    def buffers(self) -> dict[str, int]:
        """Width of every buffer of attention."""
        heads = self.num_heads
        latent = {} if self.q_rank is None else {"q_latent": self.q_rank}
        return latent | {
            "x": self.width,
            "normed": self.width,
            "q": heads * self.head_dim,
            "kv_and_rotary": self.kv_rank + self.rotary_dim,
            "kv_latent": self.kv_rank,
            "rotary": self.rotary_dim,
            "plain": heads * self.plain_dim,
            "k": heads * self.head_dim,
            "v": heads * self.value_dim,
            "attended": heads * self.value_dim,
            "branch": self.width,
        }


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The experts of a layer; `shared_width` is the inner width of those that every row goes through, 0 for none."""

    routing: Routing
    width: int
    shared_width: int


def build_deepseek2(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a deepseek2 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("expert_count", "rope.scaling.attn_factor")
    if metadata.optional_number("attention.temperature_scale") is not None:
        raise metadata.unsupported("attention.temperature_scale", "queries that grow with their position")
    shape = _read_shape(metadata, tensor_shapes)
    num_dense = _read_num_dense(metadata, shape.num_layers)
    has_correction = f"blk.{num_dense}.exp_probs_b.bias" in tensor_shapes
    mixture = _read_mixture(metadata, has_correction=has_correction) if num_dense < shape.num_layers else None
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    rotation = _read_rotation(metadata, shape)
    scale = _read_scale(metadata, shape)
    dense_width = metadata.positive_integer("feed_forward_length") if num_dense else 0

    program.embed("token_embd.weight", "x")
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        _add_attention(program, layer, shape, rotation=rotation, scale=scale)
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        if index < num_dense or mixture is None:
            add_gated(program, layer, out="branch", width=dense_width)
        else:
            add_routed(program, layer, mixture.routing, width=mixture.width)
            if mixture.shared_width:
                program.buffer("shared", shape.width)
                add_gated(program, layer, SHARED, out="shared", width=mixture.shared_width)
                program.add("branch", "shared")
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    for index in range(shape.num_layers, metadata.positive_integer("block_count")):
        program.leave_unused(f"blk.{index}.", "a layer that drafts further tokens")
    return program.finish(metadata.positive_integer("context_length"))


def _add_attention(program: ProgramComposer, layer: str, shape: _Shape, *, rotation: Rotation, scale: float) -> None:
    """Attend from `normed` into `branch`.

    Files keep the matrix of keys and values whole, `attn_kv_b`, or cut, `attn_k_b` and `attn_v_b`.
    """
    heads = shape.num_heads
    if shape.q_rank is None:
        program.linear("normed", "q", f"{layer}.attn_q")
    else:
        program.linear("normed", "q_latent", f"{layer}.attn_q_a")
        program.norm("q_latent", "q_latent", f"{layer}.attn_q_a_norm.weight", eps=shape.eps)
        program.linear("q_latent", "q", f"{layer}.attn_q_b")
    program.linear("normed", "kv_and_rotary", f"{layer}.attn_kv_a_mqa")
    program.slice("kv_and_rotary", "kv_latent", offset=0)
    program.slice("kv_and_rotary", "rotary", offset=shape.kv_rank)
    program.norm("kv_latent", "kv_latent", f"{layer}.attn_kv_a_norm.weight", eps=shape.eps)
    q_rope = rotation.rope(
        "q",
        num_heads=heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dim,
        style=RopeStyle.INTERLEAVED,
        offset=shape.plain_dim,
    )
    program.rope(q_rope)
    program.rope(replace(q_rope, x="rotary", num_heads=1, head_dim=shape.rotary_dim, offset=0))
    if program.has_tensor(f"{layer}.attn_kv_b.weight"):
        program.buffer("kv", heads * (shape.plain_dim + shape.value_dim))
        program.linear("kv_latent", "kv", f"{layer}.attn_kv_b")
        program.slice("kv", "plain", offset=0, num_groups=heads)
        program.slice("kv", "v", offset=shape.plain_dim, num_groups=heads)
    else:
        program.linear("kv_latent", "plain", f"{layer}.attn_k_b")
        program.linear("kv_latent", "v", f"{layer}.attn_v_b")
    program.join("plain", "rotary", "k", num_groups=heads, repeats=True)
    program.attention(
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=shape.head_dim,
        v_head_dim=shape.value_dim,
        scale=scale,
    )
    program.linear("attended", "branch", f"{layer}.attn_output")


def _read_shape(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> _Shape:
    """Read the sizes.

    Files with `key_length_mla` give the heads' sizes there, and those of the row that they come out of as
    `key_length`; older ones give the heads' as `key_length`.
    """
    rotary_dim = metadata.positive_integer("rope.dimension_count")
    key_dim, value_dim = (
        metadata.positive_integer(name if metadata.get(f"{name}_mla") is None else f"{name}_mla")
        for name in ("attention.key_length", "attention.value_length")
    )
    if rotary_dim % 2 or rotary_dim >= key_dim:
        raise CorruptFileError(
            f"{metadata.key('rope.dimension_count')} is {rotary_dim}, but must be even and less than the head's "
            f"{key_dim} elements."
        )
    num_drafting = metadata.get("nextn_predict_layers")
    has_latent_queries = "blk.0.attn_q.weight" not in tensor_shapes
    return _Shape(
        num_layers=metadata.positive_integer("block_count")
        - (metadata.positive_integer("nextn_predict_layers") if num_drafting else 0),
        width=metadata.positive_integer("embedding_length"),
        num_heads=metadata.positive_integer("attention.head_count"),
        q_rank=metadata.positive_integer("attention.q_lora_rank") if has_latent_queries else None,
        kv_rank=metadata.positive_integer("attention.kv_lora_rank"),
        plain_dim=key_dim - rotary_dim,
        rotary_dim=rotary_dim,
        value_dim=value_dim,
        eps=metadata.positive_number("attention.layer_norm_rms_epsilon"),
    )


def _read_num_dense(metadata: Metadata, num_layers: int) -> int:
    """Read how many of the first layers are dense: all of a file without experts."""
    if not metadata.get("expert_count"):
        return num_layers
    count = metadata.get("leading_dense_block_count")
    return metadata.positive_integer("leading_dense_block_count") if count else 0


def _read_mixture(metadata: Metadata, *, has_correction: bool) -> _Mixture:
    gating = metadata.get("expert_gating_func") or (2 if has_correction else 1)
    if gating not in _ROUTERS:
        raise metadata.unsupported("expert_gating_func", "this kind of router")
    width = metadata.positive_integer("expert_feed_forward_length")
    has_groups = metadata.get("expert_group_count") not in {None, 0, 1}
    return _Mixture(
        Routing(
            num_experts=metadata.positive_integer("expert_count"),
            num_used=metadata.positive_integer("expert_used_count"),
            function=_ROUTERS[gating],
            normalise=metadata.get("expert_weights_norm") is True,
            scale=metadata.optional_number("expert_weights_scale") or 1.0,
            num_groups=metadata.positive_integer("expert_group_count") if has_groups else 1,
            num_groups_used=metadata.positive_integer("expert_group_used_count") if has_groups else 1,
        ),
        width=width,
        shared_width=width * int(metadata.optional_number("expert_shared_count") or 0),
    )


def _read_rotation(metadata: Metadata, shape: _Shape) -> Rotation:
    """Read the rotation; yarn's magnitude is 1 in files with `yarn_log_multiplier`, which raises the scores instead."""
    rotation = read_rotation(metadata, rotary_dims=shape.rotary_dim)
    raises_scores = metadata.optional_number("rope.scaling.yarn_log_multiplier") is not None
    if raises_scores and metadata.optional_number("rope.scaling.yarn_attn_factor") is None:
        return replace(rotation, magnitude=1.0)
    return rotation


def _read_scale(metadata: Metadata, shape: _Shape) -> float:
    """Return the factor on scores, with the square of yarn's magnitude (`yarn_apply_mscale` of transformers)."""
    scale = 1.0 / math.sqrt(shape.head_dim)
    yarn = read_yarn(metadata)
    multiplier = metadata.optional_number("rope.scaling.yarn_log_multiplier")
    if yarn is None or multiplier is None:
        return scale
    return scale * yarn_magnitude(yarn.factor, mscale=multiplier / _LOG_SLOPE) ** 2
