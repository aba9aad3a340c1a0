"""The texts on which engines are compared with the reference: prose, an explanation and code, each of over 64 tokens.

Written for this purpose. Changing a word changes every published figure.
"""

PROMPTS = {
    "prose": (
        "The ferry left the island before sunrise, and nobody on deck spoke until the lights of the harbour had gone. "
        "Marta sat between two crates of lemons with her coat buttoned up to her chin. She had promised her brother "
        "that she would write as soon as the train reached the capital, but she already knew that the first letter "
        "would be difficult. What does one say about a house that has been sold, a garden that other people will "
        "water, and a dog that did not understand why the door was closed?"
    ),
    "explanation": (
        "A heat pump moves heat instead of making it. A fluid that boils at a low temperature takes up warmth from the "
        "air outside, even on a cold day; a compressor then raises its pressure, which makes it hotter than the rooms "
        "it is meant to heat. In the condenser it gives that warmth away and becomes liquid again. For every kilowatt "
        "hour of electricity, between two and four kilowatt hours of heat reach the building, and the exact figure "
        "depends on the difference between the two temperatures."
    ),
    "code": (
        "def merge_intervals(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:\n"
        '    """Join intervals that touch or overlap; the result is sorted."""\n'
        "    merged: list[tuple[int, int]] = []\n"
        "    for start, end in sorted(intervals):\n"
        "        if merged and start <= merged[-1][1]:\n"
        "            merged[-1] = (merged[-1][0], max(merged[-1][1], end))\n"
        "        else:\n"
        "            merged.append((start, end))\n"
        "    return merged\n\n\n"
        "def test_touching_intervals_are_joined():\n"
        "    assert merge_intervals([(5, 7), (1, 3), (3, 4)]) == [(1, 4), (5, 7)]\n"
    ),
}
"""By name; every tokenizer that memra knows makes more than 64 tokens of each."""
