"""Row operators that few families use, on both executors and against their formulas."""

import math

import numpy as np
import pytest
import torch
from memra_kernels.elementwise.reference import scale_by_position, scale_rows
from memra_kernels.gated_product.reference import gated_product
from memra_kernels.join.reference import join_groups
from numpy.typing import NDArray

from memra.engine.cpu_executor import CpuExecutor
from memra.engine.executor import Executor
from memra.engine.reference_executor import ReferenceExecutor
from memra.errors import UnsupportedModelError
from memra.layers.operators import Activation, RouterFunction, Routing, ScaleByPosition
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from tests.engine.reference_driver import Run, make_batch, prefill
from tests.models.tiny_models import VOCAB_SIZE, ArrayTensor

WIDTH, HEADS, OWN, SHARED, EXPERTS = 48, 4, 16, 8, 4
JOINED = HEADS * (OWN + SHARED)
GATES = 3  # groups of 32 elements
PAGES = [0, 1]


def _make_model(*, repeats: bool = True) -> tuple[Program, dict[str, ArrayTensor]]:
    shared = SHARED if repeats else HEADS * SHARED
    shapes: dict[str, tuple[int, ...]] = {
        "embd": (VOCAB_SIZE, WIDTH),
        "norm": (WIDTH,),
        "own.weight": (HEADS * OWN, WIDTH),
        "shared.weight": (shared, WIDTH),
        "gates.weight": (GATES, WIDTH),
        "back.weight": (WIDTH, JOINED),
        "router.weight": (EXPERTS, WIDTH),
        "ffn_gate_exps.weight": (EXPERTS, 32, WIDTH),
        "ffn_up_exps.weight": (EXPERTS, 32, WIDTH),
        "ffn_down_exps.weight": (EXPERTS, WIDTH, 32),
        "gate.weight": (64, WIDTH),
        "up.weight": (64, WIDTH),
        "down.weight": (WIDTH, 64),
    }
    rng = np.random.default_rng(5)
    tensors = {
        name: ArrayTensor(name, np.ascontiguousarray(rng.normal(size=shape) / np.sqrt(shape[-1]), np.float32))
        for name, shape in shapes.items()
    }
    tensors["norm"].values[:] = 3.0  # so that limits are reached
    widths = {"x": WIDTH, "normed": WIDTH, "branch": WIDTH, "own": HEADS * OWN, "shared": shared, "gates": GATES}
    widths |= {"joined": JOINED, "router": EXPERTS, "gate": 64, "up": 64}
    program = ProgramComposer("test", shapes, widths)
    program.embed("embd", "x")
    program.norm("x", "normed", "norm", eps=1e-6)
    for name in ("own", "shared", "gates"):
        program.linear("normed", name, name)
    program.join("own", "shared", "joined", num_groups=HEADS, repeats=repeats)
    program.scale_rows("joined", "gates")
    program.append(ScaleByPosition("joined", "joined", slope=0.5, interval=7, offset=1))
    program.linear("joined", "branch", "back")
    program.add("x", "branch")
    program.norm("x", "normed", "norm", eps=1e-6)
    program.linear("normed", "router", "router")
    routing = Routing(EXPERTS, 2, RouterFunction.SIGMOID)
    program.experts(
        "normed", "router", "branch", routing=routing, stem="ffn", width=32, activation=Activation.SILU, limit=0.5
    )
    program.add("x", "branch")
    program.linear("normed", "gate", "gate")
    program.linear("normed", "up", "up")
    program.gated_product(Activation.SILU, limit=0.75)
    program.linear("gate", "branch", "down")
    program.add("x", "branch")
    program.head("x", embedding="embd")
    return program.finish(256), tensors


def _run(executor: Executor, cut: int) -> NDArray[np.float32]:
    token_ids = np.random.default_rng(3).integers(0, VOCAB_SIZE, 40).tolist()
    try:
        logits = prefill(executor, Run(token_ids, PAGES), cut)
        whole = executor.run(make_batch([Run(token_ids, PAGES)])).copy()
    finally:
        executor.close()
    np.testing.assert_array_equal(logits, whole)
    return logits


@pytest.mark.parametrize("repeats", [True, False])
def test_both_executors_run_them_alike_and_the_same_however_cut(repeats: bool):  # noqa: FBT001  (a parameter)
    program, tensors = _make_model(repeats=repeats)
    wanted = _run(ReferenceExecutor(program, tensors, device="cpu", dtype="float32", num_pages=2), 7)
    got = _run(CpuExecutor(program, tensors, num_threads=2, num_pages=2), 7)
    np.testing.assert_allclose(got, wanted, atol=2e-4)
    alone = _run(CpuExecutor(program, tensors, num_threads=1, num_pages=2, variant="scalar"), 1)
    np.testing.assert_array_equal(alone, got)


def test_every_one_of_them_changes_the_result():
    program, tensors = _make_model()
    wanted = _run(ReferenceExecutor(program, tensors, device="cpu", dtype="float32", num_pages=2), 40)
    without = [operator for operator in program.operators if not isinstance(operator, ScaleByPosition)]
    changed = Program(
        "test", program.vocab_size, 256, program.buffers, program.weights, program.kv_layers, tuple(without)
    )
    got = _run(ReferenceExecutor(changed, tensors, device="cpu", dtype="float32", num_pages=2), 40)
    np.testing.assert_array_equal(got[:6], wanted[:6])  # positions 0 to 5 come before the first interval's end
    assert (np.abs(got[6:] - wanted[6:]).max(axis=1) > 1e-3).all()


def test_gates_on_groups_that_do_not_fill_vectors_are_refused():
    shapes = {"embd": (VOCAB_SIZE, WIDTH), "gates.weight": (4, WIDTH)}
    program = ProgramComposer("test", shapes, {"x": WIDTH, "gates": 4})
    program.embed("embd", "x")
    program.linear("x", "gates", "gates")
    program.scale_rows("x", "gates")
    program.head("x", embedding="embd")
    tensors = {name: ArrayTensor(name, np.ones(shape, np.float32)) for name, shape in shapes.items()}
    with pytest.raises(UnsupportedModelError, match="groups of multiples of 16, not 12"):
        CpuExecutor(program.finish(256), tensors, num_threads=1, num_pages=2)


def test_join_puts_groups_side_by_side():
    x, y = torch.arange(6.0).view(1, 6), torch.tensor([[10.0, 11.0]])
    assert join_groups(x, y, num_groups=2, repeats=True).tolist() == [[0, 1, 2, 10, 11, 3, 4, 5, 10, 11]]
    assert join_groups(x, y, num_groups=2, repeats=False).tolist() == [[0, 1, 2, 10, 3, 4, 5, 11]]


def test_gates_multiply_their_groups():
    x, gate = torch.ones(1, 4), torch.tensor([[0.0, math.log(3.0)]])
    torch.testing.assert_close(scale_rows(x, gate, num_groups=2), torch.tensor([[0.5, 0.5, 0.75, 0.75]]))


def test_rows_grow_with_the_logarithm_of_their_interval():
    factors = scale_by_position(torch.ones(3, 1), torch.tensor([0, 3, 15]), slope=0.1, interval=4, offset=1)
    torch.testing.assert_close(factors[:, 0], torch.tensor([1.0, 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(5)]))


def test_a_limit_bounds_the_activation_above_and_the_other_factor_on_both_sides():
    gate, up = torch.tensor([[9.0, -9.0, 0.1]]), torch.tensor([[-5.0, 5.0, 0.2]])
    silu = [min(g / (1 + math.exp(-g)), 2.0) for g in gate[0].tolist()]
    expected = [g * min(max(u, -2.0), 2.0) for g, u in zip(silu, up[0].tolist(), strict=True)]
    torch.testing.assert_close(gated_product(gate, up, "silu", limit=2.0)[0], torch.tensor(expected))
