"""Thoughts told apart from words, in every style and however an answer is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memra.chat.reasoning import HarmonyMarkers, Splitter, ThoughtMarkers, find_thought_style
from memra.chat.spans import Span, may_begin_at

QWEN = "{{ '<think>\\n' + m.reasoning_content + '\\n</think>\\n\\n' }}"
GEMMA = "{{ '<|channel>thought\\n' + m.reasoning + '\\n<channel|>' }}"
HARMONY = '{{ "<|start|>assistant<|channel|>analysis<|message|>" + m.thinking + "<|end|>" }}'


def split(source: str, pieces: list[str], *, prompt: str = "", has_tools: bool = False) -> tuple[str, str]:
    style = find_thought_style(source)
    assert style is not None
    return joined(style.splitter(prompt, has_tools=has_tools), pieces)


def joined(splitter: Splitter, pieces: list[str]) -> tuple[str, str]:
    """The thoughts and the words of an answer that comes in these pieces."""
    spans: list[Span] = [span for piece in pieces for span in splitter.push(piece)]
    spans += splitter.flush()
    assert all(span.text for span in spans)
    return (
        "".join(span.text for span in spans if span.is_thought),
        "".join(span.text for span in spans if not span.is_thought),
    )


@pytest.mark.parametrize(
    ("source", "opens"),
    [
        (QWEN, "<think>"),
        ("{{ content.split('</think>')[-1] }}", "<think>"),
        (GEMMA, "<|channel>thought"),
        ("[THINK]{{ t }}[/THINK]", "[THINK]"),
        ("<|START_THINKING|>{{ t }}<|END_THINKING|>", "<|START_THINKING|>"),
        ("<seed:think>{{ t }}</seed:think>", "<seed:think>"),
        ("<mm:think>{{ t }}</mm:think>", "<mm:think>"),
        ("{{ '</think{}>'.format(':opensource') }}", "<think:opensource>"),
        ("<thinking>{{ t }}</thinking>", "<thinking>"),
        ("Here are my reasoning steps:\n{{ t }}\n[BEGIN FINAL RESPONSE]", "Here are my reasoning steps:"),
    ],
)
def test_the_markers_are_those_that_the_template_shows(source: str, opens: str):
    style = find_thought_style(source)
    assert isinstance(style, ThoughtMarkers)
    assert style.opens == opens
    thought, words = split(source, [f"{opens}\nI wonder.\n{style.closes}\n\nYes."])
    assert (thought, words) == ("I wonder.", "Yes.")


def test_harmony_is_known_by_its_channels():
    assert isinstance(find_thought_style(HARMONY), HarmonyMarkers)


def test_a_template_without_markers_has_no_thoughts():
    assert find_thought_style("{{ messages[0].content }} what do you think?") is None


@pytest.mark.parametrize(
    ("prompt", "answer", "thought", "words"),
    [
        ("a\n<think>\n", "hm\n</think>\n\nyes", "hm", "yes"),
        ("a\n<think>", "\nhm</think>yes", "hm", "yes"),
        ("a\n<think>\n", "\nhm", "\nhm", ""),
        ("a\n<think>\n", "never closed\n", "never closed\n", ""),
        ("a\n<think>\n", "</think>\n\n\nyes", "", "\nyes"),
        ("a\n<think>\n\n</think>\n\n", "yes", "", "yes"),
        ("a\n<think>\n\n</think>\n\n", "use <think> or </think>", "", "use <think> or </think>"),
        ("a\n", "\n\n<think>hm</think>yes", "hm", "yes"),
        ("a\n", "yes <think>no</think>", "", "yes <think>no</think>"),
        ("a\n", "<think>hm</think>a<think>b</think>", "hm", "a<think>b</think>"),
        ("a\n", "  yes", "", "  yes"),
        ("a\n", "<thin ice", "", "<thin ice"),
        ("a\n", "<thi", "", "<thi"),
        ("a\n", "\n" * 80 + "x", "", "\n" * 80 + "x"),
        ("a\n<think>\n", "<tool_call>{}</tool_call>\n</think>\nyes", "<tool_call>{}</tool_call>", "yes"),
        ("a\n<think>\n", "a\n\n</thi\n</think>x", "a\n\n</thi", "x"),
    ],
)
def test_thoughts_between_words_that_mark_them(prompt: str, answer: str, thought: str, words: str):
    assert split(QWEN, [answer], prompt=prompt) == (thought, words)
    assert split(QWEN, list(answer), prompt=prompt) == (thought, words)


@pytest.mark.parametrize(
    ("answer", "thought", "words"),
    [
        ("<|channel>thought\nhm\n<channel|>yes", "hm", "yes"),
        ("one <|channel>thought\nhm<channel|>two<|channel>thought\nha<channel|>", "hmha", "one two"),
        ("one<channel|> two", "", "one two"),
        ("one <|channel>final two", "", "one final two"),
        ("one <|channel>", "", "one "),
    ],
)
def test_markers_that_are_tokens_stand_anywhere_and_never_show(answer: str, thought: str, words: str):
    assert split(GEMMA, [answer]) == (thought, words)
    assert split(GEMMA, list(answer)) == (thought, words)


CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"


@pytest.mark.parametrize(
    ("answer", "thought", "words"),
    [
        (
            "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>yes<|return|>",
            "hm",
            "yes",
        ),
        ("<|channel|>commentary<|message|>first<|end|><|start|>assistant" + CALL, "", "first{}"),
        ("plain words < all", "", "plain words < all"),
        ("<|channel|>analysis", "", ""),
        ("<|channel|>analysis<|message|>cut <|en", "cut <|en", ""),
        ("<|channel|>final<|message|>one<|start|>assistant<|channel|>final<|message|>two", "", "onetwo"),
    ],
)
def test_harmony_channels(answer: str, thought: str, words: str):
    assert split(HARMONY, [answer]) == (thought, words)
    assert split(HARMONY, list(answer)) == (thought, words)


@pytest.mark.parametrize(
    "header",
    [
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>analysis to=functions.f<|message|>",
    ],
)
@pytest.mark.parametrize("end", ["<|call|>", "<|end|>", "<|end|><|start|>assistant", "<|start|>assistant"])
def test_a_harmony_call_is_framed_in_one_way_where_calls_are_read(header: str, end: str):
    answer = header + "{}" + end
    for pieces in ([answer], list(answer)):
        thought, words = split(HARMONY, pieces, has_tools=True)
        assert (thought, words) == ("hm" if "hm" in header else "", f"{CALL}<|call|>")


MARKERS = ("<think>", "</think>", "<|channel>", "<channel|>", "<|end|>", "<|channel|>", "<|message|>", "<|start|>")
SHREDS = ("\n", "a", " ", "<", "think>", "</", "thought", "analysis", "final", "to=functions.f", "é", "😀")
ALPHABET = st.sampled_from(MARKERS + SHREDS)


@given(
    source=st.sampled_from([QWEN, GEMMA, HARMONY]),
    answer=st.lists(ALPHABET, max_size=12).map("".join),
    prompt=st.sampled_from(["", "<think>\n", "<think>", "<|channel>thought\n", "<think>\n\n</think>\n\n"]),
    has_tools=st.booleans(),
    data=st.data(),
)
def test_what_is_thought_does_not_depend_on_how_an_answer_is_cut(
    source: str, answer: str, prompt: str, *, has_tools: bool, data: st.DataObject
):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(answer)), max_size=6)))
    pieces = [answer[start:end] for start, end in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    whole = split(source, [answer], prompt=prompt, has_tools=has_tools)
    assert split(source, pieces, prompt=prompt, has_tools=has_tools) == whole
    assert split(source, list(answer), prompt=prompt, has_tools=has_tools) == whole


@given(st.text("<think>/ab", max_size=12))
def test_words_without_a_marker_are_not_changed(answer: str):
    if not answer.lstrip().startswith("<think>"):
        assert split(QWEN, list(answer)) == ("", answer)


@pytest.mark.parametrize(
    ("text", "place"), [("", 0), ("abc", 3), ("abc<", 3), ("a</th", 1), ("</think>", 8), ("</think><", 8), ("<<", 1)]
)
def test_the_longest_possible_beginning_of_a_marker_is_found(text: str, place: int):
    assert may_begin_at(text, ("</think>",)) == place
