"""Decoders of two kinds of layers: mostly gated delta nets, which keep a state, and some with gated attention.

Trade: what qwen3next, qwen35 and qwen35moe share. A delta layer convolves its fused q, k and v, normalises each q and k
head to length 1, runs the gated delta rule (Yang et al., arXiv 2412.06464) and gates the normed result by `silu(z)`; an
attention layer norms each q and k head, rotates a part of it, and multiplies what it attended by the sigmoid of a gate
that comes out of the same matrix as q. Tensor names and metadata keys are GGUF's, whose norm weights already contain
the `+ 1` of these families. Refuses to know feed-forward parts and how beta and alpha are stored: the families say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memra.errors import CorruptFileError
from memra.layers.operators import Activation, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata
from memra.models.rotations import read_rotation

_ATTENTION_INTERVAL = 4
"""Every fourth layer attends where the file does not say; llama.cpp's default."""
_SPECULATION = "predicts further tokens for speculation; answers are the same without it"


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """The sizes of a delta layer.

    Attributes:
        kernel: tokens that the convolution sees.
        num_key_heads, num_value_heads: heads of q and k, and the heads of v that share them.
        key_dim, value_dim: elements of a head.
        is_tiled: value head h reads key head `h % num_key_heads`, else neighbours share one.
    """

    kernel: int
    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    is_tiled: bool

    def buffers(self, shape: DecoderShape) -> Mapping[str, int]:
        """Widths of the buffers of both kinds of layers, on top of a plain decoder's."""
        keys, values = self.num_key_heads * self.key_dim, self.num_value_heads * self.value_dim
        heads = shape.num_heads * shape.head_dim
        return {
            "q_and_gate": 2 * heads,
            "attention_gate": heads,
            "delta_inputs": 2 * keys + values,
            "delta_qkv": 2 * keys + values,
            "delta_q": keys,
            "delta_k": keys,
            "delta_v": values,
            "delta_out": values,
            "z": values,
            "a": self.num_value_heads,
            "b": self.num_value_heads,
        }


def read_delta_shape(metadata: Metadata, *, is_tiled: bool) -> DeltaShape:
    """Read and cross-check the sizes of delta layers.

    Raises:
        CorruptFileError: a key is missing, mistyped, or contradicts another one.
    """
    num_key_heads = metadata.positive_integer("ssm.group_count")
    num_value_heads = metadata.positive_integer("ssm.time_step_rank")
    values = metadata.positive_integer("ssm.inner_size")
    if num_value_heads % num_key_heads or values % num_value_heads:
        raise CorruptFileError(
            f"The file's delta layers have {num_key_heads} key heads, {num_value_heads} value heads and "
            f"{values} values ({metadata.key('ssm.inner_size')}), which do not divide each other."
        )
    return DeltaShape(
        kernel=metadata.positive_integer("ssm.conv_kernel"),
        num_key_heads=num_key_heads,
        num_value_heads=num_value_heads,
        key_dim=metadata.positive_integer("ssm.state_size"),
        value_dim=values // num_value_heads,
        is_tiled=is_tiled,
    )


def compose_hybrid(  # noqa: PLR0913  (what the families differ in)
    program: ProgramComposer,
    metadata: Metadata,
    shape: DecoderShape,
    delta: DeltaShape,
    *,
    add_beta_and_alpha: Callable[[str], None],
    add_feed_forward: Callable[[str], None],
) -> Program:
    """Write the whole model down.

    Args:
        program: with the buffers of `shape`, `delta` and the feed-forward part.
        metadata: of the file.
        shape: of all layers; those that predict further tokens are counted.
        delta: of the delta layers.
        add_beta_and_alpha: for a layer, from `normed` to `b` and `a`.
        add_feed_forward: for a layer, from `normed` to `branch`.
    """
    num_layers = _leave_next_token_layers(program, metadata, shape.num_layers)
    is_recurrent = _read_recurrent_layers(metadata, num_layers)
    program.embed("token_embd.weight", "x")
    for index in range(num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        if is_recurrent[index]:
            add_beta_and_alpha(layer)
            _add_delta(program, layer, delta, eps=shape.eps)
        else:
            _add_attention(program, metadata, layer, shape)
        program.add("x", "branch")
        program.norm("x", "normed", f"{layer}.post_attention_norm.weight", eps=shape.eps)
        add_feed_forward(layer)
        program.add("x", "branch")
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight")
    return program.finish(shape.context_tokens)


def _add_delta(program: ProgramComposer, layer: str, delta: DeltaShape, *, eps: float) -> None:
    keys = delta.num_key_heads * delta.key_dim
    program.linear("normed", "delta_inputs", f"{layer}.attn_qkv")
    program.linear("normed", "z", f"{layer}.attn_gate")
    program.causal_conv("delta_inputs", "delta_qkv", f"{layer}.ssm_conv1d.weight", kernel=delta.kernel)
    for name, offset in (("delta_q", 0), ("delta_k", keys), ("delta_v", 2 * keys)):
        program.slice("delta_qkv", name, offset=offset)
    for name in ("delta_q", "delta_k"):
        # x / sqrt(sum(x ** 2) + eps), written as a mean over the head
        width = delta.key_dim
        program.norm(name, name, None, eps=eps / width, group_width=width, scale=width**-0.5)
    program.gated_delta(
        "delta_out",
        a_log=f"{layer}.ssm_a",
        dt_bias=f"{layer}.ssm_dt.bias",
        num_key_heads=delta.num_key_heads,
        num_value_heads=delta.num_value_heads,
        key_dim=delta.key_dim,
        value_dim=delta.value_dim,
        tiled=delta.is_tiled,
        q="delta_q",
        k="delta_k",
        v="delta_v",
    )
    program.norm("delta_out", "delta_out", f"{layer}.ssm_norm.weight", eps=eps, group_width=delta.value_dim)
    program.gated_product(Activation.SILU, gate="z", up="delta_out", out="z")
    program.linear("z", "branch", f"{layer}.ssm_out")


def _add_attention(program: ProgramComposer, metadata: Metadata, layer: str, shape: DecoderShape) -> None:
    program.linear("normed", "q_and_gate", f"{layer}.attn_q", bias=None)
    program.slice("q_and_gate", "q", offset=0, num_groups=shape.num_heads)
    program.slice("q_and_gate", "attention_gate", offset=shape.head_dim, num_groups=shape.num_heads)
    for name in ("k", "v"):
        program.linear("normed", name, f"{layer}.attn_{name}", bias=None)
    # Sections of the rotation (`rope.dimension_sections`) have the same positions in text: one plain rotation.
    factors = "rope_freqs.weight" if program.has_tensor("rope_freqs.weight") else None
    rope = read_rotation(metadata, rotary_dims=shape.rotary_dims, frequency_factors=factors).rope(
        "q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
    )
    for name, num_heads in (("q", shape.num_heads), ("k", shape.num_kv_heads)):
        program.norm(name, name, f"{layer}.attn_{name}_norm.weight", eps=shape.eps, group_width=shape.head_dim)
        program.rope(replace(rope, x=name, num_heads=num_heads))
    program.attention(
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        scale=metadata.optional_number("attention.scale") or shape.head_dim**-0.5,
    )
    program.gated_product(Activation.SIGMOID, gate="attention_gate", up="attended", out="attended")
    program.linear("attended", "branch", f"{layer}.attn_output", bias=None)


def _leave_next_token_layers(program: ProgramComposer, metadata: Metadata, num_layers: int) -> int:
    """Leave the last layers out that only predict further tokens; returns how many remain."""
    if metadata.optional_number("nextn_predict_layers") is None:
        return num_layers
    remaining = num_layers - metadata.positive_integer("nextn_predict_layers")
    if remaining <= 0:
        raise CorruptFileError(
            f"{metadata.key('nextn_predict_layers')} leaves {remaining} of the file's {num_layers} layers."
        )
    for index in range(remaining, num_layers):
        program.leave_unused(f"blk.{index}.", _SPECULATION)
    return remaining


def _read_recurrent_layers(metadata: Metadata, num_layers: int) -> list[bool]:
    """Tell for every layer whether it is a delta net: by a flag each, or all but every n-th."""
    flags = metadata.get("attention.recurrent_layers")
    if isinstance(flags, (list, tuple)):
        if len(flags) < num_layers:
            key = metadata.key("attention.recurrent_layers")
            raise CorruptFileError(f"{key} has {len(flags)} entries for {num_layers} layers.")
        return [bool(flag) for flag in flags[:num_layers]]
    interval = metadata.positive_integer("full_attention_interval", _ATTENTION_INTERVAL)
    return [(index + 1) % interval != 0 for index in range(num_layers)]
