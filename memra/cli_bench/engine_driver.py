"""Drives memra's engine from text to tokens in one thread, without HTTP and actors: the bare loop.

What the server does between a prompt's text and its last token, tokenizing, prefill, sampling and stopping included;
detokenizing is left out. Refuses to know who compares it with what.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from memra.chat.chat_format import ChatFormat
from memra.engine.engine import Engine
from memra.engine.loaded_model import LoadedModel
from memra.errors import MeasurementError
from memra.messages.generation import TextPrompt
from memra.messages.prompt import RenderPrompt
from memra.messages.sampling import SamplingParams
from memra.messages.work import PromptStarted, RequestFailed, SubmitPrompt, TokensGenerated
from memra.types import RequestId

_GREEDY = SamplingParams(temperature=0.0)


@dataclass(frozen=True, slots=True)
class FirstToken:
    """How long a prompt took to its first token.

    Attributes:
        elapsed_s: from the text to the sampled token.
        num_cached_tokens: prompt tokens that were not computed again.
    """

    elapsed_s: float
    num_prompt_tokens: int
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class Generation:
    """Several prompts answered together; `elapsed_s` from the first text to the last token."""

    elapsed_s: float
    num_tokens: int


class EngineDriver:
    """An engine with one model."""

    def __init__(self, model: LoadedModel, chat_format: ChatFormat) -> None:
        """Serve the model; whoever built its executor closes it."""
        self._engine = Engine()
        self._engine.add_model(model)
        self._name = model.name
        self._chat_format = chat_format
        self._num_requests = 0

    def make_text(self, num_tokens: int, *, start: int) -> str:
        """Numbers in words from `start` on, until they come to about `num_tokens` tokens."""
        words: list[str] = []
        while len(self.encode(" ".join(words) or "x")) < num_tokens:
            words.append(f"{start + len(words)} apples and")
        return " ".join(words)

    def time_first_token(self, text: str) -> FirstToken:
        """Submit one prompt and wait for one token."""
        num_cached = 0
        started_at = time.perf_counter()
        num_prompt_tokens = self._submit(text, max_new_tokens=1)
        while self._engine.has_work:
            for event in self._engine.step().events:
                _raise_failure(event)
                if isinstance(event, PromptStarted):
                    num_cached = event.num_cached_tokens
        return FirstToken(time.perf_counter() - started_at, num_prompt_tokens, num_cached)

    def generate(self, texts: Sequence[str], *, max_new_tokens: int) -> Generation:
        """Submit all prompts at once and run until the last is answered, greedily."""
        num_tokens = 0
        started_at = time.perf_counter()
        for text in texts:
            self._submit(text, max_new_tokens=max_new_tokens)
        while self._engine.has_work:
            for event in self._engine.step().events:
                _raise_failure(event)
                if isinstance(event, TokensGenerated) and event.stop is not None:
                    num_tokens += event.num_generated
        return Generation(time.perf_counter() - started_at, num_tokens)

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text, those that the model expects around one included."""
        return self._chat_format.tokenizer.encode(text, add_special=True, parse_special=True)

    def _submit(self, text: str, *, max_new_tokens: int) -> int:
        self._num_requests += 1
        request_id = RequestId(f"bench-{self._num_requests}")
        prompt = self._chat_format.render(RenderPrompt(request_id, self._name, TextPrompt(text)))
        self._engine.submit(
            SubmitPrompt(
                request_id,
                self._name,
                prompt.prompt_ids,
                max_new_tokens,
                sampling=_GREEDY,
                eos_ids=prompt.eos_ids,
            )
        )
        return len(prompt.prompt_ids)


def _raise_failure(event: object) -> None:
    if isinstance(event, RequestFailed):
        raise MeasurementError(f"the engine failed: {event.detail}")
