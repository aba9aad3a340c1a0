from memra.cli_bench.cases import (
    SHORT_PROMPT_TOKENS,
    BenchPlan,
    DecodeCase,
    PrefillCase,
    make_token_ids,
    sequence_capacities,
    split_by_context,
)


def _plan() -> BenchPlan:
    return BenchPlan((1, 4), (0, 2048), (1,), prefill_tokens=512, decode_tokens=64, rounds=3)


def test_every_number_of_rows_is_measured_at_depth_zero_and_deep_rows_below():
    assert [case.label for case in _plan().cases()] == [
        "prefill 512",
        "decode 1 row",
        "decode 4 rows",
        "decode 1 row at 2048",
    ]


def test_the_last_timed_token_stands_at_the_depth():
    case = DecodeCase(1, 2048, 64)
    assert (case.end, case.num_prompt_tokens, case.num_timed_tokens) == (2048, 1984, 64)


def test_depth_zero_follows_a_short_prompt():
    case = DecodeCase(4, 0, 64)
    assert (case.num_prompt_tokens, case.end, case.num_timed_tokens) == (
        SHORT_PROMPT_TOKENS,
        SHORT_PROMPT_TOKENS + 64,
        256,
    )


def test_a_depth_of_the_whole_context_fits_and_one_more_does_not():
    fitting, skipped = split_by_context([DecodeCase(1, 2048, 64), DecodeCase(1, 2049, 64)], 2048)
    assert [case.depth for case in fitting] == [2048]
    assert [case.depth for case in skipped] == [2049]


def test_each_sequence_has_room_for_its_longest_case():
    cases = [PrefillCase(512), DecodeCase(3, 0, 16), DecodeCase(1, 1000, 16)]
    assert sequence_capacities(cases) == [1000, 80, 80]


def test_longer_token_lists_begin_with_shorter_ones_and_sequences_differ():
    assert make_token_ids(2, 50, vocab_size=97)[:20] == make_token_ids(2, 20, vocab_size=97)
    assert make_token_ids(2, 20, vocab_size=97) != make_token_ids(3, 20, vocab_size=97)
    assert set(make_token_ids(0, 2000, vocab_size=97)) == set(range(97))
