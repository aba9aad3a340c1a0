"""The answer of `POST /v1/embeddings`, in OpenAI's shape, as numbers or as base64.

Trade: vectors to bytes on the wire, shortened where the client asked for fewer dimensions. Refuses to know how they
were made. A shortened vector is divided by its norm again, so that all are of length 1; whether its meaning survives is
the model's matter: files do not say whether a model was trained for it (Matryoshka, arXiv 2205.13147), so none is
refused it.
"""

import math
from base64 import b64encode
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memra.errors import InvalidRequestError
from memra.http.wire.embedding_request import EmbeddingRequest
from memra.messages.texts import TextVectors

_encode = msgspec.json.Encoder().encode


def embedding_answer(body: EmbeddingRequest, pooled: TextVectors) -> bytes:
    """Return the JSON body; takes milliseconds a megabyte.

    Raises:
        InvalidRequestError: more dimensions are asked for than the vectors have.
    """
    vectors = _shortened(np.frombuffer(pooled.vectors, "<f4").reshape(-1, pooled.width), body.dimensions)
    is_base64 = body.encoding_format == "base64"
    # One by one, so that other threads get their turn in between.
    rows = [_row(index, vector, is_base64=is_base64) for index, vector in enumerate(vectors)]
    usage = {"prompt_tokens": pooled.num_tokens, "total_tokens": pooled.num_tokens}
    tail = _encode({"model": body.model, "usage": usage})
    return b'{"object":"list","data":[' + b",".join(rows) + b"]," + tail[1:]


def _row(index: int, vector: NDArray[np.float32], *, is_base64: bool) -> bytes:
    embedding: Any = b64encode(vector.tobytes()).decode() if is_base64 else vector.tolist()
    return _encode({"object": "embedding", "index": index, "embedding": embedding})


def _shortened(vectors: NDArray[np.float32], dimensions: int | None) -> NDArray[np.float32]:
    """The first elements of each vector, at norm 1; `[S, width]` to `[S, dimensions]`."""
    width = vectors.shape[1]
    if dimensions is None or dimensions == width:
        return vectors
    if dimensions > width:
        raise InvalidRequestError(
            f"`dimensions` must be at most {width}, which this model's vectors have.", param="dimensions"
        )
    cut = vectors[:, :dimensions].astype(np.float64)
    # The exact sum of squares, as where the whole vectors are made: no library's order of adding shows.
    norms = [math.sqrt(math.fsum((vector * vector).tolist())) or 1.0 for vector in cut]
    cut /= np.array(norms, np.float64).reshape(-1, 1)
    return cut.astype(np.float32)
