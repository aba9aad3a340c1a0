"""A small program with every operator beyond those of a plain decoder: norms, slices, recurrent layers, experts."""

import numpy as np
from numpy.typing import NDArray

from memra.layers.operators import Activation, RouterFunction, Routing
from memra.layers.program import Program
from memra.models.composer import ProgramComposer
from tests.models.tiny_models import VOCAB_SIZE, ArrayTensor

WIDTH, KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM = 48, 2, 4, 16, 8
EXPERTS, USED, EXPERT_WIDTH, TAPS = 6, 2, 32, 4
_QKV = 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM


def make_recurrent_model(routing: Routing | None = None) -> tuple[Program, dict[str, ArrayTensor]]:
    """Return a program of one recurrent and one mixed layer, and its weights."""
    routing = routing or Routing(EXPERTS, USED, RouterFunction.SOFTMAX, normalise=True)
    tensors = _make_tensors(routing)
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    program = ProgramComposer("test", shapes, {"x": WIDTH, "normed": WIDTH, "branch": WIDTH})
    program.embed("embd", "x")
    _add_delta_layer(program)
    _add_expert_layer(program, routing)
    program.layer_norm("x", "normed", "last", eps=1e-5)
    program.head("normed", embedding="embd", scale=0.5)
    return program.finish(4096), tensors


def _add_delta_layer(program: ProgramComposer) -> None:
    program.layer_norm("x", "normed", "first", eps=1e-5)
    widths = {"qkv": _QKV, "mixed": _QKV, "a": VALUE_HEADS, "b": VALUE_HEADS, "z": VALUE_HEADS * VALUE_DIM}
    widths |= {"q": KEY_HEADS * KEY_DIM, "k": KEY_HEADS * KEY_DIM, "v": VALUE_HEADS * VALUE_DIM}
    widths |= {"read": VALUE_HEADS * VALUE_DIM}
    for name, width in widths.items():
        program.buffer(name, width)
    for name in ("qkv", "a", "b", "z"):
        program.linear("normed", name, name)
    program.causal_conv("qkv", "mixed", "conv", kernel=TAPS)
    for name, offset in (("q", 0), ("k", KEY_HEADS * KEY_DIM), ("v", 2 * KEY_HEADS * KEY_DIM)):
        program.slice("mixed", name, offset=offset)
    for name in ("q", "k"):
        program.norm(name, name, None, eps=1e-6 / KEY_DIM, group_width=KEY_DIM, scale=KEY_DIM**-0.5)
    program.gated_delta(
        "read",
        a_log="a_log",
        dt_bias="dt_bias",
        num_key_heads=KEY_HEADS,
        num_value_heads=VALUE_HEADS,
        key_dim=KEY_DIM,
        value_dim=VALUE_DIM,
    )
    program.gated_product(Activation.SILU, gate="z", up="read", out="read")
    program.linear("read", "branch", "out")
    program.add("x", "branch", scale=0.75)


def _add_expert_layer(program: ProgramComposer, routing: Routing) -> None:
    program.norm("x", "normed", "ffn_norm", eps=1e-6)
    program.buffer("router", EXPERTS)
    program.buffer("shared", 1)
    program.linear("normed", "router", "router")
    program.linear("normed", "shared", "shared")
    program.experts(
        "normed",
        "router",
        "branch",
        routing=routing,
        stem="ffn",
        width=EXPERT_WIDTH,
        activation=Activation.SWIGLU_CLAMPED,
        biased=True,
        expert_scale="expert_scale",
    )
    program.scale_rows("branch", "shared")
    program.add_vector("branch", "shift")
    program.activate("branch", Activation.GELU)
    program.scale("branch", factor=2.0, weight="gain")
    program.add("x", "branch")


def _make_tensors(routing: Routing) -> dict[str, ArrayTensor]:
    rng = np.random.default_rng(11)
    heads = VALUE_HEADS * VALUE_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "embd": (VOCAB_SIZE, WIDTH),
        "qkv.weight": (_QKV, WIDTH),
        "a.weight": (VALUE_HEADS, WIDTH),
        "b.weight": (VALUE_HEADS, WIDTH),
        "z.weight": (heads, WIDTH),
        "conv": (_QKV, TAPS),
        "out.weight": (WIDTH, heads),
        "router.weight": (EXPERTS, WIDTH),
        "shared.weight": (1, WIDTH),
        "ffn_gate_exps.weight": (EXPERTS, EXPERT_WIDTH, WIDTH),
        "ffn_up_exps.weight": (EXPERTS, EXPERT_WIDTH, WIDTH),
        "ffn_down_exps.weight": (EXPERTS, WIDTH, EXPERT_WIDTH),
        "ffn_gate_exps.bias": (EXPERTS, EXPERT_WIDTH),
        "ffn_up_exps.bias": (EXPERTS, EXPERT_WIDTH),
        "ffn_down_exps.bias": (EXPERTS, WIDTH),
        "shift": (WIDTH,),
        "gain": (1,),
        "dt_bias": (VALUE_HEADS,),
    }
    values = {name: rng.normal(size=shape) / np.sqrt(shape[-1]) for name, shape in shapes.items()}
    values["a_log"] = -np.exp(rng.normal(size=VALUE_HEADS))
    for name in ("first.weight", "last.weight", "ffn_norm"):
        values[name] = 1.0 + 0.2 * rng.normal(size=WIDTH)
    values["last.bias"] = 0.1 * rng.normal(size=WIDTH)
    values["expert_scale"] = 1.0 + 0.2 * rng.normal(size=EXPERTS)
    if routing.correction is not None:
        values[routing.correction] = rng.normal(size=EXPERTS)
    return {name: ArrayTensor(name, _floats(array)) for name, array in values.items()}


def _floats(values: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(values, dtype=np.float32)
