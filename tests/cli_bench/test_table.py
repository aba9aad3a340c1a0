import pytest

from memra.cli_bench.spread import Spread
from memra.cli_bench.table import format_number, format_spread, format_table


def test_columns_are_aligned_and_the_head_is_underlined():
    text = format_table([["", "a", "long head"], ["first row", "1", "22"], ["x", "333", ""]])
    assert text == ("             a  long head\n---------  ---  ---------\nfirst row    1         22\nx          333\n")


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1234"), (56.78, "56.8"), (1.234, "1.23"), (0.91249, "0.912"), (0.0, "0.000")]
)
def test_numbers_have_three_digits_that_mean_something(value: float, text: str):
    assert format_number(value) == text


def test_a_spread_shows_its_ends_where_they_differ():
    assert format_spread(Spread(0.15, 0.1, 0.2), scale=1000) == "150 [100..200]"
    assert format_spread(Spread(3.0, 3.0, 3.0)) == "3.00"
    assert format_spread(None) == "-"
