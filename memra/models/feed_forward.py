"""The feed-forward parts that several families' layers share: a gated one, and routed experts.

Trade: which tensors and buffers such a part has. Refuses to know attention, and what a file's metadata calls the sizes.
Called by the family files.
"""

from dataclasses import replace

from memra.layers.operators import Activation, Routing
from memra.models.composer import ProgramComposer

SHARED = "_shexp"
"""Ends the names of the tensors of an expert that every row goes through."""


def add_gated(  # noqa: PLR0913  (one part of a layer, in all its sizes)
    program: ProgramComposer, layer: str, kind: str = "", *, width: int, out: str, limit: float | None = None
) -> None:
    """Run a gated part from `normed` into `out`.

    Args:
        program: to add it to.
        layer: such as `blk.0`.
        kind: what the names of its tensors end in, such as `SHARED`.
        width: inner width.
        out: buffer.
        limit: that of `GatedProduct`.
    """
    gate, up = (program.buffer(f"{name}{kind}", width) for name in ("gate", "up"))
    program.linear("normed", gate, f"{layer}.ffn_gate{kind}")
    program.linear("normed", up, f"{layer}.ffn_up{kind}")
    program.gated_product(Activation.SILU, gate=gate, up=up, out=gate, limit=limit)
    program.linear(gate, out, f"{layer}.ffn_down{kind}")


def add_routed(
    program: ProgramComposer, layer: str, routing: Routing, *, width: int, limit: float | None = None
) -> None:
    """Mix routed experts from `normed` into `branch`; a correction of the choice is read where the file has one.

    Args:
        program: to add them to.
        layer: such as `blk.0`.
        routing: without the correction.
        width: an expert's inner width.
        limit: that of `Experts`.
    """
    correction = f"{layer}.exp_probs_b.bias"
    program.buffer("router", routing.num_experts)
    program.linear("normed", "router", f"{layer}.ffn_gate_inp")
    program.experts(
        "normed",
        "router",
        "branch",
        routing=replace(routing, correction=correction if program.has_tensor(correction) else None),
        stem=f"{layer}.ffn",
        width=width,
        activation=Activation.SILU,
        limit=limit,
    )
