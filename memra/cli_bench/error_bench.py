"""How far engines are from the float32 reference on one file: log probabilities, teacher-forced, side by side.

Every engine computes the logits of the same tokens after the same tokens; torch in float32, on weights as the file
stores them, is the truth. So the figure holds what an engine adds (int8 activations, float16 keys and values, orders of
sums) and leaves out what quantising the weights lost. Knows logits; refuses to know engines.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memra.cli_bench.error_prompts import PROMPTS
from memra.errors import MeasurementError
from memra.types import TokenId

NUM_TOP = 100
"""The likeliest tokens of the truth, over which errors are taken: the others are never sampled."""
NUM_POSITIONS = 64

ComputeLogits = Callable[[Sequence[TokenId], Path], None]
"""Writes the logits of every one of these tokens to a file: float32 `[N, V]`, row by row."""


@dataclass(frozen=True, slots=True)
class Errors:
    """One engine against the truth, over some positions.

    Attributes:
        rms: root of the mean square of the differences of log probabilities of the truth's `NUM_TOP` likeliest tokens,
            in nats.
        largest: the largest difference among them.
        same_best: share of positions whose likeliest token is the truth's.
        divergence: mean Kullback-Leibler divergence of the engine's whole distribution from the truth's, in nats.
    """

    rms: float
    largest: float
    same_best: float
    divergence: float


@dataclass(slots=True)
class ErrorReport:
    """What came of it.

    Attributes:
        truth: the reference's backend.
        prompts: errors by engine and name of the prompt.
        total: errors by engine, over all prompts.
        notes: what failed.
    """

    truth: str
    prompts: dict[tuple[str, str], Errors] = field(default_factory=dict)
    total: dict[str, Errors] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def compare_logits(truth: NDArray[np.float32], found: NDArray[np.float32]) -> Errors:
    """Compare logits `[N, V]`, both of the same tokens."""
    num_top = min(NUM_TOP, truth.shape[1])
    expected, given = _log_softmax(truth), _log_softmax(found)
    top = np.argpartition(-expected, num_top - 1, axis=1)[:, :num_top]
    differences = np.take_along_axis(given, top, axis=1) - np.take_along_axis(expected, top, axis=1)
    return Errors(
        rms=float(np.sqrt(np.mean(differences**2))),
        largest=float(np.max(np.abs(differences))),
        same_best=float(np.mean(expected.argmax(axis=1) == given.argmax(axis=1))),
        divergence=float(np.mean(np.sum(np.exp(expected) * (expected - given), axis=1))),
    )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)), np.float64)


def join_errors(parts: Sequence[Errors]) -> Errors:
    """Errors over several prompts of as many positions each."""
    return Errors(
        rms=float(np.sqrt(np.mean([part.rms**2 for part in parts]))),
        largest=max(part.largest for part in parts),
        same_best=float(np.mean([part.same_best for part in parts])),
        divergence=float(np.mean([part.divergence for part in parts])),
    )


class ErrorBench:
    """Compares loaded engines with the reference, prompt by prompt."""

    def __init__(
        self, truth: ComputeLogits, engines: Mapping[str, ComputeLogits], *, backend: str, vocab_size: int, folder: Path
    ) -> None:
        """Nothing is run yet.

        Args:
            truth: the reference.
            engines: everyone else, by label.
            backend: the reference's name.
            vocab_size: width of the logits.
            folder: where they are written; a few hundred MB at a time, removed as they are read.
        """
        self._truth = truth
        self._engines = engines
        self._vocab_size = vocab_size
        self._file = folder / "logits"
        self._report = ErrorReport(backend)

    @property
    def num_steps(self) -> int:
        """How often `announce` is called when nothing fails."""
        return len(PROMPTS) * (len(self._engines) + 1)

    def run(self, encode: Callable[[str], Sequence[TokenId]], announce: Callable[[str], None]) -> ErrorReport:
        """Compare all.

        Args:
            encode: the model's tokenizer; every engine gets its tokens.
            announce: told what comes next.

        Raises:
            MeasurementError: the reference itself fails, or a prompt is too short in this tokenizer.
        """
        engines = dict(self._engines)
        for name, text in PROMPTS.items():
            token_ids = list(encode(text))[:NUM_POSITIONS]
            if len(token_ids) < NUM_POSITIONS:
                raise MeasurementError(f"errors: the prompt {name} has only {len(token_ids)} tokens in this model")
            announce(f"errors, {name}, reference")
            truth = self._compute(self._truth, token_ids)
            for engine, compute in list(engines.items()):
                announce(f"errors, {name}, {engine}")
                try:
                    found = self._compute(compute, token_ids)
                except MeasurementError as error:
                    del engines[engine]
                    self._report.notes.append(f"errors: {engine}: {error.message}")
                    continue
                self._report.prompts[engine, name] = compare_logits(truth, found)
        self._report.total = {
            engine: join_errors([self._report.prompts[engine, name] for name in PROMPTS]) for engine in engines
        }
        return self._report

    def _compute(self, compute: ComputeLogits, token_ids: Sequence[TokenId]) -> NDArray[np.float32]:
        try:
            compute(token_ids, self._file)
            logits = np.fromfile(self._file, np.float32)
        finally:
            self._file.unlink(missing_ok=True)
        if logits.size != len(token_ids) * self._vocab_size:
            raise MeasurementError(
                f"{logits.size} logits came for {len(token_ids)} tokens and a vocabulary of {self._vocab_size}"
            )
        return logits.reshape(len(token_ids), self._vocab_size)
