"""Recurrent states for the torch executor: one set of float32 tensors per id.

Trade: holds what convolutions and delta rules keep of a sequence. Refuses to know what the values mean.
"""

from collections.abc import Sequence

import numpy as np
import torch

from memra.layers.program import StateLayer


class RecurrentStates:
    """The states of all layers; memory is committed at once.

    Args:
        layers: what each recurrent operator keeps.
        num_states: ids are 0 to num_states - 1.
    """

    def __init__(self, layers: Sequence[StateLayer], *, num_states: int, device: torch.device) -> None:
        self._layers = [torch.zeros((num_states, *layer.shape), device=device) for layer in layers]

    def read(self, layer: int, state_id: int) -> torch.Tensor:
        """Return a copy of one layer's part of a state; -1 is all zeros."""
        states = self._layers[layer]
        return torch.zeros_like(states[0]) if state_id < 0 else states[state_id].clone()

    def write(self, layer: int, state_id: int, values: torch.Tensor) -> None:
        """Replace one layer's part of a state."""
        self._layers[layer][state_id] = values

    def export(self, state_id: int) -> bytes:
        """Return the raw bytes of a state, layer by layer."""
        return b"".join(states[state_id].cpu().numpy().tobytes() for states in self._layers)

    def load(self, state_id: int, data: bytes) -> None:
        """Make a state hold what `export` gave.

        Raises:
            ValueError: the bytes are not one state's.
        """
        num_bytes = sum(4 * states[0].numel() for states in self._layers)
        if len(data) != num_bytes:
            raise ValueError(f"a state has {num_bytes} bytes, not {len(data)}")
        values, start = np.frombuffer(data, np.float32), 0
        for states in self._layers:
            part = values[start : start + states[0].numel()].copy()
            states[state_id] = torch.from_numpy(part).view(states.shape[1:]).to(states.device)
            start += part.size

    def close(self) -> None:
        """Free the memory."""
        self._layers.clear()
