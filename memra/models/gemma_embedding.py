"""The gemma-embedding family: EmbeddingGemma, the layers of Gemma 3 as an encoder.

Every token sees the whole sequence, or half a window on either side, and up to two matrices stand behind the pooling
(arXiv 2509.20354). These are applied to the rows before: a matrix of a mean, a first or a last row is that of the
matrix's rows. Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and what computes the
program.
"""

from collections.abc import Mapping
from typing import Final

from memra.layers.program import Pooling, Program
from memra.models.composer import ProgramComposer
from memra.models.gemma3 import add_gemma3_layers
from memra.models.metadata import Metadata, read_decoder_shape
from memra.models.pooling import POOLING_KEY, read_pooling

_DENSE: Final = ("dense_2", "dense_3")
"""In the order of use; files may have neither."""


def build_gemma_embedding(metadata: Metadata, tensor_shapes: Mapping[str, tuple[int, ...]]) -> Program:
    """Build the program of a gemma-embedding file; rows are pooled by their mean unless the file says otherwise.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("attention.causal", POOLING_KEY)
    if metadata.get("attention.causal") not in {None, False}:
        raise metadata.unsupported("attention.causal", "causal attention")
    pooling = read_pooling(metadata)
    if pooling is Pooling.RANK or (pooling is None and metadata.get(POOLING_KEY) is not None):
        raise metadata.unsupported(POOLING_KEY, "anything but one vector for a text")
    shape = read_decoder_shape(metadata)
    program = ProgramComposer(metadata.architecture, tensor_shapes, shape.buffers)
    add_gemma3_layers(program, metadata, shape, causal=False)
    x = "normed"
    for stem in _DENSE:
        if program.has_tensor(f"{stem}.weight"):
            out = program.buffer(stem, program.rows_of(f"{stem}.weight"))
            program.linear(x, out, stem)
            x = out
    program.leave_unused("output.weight", "an embedding model gives no logits")
    program.hidden_output(x)
    return program.finish(shape.context_tokens, pooling=pooling or Pooling.MEAN)
