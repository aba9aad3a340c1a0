"""`POST /v1/rerank` on the wire: the body, what it means, and the answer, in the shape of Cohere's and Jina's APIs.

Refuses to know tokenizers and models. Called by `memra.http.routes.rerank`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.refusal import refuse, refuse_unsupported
from memra.http.wire.sampling_fields import read_count
from memra.messages.texts import TextPair, TextsRequest, TextVectors
from memra.types import ModelName, ModelTask, RequestId

MAX_DOCUMENTS = 1000
"""Documents of one request, as in Cohere's API."""


class Document(msgspec.Struct):
    """A document as an object; other fields are ignored."""

    text: str


class RerankRequest(msgspec.Struct, kw_only=True):
    """The whole body."""

    model: str
    query: str
    documents: list[str | Document]
    top_n: int | None = None
    return_documents: bool | None = None
    timeout_ms: int | None = None
    max_tokens_per_doc: Any = None
    max_chunks_per_doc: Any = None
    rank_fields: Any = None

    @property
    def texts(self) -> list[str]:
        """The documents' words."""
        return [given if isinstance(given, str) else given.text for given in self.documents]


DECODER = msgspec.json.Decoder(RerankRequest)


def read_rerank_request(body: RerankRequest, *, request_id: RequestId, caller: Caller) -> TextsRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    for field in ("max_tokens_per_doc", "max_chunks_per_doc"):
        if getattr(body, field) is not None:
            refuse_unsupported(field, "send documents that fit")
    if body.rank_fields is not None:
        refuse_unsupported("rank_fields", "send each document as one text")
    if not body.query:
        raise InvalidRequestError("`query` must not be empty.", param="query")
    if not 1 <= len(body.documents) <= MAX_DOCUMENTS:
        refuse("documents", f"a list of 1 to {MAX_DOCUMENTS} texts")
    if body.top_n is not None and body.top_n < 1:
        refuse("top_n", "at least 1")
    return TextsRequest(
        request_id=request_id,
        model=ModelName(body.model),
        task=ModelTask.RANK,
        texts=tuple(TextPair(body.query, text) for text in body.texts),
        param="documents",
        lane=caller.lane,
        identity=caller.identity,
        traceparent=caller.traceparent,
        timeout_ms=read_count("timeout_ms", body.timeout_ms),
    )


def rerank_answer(body: RerankRequest, pooled: TextVectors, *, request_id: RequestId) -> bytes:
    """Return the JSON body: best documents first, those of equal score in the order given.

    A model with several labels ranks by its first.
    """
    scores = np.frombuffer(pooled.vectors, "<f4").reshape(-1, pooled.width)[:, 0].tolist()
    best = sorted(range(len(scores)), key=lambda index: -scores[index])[: body.top_n]
    texts = body.texts if body.return_documents else None
    return msgspec.json.encode(
        {
            "id": request_id,
            "object": "list",
            "model": body.model,
            "results": [_result(index, scores[index], texts) for index in best],
            "usage": {"prompt_tokens": pooled.num_tokens, "total_tokens": pooled.num_tokens},
        }
    )


def _result(index: int, score: float, texts: list[str] | None) -> Mapping[str, Any]:
    result: dict[str, Any] = {"index": index, "relevance_score": score}
    return result if texts is None else {**result, "document": {"text": texts[index]}}
