"""The hunyuan-dense family: Hunyuan 0.5B to 7B (Tencent, 2025).

Llama's block with rotation by halves and a norm on every q and k head after it. The scaling of its rotation is a larger
base, which files already hold. Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and
what computes the program.
"""

from memra.layers.program import Program
from memra.models.decoders import HeadNorms, Layout, TensorShapes, compose_decoder, plain_rotation
from memra.models.metadata import Metadata, read_decoder_shape


def build_hunyuan_dense(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a hunyuan-dense file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    rotation = plain_rotation(metadata, shape, tensor_shapes)
    layout = Layout(rotation=rotation, head_norms=HeadNorms.EACH_HEAD_ROTATED)
    return compose_decoder(metadata, tensor_shapes, shape, layout)
