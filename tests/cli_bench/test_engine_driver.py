from types import SimpleNamespace
from typing import Any, cast

import pytest

from memra.chat.chat_format import ChatFormat
from memra.cli_bench.engine_driver import EngineDriver
from memra.cli_bench.memra_worker import require_plain_steps, weight_bytes_per_step
from memra.engine.loaded_model import LoadedModel
from memra.errors import MeasurementError, UnsupportedModelError
from memra.messages.generation import TextPrompt
from memra.messages.prompt import PromptRendered, RenderPrompt
from memra.types import ModelName
from tests.models.tiny_models import VOCAB_SIZE, make_llama, make_qwen2


class WordFormat:
    """A token a word, and no end of sequence."""

    def __init__(self) -> None:
        self.tokenizer = SimpleNamespace(encode=self._encode)

    def _encode(self, text: str, **_: object) -> tuple[int, ...]:
        return tuple(sum(word.encode()) % VOCAB_SIZE for word in text.split())

    def render(self, command: RenderPrompt) -> PromptRendered:
        assert isinstance(command.prompt, TextPrompt)
        return PromptRendered(self._encode(command.prompt.text), frozenset(), 128, cast("Any", None))


@pytest.fixture(scope="module")
def driver():
    from memra.engine.reference_executor import ReferenceExecutor  # noqa: PLC0415  (imports torch)

    model = make_llama()
    executor = ReferenceExecutor(
        model.build_program(), model.tensors, device="cpu", dtype="float32", num_pages=40, page_tokens=16
    )
    loaded = LoadedModel(ModelName("m"), executor, context_tokens=128, max_rows=4, prefill_chunk_tokens=24)
    yield EngineDriver(loaded, cast("ChatFormat", WordFormat()))
    executor.close()


def test_all_prompts_are_answered_in_full(driver: EngineDriver):
    found = driver.generate(["one two three", "four five", "six"], max_new_tokens=5)
    assert found.num_tokens == 15
    assert found.elapsed_s > 0


def test_more_prompts_than_rows_are_answered_too(driver: EngineDriver):
    assert driver.generate(["a prompt"] * 9, max_new_tokens=3).num_tokens == 27


def test_a_first_token_is_timed_and_the_prompt_counted(driver: EngineDriver):
    found = driver.time_first_token("one two three four")
    assert found.num_prompt_tokens == 4
    assert found.elapsed_s > 0


def test_a_prompt_has_about_the_tokens_that_were_asked_for(driver: EngineDriver):
    text = driver.make_text(30, start=1)
    assert 30 <= len(text.split()) <= 33
    assert driver.make_text(30, start=1000).split()[0] != text.split()[0]


def test_a_prompt_that_the_engine_refuses_is_an_error(driver: EngineDriver):
    with pytest.raises(MeasurementError, match=r"the engine failed: .*200 tokens"):
        driver.generate(["word " * 200], max_new_tokens=1)


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_step_reads_every_weight_once_and_of_a_table_only_what_the_head_reads(is_tied: bool):  # noqa: FBT001
    model = make_qwen2(tied=is_tied)
    all_bytes = sum(tensor.data.nbytes for tensor in model.tensors.values())
    table = model.tensors["token_embd.weight"].data.nbytes
    sizes = {name: SimpleNamespace(num_bytes=tensor.data.nbytes) for name, tensor in model.tensors.items()}
    checkpoint = cast("Any", SimpleNamespace(tensors=sizes))
    assert weight_bytes_per_step(model.build_program(), checkpoint) == all_bytes - (0 if is_tied else table)


def test_models_that_are_stepped_otherwise_are_refused_by_name():
    require_plain_steps(make_llama().build_program())
    for states, pooling in (([object()], None), ([], object())):
        program = cast("Any", SimpleNamespace(architecture="other", state_layers=states, pooling=pooling))
        with pytest.raises(UnsupportedModelError, match="other has"):
            require_plain_steps(program)
