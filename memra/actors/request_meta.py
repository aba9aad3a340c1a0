"""What those who decide about requests, and are paid for them, are told of each: no words, and no token.

Pure translations; called by the bridge.
"""

from dataclasses import replace

from memra.messages.generation import GenerationRequest
from memra.messages.refusals import RefusedRequest
from memra.messages.texts import TextsRequest
from memra.plugins import RequestMeta


def meta_of(request: GenerationRequest) -> RequestMeta:
    """Return what is known of a request for text before it is rendered."""
    return RequestMeta(
        request.request_id,
        request.identity.tenant,
        request.identity.principal,
        request.model,
        request.route,
        request.lane,
        request.is_stream,
        request.max_new_tokens,
        request.num_choices * (1 + len(request.further_prompts)),
    )


def meta_of_texts(request: TextsRequest) -> RequestMeta:
    """Return what is known of a request for vectors or scores."""
    identity = request.identity
    return RequestMeta(
        request.request_id,
        identity.tenant,
        identity.principal,
        request.model,
        request.route,
        request.lane,
        is_stream=False,
    )


def meta_of_refused(refused: RefusedRequest) -> RequestMeta:
    """Return what is known of a request that went no further than the front door."""
    identity = refused.identity
    return RequestMeta(
        refused.request_id,
        identity.tenant,
        identity.principal,
        refused.model,
        refused.route,
        refused.lane,
        refused.is_stream,
    )


def bounded(request: GenerationRequest, max_tokens: int | None) -> GenerationRequest:
    """Return the request with an answer that is no longer than a plugin allows; None allows any."""
    bounds = [bound for bound in (max_tokens, request.max_answer_tokens) if bound is not None]
    return replace(request, max_answer_tokens=min(bounds, default=None))
