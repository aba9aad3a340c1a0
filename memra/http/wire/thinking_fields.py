"""How a request asks a model to think before it answers, or not to: four spellings of two template variables.

Refuses to know templates: whether a model's template reads `enable_thinking` or `reasoning_effort` is the template's
matter. Spellings that contradict each other are refused. Thoughts are never hidden, since they are paid for: a request
to leave them out of the answer (`include_reasoning`, `reasoning.exclude`) asks for none. Called by
`memra.http.wire.chat_request` and `completion_request`.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from memra.errors import InvalidRequestError
from memra.http.wire.refusal import field_of, refuse
from memra.http.wire.sampling_fields import SamplingFields
from memra.messages.model_rules import IS_THINKING

_BEYOND_HIGH = ("xhigh", "max", "ultra")
"""Levels above the highest that templates know; they mean that one."""

EFFORTS = (*IS_THINKING, *_BEYOND_HIGH)
"""All levels that a request may name."""

_Option = tuple[str, str, bool | str]
"""The place that asks, the template variable that it sets, and the value."""


class Reasoning(msgspec.Struct, forbid_unknown_fields=True):
    """The object `reasoning` of a request."""

    effort: str | None = None
    enabled: bool | None = None
    exclude: bool | None = None


class ThinkingFields(SamplingFields, kw_only=True):  # msgspec's structs cannot have two bases with fields
    """What a request says about thinking; an explicit null says nothing."""

    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    reasoning: Reasoning | None = None
    include_reasoning: bool | None = None


def read_thinking(fields: ThinkingFields, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return template options with those that the fields ask for.

    Args:
        fields: as sent.
        options: what the request sets by the template's own names (`chat_template_kwargs`).

    Raises:
        InvalidRequestError: a level is unknown, or two fields contradict each other.
    """
    merged = dict(options)
    asked_by = dict.fromkeys(options, "chat_template_kwargs")
    for place, variable, value in _options(fields):
        present = merged.get(variable)
        # By identity of type too: 1 is no True to a template that prints it.
        if present is not None and (type(present), present) != (type(value), value):
            raise InvalidRequestError(
                f"`{place}` contradicts `{asked_by[variable]}` about {variable}; send one of them.",
                param=field_of(place),
            )
        merged[variable] = value
        asked_by.setdefault(variable, place)
    return merged


def refuse_thinking(fields: ThinkingFields) -> None:
    """Refuse all that a request says about thinking, where no template is there to hear it.

    Raises:
        InvalidRequestError: such a field is present.
    """
    for place, _, _ in _options(fields):
        raise InvalidRequestError(
            f"`{place}` needs the model's chat template: send it to /v1/chat/completions, or with `chat`: true.",
            param=field_of(place),
        )


def _options(fields: ThinkingFields) -> Iterator[_Option]:
    if fields.enable_thinking is not None:
        yield "enable_thinking", "enable_thinking", fields.enable_thinking
    if fields.reasoning_effort is not None:
        yield from _effort("reasoning_effort", fields.reasoning_effort)
    if fields.include_reasoning is False:
        yield "include_reasoning", "enable_thinking", False
    reasoning = fields.reasoning
    if reasoning is not None and reasoning.exclude:
        yield "reasoning.exclude", "enable_thinking", False
    if reasoning is not None and reasoning.enabled is not None:
        yield "reasoning.enabled", "enable_thinking", reasoning.enabled
    if reasoning is not None and reasoning.effort is not None:
        yield from _effort("reasoning.effort", reasoning.effort)


def _effort(place: str, effort: str) -> Iterator[_Option]:
    effort = "high" if effort in _BEYOND_HIGH else effort
    if effort not in IS_THINKING:
        refuse(place, f"one of {', '.join(EFFORTS)}")
    yield place, "enable_thinking", IS_THINKING[effort]
    yield place, "reasoning_effort", effort
