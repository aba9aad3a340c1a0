import math

import pytest

from memra.engine.philox import philox4x32, uniform

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_known_answers_of_random123(counter: tuple[int, ...], key: tuple[int, ...], expected: tuple[int, ...]):
    assert philox4x32(counter, key) == expected


def test_uniform_is_the_top_53_bits_of_the_first_two_words():
    assert uniform(0, 0) == (0x6627E8D5E169C58D >> 11) / 2**53


def test_a_draw_depends_on_both_halves_of_the_seed_and_on_the_position():
    draws = {uniform(seed, position) for seed in (0, 1, 1 << 32, 2**64 - 1) for position in range(1000)}
    assert len(draws) == 4000
    assert uniform(0, 1 << 32) not in draws


def test_draws_are_uniform_over_positions_and_over_seeds():
    for draws in (
        [uniform(42, position) for position in range(20_000)],
        [uniform(seed, 7) for seed in range(20_000)],
    ):
        assert all(0.0 <= draw < 1.0 for draw in draws)
        counts = [0] * 50
        for draw in draws:
            counts[math.floor(draw * 50)] += 1
        chi_square = sum((count - 400) ** 2 / 400 for count in counts)
        assert chi_square < 85.4  # 49 degrees of freedom: one in a thousand exceeds this
