import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.errors import ContextLengthError, InvalidRequestError
from memra.gate.context_budget import TokenBudget, resolve_budget

CASES = [
    # prompt, asked, context, floor: budget, bound by the context
    (100, 50, 4096, 512, 50, False),
    (100, 4000, 4096, 512, 3996, True),
    (100, 3996, 4096, 512, 3996, False),
    (100, None, 4096, 512, 412, True),
    (496, None, 4096, 512, 16, True),  # sixteen tokens of answer still fit the floor
    (497, None, 4096, 512, 512, True),  # fifteen do not: the prompt gets the floor on top
    (4000, None, 4096, 512, 96, True),
    (4095, 10, 4096, 512, 1, True),
    (100, 0, 4096, 512, 0, False),
    (100, None, 200, 512, 100, True),
]


@pytest.mark.parametrize("case", CASES)
def test_the_budget_follows_prompt_request_and_context(case: tuple[int, int | None, int, int, int, bool]):
    num_prompt, asked, context, floor, budget, is_bound = case
    resolved = resolve_budget(num_prompt, asked, context_tokens=context, context_floor_tokens=floor)
    assert resolved == TokenBudget(budget, is_bound)


@pytest.mark.parametrize("asked", [None, 0, 1, 10_000])
@pytest.mark.parametrize("num_prompt", [4096, 5000])
def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(num_prompt: int, asked: int | None):
    with pytest.raises(ContextLengthError, match=rf"{num_prompt} tokens.*holds 4096") as refused:
        resolve_budget(num_prompt, asked, context_tokens=4096, context_floor_tokens=512, param="messages")
    assert refused.value.param == "messages"


@pytest.mark.parametrize(
    ("asked", "max_context", "budget"),
    [
        (None, 1000, 900),
        (None, 100, 412),  # no less than the floor
        (50, 1000, 50),
        (2000, 1000, 900),
        (None, 4096, 3996),
    ],
)
def test_a_client_may_say_how_much_context_it_wants(asked: int | None, max_context: int, budget: int):
    resolved = resolve_budget(100, asked, context_tokens=4096, context_floor_tokens=512, max_context_tokens=max_context)
    assert resolved == TokenBudget(budget, is_context_bound=asked is None or asked > budget)


def test_more_context_than_the_model_has_is_refused_by_name():
    with pytest.raises(InvalidRequestError, match=r"`max_ctx` is 4097.*holds 4096") as refused:
        resolve_budget(1, 1, context_tokens=4096, context_floor_tokens=512, max_context_tokens=4097)
    assert refused.value.param == "max_ctx"


@given(st.integers(0, 300), st.none() | st.integers(0, 300), st.integers(1, 300), st.integers(16, 300))
def test_prompt_and_answer_always_fit_the_context(num_prompt: int, asked: int | None, context: int, floor: int):
    try:
        budget = resolve_budget(num_prompt, asked, context_tokens=context, context_floor_tokens=floor)
    except ContextLengthError:
        assert num_prompt >= min(context, floor)
        return
    assert budget.max_new_tokens >= 0
    assert num_prompt + budget.max_new_tokens <= context
    assert asked is None or budget.max_new_tokens <= asked


@pytest.mark.parametrize(
    ("asked", "bound", "budget"),
    [
        (None, 20, TokenBudget(20, is_context_bound=False)),
        (50, 20, TokenBudget(20, is_context_bound=False)),
        (10, 20, TokenBudget(10, is_context_bound=False)),
        (None, 5000, TokenBudget(3996, is_context_bound=True)),
    ],
)
def test_an_answer_is_no_longer_than_its_model_is_offered_for(asked: int | None, bound: int, budget: TokenBudget):
    resolved = resolve_budget(100, asked, context_tokens=4096, context_floor_tokens=512, max_answer_tokens=bound)
    assert resolved == budget


def test_a_prompt_longer_than_its_model_is_offered_for_is_refused_with_both_numbers():
    limits = {"context_tokens": 4096, "context_floor_tokens": 512, "max_prompt_tokens": 100}
    assert resolve_budget(100, 1, **limits).max_new_tokens == 1
    with pytest.raises(ContextLengthError, match=r"101 tokens.*takes 100") as refused:
        resolve_budget(101, 1, param="messages", **limits)
    assert refused.value.param == "messages"
