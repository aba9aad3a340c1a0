import pytest

from memra.cli_bench.streams import Stream, read_streams, summarise


def test_tokens_are_counted_from_the_first_connection_to_the_last_end():
    report = summarise([Stream(200, True, 10, (1.0, 1.5, 2.0)), Stream(200, True, 30, (2.0, 3.0, 4.0))])
    assert report.tokens_per_s == pytest.approx(10.0)
    assert report.num_tokens == 40
    assert report.first_ms == pytest.approx(1500.0)


def test_the_end_is_no_event_of_a_gap():
    report = summarise([Stream(200, True, 3, (1.0, 1.1, 1.2, 9.0))])
    assert report.gap_p99_ms == pytest.approx(100.0)


def test_a_stream_without_text_has_no_first_token_and_no_gap():
    report = summarise([Stream(200, True, 2, (1.0,))])
    assert (report.first_ms, report.gap_p99_ms, report.tokens_per_s) == (None, None, 2.0)


def test_an_unknown_number_of_tokens_is_none():
    reply = {"streams": [{"status": 200, "is_done": True, "tokens": -1, "times": [0.5]}]}
    assert read_streams(reply) == [Stream(200, True, None, (0.5,))]
