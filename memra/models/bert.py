"""The bert family: BERT and RoBERTa as encoders, MiniLM, BGE, E5, and cross-encoders made of them.

Learned positions, biases, and a norm after each branch (arXiv 1810.04805); gelu is the exact one. Files of RoBERTa's
kind have the positions in order already. Tensor names and metadata keys are GGUF's. Refuses to know where the file came
from and what computes the program.
"""

from collections.abc import Mapping

from memra.layers.operators import Activation
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from memra.models.encoders import attend_whole_sequences, embed_tokens, read_encoder_pooling, read_encoder_shape
from memra.models.metadata import Metadata
from memra.models.pooling import end_encoder


def build_bert(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a bert file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    shape = read_encoder_shape(metadata)
    pooling = read_encoder_pooling(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)

    embed_tokens(program)
    program.position_embed("position_embd.weight", "branch")
    program.need("position_embd.weight", (shape.context_tokens, shape.width))
    program.add("x", "branch")
    program.layer_norm("x", "x", "token_embd_norm", eps=shape.eps)
    for index in range(shape.num_layers):
        layer = f"blk.{index}"
        attend_whole_sequences(program, shape, "x", layer)
        program.add("x", "branch")
        program.layer_norm("x", "x", f"{layer}.attn_output_norm", eps=shape.eps)
        program.linear("x", "gate", f"{layer}.ffn_up", bias=None)
        program.activate("gate", Activation.GELU)
        program.linear("gate", "branch", f"{layer}.ffn_down", bias=None)
        program.add("x", "branch")
        program.layer_norm("x", "x", f"{layer}.layer_output_norm", eps=shape.eps)
    end_encoder(program, "x", pooling, activation=Activation.TANH, eps=shape.eps)
    return program.finish(shape.context_tokens, pooling=pooling)
