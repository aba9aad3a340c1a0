"""What a client names wins over what is laid down, and what is laid down over the API's defaults."""

from dataclasses import replace

import pytest

from memra.gate.model_rules import settle, settle_prompt
from memra.messages.generation import ChatPrompt, EndRules, GenerationRequest, TextPrompt
from memra.messages.model_rules import NO_RULES, ModelRules
from memra.messages.sampling import SamplingParams
from memra.types import ModelName, RequestId

CHAT = ChatPrompt(({"role": "user", "content": "hi"},))
REQUEST = GenerationRequest(
    RequestId("r"),
    ModelName("m"),
    CHAT,
    SamplingParams(temperature=0.2, seed=9),
    left_open=frozenset({"top_p", "top_k"}),
)
RULES = ModelRules(
    sampling={"temperature": 0.6, "top_p": 0.9}, non_thinking_sampling={"top_p": 0.8, "temperature": 0.7, "top_k": 5}
)


def test_without_rules_a_request_stays_as_it_is():
    assert settle(REQUEST, NO_RULES) == REQUEST


def test_only_what_a_client_left_open_is_settled():
    assert settle(REQUEST, RULES).sampling == SamplingParams(temperature=0.2, top_p=0.9, seed=9)


def test_a_chat_that_does_not_think_has_settings_of_its_own():
    quiet = replace(REQUEST, prompt=replace(CHAT, template_options={"enable_thinking": False}))
    assert settle(quiet, RULES).sampling == SamplingParams(temperature=0.2, top_p=0.8, top_k=5, seed=9)
    assert settle(REQUEST, replace(RULES, template_options={"enable_thinking": False})).sampling.top_p == 0.8
    text = replace(REQUEST, prompt=TextPrompt("hi"))
    assert settle(text, replace(RULES, template_options={"enable_thinking": False})).sampling.top_p == 0.9


@pytest.mark.parametrize("said", [{"enable_thinking": True}, {"reasoning_effort": "high"}])
def test_a_chat_that_speaks_of_thinking_is_left_alone(said: dict[str, object]):
    rules = ModelRules(template_options={"enable_thinking": False, "reasoning_effort": "none"})
    prompt = replace(CHAT, template_options=said)
    assert settle_prompt(prompt, rules) is prompt
    other = replace(CHAT, template_options={"colour": "red"})
    assert settle_prompt(other, rules) == replace(CHAT, template_options={"colour": "red", **rules.template_options})


@pytest.mark.parametrize(
    ("asked", "at_least", "largest", "default", "bound"),
    [
        (None, 0, None, None, None),
        (None, 0, 50, None, 50),
        (None, 0, 50, 20, 20),
        (None, 30, 50, 20, 30),
        (None, 60, 50, 20, 50),
        (40, 0, 50, 20, 50),
        (40, 0, None, 20, None),
    ],
)
def test_an_answer_is_bounded_by_what_is_laid_down(
    asked: int | None, at_least: int, largest: int | None, default: int | None, bound: int | None
):
    request = replace(REQUEST, max_new_tokens=asked, ends=EndRules(min_new_tokens=at_least))
    rules = ModelRules(max_output_tokens=largest, default_output_tokens=default, max_prompt_tokens=7)
    settled = settle(request, rules)
    assert (settled.max_answer_tokens, settled.max_new_tokens, settled.max_prompt_tokens) == (bound, asked, 7)


@pytest.mark.parametrize(
    ("trained", "prompt", "output", "published"),
    [(4096, None, None, 4096), (4096, 100, None, 4096), (4096, 100, 50, 150), (120, 100, 50, 120), (None, 1, 1, None)],
)
def test_the_published_context_is_what_can_be_used(
    trained: int | None, prompt: int | None, output: int | None, published: int | None
):
    assert ModelRules(max_prompt_tokens=prompt, max_output_tokens=output).context_tokens(trained) == published
