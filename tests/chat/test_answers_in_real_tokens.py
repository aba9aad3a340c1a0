"""Answers in the tokens of real models, spelled as the model would and otherwise, cut at every token."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pytest

from memra.chat.chat_format import ChatFormat
from memra.loading.gguf_file import open_gguf
from memra.messages.generation import ChatPrompt
from memra.messages.prompt import AnswerReader, RenderPrompt
from memra.types import ModelName, RequestId, TokenId
from tests.chat.read_answers import read, said
from tests.chat.texts import WORDS_OF_THE_WORLD
from tests.chat.tool_dialects.written_answers import TOOLS

pytestmark = [pytest.mark.models, pytest.mark.timeout(300)]

NUM_CASES = 120
"""For each of two models; each is spelled in two ways and cut at every token."""

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.reasoning_content %}<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>\n{{ call.function | tojson }}\n</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Thoughts and calls, whatever the model's own template has."""


class Model:
    """A real vocabulary, and two ways to spell a text in it."""

    def __init__(self, path: Path) -> None:
        with open_gguf(path) as file:
            self.format = ChatFormat.build(replace(file.vocabulary, chat_template=TEMPLATE), context_tokens=4096)

    def open(self, stops: tuple[str, ...] = ()) -> AnswerReader:
        prompt = ChatPrompt(({"role": "user", "content": "hi"},), tools=TOOLS)
        command = RenderPrompt(RequestId("r"), ModelName("m"), prompt, stop_strings=stops)
        return self.format.render(command).reader

    def spell(self, text: str) -> list[TokenId]:
        return list(self.format.tokenizer.encode(text, add_special=False, parse_special=True))

    def spell_oddly(self, text: str, chance: random.Random) -> list[TokenId]:
        """Any tokens that give the text; many end inside a character."""
        ids, rest = [], text.encode()
        while rest:
            lengths = [size for size in range(1, min(len(rest), 12) + 1) if rest[:size] in self._ids]
            size = chance.choice(lengths)
            ids.append(self._ids[rest[:size]])
            rest = rest[size:]
        return ids

    @cached_property
    def _ids(self) -> Mapping[bytes, TokenId]:
        tokenizer = self.format.tokenizer
        return {
            piece: token_id
            for token_id, piece in enumerate(tokenizer.pieces)
            if piece and token_id not in tokenizer.control_ids
        }


@pytest.fixture(scope="module", params=["smollm2_path", "qwen_path"])
def model(request: pytest.FixtureRequest) -> Model:
    return Model(request.getfixturevalue(request.param))


def make_answer(chance: random.Random) -> tuple[str, str, list[tuple[str, object]], str]:
    """A thought, a text, calls, and the answer that says them."""
    thought, text = (" ".join(chance.choices(WORDS_OF_THE_WORLD, k=chance.randint(0, 4))) for _ in range(2))
    calls = [
        (chance.choice(["get_weather", "search", "now"]), {"city": chance.choice(WORDS_OF_THE_WORLD)})
        for _ in range(chance.randint(0, 2))
    ]
    blocks = [
        "<tool_call>\n"
        + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=chance.random() < 0.5)
        + "\n</tool_call>"
        for name, arguments in calls
    ]
    parts = [f"<think>\n{thought}\n</think>\n" if thought else "", text, *blocks]
    return thought, text, calls, "\n".join(part for part in parts if part)


def test_an_answer_is_what_was_meant_however_it_is_spelled_and_cut(model: Model):
    chance = random.Random(7)  # noqa: S311  (no secret)
    for _ in range(NUM_CASES):
        thought, text, calls, answer = make_answer(chance)
        for ids in (model.spell(answer), model.spell_oddly(answer, chance)):
            whole = read(model.open(), [ids])
            assert said(read(model.open(), [[token_id] for token_id in ids])) == said(whole)
            assert (whole.reasoning, whole.text) == (thought, text)
            assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == calls


def test_an_answer_that_ends_after_any_token_shows_no_half_character(model: Model):
    chance = random.Random(8)  # noqa: S311  (no secret)
    for _ in range(NUM_CASES // 10):
        _, text, calls, answer = make_answer(chance)
        ids = model.spell_oddly(answer, chance)
        for end in range(len(ids)):
            cut = read(model.open(), [[token_id] for token_id in ids[:end]])
            assert said(read(model.open(), [ids[:end]])) == said(cut)
            if calls and len(cut.tool_calls) == len(calls):
                assert cut.text == text
            assert cut.tool_calls or cut.text in answer


def test_no_special_token_and_no_part_of_a_stop_string_shows(model: Model):
    chance = random.Random(9)  # noqa: S311  (no secret)
    tokenizer = model.format.tokenizer
    hidden = sorted(tokenizer.control_ids - tokenizer.eos_ids)
    for _ in range(NUM_CASES):
        text = "a " + " ".join(chance.choices(WORDS_OF_THE_WORLD, k=4)) + " z"
        start = chance.randrange(1, len(text) - 1)
        stop = text[start : chance.randrange(start + 1, len(text) + 1)]
        ids = model.spell_oddly(text, chance)
        for _ in range(3):
            ids.insert(chance.randrange(len(ids)), chance.choice(hidden))
        cut = read(model.open((stop,)), [[token_id] for token_id in ids])
        assert cut.text == text[: text.index(stop)]
        assert read(model.open((stop,)), [ids]).text == cut.text
