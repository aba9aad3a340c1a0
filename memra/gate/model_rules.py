"""A request under its model's rules: what it leaves open is settled, and what it may take is bounded.

What a client names always wins over what the owner of the server lays down, and that over the API's own defaults; the
owner's bounds hold for all. Pure policy: it waits for nobody and knows no tokens. Called by the bridge, before a
request walks in.
"""

from dataclasses import replace

from memra.messages.generation import ChatPrompt, GenerationRequest, Prompt
from memra.messages.model_rules import ModelRules

_ABOUT_THINKING = frozenset({"enable_thinking", "reasoning_effort"})


def settle(request: GenerationRequest, rules: ModelRules) -> GenerationRequest:
    """Return a request as its model's rules have it; equal where there are none."""
    prompt = settle_prompt(request.prompt, rules)
    laid_down = dict(rules.sampling)
    if isinstance(prompt, ChatPrompt) and prompt.template_options.get("enable_thinking") is False:
        laid_down |= rules.non_thinking_sampling
    return replace(
        request,
        prompt=prompt,
        sampling=replace(request.sampling, **{name: laid_down[name] for name in request.left_open & laid_down.keys()}),
        max_prompt_tokens=rules.max_prompt_tokens,
        max_answer_tokens=_longest_answer(request, rules),
    )


def settle_prompt(prompt: Prompt, rules: ModelRules) -> Prompt:
    """Return a prompt that thinks as laid down, where it says nothing about thinking itself."""
    options = rules.template_options
    if not options or not isinstance(prompt, ChatPrompt) or _ABOUT_THINKING & prompt.template_options.keys():
        return prompt
    return replace(prompt, template_options={**prompt.template_options, **options})


def _longest_answer(request: GenerationRequest, rules: ModelRules) -> int | None:
    """Return the bound; the default gives way to the least that the client wants to have."""
    bounds = [rules.max_output_tokens]
    if request.max_new_tokens is None and rules.default_output_tokens is not None:
        bounds.append(max(rules.default_output_tokens, request.ends.min_new_tokens))
    return min((bound for bound in bounds if bound is not None), default=None)
