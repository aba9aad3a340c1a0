"""Reads answers cut into pieces, and says what came of them in words that compare."""

from collections.abc import Iterable, Sequence

from memra.messages.generation import join_calls
from memra.messages.prompt import AnswerPiece, AnswerReader
from memra.types import TokenId


def read(reader: AnswerReader, pieces: Iterable[Sequence[TokenId]]) -> AnswerPiece:
    """Return all that a reader tells of these tokens, which come piece by piece, until it wants no more."""
    told = []
    for token_ids in pieces:
        told.append(reader.read(tuple(token_ids)))
        if reader.is_stopped:
            break
    else:
        told.append(reader.finish())
    assert not any("\ufffd" in piece.text + piece.reasoning for piece in told)
    return AnswerPiece(
        "".join(piece.text for piece in told),
        "".join(piece.reasoning for piece in told),
        join_calls(call for piece in told for call in piece.tool_calls),
    )


def said(piece: AnswerPiece) -> tuple[str, str, list[tuple[str | None, str]]]:
    """Return thoughts, text and calls, without the calls' random ids."""
    return piece.reasoning, piece.text, [(call.name, call.arguments) for call in piece.tool_calls]
