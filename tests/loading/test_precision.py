"""One honest word for how exactly a model's weights are stored, or none."""

from dataclasses import dataclass

import pytest

from memra.loading.converted_tensor import ConvertedTensor
from memra.loading.float_weights import Float8Weight
from memra.loading.huggingface.tensor_edits import Stack
from memra.loading.precision import precision_of
from memra.loading.requantisation import WeightQuant, requantised_tensors
from tests.models.tiny_models import ArrayTensor, make_qwen2


@dataclass(frozen=True)
class Named:
    """A tensor of which only its kind is looked at."""

    quant_type: str
    shape: tuple[int, ...] = (4, 32)
    name: str = "blk.0.ffn_up.weight"


@pytest.mark.parametrize(
    ("kinds", "word"),
    [
        (["F32"], "fp32"),
        (["BF16"], "bf16"),
        (["F16"], "fp16"),
        (["Q8_0"], "int8"),
        (["Q4_0"], "int4"),
        (["MXFP4"], "mxfp4"),
        (["Q4_K", "Q4_K", "Q6_K"], "int4"),
        (["Q6_K"], None),  # six bits of integers are neither fp6 nor int8
        (["Q5_K", "Q5_K", "Q8_0"], None),
        (["Q2_K"], None),
        ([], None),
    ],
)
def test_most_weights_decide(kinds: list[str], word: str | None):
    assert precision_of([Named(kind) for kind in kinds]) == word


def test_vectors_do_not_count():
    assert precision_of([Named("F32", (1 << 20,)), Named("Q8_0")]) == "int8"


def test_a_form_that_is_held_in_another_is_named_by_itself():
    codes = Named("F8_E4M3")
    weight = ConvertedTensor("a.weight", Float8Weight(codes, None, (1, 1)))
    assert weight.quant_type == "BF16"
    assert precision_of([weight]) == "fp8"
    stacked = ConvertedTensor("experts", Stack((weight, weight)))
    assert precision_of([stacked.renamed("b.weight")]) == "fp8"


def test_weights_that_were_made_smaller_are_what_they_became():
    tensors = make_qwen2(tied=False).tensors
    assert isinstance(next(iter(tensors.values())), ArrayTensor)
    assert precision_of(tensors.values()) == "fp32"
    assert precision_of(requantised_tensors(tensors, WeightQuant.Q8_0).values()) == "int8"
