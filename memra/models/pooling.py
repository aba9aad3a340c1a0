"""How a program ends in embeddings or scores instead of logits.

Trade: the metadata key that says how a sequence's rows become one vector, and the classifiers of rerankers. Shared by
encoders and by the decoders that were trained to embed. Refuses to know layers, and pools nothing itself: whoever runs
the program does.
"""

from collections.abc import Mapping
from typing import Final

from memra.errors import CorruptFileError
from memra.layers.operators import Activation
from memra.layers.program import Pooling
from memra.models.composer import ProgramComposer
from memra.models.metadata import Metadata

POOLING_KEY: Final = "pooling_type"
"""Key of the architecture that says how rows are pooled."""
_NO_POOLING: Final = 0
_POOLINGS: Final[Mapping[object, Pooling]] = {1: Pooling.MEAN, 2: Pooling.CLS, 3: Pooling.LAST, 4: Pooling.RANK}
"""Values of `POOLING_KEY`, as llama.cpp numbers them."""
_YES_AND_NO: Final = 2


def read_pooling(metadata: Metadata) -> Pooling | None:
    """Read how a file wants its rows pooled; None where it says nothing, or that there is no pooling.

    Raises:
        UnsupportedModelError: another kind of pooling.
    """
    value = metadata.get(POOLING_KEY)
    if value is None or value == _NO_POOLING:
        return None
    if value not in _POOLINGS:
        raise metadata.unsupported(POOLING_KEY, f"pooling of type {value}")
    return _POOLINGS[value]


def end_encoder(program: ProgramComposer, x: str, pooling: Pooling, *, activation: Activation, eps: float) -> None:
    """End an encoder in its rows, or in the scores of its classifier: a hidden layer where the file has it, and labels.

    Args:
        program: what is ended.
        x: the last layer's rows.
        pooling: `RANK` ends in the classifier.
        activation: of the classifier's hidden layer.
        eps: of the norm behind it, where the file has one.
    """
    if pooling is not Pooling.RANK:
        program.hidden_output(x)
        return
    if program.has_tensor("cls.weight"):
        hidden = program.buffer("classified", program.rows_of("cls.weight"))
        program.linear(x, hidden, "cls", bias=None)
        program.activate(hidden, activation)
        if program.has_tensor("cls.norm.weight"):
            program.layer_norm(hidden, hidden, "cls.norm", eps=eps)
        x = hidden
    program.hidden_output(_label_scores(program, x))


def end_decoder(program: ProgramComposer, x: str, pooling: Pooling | None, *, embedding: str) -> None:
    """End a decoder in logits; of an embedding model in its rows; of a reranker in the share of yes against no.

    A reranker's classifier is made of two rows of the head, yes and no, and its score is the first one's softmax
    (Qwen3-Reranker), which is `sigmoid(yes - no)`.

    Args:
        program: what is ended.
        x: the normed rows of the last layer.
        pooling: None ends in the head.
        embedding: the weight that serves as the head of a file without one.

    Raises:
        CorruptFileError: a reranker's classifier has not two rows.
    """
    if pooling is None:
        program.head(x, embedding=embedding)
        return
    program.leave_unused("output.weight", "an embedding model gives no logits")
    if pooling is not Pooling.RANK:
        program.hidden_output(x)
        return
    labels = _label_scores(program, x)
    if program.rows_of("cls.output.weight") != _YES_AND_NO:
        raise CorruptFileError(
            f"The tensor cls.output.weight has {program.rows_of('cls.output.weight')} rows, where a reranker has two, "
            "for yes and no; convert the model again."
        )
    for offset, name in enumerate(("yes", "no")):
        program.slice(labels, program.buffer(name, 1), offset=offset)
    program.add("yes", "no", scale=-1.0)
    program.activate("yes", Activation.SIGMOID)
    program.hidden_output("yes")


def _label_scores(program: ProgramComposer, x: str) -> str:
    """Add the classifier's last product; returns its buffer, one element a label."""
    labels = program.buffer("labels", max(program.rows_of("cls.output.weight"), 1))
    program.linear(x, labels, "cls.output", bias=None)
    return labels
