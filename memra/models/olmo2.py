"""The olmo2 family: OLMo 2 and 3.

Norms after each branch instead of before it, and a norm over all query heads together, and over all key heads
(arXiv 2501.00656). OLMo 3 lets three of four layers see a window only, and scales the rotation of the others with yarn
(Olmo Team, 2025). Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and what computes
the program.
"""

from dataclasses import replace

from memra.layers.program import Program
from memra.models.decoders import HeadNorms, Layout, TensorShapes, compose_decoder
from memra.models.metadata import Metadata, read_decoder_shape
from memra.models.rotations import Rotation, read_rotation
from memra.models.sliding_windows import read_local_layers, read_window

_PERIOD = 4
"""Every fourth layer of OLMo 3 sees everything; files need not say so."""


def build_olmo2(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of an olmo2 file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    layout = Layout(
        rotation=lambda _: rotation,
        before_attention=None,
        after_attention="post_attention_norm",
        before_feed_forward=None,
        after_feed_forward="post_ffw_norm",
        head_norms=HeadNorms.WHOLE_ROW,
    )
    rotation = read_rotation(metadata, rotary_dims=shape.rotary_dims)
    window = read_window(metadata)
    if window is not None:
        is_local = read_local_layers(metadata, shape.num_layers, period=_PERIOD)
        local_rotation = Rotation(metadata.positive_number("rope.freq_base_swa", rotation.base))
        layout = replace(
            layout,
            rotation=lambda index: local_rotation if is_local[index] else rotation,
            window=lambda index: window if is_local[index] else None,
        )
    return compose_decoder(metadata, tensor_shapes, shape, layout)
