"""A transcript: the chat requests of several agents, a JSON object a line, in which earlier answers may be inserted.

A line is the body of a chat request with fields beside it that are not sent:

    turn                 the line's name; its number where it has none
    agent                whose turn it is; the turns of one agent follow each other, agents run side by side
    after                name, or names, of earlier turns that must be over before this one begins
    pause_s              seconds that pass before it is sent: a tool runs
    cancel_after_tokens  the client leaves after that many events with text
    note                 for the report

In place of a message's text may stand `{"before": TEXT, "answer_of": TURN, "drop_share": SHARE, "then": TEXT}`: the
answer that the server gave to an earlier turn without its thinking, between fixed texts. `drop_share` drops that share
of an answer that holds no thinking from its beginning, as if it had been some. Refuses to know servers.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memra.errors import UsageError

_OWN = ("turn", "agent", "after", "pause_s", "cancel_after_tokens", "note")
_BEGIN, _END = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Turn:
    """One request of one agent; the module says what the fields mean.

    Attributes:
        body: of the request, with places for earlier answers.
    """

    name: str
    agent: str
    body: Mapping[str, Any]
    after: tuple[str, ...] = ()
    pause_s: float = 0.0
    cancel_after_tokens: int | None = None
    note: str = field(default="", compare=False)

    @property
    def model(self) -> str:
        """As the transcript names it."""
        return str(self.body.get("model", ""))

    @property
    def answers_needed(self) -> tuple[str, ...]:
        """Turns whose answers are inserted."""
        contents = (message.get("content") for message in self.body.get("messages", ()))
        return tuple(content["answer_of"] for content in contents if isinstance(content, dict))

    def messages(self, answers: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Return the messages as they are sent, given the answers so far by turn."""
        return [_fill(message, answers) for message in self.body["messages"]]


def _fill(message: Mapping[str, Any], answers: Mapping[str, str]) -> Mapping[str, Any]:
    content = message.get("content")
    if not isinstance(content, dict):
        return message
    answer = answers[content["answer_of"]]
    shown = strip_thinking(answer)
    if shown == answer:
        shown = answer[int(len(answer) * content.get("drop_share", 0.0)) :]
    return {**message, "content": content.get("before", "") + shown + content.get("then", "")}


def strip_thinking(text: str) -> str:
    """Take `<think>...</think>` out, as clients do; one that was never closed goes to the end.

    A closing tag without an opening one belongs to thinking that the template opened in the prompt.
    """
    if _END in text and _BEGIN not in text.partition(_END)[0]:
        text = text.partition(_END)[2].lstrip("\n")
    while _BEGIN in text:
        before, _, rest = text.partition(_BEGIN)
        text = before + rest.partition(_END)[2].lstrip("\n")
    return text


def read_transcript(path: Path) -> list[Turn]:
    """Read and check a transcript.

    Raises:
        UsageError: the file cannot be read, or a line is no request; names the line.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    turns: list[Turn] = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                turns.append(_read_turn(json.loads(line), number, [turn.name for turn in turns]))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise UsageError(f"{path}, line {number}: is no turn: {error}") from error
    if not turns:
        raise UsageError(f"{path}: holds no turn; `memra bench --make-session FILE` writes one")
    return turns


def _read_turn(line: Mapping[str, Any], number: int, earlier: Sequence[str]) -> Turn:
    after = line.get("after", ())
    turn = Turn(
        name=str(line.get("turn", number)),
        agent=str(line.get("agent", "agent")),
        body={name: value for name, value in line.items() if name not in _OWN},
        after=(after,) if isinstance(after, str) else tuple(after),
        pause_s=float(line.get("pause_s", 0.0)),
        cancel_after_tokens=line.get("cancel_after_tokens"),
        note=str(line.get("note", "")),
    )
    if turn.name in earlier:
        raise ValueError(f"an earlier line is named {turn.name!r} too")
    if not turn.body.get("messages"):
        raise ValueError("it has no `messages`")
    for other in (*turn.after, *turn.answers_needed):
        if other not in earlier:
            raise ValueError(f"no earlier line is named {other!r}")
    return turn


def write_transcript(turns: Sequence[Turn], path: Path) -> None:
    """Write what `read_transcript` reads."""
    path.write_text("".join(json.dumps(_write_turn(turn), ensure_ascii=False) + "\n" for turn in turns), "utf-8")


def _write_turn(turn: Turn) -> Mapping[str, Any]:
    own: dict[str, Any] = {"turn": turn.name, "agent": turn.agent}
    given = {
        "after": list(turn.after),
        "pause_s": turn.pause_s,
        "cancel_after_tokens": turn.cancel_after_tokens,
        "note": turn.note,
    }
    return {**own, **{name: value for name, value in given.items() if value}, **turn.body}
