"""The state of one step of the torch executor: rows, buffers, and where each row's neighbours are.

Plain values that the operators' runners read and fill. Refuses to know operators and weights.
"""

from dataclasses import dataclass, field

import torch
from memra_kernels.rope.reference import RopeTable

from memra.engine.reference_attention import Sight, TileGroup
from memra.layers.dataflow import Angles


@dataclass(frozen=True, slots=True)
class SequenceRows:
    """The consecutive rows of one sequence, and its recurrent state before and after them.

    Attributes:
        state_in: -1 is all zeros; so are both of a model without recurrent operators.
    """

    rows: slice
    state_in: int
    state_out: int


@dataclass(slots=True)
class Step:
    """One call: `num_real` rows, padded with token 0 at position 0 to T rows, whole tiles of any height.

    Attributes:
        token_ids, positions: int64 `[T]`.
        slots: int64 `[num_real]`, where each row's key and value go in the flattened pages.
        groups: tile groups of the step, by what their queries see.
        sequences: one entry per sequence, in the order of their rows.
        output_rows: int64, the `num_outputs` rows that want logits, padded to whole tiles by repeating the last.
        buffers: float32 `[T, width]`, by name.
        angles: `[T, rotary_dims / 2]`, the rows' part of every rope table.
        outputs: logits or hidden rows, once computed.
    """

    num_real: int
    num_outputs: int
    token_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    groups: dict[Sight, list[TileGroup]]
    sequences: list[SequenceRows]
    output_rows: torch.Tensor
    buffers: dict[str, torch.Tensor] = field(default_factory=dict)
    angles: dict[Angles, RopeTable] = field(default_factory=dict)
    outputs: torch.Tensor | None = None
