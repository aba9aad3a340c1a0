from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from memra.engine.token_window import WINDOW_TOKENS, TokenWindow


def _read(window: TokenWindow) -> dict[int, int]:
    assert len(window.token_ids) == len(window.counts)
    return dict(zip(window.token_ids.tolist(), window.counts.tolist(), strict=True))


@settings(derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 9)), st.lists(st.integers(0, 9)), st.integers(1, 12))
def test_counts_are_those_of_the_last_tokens(prompt: list[int], answer: list[int], num_tokens: int):
    window = TokenWindow(prompt, num_tokens=num_tokens)
    for end in range(len(answer) + 1):
        assert _read(window) == Counter((prompt + answer[:end])[-num_tokens:])
        if end < len(answer):
            window.append(answer[end])


def test_the_default_window_reaches_back_8192_tokens():
    window = TokenWindow([5] + [6] * (WINDOW_TOKENS - 1))
    assert WINDOW_TOKENS == 8192
    assert _read(window) == {5: 1, 6: 8191}
    window.append(7)
    assert _read(window) == {6: 8191, 7: 1}
