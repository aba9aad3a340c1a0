import json
from pathlib import Path
from typing import Any

import pytest

from memra.cli_bench.agents.transcript import Turn, read_transcript, strip_thinking, write_transcript
from memra.errors import UsageError

LINES = [
    {"turn": "a", "model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3},
    {
        "turn": "b",
        "agent": "other",
        "after": "a",
        "pause_s": 0.25,
        "cancel_after_tokens": 4,
        "note": "left",
        "messages": [
            {"role": "assistant", "content": {"before": "<", "answer_of": "a", "then": ">"}},
            {"role": "user", "content": "Go on."},
        ],
    },
]


def _write(tmp_path: Path, *lines: Any) -> Path:
    file = tmp_path / "transcript.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return file


def test_a_line_is_a_body_with_fields_that_are_not_sent(tmp_path):
    first, second = read_transcript(_write(tmp_path, *LINES))
    assert first == Turn("a", "agent", {key: LINES[0][key] for key in ("model", "messages", "max_tokens")})
    assert (second.agent, second.after, second.pause_s, second.cancel_after_tokens) == ("other", ("a",), 0.25, 4)
    assert (second.note, set(second.body), second.answers_needed) == ("left", {"messages"}, ("a",))


def test_what_is_written_is_read_back(tmp_path):
    turns = read_transcript(_write(tmp_path, *LINES))
    write_transcript(turns, tmp_path / "again.jsonl")
    again = read_transcript(tmp_path / "again.jsonl")
    assert again == turns
    assert [turn.note for turn in again] == ["", "left"]


def test_an_earlier_answer_stands_where_its_place_is(tmp_path):
    turn = read_transcript(_write(tmp_path, *LINES))[1]
    sent = turn.messages({"a": "<think>so\nmuch</think>\n\nshort"})
    assert [message["content"] for message in sent] == ["<short>", "Go on."]


def test_a_share_is_dropped_only_from_answers_without_thinking():
    content = {"answer_of": "a", "drop_share": 0.5}
    turn = Turn("b", "agent", {"messages": [{"role": "assistant", "content": content}]})
    assert turn.messages({"a": "abcdefgh"})[0]["content"] == "efgh"
    assert turn.messages({"a": "<think>x</think>abcdefgh"})[0]["content"] == "abcdefgh"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("<think>a</think>b", "b"),
        ("x<think>a</think>b<think>c</think>d", "xbd"),
        ("<think>never closed", ""),
        ("opened in the prompt</think>\n\nb", "b"),
        ("a < b and </thin", "a < b and </thin"),
    ],
)
def test_thinking_is_stripped(text: str, shown: str):
    assert strip_thinking(text) == shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no json", "line 2"),
        ({"turn": "c"}, "no `messages`"),
        ({"turn": "a", "messages": [{}]}, "named 'a' too"),
        ({"messages": [{}], "after": "z"}, "named 'z'"),
        ({"messages": [{"content": {"answer_of": "z"}}]}, "named 'z'"),
        ("[1]", "line 2"),
    ],
)
def test_a_line_that_is_no_turn_is_named(tmp_path, line, words):
    with pytest.raises(UsageError, match=words):
        read_transcript(_write(tmp_path, LINES[0], line))


def test_an_empty_or_missing_transcript_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no turn"):
        read_transcript(_write(tmp_path, ""))
    with pytest.raises(UsageError, match="cannot be read"):
        read_transcript(tmp_path / "absent")
