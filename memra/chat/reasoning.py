"""A model's thoughts told apart from its answer, by the markers that its chat template shows.

Knows the ways in which templates mark thoughts, and strings; refuses to know tokens, tools and requests. What is no
thought goes on as the answer's words, tool calls included; a call inside a thought is part of the thought. Called by
`answer_style`, which finds the markers, and by `answer_reader`.

The line break after an opening marker and the one before a closing marker belong to the markers, and so do up to two
after a closing one: templates write earlier thoughts back that way.
"""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from memra.chat.harmony_channels import HARMONY_MARK, HarmonySplitter
from memra.chat.spans import Span, may_begin_at

_MAX_LEAD_CHARS = 64
"""White space before an opening marker that is held back; models write one or two line breaks there."""

_MAX_BREAKS_AFTER = 2


class Splitter(Protocol):
    """Tells thoughts from words in one growing answer; owned by one task."""

    @property
    def is_thinking(self) -> bool:
        """Whether the answer so far ends inside a thought."""
        ...

    def push(self, text: str) -> list[Span]:
        """Take more text and return what is certain now."""
        ...

    def flush(self) -> list[Span]:
        """End the answer and return what was held back."""
        ...


@dataclass(frozen=True, slots=True)
class ThoughtMarkers:
    """How one family of models marks its thoughts.

    Attributes:
        opens: stands before a thought.
        closes: stands after it.
        mark: a template that holds this text writes thoughts so; `closes` where it is empty.
        is_anywhere: a thought may begin at any place of an answer. Where the markers are plain words, an answer that
            merely mentions one must not vanish: there a thought begins with the answer only.
        frame: parts of markers that never show, wherever they stand.
    """

    opens: str
    closes: str
    mark: str = ""
    is_anywhere: bool = False
    frame: tuple[str, ...] = ()

    def is_shown_by(self, template: str) -> bool:
        """Whether a template writes thoughts so."""
        return (self.mark or self.closes) in template

    def is_opened_by(self, prompt: str) -> bool:
        """Whether a prompt ends inside a thought, so that the answer begins there."""
        return prompt.rstrip().endswith(self.opens)

    def splitter(self, prompt: str, *, has_tools: bool, begun: str | None = None) -> Splitter:
        """Return what reads the answer to this prompt; calls are words like any other here.

        Args:
            prompt: its text.
            has_tools: whether the answer may call tools.
            begun: the answer's first words, with which the prompt ends; None where it begins afresh.
        """
        del has_tools
        return ThoughtSplitter(self, prompt, begun=begun or "")

    @property
    def texts(self) -> tuple[str, ...]:
        """The markers themselves; tokens that spell them have to reach the splitter as text."""
        return (self.opens, self.closes)


class HarmonyMarkers:
    """Channels instead of markers: each message of an answer names its own."""

    texts = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
    """The tokens of a frame."""

    def is_shown_by(self, template: str) -> bool:
        """Whether a template writes thoughts so."""
        return HARMONY_MARK in template

    def is_opened_by(self, prompt: str) -> bool:
        """Whether a prompt ends inside a thought; a harmony prompt ends before the name of the channel."""
        return prompt.endswith(HARMONY_MARK + "<|message|>")

    def splitter(self, prompt: str, *, has_tools: bool, begun: str | None = None) -> Splitter:
        """Return what reads the answer to this prompt; with tools, messages to functions keep their frame.

        An answer that was begun was begun in its last channel: templates write its text there.
        """
        is_thinking = self.is_opened_by(prompt)
        return HarmonySplitter(is_thinking=is_thinking, keeps_calls=has_tools, is_text=begun is not None)


ThoughtStyle = ThoughtMarkers | HarmonyMarkers

_STYLES: tuple[ThoughtStyle, ...] = (
    HarmonyMarkers(),
    ThoughtMarkers("<|channel>thought", "<channel|>", is_anywhere=True, frame=("<|channel>", "<channel|>")),
    ThoughtMarkers(
        "<|START_THINKING|>",
        "<|END_THINKING|>",
        is_anywhere=True,
        frame=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
    ),
    ThoughtMarkers("[THINK]", "[/THINK]", is_anywhere=True),
    ThoughtMarkers("<seed:think>", "</seed:think>"),
    ThoughtMarkers("<mm:think>", "</mm:think>"),
    ThoughtMarkers("<think:opensource>", "</think:opensource>", mark="</think{}>"),
    ThoughtMarkers("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),
    ThoughtMarkers("<thinking>", "</thinking>"),
    ThoughtMarkers("<think>", "</think>"),
)
"""Of gpt-oss, Gemma 4, Command A, Magistral, Seed-OSS, MiniMax M3, Hunyuan 3, Apriel 1.6 and 1.5, and of all others
(Qwen3, QwQ, GLM 4.x, DeepSeek R1 and V3.x, Kimi K2, MiniMax M2, Nemotron, SmolLM3, Granite 3.3, Step), in the words
of their published chat templates. The first that a template shows counts."""


THOUGHT_MARKERS = tuple(style for style in _STYLES if isinstance(style, ThoughtMarkers))
"""Those that stand around a thought: all but harmony's, whose messages name their channel."""


def find_thought_style(template: str) -> ThoughtStyle | None:
    """Return how a template marks thoughts, or None where it marks none."""
    return next((style for style in _STYLES if style.is_shown_by(template)), None)


class _Place(Enum):
    START = auto()
    THOUGHT = auto()
    AFTER_THOUGHT = auto()
    WORDS = auto()


class ThoughtSplitter:
    """Finds thoughts between two markers."""

    def __init__(self, markers: ThoughtMarkers, prompt: str, *, begun: str = "") -> None:
        """Begin the answer to a prompt, which may have opened a thought, or go on with what was begun there."""
        self._markers = markers
        self._place = _Place.THOUGHT if markers.is_opened_by(prompt) else _Place.START
        if begun.strip():
            is_thought = begun.rfind(markers.opens) > begun.rfind(markers.closes)
            self._place = _Place.THOUGHT if is_thought else _Place.WORDS
        self._held = ""
        self._num_breaks = 0
        self._skips_break = prompt.endswith(markers.opens)
        self._ends = ("\n" + markers.closes, markers.closes)

    @property
    def is_thinking(self) -> bool:
        """Whether the answer so far ends inside a thought."""
        return self._place is _Place.THOUGHT

    def push(self, text: str) -> list[Span]:
        """Take more text and return what is certain now."""
        if self._place is _Place.WORDS and not self._markers.is_anywhere:
            return [Span(text)] if text else []
        return self._read(text, is_last=False)

    def flush(self) -> list[Span]:
        """End the answer and return what was held back: a thought that was never closed is a thought."""
        return self._read("", is_last=True)

    def _read(self, text: str, *, is_last: bool) -> list[Span]:
        text, self._held = self._held + text, ""
        spans: list[Span] = []
        while text:
            before, rest = self._place, text
            text = self._step(text, spans, is_last=is_last)
            if self._place is before and text == rest:
                self._held = text
                break
        return spans

    def _step(self, text: str, spans: list[Span], *, is_last: bool) -> str:
        """Read on in one place and return what is not read yet; the same text when more of it must come."""
        match self._place:
            case _Place.START:
                return self._read_start(text, is_last=is_last)
            case _Place.THOUGHT:
                return self._read_thought(text, spans, is_last=is_last)
            case _Place.AFTER_THOUGHT:
                return self._skip_breaks(text)
            case _Place.WORDS:
                return self._read_words(text, spans, is_last=is_last)

    def _read_start(self, text: str, *, is_last: bool) -> str:
        opens, lead = self._markers.opens, text.lstrip()
        if lead.startswith(opens):
            self._open()
            return lead.removeprefix(opens)
        may_come = opens.startswith(lead) and len(text) - len(lead) <= _MAX_LEAD_CHARS
        if is_last or not may_come:
            self._place = _Place.WORDS
        return text

    def _open(self) -> None:
        self._place = _Place.THOUGHT
        self._skips_break = True

    def _read_thought(self, text: str, spans: list[Span], *, is_last: bool) -> str:
        if self._skips_break:
            self._skips_break = False
            text = text.removeprefix("\n")
        end = text.find(self._markers.closes)
        if end >= 0:
            _add(spans, text[:end].removesuffix("\n"), is_thought=True)
            self._place, self._num_breaks = _Place.AFTER_THOUGHT, 0
            return text[end + len(self._markers.closes) :]
        keep = len(text) if is_last else may_begin_at(text, self._ends)
        _add(spans, text[:keep], is_thought=True)
        return self._wait(text, keep)

    def _skip_breaks(self, text: str) -> str:
        while text.startswith("\n") and self._num_breaks < _MAX_BREAKS_AFTER:
            text, self._num_breaks = text[1:], self._num_breaks + 1
        if text:
            self._place = _Place.WORDS
        return text

    def _read_words(self, text: str, spans: list[Span], *, is_last: bool) -> str:
        if not self._markers.is_anywhere:
            _add(spans, text)
            return ""
        opens, strays = self._markers.opens, (self._markers.closes, *self._markers.frame)
        keep = len(text) if is_last else may_begin_at(text, (opens, *strays))
        found = [(place, -len(mark), mark) for mark in (opens, *strays) if (place := text.find(mark)) >= 0]
        place, _, mark = min(found, default=(len(text), 0, ""))
        if not mark or keep <= place:
            _add(spans, text[:keep])
            return self._wait(text, keep)
        _add(spans, text[:place])
        if mark == opens:
            self._open()
        return text[place + len(mark) :]

    def _wait(self, text: str, keep: int) -> str:
        """Hold back the end of a text from `keep` on."""
        self._held = text[keep:]
        return ""


def _add(spans: list[Span], text: str, *, is_thought: bool = False) -> None:
    if text:
        spans.append(Span(text, is_thought=is_thought))
