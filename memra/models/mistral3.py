"""The mistral3 family: llama with yarn and queries that grow with the position; Ministral 3, Mistral Small 3.1.

Where the file asks for it, a query at position p is multiplied by `1 + s * ln(1 + floor(p / n))`, n being the context
before yarn (Llama 4's temperature, https://ai.meta.com/blog/llama-4-multimodal-intelligence). No operator here computes
that; up to position n it is 1, so such a model is served with a context of n tokens. Tensor names and metadata keys are
GGUF's. Refuses to know where the file came from and what computes the program.
"""

from collections.abc import Mapping

from memra.layers.program import Program
from memra.models.llama import Relation, compose_llama
from memra.models.metadata import Metadata


def build_mistral3(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a mistral3 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    if metadata.optional_number("attention.temperature_scale") is None:
        return compose_llama(metadata, tensor_shapes, Relation())
    limit = metadata.positive_integer("rope.scaling.original_context_length")
    return compose_llama(metadata, tensor_shapes, Relation(context_tokens=limit))
