"""How much a request may write: the token budget, from what was asked, the prompt's length and the model's context.

Arithmetic only: it knows no queue and no memory. Called from the request's path once the prompt is rendered.
"""

from dataclasses import dataclass

from memra.errors import ContextLengthError, InvalidRequestError

_SMALLEST_ANSWER = 16
"""Tokens of answer that must fit the context floor; a longer prompt gets the floor on top of its own length."""
_MARGIN = 8
"""Tokens beside prompt and answer in the context of a request that says how much it wants."""


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """What one request may generate.

    Attributes:
        max_new_tokens: at least 0.
        is_context_bound: the context, and not the client, set the bound.
    """

    max_new_tokens: int
    is_context_bound: bool


def resolve_budget(  # noqa: PLR0913  (each is another bound)
    num_prompt_tokens: int,
    max_new_tokens: int | None,
    *,
    context_tokens: int,
    context_floor_tokens: int,
    max_context_tokens: int | None = None,
    param: str | None = None,
    max_prompt_tokens: int | None = None,
    max_answer_tokens: int | None = None,
) -> TokenBudget:
    """Return how many tokens a request may generate.

    Args:
        num_prompt_tokens: length of the rendered prompt.
        max_new_tokens: as asked; None means as much as the request's context holds.
        context_tokens: what the model was trained for.
        context_floor_tokens: context of a request that does not ask (`MEMRA_CTX`); a prompt that leaves less than 16
            tokens of it gets its own length on top.
        max_context_tokens: context that the client wants (`max_ctx`), in place of one that follows from the lengths; no
            less than the floor is given.
        param: request field that holds the prompt, for the error.
        max_prompt_tokens: the longest prompt that the model is offered for; None: what the context holds.
        max_answer_tokens: the same of answers, whatever was asked.

    Raises:
        ContextLengthError: the prompt fills the context, or is longer than it may be.
        InvalidRequestError: the client wants more context than the model has.
    """
    if max_prompt_tokens is not None and num_prompt_tokens > max_prompt_tokens:
        raise ContextLengthError(
            f"The prompt has {num_prompt_tokens} tokens, but this model takes {max_prompt_tokens}; shorten the prompt.",
            param=param,
        )
    if max_answer_tokens is not None:
        max_new_tokens = max_answer_tokens if max_new_tokens is None else min(max_new_tokens, max_answer_tokens)
    if max_context_tokens is not None:
        if max_context_tokens > context_tokens:
            raise InvalidRequestError(
                f"`max_ctx` is {max_context_tokens}, but this model's context holds {context_tokens}; ask for less.",
                param="max_ctx",
            )
        wanted = max(max_context_tokens, context_floor_tokens)
    elif max_new_tokens is not None:
        wanted = max(num_prompt_tokens + max_new_tokens + _MARGIN, context_floor_tokens)
    elif num_prompt_tokens + _SMALLEST_ANSWER <= context_floor_tokens:
        wanted = context_floor_tokens
    else:
        wanted = num_prompt_tokens + context_floor_tokens
    cap = min(wanted, context_tokens)
    if num_prompt_tokens >= cap:
        raise ContextLengthError(
            f"The prompt has {num_prompt_tokens} tokens, but this model's context holds {cap}; shorten the prompt.",
            param=param,
        )
    room = cap - num_prompt_tokens
    if max_new_tokens is not None and max_new_tokens <= room:
        return TokenBudget(max_new_tokens, is_context_bound=False)
    return TokenBudget(room, is_context_bound=True)
