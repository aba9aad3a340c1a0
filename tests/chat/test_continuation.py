"""Answers that go on with the assistant's last message: the prompt ends with it; the reader knows it."""

from pathlib import Path
from typing import Any

import pytest

from memra.chat.chat_format import ChatFormat
from memra.chat.harmony_channels import HARMONY_MARK
from memra.chat.reasoning import find_thought_style
from memra.chat.template import ChatTemplate
from memra.errors import TemplateError
from memra.loading.gguf_file import open_gguf
from memra.messages.generation import ChatPrompt
from memra.messages.prompt import RenderPrompt
from memra.types import ModelName, RequestId

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QUESTION = {"role": "user", "content": "Count."}


def chat(begun: str | None, **fields: Any) -> ChatPrompt:
    return ChatPrompt((QUESTION, {"role": "assistant", "content": begun}), goes_on=True, **fields)


def fill(template: str, prompt: ChatPrompt) -> str:
    return ChatTemplate(template, bos_text=None, eos_text=None).render(prompt)


@pytest.mark.parametrize("begun", ["one, two,", "one\n    ", " two {x}", "", None])
def test_the_prompt_ends_with_the_words_that_were_begun(begun: str | None):
    opened = fill(CHATML, ChatPrompt((QUESTION,)))
    # A template may take white space away in front, but what is next to the answer stays as it was sent.
    assert fill(CHATML, chat(begun)) == opened + (begun or "").lstrip()


def test_a_word_that_stands_in_two_places_is_gone_on_with_at_the_last():
    prompt = ChatPrompt((QUESTION, {"role": "assistant", "content": "Count."}), goes_on=True)
    assert fill(CHATML, prompt).endswith("<|im_start|>assistant\nCount.")


def test_a_template_that_hides_the_message_is_refused_by_name():
    with pytest.raises(TemplateError, match="does not show the last message") as refusal:
        fill("{{ messages[0].content }}", chat("one"))
    assert refusal.value.param == "messages"


@pytest.mark.parametrize(
    ("begun", "answer", "thought", "text"),
    [
        ("<think>\nI", " see\n</think>\n\nYes", " see", "Yes"),
        ("<think>\nI\n</think>\n\nWell", ", <think> is a word", "", ", <think> is a word"),
        ("So", "<think>no</think>", "", "<think>no</think>"),
        ("", "<think>\nhm\n</think>\n\nYes", "hm", "Yes"),
    ],
)
def test_whether_an_answer_goes_on_with_a_thought_is_seen_in_what_was_begun(
    begun: str, answer: str, thought: str, text: str
):
    style = find_thought_style("</think>")
    assert style is not None
    splitter = style.splitter(f"<|im_start|>assistant\n{begun}", has_tools=False, begun=begun)
    assert splitter.is_thinking is bool(thought and begun)
    spans = [*splitter.push(answer), *splitter.flush()]
    assert "".join(span.text for span in spans if span.is_thought) == thought
    assert "".join(span.text for span in spans if not span.is_thought) == text


def test_a_harmony_answer_goes_on_in_its_last_channel():
    style = find_thought_style(HARMONY_MARK)
    assert style is not None
    prompt = "<|start|>assistant<|channel|>final<|message|>One"
    splitter = style.splitter(prompt, has_tools=False, begun="One")
    spans = [*splitter.push(", two"), *splitter.flush()]
    assert [(span.text, span.is_thought) for span in spans] == [(", two", False)]


@pytest.mark.models
def test_a_real_prompt_that_was_begun_is_the_opened_one_and_the_words(qwen_path: Path):
    chat_format = ChatFormat.build(open_gguf(qwen_path).vocabulary, context_tokens=4096)

    def render(prompt: ChatPrompt, **options: Any) -> Any:
        return chat_format.render(RenderPrompt(RequestId("r"), ModelName("m"), prompt, **options))

    opened, begun = render(ChatPrompt((QUESTION,))), render(chat("One, two,"), wants_echo=True)
    words = chat_format.tokenizer.encode("One, two,", add_special=False, parse_special=True)
    assert begun.prompt_ids == opened.prompt_ids + words
    assert (begun.echo, opened.echo) == ("One, two,", "")
