"""What the encoders of BERT's line share: reading their sizes, their embeddings, and attention to whole sequences.

Trade: the parts of `bert`, `nomic_bert` and `modern_bert` that are the same. Refuses to know the order of norms and
branches, which is what these families differ in.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from memra.layers.operators import Rope
from memra.layers.program import Pooling
from memra.models.composer import ProgramComposer
from memra.models.metadata import DecoderShape, Metadata, read_decoder_shape
from memra.models.pooling import POOLING_KEY, read_pooling


def read_encoder_shape(metadata: Metadata) -> DecoderShape:
    """Read the sizes of an encoder, and refuse what no encoder here computes.

    Raises:
        CorruptFileError: a key is missing, mistyped, or contradicts another one.
        UnsupportedModelError: the file needs something else, causal attention among others.
    """
    metadata.refuse_unsupported("attention.causal", POOLING_KEY)
    if metadata.get("attention.causal") not in {None, False}:
        raise metadata.unsupported("attention.causal", "causal attention")
    return read_decoder_shape(metadata, eps_key="attention.layer_norm_epsilon")


def read_encoder_pooling(metadata: Metadata) -> Pooling:
    """Read how the rows are pooled; a file that says nothing means their mean, as for sentence-transformers.

    Raises:
        UnsupportedModelError: there is to be none, or a kind that memra does not have.
    """
    pooling = read_pooling(metadata)
    if pooling is None and metadata.get(POOLING_KEY) is not None:
        raise metadata.unsupported(POOLING_KEY, "an embedding of every token")
    return pooling or Pooling.MEAN


def embed_tokens(program: ProgramComposer) -> None:
    """Start from the tokens' embeddings, all of token type 0: of a pair of texts, the first."""
    program.embed("token_embd.weight", "x")
    if program.has_tensor("token_types.weight"):
        program.add_vector("x", "token_types.weight", row=0)


def attend_whole_sequences(  # noqa: PLR0913  (keyword-only settings)
    program: ProgramComposer,
    shape: DecoderShape,
    x: str,
    layer: str,
    *,
    rope: Rope | None = None,
    window: int | None = None,
) -> None:
    """Attend from `x` to its whole sequence, or to `window // 2` tokens on either side, into the buffer `branch`."""
    _project(program, shape, x, layer)
    if rope is not None:
        program.rope(replace(rope, x="q", num_heads=shape.num_heads))
        program.rope(replace(rope, x="k", num_heads=shape.num_kv_heads))
    program.attention(
        num_heads=shape.num_heads,
        num_kv_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        scale=1.0 / math.sqrt(shape.head_dim),
        window=window,
        causal=False,
    )
    program.linear("attended", "branch", f"{layer}.attn_output", bias=None)


def split(program: ProgramComposer, x: str, parts: Sequence[tuple[str, int]]) -> None:
    """Cut the columns of `x` into buffers, given with their widths from left to right."""
    offset = 0
    for name, width in parts:
        program.slice(x, program.buffer(name, width), offset=offset)
        offset += width


def _project(program: ProgramComposer, shape: DecoderShape, x: str, layer: str) -> None:
    """Make queries, keys and values, by one fused matrix where the file has it."""
    if not program.has_tensor(f"{layer}.attn_qkv.weight"):
        for name in ("q", "k", "v"):
            program.linear(x, name, f"{layer}.attn_{name}", bias=None)
        return
    heads, kv_heads = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    program.linear(x, program.buffer("qkv", heads + 2 * kv_heads), f"{layer}.attn_qkv", bias=None)
    split(program, "qkv", [("q", heads), ("k", kv_heads), ("v", kv_heads)])
