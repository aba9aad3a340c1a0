"""Models on the native engine for tests of sessions: files of a real model, and a small random hybrid."""

from pathlib import Path

import transformers

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.executor import Executor
from memra.loading.gguf_file import open_gguf
from memra.models.registry import build_program
from tests.models.family_harness import perturb, program_of, save_directory

MAX_TOKENS = 4096


def open_gguf_model(path: Path, *, num_pages: int) -> Executor:
    with open_gguf(path) as checkpoint:
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        return CpuExecutor(program, checkpoint.tensors, num_threads=2, num_pages=num_pages)


def open_hybrid(folder: Path, *, num_pages: int, num_states: int) -> Executor:
    config = transformers.Qwen3_5TextConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
        max_position_embeddings=MAX_TOKENS,
        initializer_range=0.05,
    )
    model = transformers.Qwen3_5ForCausalLM(config)
    perturb(model)
    checkpoint = save_directory(model, folder)
    return CpuExecutor(
        program_of(checkpoint), checkpoint.tensors, num_threads=2, num_pages=num_pages, num_states=num_states
    )
