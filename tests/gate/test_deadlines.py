import math

import pytest

from memra.errors import InfeasibleDeadlineError, InvalidRequestError
from memra.gate.deadlines import DeadlineRules


def test_a_request_gets_what_it_asks_for_or_the_default():
    rules = DeadlineRules(max_timeout_ms=60_000, max_stream_timeout_ms=70_000, default_timeout_ms=30_000)
    asked = (None, 1000, 1500, 60_000)
    assert [rules.timeout_s(each, is_stream=False) for each in asked] == [30.0, 1.0, 1.5, 60.0]
    assert [rules.timeout_s(each, is_stream=True) for each in asked] == [30.0, 1.0, 1.5, 60.0]
    assert rules.timeout_s(70_000, is_stream=True) == 70.0
    assert DeadlineRules().timeout_s(None, is_stream=False) == math.inf


@pytest.mark.parametrize("asked", [0, 999, 60_001])
def test_what_is_out_of_bounds_is_refused_by_name(asked: int):
    with pytest.raises(InvalidRequestError, match="from 1000 to 60000") as refused:
        DeadlineRules(max_timeout_ms=60_000).timeout_s(asked, is_stream=False)
    assert refused.value.param == "timeout_ms"


def test_an_answer_that_cannot_come_in_time_is_refused_with_half_the_deadline_on_top():
    rules = DeadlineRules(prefill_tok_s=1000.0, decode_tok_s=10.0)
    rules.check_feasible(5000, 100, timeout_s=10.0)  # 15 s
    with pytest.raises(InfeasibleDeadlineError, match="about 15 s, and the whole answer has 10 s") as refused:
        rules.check_feasible(5001, 100, timeout_s=10.0)
    assert refused.value.param == "max_tokens"
    DeadlineRules(is_gated=False).check_feasible(10**9, 10**9, timeout_s=1.0)
