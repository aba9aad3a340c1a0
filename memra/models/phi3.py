"""The phi3 family: Phi 3, 3.5 and 4, mini and medium.

Llama's block with q, k and v in one matrix, gate and up in another, rotation by halves of a part of each head, and
longrope in the models with a long context (arXiv 2404.14219). A model with longrope turns by its long factors unless
the context that its file declares is at most the one before scaling; whoever serves short contexts alone can override
`phi3.context_length` and get the short ones. Tensor names and metadata keys are GGUF's. Refuses to know where the file
came from and what computes the program.
"""

from memra.layers.program import Program
from memra.models.decoders import Layout, TensorShapes, compose_decoder, fused_feed_forward, plain_rotation
from memra.models.metadata import Metadata, read_decoder_shape
from memra.models.rotations import read_longrope
from memra.models.sliding_windows import read_window

_SHORT, _LONG = "rope_factors_short.weight", "rope_factors_long.weight"


def build_phi3(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a phi3 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    window = read_window(metadata)
    if window is not None and window >= shape.context_tokens:
        window = None  # models with a long context have a window that nothing reaches
    longrope, unused = None, {}
    if _LONG in tensor_shapes:
        longrope = read_longrope(metadata, short=_SHORT, long=_LONG)
        other = _SHORT if longrope.frequency_factors == _LONG else _LONG
        unused = {other: "rotations for contexts of another length"}
    layout = Layout(
        rotation=plain_rotation(metadata, shape, tensor_shapes) if longrope is None else lambda _: longrope,
        window=lambda _: window,
        feed_forward=fused_feed_forward(shape),
        unused=unused,
    )
    return compose_decoder(metadata, tensor_shapes, shape, layout)
