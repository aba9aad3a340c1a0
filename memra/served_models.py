"""From settings to opened models: what is served, under which name, and how it speaks.

The part of the composition root that touches files. Nothing is computed and no weight is read here; every error names
the entry that is at fault.
"""

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from memra.chat.chat_format import ChatFormat
from memra.engine.executor_choice import ExecutorChoice
from memra.engine.model_building import ModelPlan, plan_model
from memra.errors import ConfigurationError, StartupError
from memra.loading.checkpoint import Checkpoint
from memra.loading.known_models import DEFAULT_MODEL_NAME, DEFAULT_MODEL_SOURCE
from memra.loading.model_path import open_checkpoint
from memra.loading.requantisation import WeightQuant, requantised
from memra.loading.sources import ModelEntry, parse_model_argument, parse_models, resolve_source
from memra.models.registry import build_program, refuse_embedding_model
from memra.settings import ModelSettings, Settings
from memra.types import ModelName

log = logging.getLogger(__name__)

_MB = 1_000_000


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model, opened and understood, whose weights are not loaded yet."""

    name: ModelName
    checkpoint: Checkpoint
    plan: ModelPlan
    chat_format: ChatFormat

    def describe(self) -> str:
        """Return one line for the person who started the server."""
        quant_types = Counter[str]()
        for tensor in self.checkpoint.tensors.values():
            quant_types[tensor.quant_type] += tensor.num_bytes
        main_type, _ = quant_types.most_common(1)[0]
        return (
            f"{self.name}: {self.plan.program.architecture}, {main_type}, {self.checkpoint.size_bytes / _MB:,.0f} MB, "
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
        entries = tuple(parse_model_argument(f"{name}={source}") for name, source in settings.table.items())
    if not entries:
        log.info("no model is configured, serving %s", DEFAULT_MODEL_NAME)
        entries = (parse_model_argument(f"{DEFAULT_MODEL_NAME}={DEFAULT_MODEL_SOURCE}"),)
    name, count = Counter(entry.name for entry in entries).most_common(1)[0]
    if count > 1:
        raise ConfigurationError(f"two models are named {name!r}; give each its own name")
    return entries


def open_models(settings: Settings, choice: ExecutorChoice) -> tuple[ServedModel, ...]:
    """Find, fetch and open every configured model.

    Raises:
        StartupError: names the model and what is wrong with it.
    """
    models: list[ServedModel] = []
    for entry in plan_models(settings.models):
        try:
            models.append(_open_model(entry, settings, choice))
        except StartupError as error:
            raise type(error)(f"model {entry.name}: {error.message}") from error
    return tuple(models)


def _open_model(entry: ModelEntry, settings: Settings, choice: ExecutorChoice) -> ServedModel:
    path: Path = resolve_source(entry.source, cache_dir=settings.models.cache_dir)
    checkpoint = open_checkpoint(path, overrides=entry.overrides)
    shapes = {name: tensor.shape for name, tensor in checkpoint.tensors.items()}
    program = build_program(checkpoint.architecture, checkpoint.metadata, shapes)
    refuse_embedding_model(program)
    plan = plan_model(program, choice, kv_memory_mb=settings.engine.kv_memory_mb)
    checkpoint = requantised(checkpoint, WeightQuant(settings.engine.quant))
    chat_format = ChatFormat.build(checkpoint.vocabulary, context_tokens=plan.context_tokens)
    return ServedModel(entry.name, checkpoint, plan, chat_format)
