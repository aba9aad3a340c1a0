"""The nomic-bert family: nomic-embed-text v1 and v1.5.

BERT's layers with rotations instead of learned positions, a gated feed-forward block and hardly a bias (arXiv
2402.01613). Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and what computes the
program.
"""

from collections.abc import Mapping

from memra.layers.operators import Activation, Rope, RopeStyle
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.encoders import attend_whole_sequences, embed_tokens, read_encoder_pooling, read_encoder_shape
from memra.models.metadata import Metadata, read_position_scale
from memra.models.pooling import end_encoder


def build_nomic_bert(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a nomic-bert file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    shape = read_encoder_shape(metadata)
    pooling = read_encoder_pooling(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    rope = Rope(
        x="q",
        num_heads=shape.num_heads,
        head_dim=shape.head_dim,
        rotary_dims=shape.rotary_dims,
        style=RopeStyle.HALVES,
        base=metadata.positive_number("rope.freq_base", 10000.0),
        position_scale=read_position_scale(metadata),
    )

    embed_tokens(program)
    program.layer_norm("x", "x", "token_embd_norm", eps=shape.eps)
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        attend_whole_sequences(program, shape, "x", layer, rope=rope)
        program.add("x", "branch")
        program.layer_norm("x", "x", f"{layer}.attn_output_norm", eps=shape.eps)
        program.linear("x", "gate", f"{layer}.ffn_gate")
        program.linear("x", "up", f"{layer}.ffn_up", bias=None)
        program.gated_product(Activation.SILU)
        program.linear("gate", "branch", f"{layer}.ffn_down", bias=None)
        program.add("x", "branch")
        program.layer_norm("x", "x", f"{layer}.layer_output_norm", eps=shape.eps)
    end_encoder(program, "x", pooling, activation=Activation.TANH, eps=shape.eps)
    return program.finish(shape.context_tokens, pooling=pooling)
