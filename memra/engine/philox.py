"""Random numbers that depend on a seed and a position, and on nothing that happened before.

The generator is Philox4x32-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011;
constants as in their Random123 library), the same one that CUDA libraries and Triton offer, so a device can draw the
same numbers. Having no state, it cannot be disturbed by batching, preemption or a restart. The sampler calls it.
"""

_MASK = 0xFFFFFFFF
_NUM_ROUNDS = 10
_MULTIPLIER_0 = 0xD2511F53
_MULTIPLIER_1 = 0xCD9E8D57
_KEY_STEP_0 = 0x9E3779B9  # the golden ratio
_KEY_STEP_1 = 0xBB67AE85  # sqrt(3) - 1


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Encrypt a counter of four 32-bit words under a key of two; the result is four random 32-bit words."""
    word_0, word_1, word_2, word_3 = counter
    key_0, key_1 = key
    for _ in range(_NUM_ROUNDS):
        product_0 = _MULTIPLIER_0 * word_0
        product_1 = _MULTIPLIER_1 * word_2
        word_0, word_1 = (product_1 >> 32) ^ word_1 ^ key_0, product_1 & _MASK
        word_2, word_3 = (product_0 >> 32) ^ word_3 ^ key_1, product_0 & _MASK
        key_0 = (key_0 + _KEY_STEP_0) & _MASK
        key_1 = (key_1 + _KEY_STEP_1) & _MASK
    return word_0, word_1, word_2, word_3


def uniform(seed: int, position: int) -> float:
    """Return the one number in [0, 1) that belongs to this seed and position, with 53 random bits.

    Args:
        seed: the key; its low 64 bits count.
        position: the counter, such as a token's position in its sequence; its low 64 bits count.
    """
    counter = (position & _MASK, (position >> 32) & _MASK, 0, 0)
    high, low, _, _ = philox4x32(counter, (seed & _MASK, (seed >> 32) & _MASK))
    return ((high << 32 | low) >> 11) * 2.0**-53
