import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from memra.cli_bench.error_bench import NUM_POSITIONS, NUM_TOP, ErrorBench, compare_logits
from memra.cli_bench.error_prompts import PROMPTS
from memra.errors import MeasurementError

VOCAB_SIZE = 300


def _logits(seed: int, num_rows: int = NUM_POSITIONS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num_rows, VOCAB_SIZE)).astype(np.float32)


def test_the_truth_has_no_error():
    errors = compare_logits(_logits(1), _logits(1))
    assert (errors.rms, errors.largest, errors.same_best, errors.divergence) == (0.0, 0.0, 1.0, 0.0)


def test_what_softmax_takes_away_is_no_error():
    assert compare_logits(_logits(1), _logits(1) + np.float32(4)).rms == pytest.approx(0, abs=1e-5)


def test_a_known_difference_is_found():
    truth = np.log(np.array([[0.5, 0.25, 0.25]], np.float32))
    found = np.log(np.array([[0.25, 0.5, 0.25]], np.float32))
    errors = compare_logits(truth, found)
    assert errors.rms == pytest.approx(math.log(2) * math.sqrt(2 / 3))
    assert errors.largest == pytest.approx(math.log(2))
    assert errors.divergence == pytest.approx(0.25 * math.log(2))
    assert errors.same_best == 0.0


def test_tokens_that_the_truth_does_not_rank_high_do_not_count():
    truth = np.concatenate([np.full((1, NUM_TOP), 20, np.float32), np.zeros((1, 50), np.float32)], axis=1)
    found = truth.copy()
    found[:, NUM_TOP:] = -5
    assert compare_logits(truth, found).largest < 1e-6


class Engine:
    """Writes fixed logits, some of them wrong, and remembers which tokens it was asked for."""

    def __init__(self, noise: float = 0.0) -> None:
        self.noise = noise
        self.token_ids: list[list[int]] = []

    def __call__(self, token_ids: Sequence[int], file: Path) -> None:
        self.token_ids.append(list(token_ids))
        logits = _logits(len(self.token_ids), len(token_ids))
        (logits + np.float32(self.noise) * _logits(77, len(token_ids))).tofile(file)


def _encode(text: str) -> list[int]:
    return list(range(len(text.split()) + 30))


def _bench(engines: dict, folder: Path, *, truth: Engine | None = None) -> ErrorBench:
    return ErrorBench(truth or Engine(), engines, backend="torch", vocab_size=VOCAB_SIZE, folder=folder)


def test_engines_get_the_same_tokens_and_stand_side_by_side(tmp_path: Path):
    truth, near, far, said = Engine(), Engine(0.01), Engine(0.1), []
    bench = _bench({"near": near, "far": far}, tmp_path, truth=truth)
    report = bench.run(_encode, said.append)
    assert truth.token_ids == near.token_ids == far.token_ids == [list(range(NUM_POSITIONS))] * len(PROMPTS)
    assert len(said) == bench.num_steps
    assert report.total["far"].rms == pytest.approx(10 * report.total["near"].rms, rel=0.1)
    assert report.total["far"].largest == max(report.prompts["far", name].largest for name in PROMPTS)
    assert list(tmp_path.iterdir()) == []


def test_an_engine_that_fails_is_noted_and_the_others_go_on(tmp_path: Path):
    def fail(_: Sequence[int], __: Path) -> None:
        raise MeasurementError("was ended by SIGSEGV")

    report = _bench({"broken": fail, "cpu": Engine()}, tmp_path).run(_encode, lambda _: None)
    assert report.notes == ["errors: broken: was ended by SIGSEGV"]
    assert list(report.total) == ["cpu"]


def test_logits_of_another_width_are_refused(tmp_path: Path):
    def write_few(token_ids: Sequence[int], file: Path) -> None:
        np.zeros((len(token_ids), 7), np.float32).tofile(file)

    report = _bench({"other": write_few}, tmp_path).run(_encode, lambda _: None)
    assert report.notes == [f"errors: other: {7 * NUM_POSITIONS} logits came for 64 tokens and a vocabulary of 300"]


def test_a_prompt_with_too_few_tokens_is_an_error(tmp_path: Path):
    with pytest.raises(MeasurementError, match="only 3 tokens"):
        _bench({}, tmp_path).run(lambda _: [1, 2, 3], lambda _: None)
