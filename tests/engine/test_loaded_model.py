from collections.abc import Callable
from typing import Any

import pytest

from memra.errors import ConfigurationError


@pytest.mark.parametrize("limit", ["context_tokens", "max_rows", "prefill_chunk_tokens"])
def test_a_limit_below_one_is_refused_by_name(make_model: Callable[..., Any], limit: str):
    with pytest.raises(ConfigurationError, match=f"{limit} of model m must be at least 1, not 0"):
        make_model(**{limit: 0})


def test_pages_are_counted_whole(make_model: Callable[..., Any]):
    model = make_model()
    assert [model.count_pages(num_tokens) for num_tokens in (0, 1, 4, 5)] == [0, 1, 1, 2]
