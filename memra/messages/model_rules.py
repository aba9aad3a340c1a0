"""What the owner of a server lays down for a model's requests: limits, and settings that requests leave open."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

IS_THINKING: Mapping[str, bool] = MappingProxyType(
    {"none": False, "minimal": False, "low": True, "medium": True, "high": True}
)
"""Levels of effort, and whether a model thinks at all at that level."""


@dataclass(frozen=True, slots=True)
class ModelRules:
    """One model's; empty where nothing is laid down.

    Attributes:
        max_prompt_tokens: a longer prompt is refused.
        max_output_tokens: no answer is longer, whatever is asked for.
        default_output_tokens: how long an answer may be that nobody bounded.
        template_options: variables for the template of a chat that says nothing about thinking.
        sampling: values of `SamplingParams` by name, where a request leaves them open.
        non_thinking_sampling: the same, first, for a chat whose answer begins without thoughts.
    """

    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    default_output_tokens: int | None = None
    template_options: Mapping[str, Any] = field(default_factory=dict)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    non_thinking_sampling: Mapping[str, Any] = field(default_factory=dict)

    def context_tokens(self, trained: int | None) -> int | None:
        """How long prompt and answer together can be, of a model that holds so many tokens; None: not known yet."""
        if trained is None or self.max_prompt_tokens is None or self.max_output_tokens is None:
            return trained
        return min(trained, self.max_prompt_tokens + self.max_output_tokens)


NO_RULES = ModelRules()
