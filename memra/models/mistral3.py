"""The mistral3 family: llama with yarn and queries that grow with the position; Ministral 3, Mistral Small 3.1.

Where the file asks for it, a query at position p is multiplied by `1 + s * ln(1 + floor(p / n))`, n being the context
before yarn: the temperature of Llama 4. No operator here computes that; up to position n it is 1, so such a model is
served with a context of n tokens. Tensor names and metadata keys are GGUF's. Refuses to know where the file came from
and what computes the program.
"""

from memra.layers.program import Program
from memra.models.decoders import TensorShapes, compose_decoder
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
    limit = None
    if metadata.optional_number("attention.temperature_scale") is not None:
        limit = metadata.positive_integer("rope.scaling.original_context_length")
    layout = read_llama_layout(metadata, tensor_shapes, shape)
    return compose_decoder(metadata, tensor_shapes, shape, layout, context_tokens=limit)
