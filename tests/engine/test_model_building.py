"""How a model's cache is sized, and which executor and sampler it is given."""

from dataclasses import replace
from pathlib import Path

import pytest

from memra.engine.executor_choice import ExecutorChoice, ExecutorKind, KvType, find_native_obstacle
from memra.engine.loaded_model import STATES_PER_SEQUENCE
from memra.engine.model_building import (
    PAGE_TOKENS,
    build_model,
    plan_model,
    refuse_unrunnable,
    state_bytes_per_sequence,
)
from memra.engine.native_sampler import NativeTokenSampler
from memra.engine.sampler import Sampler
from memra.errors import ConfigurationError, UnsupportedModelError
from memra.layers.program import StateLayer
from memra.models.registry import build_program
from memra.settings import EngineSettings
from memra.types import ModelName
from tests.models.tiny_models import make_llama, make_qwen2

NATIVE = pytest.mark.skipif(find_native_obstacle() is not None, reason="the native engine is not built")
TORCH_CHOICE = ExecutorChoice(ExecutorKind.TORCH, num_threads=1, kv_type=KvType.F32)
CPU_CHOICE = ExecutorChoice(ExecutorKind.CPU, num_threads=1, kv_type=KvType.F16)


def program_of(model):
    shapes = {name: tensor.shape for name, tensor in model.tensors.items()}
    return build_program(model.architecture, model.metadata, shapes)


def test_the_cache_fills_the_memory_that_is_set_aside_with_whole_pages():
    program = program_of(make_llama())
    per_token = sum(2 * layer.num_kv_heads * layer.head_dim for layer in program.kv_layers) * 4
    plan = plan_model(program, TORCH_CHOICE, kv_memory_mb=1)
    assert plan.num_pages == (1 << 20) // (per_token * PAGE_TOKENS)
    assert plan.context_tokens == min(program.context_tokens, plan.num_pages * PAGE_TOKENS)


def test_half_the_element_size_holds_twice_the_pages():
    program = program_of(make_llama())
    pages = [plan_model(program, choice, kv_memory_mb=4).num_pages for choice in (TORCH_CHOICE, CPU_CHOICE)]
    assert pages[1] in {2 * pages[0], 2 * pages[0] + 1}


def test_int8_keys_and_values_hold_nearly_twice_the_pages_and_name_themselves():
    model = make_qwen2()
    choices = [ExecutorChoice(ExecutorKind.CPU, num_threads=1, kv_type=kind) for kind in (KvType.F16, KvType.Q8_0)]
    plans = [plan_model(program_of(model), choice, kv_memory_mb=4) for choice in choices]
    assert plans[1].num_pages == plans[0].num_pages * 32 // 18  # heads of 16: 16 int8 and one float16 scale


def test_a_token_and_a_sequence_take_what_the_program_keeps_of_them():
    program = replace(program_of(make_llama()), state_layers=(StateLayer((3, 4)), StateLayer((2, 5, 6))))
    elements = sum(2 * layer.num_kv_heads * layer.head_dim for layer in program.kv_layers)
    found = [choice.cache_bytes_per_token(program) for choice in (TORCH_CHOICE, CPU_CHOICE)]
    assert found == [4 * elements, 2 * elements]
    assert state_bytes_per_sequence(program) == STATES_PER_SEQUENCE * 4 * (12 + 60)
    assert state_bytes_per_sequence(program_of(make_llama())) == 0


@NATIVE
def test_what_the_native_engine_does_not_run_is_refused_before_its_weights_are_loaded():
    program = program_of(make_qwen2())
    refuse_unrunnable(program, CPU_CHOICE)
    refused = program_of(make_llama())  # heads of eight elements
    with pytest.raises(UnsupportedModelError, match=r"CPU engine.*MEMRA_EXECUTOR=torch"):
        refuse_unrunnable(refused, CPU_CHOICE)
    refuse_unrunnable(refused, TORCH_CHOICE)


def test_memory_for_less_than_a_page_is_refused_with_what_is_needed():
    with pytest.raises(ConfigurationError, match=r"MEMRA_KV_MB: 0 MiB hold no page; give at least \d+"):
        plan_model(program_of(make_llama()), TORCH_CHOICE, kv_memory_mb=0)


def test_a_model_on_torch_samples_with_numpy_and_keeps_the_limits():
    model = make_llama()
    plan = plan_model(program_of(model), TORCH_CHOICE, kv_memory_mb=1)
    settings = EngineSettings(device="cpu", max_rows=3, prefill_chunk_tokens=7)
    loaded = build_model(ModelName("tiny"), plan, model.tensors, settings=settings)
    assert loaded.executor.backend.startswith("torch-cpu-float32")
    assert (loaded.max_rows, loaded.prefill_chunk_tokens, loaded.make_sampler) == (3, 7, Sampler)
    loaded.executor.close()


@NATIVE
def test_a_model_on_the_native_engine_samples_natively():
    model = make_qwen2()
    plan = plan_model(program_of(model), CPU_CHOICE, kv_memory_mb=1)
    loaded = build_model(ModelName("tiny"), plan, model.tensors, settings=EngineSettings())
    assert loaded.executor.backend.startswith("cpu-")
    assert loaded.make_sampler is NativeTokenSampler
    loaded.executor.close()


@NATIVE
def test_repacked_weights_are_kept_where_the_settings_say(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    model = make_qwen2()
    plan = plan_model(program_of(model), CPU_CHOICE, kv_memory_mb=1)

    def build(identity: str | None, limit_mb: int) -> None:
        settings = EngineSettings(repack_cache=tmp_path / "cache", repack_cache_mb=limit_mb)
        build_model(ModelName("tiny"), plan, model.tensors, settings=settings, identity=identity).executor.close()

    build(None, 1)
    assert not (tmp_path / "cache").exists()
    for _ in range(2):
        build("model", 1)
        assert len(list((tmp_path / "cache").iterdir())) == 1
    build("another model", 1)
    assert len(list((tmp_path / "cache").iterdir())) == 2
    assert not caplog.records


@NATIVE
def test_a_shape_that_the_native_engine_lacks_is_refused_with_the_remedy():
    model = make_llama()
    plan = plan_model(program_of(model), CPU_CHOICE, kv_memory_mb=1)
    with pytest.raises(UnsupportedModelError, match="MEMRA_EXECUTOR=torch"):
        build_model(ModelName("tiny"), plan, model.tensors, settings=EngineSettings())
