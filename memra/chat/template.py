"""A model's chat template: messages in, prompt text out.

Trade: compile the Jinja source once and render it for each request, with the same text as `transformers` gives for the
same messages. It refuses to know tokens. Called by `memra.chat.chat_format`, on whatever thread renders prompts: a
`ChatTemplate` is immutable after construction, and any number of threads may render with it at once.
"""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import jinja2

from memra.chat.template_environment import TemplateEnvironment
from memra.chat.template_limits import CURRENT_METER, RenderLimits, RenderMeter
from memra.chat.template_messages import plain_copy, plain_messages
from memra.chat.template_traits import RESERVED_VARIABLES, TemplateTraits, TrialTurns
from memra.errors import InvalidRequestError, TemplateError, UnsupportedModelError
from memra.messages.generation import ChatPrompt

_MAX_ERROR_CHARS = 400
"""A template's own words are cut here: they may quote a message."""

_MAX_TRIAL_WORK = 1 << 22
"""Work of one trial rendering: small conversations, and a template without end must not hold up the start."""

_HERE = "memra-goes-on-here"
"""Put behind a message that is to be gone on with, so that its end is found in the prompt; no template writes it."""


def _local_now() -> datetime:
    """The machine's local time, as `strftime_now` is defined."""
    return datetime.now()  # noqa: DTZ005  (local by definition)


class ChatTemplate:
    """One compiled chat template.

    Attributes:
        source: as given.
        traits: what the template can do, found out at construction.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_text: str | None,
        eos_text: str | None,
        clock: Callable[[], datetime] = _local_now,
        limits: RenderLimits | None = None,
    ) -> None:
        """Compile the source and find out what it can do.

        Args:
            source: Jinja source, as model files carry it.
            bos_text: text of the beginning-of-sequence token; None leaves `bos_token` undefined.
            eos_text: text of the end-of-sequence token; None leaves `eos_token` undefined.
            clock: local time for `strftime_now`.
            limits: what a rendering may cost.

        Raises:
            UnsupportedModelError: the source is not a valid template.
        """
        self.source = source
        self._limits = limits or RenderLimits()
        tokens = {"bos_token": bos_text, "eos_token": eos_text}
        self._tokens = {name: text for name, text in tokens.items() if text is not None}
        environment = TemplateEnvironment(clock=clock)
        self._template = self._compile(environment, source)
        self.traits = TemplateTraits.derive(source, environment=environment, render=self._render_trial)

    def render(self, prompt: ChatPrompt) -> str:
        """Return the prompt's text; it ends with the last message's where the answer goes on with that.

        Raises:
            TemplateError: the template refused the messages, failed on them, or exceeded its limits.
            InvalidRequestError: a message has content that is not text, or a template option has a reserved name.
        """
        reserved = sorted(RESERVED_VARIABLES & prompt.template_options.keys())
        if reserved:
            raise InvalidRequestError(
                f"the template option {reserved[0]!r} is set by the server; leave it out", param="chat_template_kwargs"
            )
        messages = plain_messages(prompt.messages, style=self.traits.style)
        if prompt.goes_on:
            messages[-1]["content"] = (prompt.begun_text or "") + _HERE
        text = self.render_variables(
            {
                **plain_copy(prompt.template_options),
                "messages": messages,
                "tools": plain_copy(prompt.tools) if prompt.tools else None,
                "add_generation_prompt": prompt.add_generation_prompt and not prompt.goes_on,
            }
        )
        return _cut_here(text) if prompt.goes_on else text

    def render_variables(self, variables: Mapping[str, Any]) -> str:
        """Return the text for these template variables, as they are; special tokens are added.

        Raises:
            TemplateError: as `render`.
        """
        return self._render(variables, limits=self._limits)

    def trial_turns(self) -> TrialTurns:
        """Return two short conversations as the template writes them, with a tool's call and without."""
        return TrialTurns.render(self._render_trial, style=self.traits.style)

    def takes_system(self) -> bool:
        """Whether a system message reaches the prompt."""
        return TemplateTraits.takes_system(self._render_trial)

    def _render_trial(self, variables: Mapping[str, Any]) -> str:
        work = min(self._limits.max_work, _MAX_TRIAL_WORK)
        return self._render(variables, limits=dataclasses.replace(self._limits, max_work=work))

    def _render(self, variables: Mapping[str, Any], *, limits: RenderLimits) -> str:
        meter = RenderMeter(limits)
        previous = CURRENT_METER.set(meter)
        try:
            return self._collect(meter, {"documents": None, **self._tokens, **variables})
        except Exception as error:  # noqa: BLE001  (foreign code: whatever it raises is its refusal)
            raise TemplateError(
                f"the model's chat template refused the messages: {_one_line(error)}", param="messages"
            ) from None
        finally:
            CURRENT_METER.reset(previous)

    def _collect(self, meter: RenderMeter, variables: Mapping[str, Any]) -> str:
        pieces: list[str] = []
        num_chars = 0
        for piece in self._template.generate(variables):
            num_chars += len(piece)
            meter.check_length(num_chars)
            pieces.append(piece)
        return "".join(pieces)

    def _compile(self, environment: TemplateEnvironment, source: str) -> jinja2.Template:
        # Constant expressions are computed by the compiler, so it works on a budget as well.
        previous = CURRENT_METER.set(RenderMeter(self._limits))
        try:
            return environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise UnsupportedModelError(
                f"the model's chat template is invalid in line {error.lineno}: {_one_line(error)}"
            ) from None
        except Exception as error:  # noqa: BLE001  (deep nesting, `break` outside a loop: found by Python's compiler)
            raise UnsupportedModelError(f"the model's chat template cannot be compiled: {_one_line(error)}") from None
        finally:
            CURRENT_METER.reset(previous)


def _cut_here(text: str) -> str:
    """Return a prompt up to the end of its last message, without what closes the turn."""
    before, mark, _ = text.rpartition(_HERE)
    if not mark:
        raise TemplateError(
            "the model's chat template does not show the last message, so no answer can go on with it", param="messages"
        )
    return before


def _one_line(error: Exception) -> str:
    """The error's words on one line; its kind when it has none."""
    message = error.message if isinstance(error, jinja2.TemplateError) else str(error)
    words = " ".join(str(message or "").split())
    return words[:_MAX_ERROR_CHARS] or type(error).__name__
