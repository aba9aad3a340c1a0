import json
from collections import Counter

from memra.cli_bench.agents.coding_session import SessionPlan, make_session
from memra.cli_bench.agents.transcript import read_transcript, write_transcript

PLAN = SessionPlan(main_model="a", other_model="b", scale=0.2)


def test_a_session_has_thirty_turns_of_every_kind():
    turns = make_session(PLAN)
    notes = Counter(turn.note for turn in turns)
    assert len(turns) == 30
    for note in ("regenerated", "edited in its middle", "left", "after it was left", "after a sub-agent"):
        assert notes[note] == 1, note
    assert Counter(turn.model for turn in turns) == {"a": 24, "b": 6}
    assert {turn.agent for turn in turns} == {"main", "sub", "side", "other"}
    assert [turn.name for turn in turns if turn.cancel_after_tokens] == ["main-14"]


def test_a_seed_makes_the_session(tmp_path):
    assert make_session(PLAN) == make_session(PLAN)
    assert make_session(PLAN) != make_session(SessionPlan(main_model="a", other_model="b", scale=0.2, seed=2))
    file = tmp_path / "session.jsonl"
    write_transcript(make_session(PLAN), file)
    assert read_transcript(file) == make_session(PLAN)


def test_a_regenerated_turn_has_the_same_messages_and_another_seed():
    turns = make_session(PLAN)
    at = next(number for number, turn in enumerate(turns) if turn.note == "regenerated")
    assert turns[at].body["messages"] == turns[at - 1].body["messages"]
    assert turns[at].body["temperature"] > 0


def test_a_conversation_goes_on_from_the_edited_message():
    turns = [turn for turn in make_session(PLAN) if turn.agent == "main"]
    at = next(number for number, turn in enumerate(turns) if turn.note == "edited in its middle")
    before, edited, later = (turns[at + step].body["messages"] for step in (-1, 0, 1))
    assert before[:-1] == edited[:-1]
    assert before[-1] != edited[-1]
    assert later[: len(edited)] == edited


def test_every_answer_but_the_one_that_was_left_is_in_the_history():
    turns = make_session(PLAN)
    last = [turn for turn in turns if turn.agent == "main"][-1]
    assert "main-14" not in last.answers_needed
    assert "sub-3" in last.answers_needed
    assert {"main-1", "main-15", "main-17"} <= set(last.answers_needed)


def test_twelve_tools_stand_in_the_system_prompt():
    turn = make_session(PLAN)[2]
    assert "tools" not in turn.body
    assert turn.body["messages"][0]["content"].count('"parameters"') == 12


def test_twelve_tools_stand_in_their_field_where_that_is_asked_for():
    turn = make_session(SessionPlan(scale=0.2, has_tools_field=True))[2]
    assert len(turn.body["tools"]) == 12
    assert [message["role"] for message in turn.body["messages"][:4]] == ["system", "user", "assistant", "tool"]
    call = turn.body["messages"][2]["tool_calls"][0]
    assert call["id"] == turn.body["messages"][3]["tool_call_id"]
    assert json.loads(call["function"]["arguments"])


def test_a_larger_scale_makes_longer_turns():
    small, large = (sum(len(json.dumps(turn.body)) for turn in make_session(SessionPlan(scale=x))) for x in (0.2, 1.0))
    assert large > 2 * small


def test_a_short_session_still_has_every_kind():
    turns = make_session(SessionPlan(scale=0.1, num_turns=1))
    assert {"regenerated", "edited in its middle", "left", "a sub-agent", "another model"} <= {t.note for t in turns}
    assert len(turns) < 20
