"""The seed_oss family: Seed-OSS 36B (ByteDance, 2025): llama's block with biases on q, k and v, rotated by halves.

Tensor names and metadata keys are GGUF's. Refuses to know where the file came from and what computes the program.
"""

from memra.layers.program import Program
from memra.models.decoders import Layout, TensorShapes, compose_decoder, plain_rotation
from memra.models.metadata import Metadata, read_decoder_shape


def build_seed_oss(metadata: Metadata, tensor_shapes: TensorShapes) -> Program:
    """Build the program of a seed_oss file.

    Raises:
        CorruptFileError: a key or tensor is missing or contradicts another one.
        UnsupportedModelError: the file needs something that the family does not run.
    """
    metadata.refuse_unsupported("rope.scaling.attn_factor")
    shape = read_decoder_shape(metadata)
    # GGUF calls the norm before the feed-forward branch by what it follows.
    layout = Layout(rotation=plain_rotation(metadata, shape, tensor_shapes), before_feed_forward="post_attention_norm")
    return compose_decoder(metadata, tensor_shapes, shape, layout)
