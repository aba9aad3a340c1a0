"""The body of `POST /v1/completions`, and what it means.

Refuses to know tokenizers. Called by `memra.http.routes.completions`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.request_headers import Caller
from memra.http.wire.ending_fields import read_ends
from memra.http.wire.foreign_fields import refuse_foreign
from memra.http.wire.generation_fields import GenerationFields, read_generation
from memra.http.wire.grammar_fields import read_grammar
from memra.http.wire.likelihood_fields import read_completion_logprobs
from memra.http.wire.refusal import refuse, refuse_unsupported
from memra.http.wire.sampling_fields import read_count, read_token_ids
from memra.http.wire.thinking_fields import read_thinking, refuse_thinking
from memra.messages.generation import ChatPrompt, GenerationRequest, Prompt, TextPrompt, TokenPrompt
from memra.types import RequestId


class CompletionRequest(GenerationFields, kw_only=True):
    """The whole body."""

    prompt: str | list[str | int | list[int]] | None = None
    prompt_ids: list[int] | None = None
    chat: bool | None = None
    best_of: int | None = None
    suffix: Any = None


MAX_ANSWERS = 64
"""To all prompts of a request together: as many rows as one request may ask for at once."""

DECODER = msgspec.json.Decoder(CompletionRequest)


def read_completion_request(body: CompletionRequest, *, request_id: RequestId, caller: Caller) -> GenerationRequest:
    """Check a body and say what it asks for.

    Raises:
        InvalidRequestError: a field is malformed, out of range or not supported; names it.
    """
    refuse_foreign(body)
    _check_unsupported_here(body)
    prompt, *further_prompts = _prompts(body)
    num_top_logprobs = read_completion_logprobs(body.logprobs)
    request = read_generation(
        body, request_id=request_id, caller=caller, prompt=prompt, num_top_logprobs=num_top_logprobs
    )
    if request.num_choices * (1 + len(further_prompts)) > MAX_ANSWERS:
        refuse("prompt", f"so few prompts that they have at most {MAX_ANSWERS} answers together")
    max_tokens = read_count("max_tokens", body.max_tokens)
    grammar = read_grammar(body)
    return replace(
        request,
        further_prompts=tuple(further_prompts),
        wants_echo=bool(body.echo),
        scores_prompt=bool(body.echo) and num_top_logprobs is not None,
        max_new_tokens=max_tokens,
        grammar=grammar,
        ends=read_ends(body, max_tokens=max_tokens, bound_by=None if grammar is None else grammar.param),
    )


def _check_unsupported_here(body: CompletionRequest) -> None:
    if body.best_of not in (None, 1):
        refuse("best_of", "1: this server shows every answer that it computes; ask for several with `n`")
    if body.suffix:
        refuse_unsupported("suffix")


def check_native(body: CompletionRequest) -> None:
    """Refuse what the native shape has no place for.

    Raises:
        InvalidRequestError: several answers or log probabilities are asked for.
    """
    several = isinstance(body.prompt, list) and not _is_token_list(body.prompt) and len(body.prompt) > 1
    is_asked = {
        "n": (body.n or 1) > 1,
        "prompt": several,
        "logprobs": read_completion_logprobs(body.logprobs) is not None,
    }
    for field, is_used in is_asked.items():
        if is_used:
            raise InvalidRequestError(
                f"`{field}` asks for what this server's own shape has no place for; start it with MEMRA_COMPAT=openai.",
                param=field,
            )


def _prompts(body: CompletionRequest) -> list[Prompt]:
    """Return the prompts in order, at least one: `prompt_ids`, else what `prompt` holds."""
    if body.prompt_ids:
        refuse_thinking(body)
        return [TokenPrompt(read_token_ids("prompt_ids", body.prompt_ids))]
    sent = body.prompt if isinstance(body.prompt, list) and not _is_token_list(body.prompt) else [body.prompt]
    is_chat = body.chat and any(isinstance(item, str) for item in sent)
    options = read_thinking(body, {}) if is_chat else {}
    if not is_chat:
        refuse_thinking(body)
    adds_special = body.add_special_tokens is not False
    return [_prompt(item, options, is_chat=bool(is_chat), adds_special=adds_special) for item in sent or [None]]


def _prompt(item: Any, options: Mapping[str, Any], *, is_chat: bool, adds_special: bool) -> Prompt:
    if not item:
        raise InvalidRequestError("`prompt` must not be empty, unless `prompt_ids` is given.", param="prompt")
    if isinstance(item, int):
        refuse("prompt", "text, a list of texts, token ids, or a list of lists of token ids")
    if isinstance(item, list):
        return TokenPrompt(read_token_ids("prompt", item), param="prompt")
    if is_chat:
        message = {"role": "user", "content": item}
        return ChatPrompt((message,), template_options=options, param="prompt", is_plain_answer=True)
    return TextPrompt(item, adds_special=adds_special)


def _is_token_list(prompt: list[Any]) -> bool:
    return bool(prompt) and all(isinstance(item, int) for item in prompt)
