"""When two requests must have the same answer: everything that can change one, in one digest.

Every field of the messages below is part of the key unless it stands in `HARMLESS`, with the reason why no answer
depends on it. So a field that is added later can cost hits, but never give anybody a wrong answer; a test asks its
author to decide. Refuses to know what is stored under a key. Called by `memra.actors.shared_answers`.
"""

import hashlib
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from typing import Any

from memra.gate.context_budget import TokenBudget
from memra.messages.constraint import AnswerGrammar
from memra.messages.generation import ChatPrompt, EndRules, GenerationRequest, TextPrompt, TokenPrompt
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt

HARMLESS: Mapping[type, Mapping[str, str]] = {
    GenerationRequest: {
        "request_id": "names the request",
        "max_new_tokens": "the budget and the worker's prompt hold what came of it",
        "lane": "decides when, not what",
        "identity": "the tenant and the prompt's namespace stand for it",
        "traceparent": "names the trace",
        "has_seed": "the seed itself is keyed where it is used",
        "may_reuse_answer": "true for every request with a key",
        "is_stream": "decides how an answer is read, not what it is",
        "timeout_ms": "an answer that it cuts short is not kept",
        "affinity": "finds computed keys and values faster; the tokens after them are the same",
        "max_context_tokens": "the budget holds what came of it",
        "part_of": "decides whose slot is held",
        "client_id": "names the request",
        "route": "names the way that it came by",
        "body": "what came of it is keyed",
        "left_open": "what was laid down in its place is keyed",
        "max_prompt_tokens": "a prompt that it refuses has no answer",
        "max_answer_tokens": "the budget and the worker's prompt hold what came of it",
    },
    SubmitPrompt: {
        "request_id": "names the request",
        "lane": "decides when, not what",
        "traceparent": "names the trace",
        "affinity": "finds computed keys and values faster; the tokens after them are the same",
        "constraint": "made of the request's grammar and prompt, which are keyed",
    },
    AnswerGrammar: {"param": "a word for errors"},
    ChatPrompt: {
        "messages": "rendered into the prompt's ids",
        "param": "a word for errors",
    },
    TextPrompt: {"text": "tokenized into the prompt's ids"},
    TokenPrompt: {"token_ids": "they are the prompt's ids", "param": "a word for errors"},
    EndRules: {},
    SamplingParams: {},
    TokenBudget: {},
}
"""By message: the fields on which no answer depends, and why."""


@dataclass(frozen=True, slots=True)
class AnswerKey:
    """Equal keys promise equal answers.

    Attributes:
        weights: identity of the instance that answers; outside the digest, so that its answers can be found again.
        tenant: for whom it was computed; outside the digest for the same reason.
        digest: SHA-256 over all the rest; a prompt cannot be read out of it.
    """

    weights: str
    tenant: str
    digest: bytes


def answer_key(
    request: GenerationRequest, prompt: SubmitPrompt, *, budget: TokenBudget, tenant: str, weights: str
) -> AnswerKey | None:
    """Return the key of a request's answer; None when asking again may rightly give another one.

    Args:
        request: as the client sent it.
        prompt: as the worker would get it.
        budget: bounds the answer.
        tenant: nobody is given what was computed for another.
        weights: differs between any two instances whose answers may differ.
    """
    sampling = request.sampling
    if sampling.is_greedy:
        # Without a draw the seed, random by default, is not used.
        sampling = replace(sampling, seed=0)
        request, prompt = replace(request, sampling=sampling), replace(prompt, sampling=sampling)
    elif not request.has_seed:
        return None
    digest = hashlib.sha256(array("q", prompt.prompt_ids).tobytes())
    meaning = (_meaning(request), _meaning(replace(prompt, prompt_ids=())), _meaning(budget))
    digest.update(repr(meaning).encode("utf-8", "surrogatepass"))
    return AnswerKey(weights, tenant, digest.digest())


def _meaning(value: Any) -> Any:
    """Return nested tuples of plain values, whose `repr` tells any two meanings apart."""
    if is_dataclass(value):
        harmless = HARMLESS[type(value)]
        kept = [place.name for place in fields(value) if place.name not in harmless]
        return (type(value).__name__, *((name, _meaning(getattr(value, name))) for name in kept))
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case Mapping():
            return ("map", *((key, _meaning(item)) for key, item in value.items()))
        case list() | tuple():
            return ("list", *map(_meaning, value))
        case frozenset():
            return ("set", *sorted(value))
    raise TypeError(f"a {type(value).__name__} has no place in the key of an answer; name its field as harmless")
