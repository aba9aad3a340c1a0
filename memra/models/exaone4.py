"""The exaone4 family: EXAONE 4.0.

Norms after each branch instead of before it, and on every q and k head; the large model lets three of four layers see a
window only, and those alone know positions (LG AI Research, arXiv 2507.11407). Tensor names and metadata keys are
GGUF's. Refuses to know where the file came from and what computes the program.
"""

from dataclasses import replace

from memra.layers.program import Program
from memra.models.decoders import HeadNorms, Layout, TensorShapes, compose_decoder, plain_rotation
from memra.models.metadata import Metadata, read_decoder_shape
from memra.models.sliding_windows import read_local_layers, read_window

_PERIOD = 4
"""Every fourth layer sees everything; files need not say so."""
_LAYERS_OF_32B, _WINDOW_OF_32B = 64, 4096
"""The one size with windows, which files need not mention; llama.cpp tells it by its layers."""


def build_exaone4(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of an exaone4 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    num_draft_layers = metadata.count("nextn_predict_layers")
    num_layers = shape.num_layers - num_draft_layers
    rotation = plain_rotation(metadata, shape, tensor_shapes)
    layout = Layout(
        rotation=rotation,
        before_attention=None,
        after_attention="post_attention_norm",
        before_feed_forward=None,
        after_feed_forward="post_ffw_norm",
        head_norms=HeadNorms.EACH_HEAD,
        num_draft_layers=num_draft_layers,
    )
    window = read_window(metadata, _WINDOW_OF_32B if num_layers == _LAYERS_OF_32B else None)
    if window is not None:
        is_local = read_local_layers(metadata, num_layers, period=_PERIOD)
        layout = replace(
            layout,
            rotation=lambda index: rotation(index) if is_local[index] else None,
            window=lambda index: window if is_local[index] else None,
        )
    return compose_decoder(metadata, tensor_shapes, shape, layout)
