"""The mistral3 family: llama with yarn, whose queries may grow with the position; Ministral 3, Mistral Small 3.1.

The growth is the attention temperature of Llama 4 (Meta, 2025), counted in contexts before yarn. Tensor names and
metadata keys are GGUF's. Refuses to know where the file came from and what computes the program.
"""

from dataclasses import replace

from memra.layers.program import Program
from memra.models.decoders import Temperature, TensorShapes, compose_decoder
from memra.models.llama import CARRIED_OUT, read_llama_layout
from memra.models.metadata import Metadata, read_decoder_shape


def build_mistral3(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a mistral3 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(*CARRIED_OUT)
    shape = read_decoder_shape(metadata)
    layout = read_llama_layout(metadata, tensor_shapes, shape)
    slope = metadata.optional_number("attention.temperature_scale")
    if slope is not None:
        interval = metadata.positive_integer("rope.scaling.original_context_length", shape.context_tokens)
        layout = replace(layout, temperature=Temperature(slope, interval))
    return compose_decoder(metadata, tensor_shapes, shape, layout)
