"""Exact decimals, and what is made of them."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memra_metering_ledger.money import Prices, Tokens, attos, decimal_of_attos, nanos, nanos_up

counts = st.integers(0, 10**9)
amounts = st.integers(0, 10**28 - 1)


@given(amounts)
def test_what_is_written_is_read_as_it_was(amount: int):
    assert attos(decimal_of_attos(amount)) == amount


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", "1e-6", "1.", ".5", "01", "NaN", "0.0000000000000000001", "1_0", " 1", "\u0661", "12345678901"],
)
def test_what_is_no_plain_decimal_is_refused(text: str):
    with pytest.raises(ValueError, match="is not a decimal"):
        attos(text)


@pytest.mark.parametrize("text", ["0.0000000001", "9999999999"])
def test_an_amount_that_a_ledger_cannot_hold_is_refused(text: str):
    with pytest.raises(ValueError, match="nine digits"):
        nanos(text)


@given(st.builds(Tokens.clamped, counts, counts, counts), *(st.integers(0, 10**18) for _ in range(3)))
def test_a_cost_is_exact_and_never_above_the_worst_case(tokens: Tokens, price: int, discount: int, request_price: int):
    prices = Prices(prompt=price + discount, cached_prompt=price, completion=price, request=request_price)
    unit = Fraction(1, 10**18)
    exact = (tokens.prompt - tokens.cached_prompt) * (price + discount) * unit + request_price * unit
    exact += tokens.cached_prompt * price * unit + tokens.completion * price * unit
    assert Fraction(decimal_of_attos(prices.cost(tokens))) == exact
    assert nanos_up(prices.cost(tokens)) <= prices.worst_case_nanos(tokens.prompt, tokens.completion)


@given(amounts)
def test_a_cost_is_rounded_up_by_less_than_a_nano(cost: int):
    assert 0 <= nanos_up(cost) * 10**9 - cost < 10**9


def test_a_reused_token_that_costs_more_than_a_computed_one_is_refused():
    with pytest.raises(ValueError, match="cached_prompt"):
        Prices(prompt=1, cached_prompt=2, completion=1, request=0)


def test_counts_that_contradict_themselves_bill_nothing_negative():
    assert Tokens.clamped(5, 9, -3) == Tokens(prompt=5, cached_prompt=5, completion=0)
