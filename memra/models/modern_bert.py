"""The modern-bert family: ModernBERT, GTE-ModernBERT, Granite Embedding R2.

A norm before each branch but the first, a gated feed-forward block whose two inputs come from one matrix, and
rotations; every third layer sees the whole sequence, those between half a window on either side, with a rotation of
their own (arXiv 2412.13663). Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and
what computes the program.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from memra.errors import CorruptFileError
from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Pooling, Program
from memra.models.composer import ProgramComposer
from memra.models.encoders import (
    attend_whole_sequences,
    embed_tokens,
    read_encoder_pooling,
    read_encoder_shape,
    split,
)
from memra.models.metadata import DecoderShape, Metadata, read_position_scale
from memra.models.pooling import end_encoder

_WINDOW_KEY: Final = "attention.sliding_window"
_PATTERN_KEY: Final = "attention.sliding_window_pattern"
_PATTERN_LAYERS: Final = 3
"""One layer of so many sees everything, the first among them; llama.cpp takes the same where a file says nothing."""
_LOCAL_ROPE_BASE: Final = 10_000.0
"""Of the layers with a window; ModernBertConfig's default in transformers."""
_CLASSIFIER_POOLING_KEY: Final = "classifier.pooling_type"
_CLS_POOLING: Final = 2
_ACTIVATIONS: Final[Mapping[object, Activation]] = {
    None: Activation.GELU,
    "gelu": Activation.GELU,
    "silu": Activation.SILU,
}
"""Values of `hidden_activation`; Granite Embedding has silu."""


def build_modern_bert(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a modern-bert file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    shape = read_encoder_shape(metadata)
    pooling = _read_pooling(metadata)
    activation = _read_activation(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    window = None if metadata.optional_number(_WINDOW_KEY) is None else metadata.positive_integer(_WINDOW_KEY)
    is_local = _read_local_layers(metadata, shape.num_layers, has_window=window is not None)
    global_rope, local_rope = _read_ropes(metadata, shape)

    embed_tokens(program)
    program.layer_norm("x", "x", "token_embd_norm", eps=shape.eps)
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        attended = "x"
        if index or program.has_tensor(f"{layer}.attn_norm.weight"):
            program.layer_norm("x", "normed", f"{layer}.attn_norm", eps=shape.eps)
            attended = "normed"
        attend_whole_sequences(
            program,
            shape,
            attended,
            layer,
            rope=local_rope if is_local[index] else global_rope,
            window=window if is_local[index] else None,
        )
        program.add("x", "branch")
        program.layer_norm("x", "normed", f"{layer}.ffn_norm", eps=shape.eps)
        program.linear("normed", program.buffer("gate_up", 2 * shape.ffn_width), f"{layer}.ffn_up", bias=None)
        split(program, "gate_up", [("gate", shape.ffn_width), ("up", shape.ffn_width)])
        program.gated_product(activation)
        program.linear("gate", "branch", f"{layer}.ffn_down", bias=None)
        program.add("x", "branch")
    program.layer_norm("x", "normed", "output_norm", eps=shape.eps)
    end_encoder(program, "normed", pooling, activation=Activation.GELU, eps=shape.eps)
    return program.finish(shape.context_tokens, pooling=pooling)


def _read_pooling(metadata: Metadata) -> Pooling:
    """Read the pooling; a classifier behind the mean of all rows is refused, since programs end in rows."""
    pooling = read_encoder_pooling(metadata)
    if pooling is Pooling.RANK and metadata.get(_CLASSIFIER_POOLING_KEY) != _CLS_POOLING:
        raise metadata.unsupported(_CLASSIFIER_POOLING_KEY, "a classifier of the mean row")
    return pooling


def _read_activation(metadata: Metadata) -> Activation:
    value = metadata.get("hidden_activation")
    if value not in _ACTIVATIONS:
        raise metadata.unsupported("hidden_activation", f"the activation {value}")
    return _ACTIVATIONS[value]


def _read_local_layers(metadata: Metadata, num_layers: int, *, has_window: bool) -> list[bool]:
    """Tell for every layer whether it sees a window only: by one flag for each, or by a period whose first sees all."""
    pattern = metadata.get(_PATTERN_KEY)
    if not has_window:
        return [False] * num_layers
    if isinstance(pattern, (list, tuple)):
        if len(pattern) < num_layers:
            raise CorruptFileError(f"{metadata.key(_PATTERN_KEY)} has {len(pattern)} entries for {num_layers} layers.")
        return [bool(flag) for flag in pattern[:num_layers]]
    period = metadata.positive_integer(_PATTERN_KEY, _PATTERN_LAYERS)
    return [index % period > 0 for index in range(num_layers)]


def _read_ropes(metadata: Metadata, shape: DecoderShape) -> tuple[Rope, Rope]:
    """Build the rotations of layers that see everything and of those with a window."""
    global_rope = Rope(
        x="q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
        base=metadata.positive_number("rope.freq_base", 10_000.0),
        position_scale=read_position_scale(metadata),
    )
    return global_rope, replace(global_rope, base=metadata.positive_number("rope.freq_base_swa", _LOCAL_ROPE_BASE))
