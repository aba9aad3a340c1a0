"""What `memra models inspect` finds out, as plain values: a model opened and understood as at a start, never loaded.

Goes through the same steps as the server and keeps the first error that the server would end with. No weight is read,
and torch is not imported. Refuses to print. Called by `command`.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from math import prod
from typing import Final, TypeVar

from memra_kernels.native import GGML_TYPES

from memra.chat.chat_format import ChatFormat
from memra.cli_models.facts import (
    Inspection,
    MemoryNeed,
    PoolingFacts,
    QuantShare,
    TemplateFacts,
    Verdict,
    VocabularyFacts,
)
from memra.engine.executor_choice import ExecutorChoice, ExecutorKind, choose_executor
from memra.engine.model_building import refuse_unrunnable, state_bytes_per_sequence
from memra.errors import StartupError, UnsupportedModelError, UsageError
from memra.layers.operators import Embed, Head, Linear
from memra.layers.program import Program
from memra.loading.checkpoint import Checkpoint
from memra.loading.model_path import open_checkpoint
from memra.loading.model_tensor import ModelTensor, check_dequantisable
from memra.loading.sources import parse_model, resolve_source
from memra.messages.vocabulary import TokenizerKind, Vocabulary
from memra.models.registry import build_program
from memra.settings import Settings

_THINKING: Final = frozenset({"enable_thinking", "thinking", "reasoning_effort", "thinking_budget"})
"""Variables by which templates are told to think, or how much."""
_BYTES_OF: Final = {"float32": 4, "bfloat16": 2}

_Found = TypeVar("_Found")


def inspect_model(source: str, settings: Settings, *, context_tokens: int | None = None) -> Inspection:
    """Fetch a model if need be, open it and look at it; takes seconds where the vocabulary is large.

    Args:
        source: as on the command line, overrides included.
        settings: where fetched models are kept, and which executor would run it.
        context_tokens: to reckon the memory for; None is the model's own.

    Raises:
        SourceError: it cannot be found or fetched.
        CorruptFileError: it cannot be opened at all.
        UnsupportedModelError: it cannot be opened at all, although it is sound.
        UsageError: the context is longer than the model's.
    """
    location, overrides = parse_model(source)
    path = resolve_source(location, cache_dir=settings.models.cache_dir)
    with open_checkpoint(path, overrides=overrides) as checkpoint:
        return _Inspector(source, checkpoint, settings).inspect(context_tokens)


class _Inspector:
    """Takes the steps of a start one by one, and goes on behind one that fails."""

    def __init__(self, source: str, checkpoint: Checkpoint, settings: Settings) -> None:
        self.source = source
        self.checkpoint = checkpoint
        self.settings = settings
        self.choice = choose_executor(settings.engine)
        self.first_error: StartupError | None = None

    def attempt(self, step: Callable[[], _Found]) -> _Found | None:
        try:
            return step()
        except StartupError as error:
            self.first_error = self.first_error or error
            return None

    def inspect(self, context_tokens: int | None) -> Inspection:
        checkpoint = self.checkpoint
        program = self.attempt(self.build_program)
        vocabulary = self.attempt(lambda: checkpoint.vocabulary)
        template = None if vocabulary is None else self.attempt(lambda: _template_facts(vocabulary))
        if program is not None:
            self.attempt(lambda: self.check_executor(program))
        own_context = self.own_context(program)
        name = checkpoint.metadata.get("general.name")
        return Inspection(
            source=self.source,
            path=str(checkpoint.path),
            architecture=checkpoint.architecture,
            name=name if isinstance(name, str) else None,
            num_parameters=sum(prod(tensor.shape) for tensor in checkpoint.tensors.values()),
            size_bytes=checkpoint.size_bytes,
            quant_types=_quant_shares(checkpoint.tensors),
            context_tokens=own_context,
            vocabulary=None if vocabulary is None else _vocabulary_facts(vocabulary),
            template=template,
            pooling=None if program is None else _pooling_facts(program),
            memory=None if program is None else self.memory(program, context_tokens),
            verdict=self.verdict(),
            obstacle=None if self.first_error is None else self.first_error.message,
        )

    def build_program(self) -> Program:
        shapes = {name: tensor.shape for name, tensor in self.checkpoint.tensors.items()}
        return build_program(self.checkpoint.architecture, self.checkpoint.metadata, shapes)

    def check_executor(self, program: Program) -> None:
        """Raise what loading the weights would raise for their shapes and types."""
        refuse_unrunnable(program, self.choice)
        for name in program.weights:
            tensor = self.checkpoint.tensors[name]
            if not self.reads_as_stored(tensor):
                check_dequantisable(tensor.quant_type, name=name)

    def reads_as_stored(self, tensor: ModelTensor) -> bool:
        return self.choice.kind is ExecutorKind.CPU and tensor.quant_type in GGML_TYPES

    def own_context(self, program: Program | None) -> int | None:
        if program is not None:
            return program.context_tokens
        value = self.checkpoint.metadata.get(f"{self.checkpoint.architecture}.context_length")
        return value if type(value) is int else None

    def memory(self, program: Program, context_tokens: int | None) -> MemoryNeed:
        if context_tokens is not None and context_tokens > program.context_tokens:
            raise UsageError(
                f"--context {context_tokens}: the model's context has {program.context_tokens} tokens: give no more"
            )
        return MemoryNeed(
            executor=_executor_name(self.choice, self.settings),
            context_tokens=context_tokens or program.context_tokens,
            weight_bytes=self.weight_bytes(program),
            kv_bytes_per_token=self.choice.cache_bytes_per_token(program),
            state_bytes=self.settings.engine.max_rows * state_bytes_per_sequence(program),
        )

    def weight_bytes(self, program: Program) -> int:
        """Weights as the executor keeps them.

        The native engine repacks matrices to the same size; an embedding that is a matrix as well is read from the
        file, beside its repacked copy. What it does not read as stored becomes float32, and torch converts everything.
        """
        tensors = self.checkpoint.tensors
        element_bytes = _BYTES_OF[self.settings.engine.dtype] if self.choice.kind is ExecutorKind.TORCH else 4
        total = 0
        for name in program.weights:
            tensor = tensors[name]
            kept_as_stored = self.reads_as_stored(tensor) and len(tensor.shape) > 1
            total += tensor.data.nbytes if kept_as_stored else prod(tensor.shape) * element_bytes
        if self.choice.kind is ExecutorKind.CPU:
            matrices = {operator.weight for operator in program if isinstance(operator, Linear | Head)}
            embeddings = {operator.weight for operator in program if isinstance(operator, Embed)}
            total += sum(tensors[name].data.nbytes for name in matrices & embeddings)
        return total

    def verdict(self) -> Verdict:
        if self.first_error is None:
            return Verdict.SUPPORTED
        return Verdict.UNSUPPORTED if isinstance(self.first_error, UnsupportedModelError) else Verdict.DAMAGED


def _executor_name(choice: ExecutorChoice, settings: Settings) -> str:
    return "native CPU engine" if choice.kind is ExecutorKind.CPU else f"torch, {settings.engine.dtype}"


def _quant_shares(tensors: Mapping[str, ModelTensor]) -> tuple[QuantShare, ...]:
    counts, sizes = Counter[str](), Counter[str]()
    for tensor in tensors.values():
        counts[tensor.quant_type] += 1
        sizes[tensor.quant_type] += tensor.data.nbytes
    return tuple(QuantShare(quant_type, counts[quant_type], size) for quant_type, size in sizes.most_common())


def _vocabulary_facts(vocabulary: Vocabulary) -> VocabularyFacts:
    pre = vocabulary.pre if vocabulary.kind is TokenizerKind.BYTE_BPE else None
    return VocabularyFacts(vocabulary.kind, pre, len(vocabulary.tokens))


def _pooling_facts(program: Program) -> PoolingFacts | None:
    return None if program.pooling is None else PoolingFacts(program.pooling.value, program.output_width)


def _template_facts(vocabulary: Vocabulary) -> TemplateFacts:
    traits = ChatFormat.build(vocabulary, context_tokens=1).template.traits
    return TemplateFacts(
        is_own=vocabulary.chat_template is not None,
        supports_tools=traits.supports_tools,
        thinking=tuple(sorted(traits.variables & _THINKING)),
    )
