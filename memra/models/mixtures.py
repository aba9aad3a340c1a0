"""Mixtures of experts: the keys that describe one, and the operators of a layer's feed-forward part that is one.

Trade: what families with softmax routers and gated experts share: routed experts, and a shared expert with a gate of
its own where there is one. Refuses to know attention and the order of layers. Called by the family files.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from memra.errors import CorruptFileError
from memra.layers.operators import Activation, RouterFunction, Routing
from memra.models.composer import ProgramComposer
from memra.models.metadata import Metadata

MIXTURE_KEY = "expert_count"
"""The key that `Metadata.refuse_unsupported` lets pass for a family that runs a mixture."""
_SOFTMAX = 1
"""`expert_gating_func` of llama.cpp: softmax over all experts; 0 leaves the choice to the family."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """The sizes of a layer's experts.

    Attributes:
        width: inner width of a routed expert.
        shared_width: inner width of the expert that every row goes through; None where there is none.
    """

    routing: Routing
    width: int
    shared_width: int | None = None

    def buffers(self, plain: Mapping[str, int]) -> Mapping[str, int]:
        """Widths of a decoder's buffers whose feed-forward part is this mixture, from those of a plain decoder."""
        found = {name: width for name, width in plain.items() if name not in {"gate", "up"}}
        found["router"] = self.routing.num_experts
        if self.shared_width is not None:
            found |= {"gate": self.shared_width, "up": self.shared_width, "shared": plain["x"], "shared_gate": 1}
        return found


def read_softmax_mixture(metadata: Metadata, *, normalise: bool, has_shared_expert: bool = False) -> Mixture:
    """Read a mixture whose weights are a softmax over all experts.

    Args:
        metadata: of the file.
        normalise: whether the chosen experts' weights are divided by their sum where the file does not say.
        has_shared_expert: whether the family has an expert for all rows.

    Raises:
        CorruptFileError: a key is missing, mistyped, or contradicts another one.
        UnsupportedModelError: the file asks for another router.
    """
    if metadata.get("expert_gating_func") not in {None, 0, _SOFTMAX}:
        raise metadata.unsupported("expert_gating_func", "a router other than softmax")
    if metadata.get("expert_group_count") not in {None, 0, 1}:
        raise metadata.unsupported("expert_group_count", "groups of experts")
    num_experts = metadata.positive_integer("expert_count")
    num_used = metadata.positive_integer("expert_used_count")
    if num_used > num_experts:
        raise CorruptFileError(
            f"{metadata.key('expert_used_count')} is {num_used}, but there are only {num_experts} experts."
        )
    given = metadata.get("expert_weights_norm")
    routing = Routing(
        num_experts,
        num_used,
        RouterFunction.SOFTMAX,
        normalise=normalise if given is None else bool(given),
        scale=metadata.optional_number("expert_weights_scale") or 1.0,
    )
    dense = metadata.positive_integer("feed_forward_length") if metadata.get("feed_forward_length") else None
    # Older files give the width of all used experts together, and none for the shared one.
    width = metadata.positive_integer("expert_feed_forward_length", dense and dense // num_used)
    if not has_shared_expert:
        return Mixture(routing, width)
    return Mixture(routing, width, metadata.positive_integer("expert_shared_feed_forward_length", dense))


def add_mixture(program: ProgramComposer, layer: str, mixture: Mixture) -> None:
    """Mix the experts of a layer over `normed` into `branch`, the shared one's output times the sigmoid of its gate."""
    program.linear("normed", "router", f"{layer}.ffn_gate_inp")
    program.experts(
        "normed",
        "router",
        "branch",
        routing=mixture.routing,
        stem=f"{layer}.ffn",
        width=mixture.width,
        activation=Activation.SILU,
    )
    if mixture.shared_width is None:
        return
    program.linear("normed", "gate", f"{layer}.ffn_gate_shexp")
    program.linear("normed", "up", f"{layer}.ffn_up_shexp")
    program.gated_product(Activation.SILU)
    program.linear("gate", "shared", f"{layer}.ffn_down_shexp")
    program.linear("normed", "shared_gate", f"{layer}.ffn_gate_inp_shexp")
    program.scale_rows("shared", "shared_gate")
    program.add("branch", "shared")


def add_dense(program: ProgramComposer, layer: str) -> None:
    """Add the gated feed-forward part of a layer without experts: `normed` to `branch`."""
    program.linear("normed", "gate", f"{layer}.ffn_gate")
    program.linear("normed", "up", f"{layer}.ffn_up")
    program.gated_product(Activation.SILU)
    program.linear("gate", "branch", f"{layer}.ffn_down")


def add_experts(program: ProgramComposer, layer: str, x: str, *, routing: Routing, width: int) -> None:
    """Mix the routed experts of a layer over buffer `x` into `branch`.

    Args:
        program: gets a buffer `router` besides.
        layer: prefix of its tensors.
        x: input of router and experts.
        routing: how a row chooses.
        width: inner width of an expert.
    """
    program.linear(x, program.buffer("router", routing.num_experts), f"{layer}.ffn_gate_inp")
    program.experts(
        x, "router", "branch", routing=routing, stem=f"{layer}.ffn", width=width, activation=Activation.SILU
    )


def add_shared_expert(program: ProgramComposer, layer: str, x: str, *, width: int) -> None:
    """Add to `branch` the expert that every row goes through, without a gate of its own.

    Args:
        program: gets the buffers `shared`, `shared_gate` and `shared_up` besides.
        layer: prefix of its tensors.
        x: the expert's input.
        width: inner width of the expert.
    """
    for part in ("gate", "up"):
        program.linear(x, program.buffer(f"shared_{part}", width), f"{layer}.ffn_{part}_shexp")
    program.gated_product(Activation.SILU, gate="shared_gate", up="shared_up", out="shared_gate")
    program.linear("shared_gate", program.buffer_like("branch", "shared"), f"{layer}.ffn_down_shexp")
    program.add("branch", "shared")
