"""The granite and granitemoe families: llama whose embeddings, branches and logits have scales of their own.

Granite 3 and the dense models of Granite 4 (IBM), after arXiv 2408.13359, and those of experts. Tensor names and
metadata keys are GGUF's. Refuses to know where the file came from and what computes the program.
"""

from dataclasses import replace

from memra.layers.program import Program
from memra.models.decoders import TensorShapes, compose_decoder
from memra.models.llama import CARRIED_OUT, read_llama_layout
from memra.models.metadata import Metadata, read_decoder_shape

_SCALES = ("embedding_scale", "residual_scale", "logit_scale")


def build_granite(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a granite or granitemoe file.

    Granite's `rope.scaling.finetuned` says whether there are positions at all.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported(*CARRIED_OUT, *_SCALES)
    shape = read_decoder_shape(metadata)
    embedding, residual, logit = (metadata.optional_number(name) or 1.0 for name in _SCALES)
    layout = replace(
        read_llama_layout(metadata, tensor_shapes, shape),
        embedding_scale=embedding,
        residual_scale=residual,
        logit_scale=1.0 / logit,
    )
    if metadata.get("rope.scaling.finetuned") is False:
        layout = replace(layout, rotation=lambda _: None)
    return compose_decoder(metadata, tensor_shapes, shape, layout)
