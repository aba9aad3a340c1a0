"""The words that every room shares: identifiers and closed sets of names.

Standard library only. Anything that has behaviour of its own belongs in a room, not here.
"""

from enum import StrEnum
from typing import NewType

ModelName = NewType("ModelName", str)
"""The name under which a model is served; may contain slashes."""

RequestId = NewType("RequestId", str)
"""Identifies one request from the front door to the worker; also the `id` of the answer."""

TokenId = int
"""An index into a model's vocabulary."""


class Lane(StrEnum):
    """The class of service that a request asks for."""

    INTERACTIVE = "interactive"
    JUDGE = "judge"
    HARVEST = "harvest"


class StopCause(StrEnum):
    """Why a sequence ended, in the engine's and the detokenizer's words; wire formats translate it."""

    END_OF_SEQUENCE = "end_of_sequence"
    STOP_STRING = "stop_string"
    STOP_TOKEN = "stop_token"  # noqa: S105  (a cause, not a secret)
    MAX_TOKENS = "max_tokens"
    CONTEXT_FULL = "context_full"
    TOOL_CALLS = "tool_calls"
    """It ended by itself, and calls tools."""
    DEADLINE = "deadline"
    """The request's own, passed when part of the answer was there."""


class CacheStatus(StrEnum):
    """Whether an answer was computed for its request, as `memra_cache` tells."""

    HIT = "hit"
    """Computed for an equal request, before or at the same time."""
    MISS = "miss"
    """Computed, and kept for equal requests."""
    SKIP = "skip"
    """Computed, and no equal request may have it: answers are not kept here, or this one depends on chance."""


class ModelTask(StrEnum):
    """What a model does with text."""

    GENERATE = "generate"
    EMBED = "embed"
    """Makes one vector of a text."""
    RANK = "rank"
    """Scores how well a document answers a query."""


class WorkerPhase(StrEnum):
    """What the worker is doing, as the health probes report it."""

    LOADING = "loading"
    WARMING = "warming"
    IDLE = "idle"
    BUSY = "busy"
    DEAD = "dead"
