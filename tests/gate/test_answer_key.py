"""The key of an answer: everything that can change one, and nothing that cannot."""

from dataclasses import fields, replace
from typing import Any

import pytest

from memra.gate.answer_key import HARMLESS, AnswerKey, answer_key
from memra.gate.context_budget import TokenBudget
from memra.messages.constraint import AnswerGrammar, GrammarKind
from memra.messages.generation import ChatPrompt, EndRules, GenerationRequest, TextPrompt, TokenPrompt
from memra.messages.identity import Identity
from memra.messages.sampling import SamplingParams
from memra.messages.work import SubmitPrompt
from memra.types import Lane, ModelName, RequestId

DRAWING = SamplingParams(temperature=0.7, seed=7)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"a": 1, "b": 2}}}
CHAT = ChatPrompt(({"role": "user", "content": "hi"},), tools=(TOOL,), template_options={"enable_thinking": True})
GRAMMAR = AnswerGrammar(GrammarKind.REGEX, "a", "regex")
REQUEST = GenerationRequest(
    RequestId("r"), ModelName("m"), CHAT, DRAWING, has_seed=True, may_reuse_answer=True, grammar=GRAMMAR
)
PROMPT = SubmitPrompt(RequestId("r"), ModelName("m"), (1, 2, 3), max_new_tokens=9, sampling=DRAWING)
BUDGET = TokenBudget(9, is_context_bound=False)

OTHER: dict[type, dict[str, Any]] = {
    GenerationRequest: {
        "request_id": "s",
        "model": "n",
        "prompt": replace(CHAT, tools=None),
        "sampling": replace(DRAWING, top_k=3),
        "max_new_tokens": 8,
        "stop_strings": ("x",),
        "stop_token_ids": frozenset({4}),
        "lane": Lane.HARVEST,
        "identity": Identity(principal="k"),
        "traceparent": "t",
        "has_seed": 1,  # without a seed there is no key at all
        "cache_salt": "s",
        "may_reuse_answer": False,
        "is_stream": True,
        "timeout_ms": 1000,
        "affinity": "a",
        "max_context_tokens": 100,
        "wants_echo": True,
        "num_choices": 2,
        "further_prompts": (TextPrompt("x"),),
        "part_of": "q",
        "choice": 1,
        "grammar": None,
        "ends": EndRules(min_new_tokens=1),
        "scores_prompt": True,
        "client_id": "c",
        "route": "/v1/completions",
        "body": b"{}",
        "left_open": frozenset({"top_p"}),
        "max_prompt_tokens": 5,
        "max_answer_tokens": 5,
    },
    EndRules: {"min_new_tokens": 1, "ignores_eos": True, "shows_stop_string": True, "shows_control": True},
    SubmitPrompt: {
        "request_id": "s",
        "model": "n",
        "prompt_ids": (1, 2, 4),
        "max_new_tokens": 8,
        "sampling": replace(DRAWING, top_k=3),
        "stop_ids": frozenset({4}),
        "eos_ids": frozenset({5}),
        "lane": Lane.HARVEST,
        "traceparent": "t",
        "instance": 1,
        "namespace": "s",
        "affinity": "a",
        "constraint": object(),
        "min_new_tokens": 1,
        "scores_prompt": True,
    },
    AnswerGrammar: {"kind": GrammarKind.RULES, "source": "b", "param": "grammar"},
    SamplingParams: {
        "temperature": 0.8,
        "top_k": 1,
        "top_p": 0.5,
        "min_p": 0.1,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.1,
        "repetition_penalty": 1.1,
        "seed": 8,
        "logit_bias": ((4, 1.0),),
        "num_top_logprobs": 0,
    },
    ChatPrompt: {
        "messages": (),
        "tools": ({"type": "function", "function": {"name": "f", "parameters": {"b": 2, "a": 1}}},),
        "template_options": {"enable_thinking": 1},
        "add_generation_prompt": False,
        "is_plain_answer": True,
        "is_single_call": True,
        "must_call": ("f",),
        "param": "prompt",
        "goes_on": True,
    },
    TokenBudget: {"max_new_tokens": 8, "is_context_bound": True},
    TextPrompt: {"text": "x", "adds_special": False},
    TokenPrompt: {"token_ids": (1,), "param": "prompt"},
}
"""Another value for every field; whoever adds a field adds one here, and a reason to `HARMLESS` if it is harmless."""

EVERY_FIELD = [(kind, place.name) for kind in HARMLESS for place in fields(kind)]


def make(
    request: GenerationRequest = REQUEST,
    prompt: SubmitPrompt = PROMPT,
    *,
    budget: TokenBudget = BUDGET,
    tenant: str = "t",
    weights: str = "w",
) -> AnswerKey:
    found = answer_key(request, prompt, budget=budget, tenant=tenant, weights=weights)
    assert found is not None
    return found


def change(kind: type, name: str) -> AnswerKey:  # noqa: PLR0911  (each message is changed in a way of its own)
    assert name in OTHER[kind], f"{kind.__name__}.{name} is new: can it change an answer?"
    changes = {name: OTHER[kind][name]}
    if kind is GenerationRequest:
        return make(replace(REQUEST, **changes))
    if kind is SubmitPrompt:
        return make(prompt=replace(PROMPT, **changes))
    if kind is SamplingParams:
        # One at a time: each message alone carries the difference.
        sampling = replace(DRAWING, **changes)
        keys = {make(replace(REQUEST, sampling=sampling)), make(prompt=replace(PROMPT, sampling=sampling)), make()}
        assert len(keys) == 3
        return make(replace(REQUEST, sampling=sampling))
    if kind is AnswerGrammar:
        return make(replace(REQUEST, grammar=replace(GRAMMAR, **changes)))
    if kind is EndRules:
        return make(replace(REQUEST, ends=EndRules(**changes)))
    if kind is TokenBudget:
        return make(budget=replace(BUDGET, **changes))
    return make(replace(REQUEST, prompt=replace(CHAT, **changes)))


@pytest.mark.parametrize(("kind", "name"), [case for case in EVERY_FIELD if case[0] not in {TextPrompt, TokenPrompt}])
def test_a_field_changes_the_key_unless_it_is_named_as_harmless(kind: type, name: str):
    assert (change(kind, name) == make()) is (name in HARMLESS[kind])


@pytest.mark.parametrize(("kind", "name"), EVERY_FIELD)
def test_a_new_field_asks_for_a_decision(kind: type, name: str):
    assert name in OTHER[kind]


@pytest.mark.parametrize("kind", HARMLESS)
def test_every_harmless_name_is_a_field_and_has_a_reason(kind: type):
    assert set(HARMLESS[kind]) <= {place.name for place in fields(kind)}
    assert all(HARMLESS[kind].values())


def test_a_text_and_a_token_prompt_are_told_by_their_ids_alone():
    for one, other in ((TextPrompt("a"), TextPrompt("b")), (TokenPrompt((1,)), TokenPrompt((2,)))):
        assert make(replace(REQUEST, prompt=one)) == make(replace(REQUEST, prompt=other))


def test_nobody_has_the_answer_of_another_tenant_or_of_other_weights():
    assert len({make(), make(tenant="u"), make(weights="v")}) == 3
    assert make(weights="v").digest == make().digest


def test_a_greedy_answer_does_not_depend_on_the_seed():
    keys = set()
    for seed in (1, 2):
        for temperature in (0.0, -1.0):
            sampling = SamplingParams(temperature=temperature, seed=seed)
            request = replace(REQUEST, sampling=sampling, has_seed=False)
            keys.add((temperature, make(request, replace(PROMPT, sampling=sampling))))
    assert len(keys) == 2


def test_an_answer_that_depends_on_chance_has_no_key():
    request = replace(REQUEST, has_seed=False)
    assert answer_key(request, PROMPT, budget=BUDGET, tenant="t", weights="w") is None


def test_an_answer_that_depends_on_the_clients_own_seed_has_one():
    assert make(replace(REQUEST, has_seed=True)) == make()


def test_values_that_look_alike_are_told_apart():
    options = [{"a": "1"}, {"a": 1}, {"a": 1.0}, {"a": True}, {"a": None}, {"a": [1]}, {"a": {"1": 1}}, {"a, b": 1}]
    keys = {make(replace(REQUEST, prompt=replace(CHAT, template_options=option))) for option in options}
    assert len(keys) == len(options)
    stops = [("a", "b"), ("a,b",), ("ab",), ("b", "a"), ("a", "'b")]
    assert len({make(replace(REQUEST, stop_strings=stop)) for stop in stops}) == len(stops)


def test_any_text_has_a_key():
    make(replace(REQUEST, stop_strings=("\ud800",)))


def test_a_value_of_an_unknown_kind_is_refused():
    with pytest.raises(TypeError, match="complex has no place"):
        make(replace(REQUEST, prompt=replace(CHAT, template_options={"a": 1j})))


def test_no_prompt_can_be_read_out_of_a_key():
    assert len(make().digest) == 32
