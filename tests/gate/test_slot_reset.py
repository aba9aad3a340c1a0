import pytest

from memra.gate.slot_reset import SlotReset


def test_before_anything_was_measured_the_setting_is_told():
    reset = SlotReset(unknown_s=7)
    assert reset.reset_s(10.0) == 7
    reset.note_answer(100)
    assert reset.reset_s(None) == 7


@pytest.mark.parametrize(("step_p50_ms", "seconds"), [(1.0, 1), (10.0, 2), (10.1, 3), (1e6, 600)])
def test_a_slot_is_free_after_an_average_answer(step_p50_ms: float, seconds: int):
    reset = SlotReset()
    reset.note_answer(100)
    reset.note_answer(300)
    assert reset.reset_s(step_p50_ms) == seconds
