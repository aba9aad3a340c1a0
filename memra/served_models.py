"""From settings to opened models: what is served, under which name, and how it speaks.

The part of the composition root that touches files, at start and whenever a model is loaded later. Opening computes
nothing and reads no weight; every error names the entry that is at fault.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from memra.chat.chat_format import ChatFormat
from memra.chat.text_format import TextFormat
from memra.engine.executor_choice import ExecutorChoice, ExecutorKind
from memra.engine.loaded_model import LoadedModel
from memra.engine.model_building import ModelPlan, build_model, cache_bytes, plan_model
from memra.errors import ConfigurationError, StartupError
from memra.loading.cache import default_cache_dir
from memra.loading.checkpoint import Checkpoint
from memra.loading.known_models import DEFAULT_MODEL_NAME, DEFAULT_MODEL_SOURCE
from memra.loading.model_path import open_checkpoint
from memra.loading.model_tensor import ModelTensor
from memra.loading.precision import precision_of
from memra.loading.requantisation import WeightQuant, requantised
from memra.loading.sources import ModelEntry, parse_model_argument, parse_models, resolve_source
from memra.messages.models import ModelTerms, ModelTraits
from memra.model_terms import read_terms, source_of
from memra.models.registry import build_program, task_of
from memra.plugins.manager import Plugins
from memra.settings import EngineSettings, ModelSettings, Settings
from memra.types import ModelName, ModelTask

log = logging.getLogger(__name__)

_MB = 1_000_000
_MIB = 1 << 20
_DEEDS = {ModelTask.GENERATE: "", ModelTask.EMBED: " for embeddings", ModelTask.RANK: " for ranking"}


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model, opened and understood, whose weights are not loaded yet; `build` loads them, any number of times."""

    name: ModelName
    checkpoint: Checkpoint
    plan: ModelPlan
    renderer: ChatFormat | TextFormat
    settings: EngineSettings

    @property
    def context_tokens(self) -> int:
        """The longest sequence that it will serve."""
        return self.plan.context_tokens

    @property
    def identity(self) -> str:
        """Differs for other weights."""
        return self.checkpoint.identity

    @property
    def task(self) -> ModelTask:
        """What it does with text."""
        return task_of(self.plan.program)

    @property
    def embedding_width(self) -> int | None:
        """Values of one of its vectors; None for a model that makes none."""
        return self.plan.program.output_width if self.task is ModelTask.EMBED else None

    @property
    def traits(self) -> ModelTraits:
        """What a catalogue says of it."""
        vocabulary = self.checkpoint.vocabulary
        chat = self.renderer if isinstance(self.renderer, ChatFormat) else None
        return ModelTraits(
            architecture=self.checkpoint.architecture,
            quantization=precision_of(self.checkpoint.tensors.values()),
            tokenizer=vocabulary.family,
            has_tools=chat is not None and chat.tool_template.traits.supports_tools,
            can_reason=chat is not None and chat.style.thoughts is not None,
            caches_prompts=chat is not None and self.settings.prefix_cache_mb > 0,
            speaks_chatml=chat is not None and "<|im_start|>" in chat.template.source,
        )

    @property
    def num_bytes(self) -> int:
        """An estimate of what it will take in memory: weights as the executor keeps them, and its whole cache."""
        weights = sum(self._weight_bytes(tensor) for tensor in self.checkpoint.tensors.values())
        return weights + cache_bytes(self.plan, self.settings)

    def build(self) -> LoadedModel:
        """Load the weights; seconds to minutes.

        Raises:
            StartupError: they cannot be loaded.
        """
        checkpoint = self.checkpoint
        return build_model(
            self.name, self.plan, checkpoint.tensors, settings=self.settings, identity=checkpoint.identity
        )

    def close(self) -> None:
        """Let go of the files."""
        self.checkpoint.close()

    def _weight_bytes(self, tensor: ModelTensor) -> int:
        if self.plan.choice.kind is ExecutorKind.CPU:
            return tensor.num_bytes
        return prod(tensor.shape) * (2 if self.settings.dtype == "bfloat16" else 4)  # torch dequantises all of them

    def describe(self) -> str:
        """Return one line for the person who started the server."""
        quant_types = Counter[str]()
        for tensor in self.checkpoint.tensors.values():
            quant_types[tensor.quant_type] += tensor.num_bytes
        main_type, _ = quant_types.most_common(1)[0]
        architecture = f"{self.plan.program.architecture}{_DEEDS[self.task]}"
        return (
            f"{self.name}: {architecture}, {main_type}, {self.checkpoint.size_bytes / _MB:,.0f} MB, "
            f"context {self.plan.context_tokens:,} tokens, from {self.checkpoint.path}"
        )


def plan_models(settings: ModelSettings) -> tuple[ModelEntry, ...]:
    """Return the models to serve: from the command line, else the environment, else the file, else the default.

    Raises:
        StartupError: an entry is malformed, or a name appears twice.
    """
    if settings.arguments:
        entries = tuple(parse_model_argument(argument) for argument in settings.arguments)
    elif settings.plan:
        entries = parse_models(settings.plan)
    else:
        entries = tuple(
            parse_model_argument(f"{name}={source_of(name, value)}") for name, value in settings.table.items()
        )
    if not entries:
        log.info("no model is configured, serving %s", DEFAULT_MODEL_NAME)
        entries = (parse_model_argument(f"{DEFAULT_MODEL_NAME}={DEFAULT_MODEL_SOURCE}"),)
    name, count = Counter(entry.name for entry in entries).most_common(1)[0]
    if count > 1:
        raise ConfigurationError(f"two models are named {name!r}; give each its own name")
    return entries


def open_models(settings: Settings, choice: ExecutorChoice) -> tuple[ServedModel, ...]:
    """Find, fetch and open every configured model, lazy ones included.

    Raises:
        StartupError: names the model and what is wrong with it.
    """
    models = ServedModels(settings, choice)
    return tuple(models.open(name, None, terms) for name, terms in models.terms.items())


class ServedModels:
    """Opens the configured models by name, and others by their source.

    Attributes:
        terms: on which each configured model lies in memory, in configured order.
    """

    def __init__(self, settings: Settings, choice: ExecutorChoice, plugins: Plugins | None = None) -> None:
        """Read what is configured; no file is touched.

        Args:
            settings: all of them.
            choice: how models will be run.
            plugins: may know further kinds of sources, chat templates and tool dialects; None: there are none.

        Raises:
            StartupError: an entry is malformed, a name appears twice, or an option cannot be used.
        """
        self._settings = settings
        self._choice = choice
        self._plugins = plugins or Plugins()
        self._entries = {entry.name: entry for entry in plan_models(settings.models)}
        self.terms = read_terms(settings, tuple(self._entries))

    def open(self, name: ModelName, source: str | None, terms: ModelTerms) -> ServedModel:
        """Find, fetch and open a model; callable from any thread.

        Args:
            name: under which it is served.
            source: as in `NAME=SOURCE`; None takes what is configured for the name.
            terms: on which it will lie in memory.

        Raises:
            StartupError: names the model and what is wrong with it.
        """
        try:
            entry = self._entries[name] if source is None else parse_model_argument(f"{name}={source}")
            return self._open(entry, terms)
        except StartupError as error:
            raise type(error)(f"model {name}: {error.message}") from error

    def _open(self, entry: ModelEntry, terms: ModelTerms) -> ServedModel:
        settings = self._settings
        path = self._plugins.open_source(entry.source.text, settings.models.cache_dir or default_cache_dir())
        if path is None:
            path = resolve_source(entry.source, cache_dir=settings.models.cache_dir)
        checkpoint = open_checkpoint(path, overrides=entry.overrides)
        shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
        program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
        plan = plan_model(program, self._choice, kv_memory_mb=terms.kv_memory_mb or settings.engine.kv_memory_mb)
        checkpoint = requantised(checkpoint, WeightQuant(settings.engine.quant))
        renderer = self._renderer(entry.name, checkpoint, plan, terms)
        return ServedModel(entry.name, checkpoint, plan, renderer, settings.engine)

    def _renderer(
        self, name: ModelName, checkpoint: Checkpoint, plan: ModelPlan, terms: ModelTerms
    ) -> ChatFormat | TextFormat:
        task, vocabulary, context_tokens = task_of(plan.program), checkpoint.vocabulary, plan.context_tokens
        if task is not ModelTask.GENERATE:
            return TextFormat.build(
                vocabulary, task=task, context_tokens=context_tokens, is_causal=plan.program.is_causal
            )
        template = self._plugins.chat_template(name, checkpoint.architecture, vocabulary.chat_template)
        if template is not None:  # the model's own template for tools would contradict it
            vocabulary = replace(vocabulary, chat_template=template, named_templates={})
        made = ChatFormat.build(
            vocabulary,
            context_tokens=context_tokens,
            teaches_tools=terms.has_generic_tools,
            dialects=self._plugins.tool_dialects,
        )
        if self._settings.models.ready_grammars:
            made.grammars.prepare()
        return made


def refuse_crowding(models: Sequence[ServedModel], limit_bytes: int | None) -> None:
    """Refuse to start with more than the memory that models may take.

    Raises:
        ConfigurationError: says what is missing, and what to do.
    """
    num_bytes = sum(model.num_bytes for model in models)
    if limit_bytes is not None and num_bytes > limit_bytes:
        raise ConfigurationError(
            f"MEMRA_MEMORY_MB: the models to start with need about {-(-num_bytes // _MIB):,} MiB, more than the "
            f"{limit_bytes // _MIB:,} that are allowed; give more, name some in MEMRA_LAZY_MODELS, or lower MEMRA_KV_MB"
        )
