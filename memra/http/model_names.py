"""Which served model a client means: its name, or the last part of it where that says which one.

Refuses to know what is done with the model, and whether an unknown one is refused. Called where bodies are read.
"""

from collections.abc import Sequence

from memra.types import ModelName


def canonical_model(name: str, served: Sequence[ModelName]) -> ModelName:
    """Return the served name that is meant, which answers are given under; an unknown or ambiguous one as it is.

    `model-id` means `provider/model-id` where no model has just that name and one alone ends in it.
    """
    if name in served or "/" in name:
        return ModelName(name)
    meant = [model for model in served if model.rpartition("/")[2] == name]
    return meant[0] if len(meant) == 1 else ModelName(name)
