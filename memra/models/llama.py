"""The llama family: Llama 1 to 3, SmolLM2, Mistral and all that share their layout; and what its relatives build on.

Touvron et al., arXiv 2302.13971; grouped queries from arXiv 2307.09288. Tensor names and metadata keys are GGUF's.
Refuses to know where the file came from and what computes the program.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from memra.errors import CorruptFileError
from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.rotations import read_rotation

_STYLE_KEY = "memra.rope_style"


@dataclass(frozen=True, slots=True)
class Relation:
    """In what a relative of llama differs from it.

    Attributes:
        embedding_scale: embeddings are multiplied by this.
        residual_scale: what a branch adds to the residual is multiplied by this.
        logit_scale: logits are multiplied by this.
        rotates: whether a layer, by its number, rotates queries and keys.
        feed_forward: writes down the second branch of a layer, from `normed` to `branch`, with buffers of its own; None
            is the dense one.
        context_tokens: no sequence is longer than this; None is what the file says.
    """

    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    rotates: Callable[[int], bool] = lambda _: True
    feed_forward: Callable[[ProgramComposer, str], None] | None = None
    context_tokens: int | None = None


def build_llama(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a llama file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    return compose_llama(metadata, tensor_shapes, Relation())


def compose_llama(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]], relation: Relation) -> Program:
    """Write llama down, or a relative of it, from metadata that was checked for what none of them runs.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that llama does not run.
    """
    shape = read_decoder_shape(metadata)
    window = _read_window(metadata)
    left_out = set() if relation.feed_forward is None else {"gate", "up"}
    buffers = {name: width for name, width in shape.buffers.items() if name not in left_out}
    program = ProgramComposer(metadata.architecture, tensor_shapes, buffers)
    q_rope, k_rope = _read_ropes(metadata, shape, program)
    scale = metadata.optional_number("attention.scale") or 1.0 / math.sqrt(shape.head_dim)

    program.embed("token_embd.weight", "x", scale=relation.embedding_scale)
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        program.norm("x", "normed", f"{layer}.attn_norm.weight", eps=shape.eps)
        for name in ("q", "k", "v"):
            _linear(program, "normed", name, f"{layer}.attn_{name}")
        if relation.rotates(index):
            program.rope(q_rope)
            program.rope(k_rope)
        program.attention(
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            scale=scale,
            window=window,
        )
        _linear(program, "attended", "branch", f"{layer}.attn_output")
        program.add("x", "branch", scale=relation.residual_scale)
        program.norm("x", "normed", f"{layer}.ffn_norm.weight", eps=shape.eps)
        (relation.feed_forward or _dense)(program, layer)
        program.add("x", "branch", scale=relation.residual_scale)
    program.norm("x", "normed", "output_norm.weight", eps=shape.eps)
    program.head("normed", embedding="token_embd.weight", scale=relation.logit_scale)
    return program.finish(min(shape.context_tokens, relation.context_tokens or shape.context_tokens))


def _dense(program: ProgramComposer, layer: str) -> None:
    """Write down the gated feed-forward branch."""
    _linear(program, "normed", "gate", f"{layer}.ffn_gate")
    _linear(program, "normed", "up", f"{layer}.ffn_up")
    program.gated_product(Activation.SILU)
    _linear(program, "gate", "branch", f"{layer}.ffn_down")


def _read_window(metadata: Metadata) -> int | None:
    """Read the window of all layers: Mistral 7B of 2023."""
    if metadata.get("attention.sliding_window_pattern") is not None:
        raise metadata.unsupported("attention.sliding_window_pattern", "windows in some layers alone")
    window = metadata.optional_number("attention.sliding_window")
    return None if window is None else metadata.positive_integer("attention.sliding_window")


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
