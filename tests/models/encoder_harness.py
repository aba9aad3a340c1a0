"""An encoder held against transformers: one random checkpoint, both formats, both executors.

What must be true of every encoder; `family_harness` has the same for decoders, whose sequences can be cut.
"""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from memra.engine.executor import Executor
from tests.engine.reference_driver import Run, run_rows
from tests.models.family_harness import (
    Bounds,
    native_executor,
    program_of,
    random_tokens,
    save_directory,
    torch_executor,
    write_gguf,
)

_FIRST_TOKEN = 3
"""Padding has a meaning of its own to some models in transformers; no text holds it."""
_LENGTH = 96


def transformers_rows(model: Any, token_ids: list[int]) -> NDArray[np.float32]:
    """Rows `[T, C]` of an encoder, or the labels of a classifier `[1, N]`, in float32."""
    with torch.inference_mode():
        out = model.float().eval()(torch.tensor([token_ids]))
    rows: NDArray[np.float32] = (out.logits if "logits" in out else out.last_hidden_state[0]).float().numpy()
    return rows


def check_company(executor: Executor, token_ids: list[int]) -> NDArray[np.float32]:
    """Return the rows, the same to the bit alone, between others, and in any place of the step."""
    whole, short = Run(token_ids, [0, 1]), Run(token_ids[5:9], [2])
    long = Run(token_ids[::-1][:81], [3, 4])
    alone, short_alone, long_alone = (run_rows(executor, [run])[0] for run in (whole, short, long))
    between = run_rows(executor, [short, whole, long])
    last = run_rows(executor, [long, short, whole])
    for rows, wanted in zip(between, (short_alone, alone, long_alone), strict=True):
        np.testing.assert_array_equal(rows, wanted)
    for rows, wanted in zip(last, (long_alone, short_alone, alone), strict=True):
        np.testing.assert_array_equal(rows, wanted)
    return alone


def encoder_tokens(vocab_size: int, length: int = _LENGTH) -> list[int]:
    return [_FIRST_TOKEN + token for token in random_tokens(vocab_size - _FIRST_TOKEN, length)]


def check_encoder(model: Any, folder: Path, *, bounds: Bounds | None = None) -> None:
    """Hold one encoder, or the classifier made of one, against everything that is true of all of them."""
    bounds = bounds or Bounds()
    directory = save_directory(model, folder / "directory")
    token_ids = encoder_tokens(program_of(directory).vocab_size)
    wanted = transformers_rows(model, token_ids)
    with torch_executor(directory) as executor:
        rows = check_company(executor, token_ids)
    assert np.abs(rows[: len(wanted)] - wanted).max() < bounds.oracle
    plain = write_gguf(directory, folder / "plain.gguf")
    with torch_executor(plain) as executor:
        np.testing.assert_array_equal(run_rows(executor, [Run(token_ids, [0, 1])])[0], rows)
    with native_executor(plain) as executor:
        got = check_company(executor, token_ids)
    assert np.abs(got - rows).max() < bounds.native * np.abs(rows).max()
    quantised = write_gguf(directory, folder / "quantised.gguf", quantised=True)
    with torch_executor(quantised) as executor:
        rounded = run_rows(executor, [Run(token_ids, [0, 1])])[0]
    with native_executor(quantised) as executor:
        got = check_company(executor, token_ids)
    assert np.sqrt(np.mean((got - rounded) ** 2)) < bounds.quantised * rounded.std()
    with native_executor(quantised, variant="scalar", num_threads=1) as executor:
        np.testing.assert_array_equal(run_rows(executor, [Run(token_ids, [0, 1])])[0], got)
