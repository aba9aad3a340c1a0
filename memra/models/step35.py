"""The step35 family: Step 3.5 Flash.

Most layers see a window, with more heads and a rotation of their own; every head's output is gated, experts are chosen
by sigmoids with a correction, and gates and ups of some layers are bounded. Tensor names and metadata keys are GGUF's,
whose norm weights already contain the family's `+ 1`. Refuses to know where the file came from and what computes the
program.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from memra.errors import CorruptFileError
from memra.layers.operators import Rope, RopeStyle, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.feed_forward import SHARED, add_gated, add_routed
from memra.models.metadata import Metadata
from memra.models.rotations import read_rotation
from memra.models.sliding_windows import read_local_layers

_SIGMOID = 2
"""`expert_gating_func` of llama.cpp; files need not say so."""
_LOCAL = "_local"
"""Ends the names of the buffers of layers that see a window: they have other numbers of heads."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """What a layer's attention has of its own."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    window: int | None
    rope: Rope

    @property
    def suffix(self) -> str:
        """End of the names of this kind's buffers."""
        return "" if self.window is None else _LOCAL


@dataclass(frozen=True, slots=True)
class _Experts:
    """The experts of a layer; `shared_width` is the inner width of the one that every row goes through."""

    routing: Routing
    width: int
    shared_width: int


def build_step35(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a step35 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("expert_count", "rope.scaling.attn_factor")
    num_blocks = metadata.positive_integer("block_count")
    num_drafting = metadata.positive_integer("nextn_predict_layers") if metadata.get("nextn_predict_layers") else 0
    num_layers = num_blocks - num_drafting
    width, eps = (
        metadata.positive_integer("embedding_length"),
        metadata.positive_number("attention.layer_norm_rms_epsilon"),
    )
    program = ProgramComposer(metadata.architecture, tensor_shapes, {"x": width, "normed": width, "branch": width})
    layers = _read_attention(metadata, num_layers, has_factors=program.has_tensor("rope_freqs.weight"))
    experts = _read_experts(metadata)
    dense_width = metadata.positive_integer("feed_forward_length")
    expert_limits, other_limits = (_read_limits(metadata, name, num_layers) for name in ("exp", "shexp"))

    program.embed("token_embd.weight", "x")
    for index, attention in enumerate(layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=eps)
        _add_attention(program, layer, attention, eps=eps)
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=eps)
        if program.has_tensor(f"{layer}.ffn_gate_inp.weight"):
            add_routed(program, layer, experts.routing, width=experts.width, limit=expert_limits[index])
            program.buffer("shared", width)
            add_gated(program, layer, SHARED, width=experts.shared_width, out="shared", limit=other_limits[index])
            program.add("branch", "shared")
        else:
            add_gated(program, layer, width=dense_width, out="branch", limit=other_limits[index])
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=eps)
    program.head("normed", embedding="token_embd.weight")
    for index in range(num_layers, num_blocks):
        program.leave_unused(f"blk.{index}.", "a layer that drafts further tokens")
    return program.finish(metadata.positive_integer("context_length"))


def _add_attention(program: ProgramComposer, layer: str, attention: _Attention, *, eps: float) -> None:
    """Attend from `normed` into `branch`, every head's output times the sigmoid of its gate."""
    suffix, head_dim = attention.suffix, attention.head_dim
    heads = {"q": attention.num_heads, "k": attention.num_kv_heads, "v": attention.num_kv_heads}
    for part, num_heads in heads.items():
        name = program.buffer(part + suffix, num_heads * head_dim)
        program.linear("normed", name, f"{layer}.attn_{part}")
        if part == "v":
            continue
        program.norm(name, name, f"{layer}.attn_{part}_norm.weight", eps=eps, group_width=head_dim)
        program.rope(replace(attention.rope, x=name, num_heads=num_heads))
    attended = program.buffer(f"attended{suffix}", attention.num_heads * head_dim)
    program.attention(
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=head_dim,
        scale=1.0 / math.sqrt(head_dim),
        window=attention.window,
        suffix=suffix,
    )
    if program.has_tensor(f"{layer}.attn_gate.weight"):
        gates = program.buffer(f"gates{suffix}", attention.num_heads)
        program.linear("normed", gates, f"{layer}.attn_gate")
        program.scale_rows(attended, gates)
    program.linear(attended, "branch", f"{layer}.attn_output")


def _read_attention(metadata: Metadata, num_layers: int, *, has_factors: bool) -> list[_Attention]:
    """Read every layer's heads, window and rotation.

    Layers that see everything rotate half of a head's elements, and theirs alone are divided by the file's factors.
    """
    head_dim = metadata.positive_integer("attention.key_length")
    if metadata.positive_integer("attention.value_length", head_dim) != head_dim:
        raise metadata.unsupported("attention.value_length", "values of another size than keys")
    rotary_dims = metadata.positive_integer("rope.dimension_count", head_dim)
    window = metadata.positive_integer("attention.sliding_window")
    local_dims = metadata.positive_integer("rope.dimension_count_swa", rotary_dims)
    global_dims = rotary_dims // 2
    local_base = metadata.positive_number("rope.freq_base_swa", metadata.positive_number("rope.freq_base", 10_000.0))
    local_rope = read_rotation(metadata, rotary_dims=local_dims, base=local_base).rope(
        "q", num_heads=1, head_dim=head_dim, rotary_dims=local_dims, style=RopeStyle.HALVES
    )
    global_rope = read_rotation(
        metadata, rotary_dims=global_dims, frequency_factors="rope_freqs.weight" if has_factors else None
    ).rope("q", num_heads=1, head_dim=head_dim, rotary_dims=global_dims, style=RopeStyle.HALVES)
    heads, kv_heads = (_per_layer(metadata, f"attention.head_count{kind}", num_layers) for kind in ("", "_kv"))
    kinds = {True: (window, local_rope), False: (None, global_rope)}
    return [
        _Attention(heads[index], kv_heads[index], head_dim, *kinds[is_local])
        for index, is_local in enumerate(read_local_layers(metadata, num_layers, period=1))
    ]


def _read_experts(metadata: Metadata) -> _Experts:
    if metadata.get("expert_gating_func") not in {None, 0, _SIGMOID}:
        raise metadata.unsupported("expert_gating_func", "this kind of router")
    width = metadata.positive_integer("expert_feed_forward_length")
    return _Experts(
        Routing(
            num_experts=metadata.positive_integer("expert_count"),
            num_used=metadata.positive_integer("expert_used_count"),
            function=RouterFunction.SIGMOID,
            normalise=metadata.get("expert_weights_norm") is True,
            scale=metadata.optional_number("expert_weights_scale") or 1.0,
        ),
        width=width,
        shared_width=metadata.positive_integer("expert_shared_feed_forward_length", width),
    )


def _per_layer(metadata: Metadata, name: str, num_layers: int) -> list[int]:
    """Read a number above 0 for every layer, or one for all.

    Raises:
        CorruptFileError: a value is missing or no integer above 0.
    """
    values = metadata.get(name)
    if not isinstance(values, (list, tuple)):
        return [metadata.positive_integer(name)] * num_layers
    found = [int(value) for value in values[:num_layers] if isinstance(value, int) and value > 0]
    if len(found) < num_layers:
        raise CorruptFileError(f"{metadata.key(name)} is not a number above 0 for each of {num_layers} layers.")
    return found


def _read_limits(metadata: Metadata, kind: str, num_layers: int) -> list[float | None]:
    """Read the bound of gates and ups for every layer; 0 is none.

    Raises:
        CorruptFileError: there are fewer bounds than layers, or one is no number from 0 on.
    """
    name = f"swiglu_clamp_{kind}"
    values = metadata.get(name)
    if values is None or isinstance(values, (int, float)):
        return [metadata.optional_number(name)] * num_layers
    if not isinstance(values, (list, tuple)) or len(values) < num_layers or any(not value >= 0 for value in values):
        raise CorruptFileError(f"{metadata.key(name)} is not a bound from 0 on for each of {num_layers} layers.")
    return [float(value) or None for value in values[:num_layers]]
