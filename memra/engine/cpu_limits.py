"""What the native kernels do not run: shapes of a program, refused by name before any weight is loaded.

Called by the plan builder and by whoever asks whether a model would run. Refuses to know weights and files.
"""

from memra_kernels.native import MAX_HEAD_DIM

from memra.errors import UnsupportedModelError
from memra.layers.operators import CausalConv, Experts, GatedDelta, Operator, RmsNorm, ScaleRows
from memra.layers.program import Program

LANES = 16
"""Width of the kernels' vectors: heads and norm groups are multiples of it."""
QUANT_BLOCK = 32
"""Activations that share one int8 scale."""
_MAX_TAPS = 16
"""`max_taps` of the kernels' `runtime/types.h`."""
_MAX_EXPERTS = 1024
"""`max_experts` of the same."""


def refuse_unrunnable_shapes(program: Program) -> None:
    """Refuse a program that the kernels do not run.

    Raises:
        UnsupportedModelError: names the operator's kind and its shape.
    """
    for layer in program.kv_layers:
        for name, dim in (("heads", layer.head_dim), ("value heads", layer.value_dim)):
            if dim % LANES or dim > MAX_HEAD_DIM:
                raise UnsupportedModelError(
                    f"The CPU engine runs {name} of multiples of {LANES} up to {MAX_HEAD_DIM}, not {dim}."
                )
    for operator in program:
        reason = _find_obstacle(operator, program)
        if reason is not None:
            raise UnsupportedModelError(f"The CPU engine runs {reason}.")


def _find_obstacle(operator: Operator, program: Program) -> str | None:  # noqa: PLR0911  (one case an operator)
    """Say what the kernels run instead, or None where they run the operator."""
    match operator:
        case RmsNorm(x=x, group_width=width) if width != program.buffers[x] and width % LANES:
            return f"norms of groups of multiples of {LANES}, not {width}"
        case ScaleRows(x=x, num_groups=groups) if groups > 1 and program.buffers[x] // groups % LANES:
            return f"gates on groups of multiples of {LANES}, not {program.buffers[x] // groups}"
        case GatedDelta(key_dim=dim) if dim % LANES:
            return f"delta rules with keys of multiples of {LANES}, not {dim}"
        case CausalConv(layer=layer) if program.state_layers[layer].shape[0] >= _MAX_TAPS:
            return f"convolutions over up to {_MAX_TAPS} tokens, not {program.state_layers[layer].shape[0] + 1}"
        case Experts():
            width, out = operator.width, program.buffers[operator.out]
            if width % QUANT_BLOCK or out % LANES:
                return f"experts of multiples of {QUANT_BLOCK} elements in models of {LANES}, not {width} and {out}"
            if operator.routing.num_experts > _MAX_EXPERTS:
                return f"up to {_MAX_EXPERTS} experts, not {operator.routing.num_experts}"
        case _:
            pass
    return None
