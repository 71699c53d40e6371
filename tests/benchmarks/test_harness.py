import os

import numpy as np
import pytest

from benchmarks.harness import evaluate, in_fresh_process, other_cpu_seconds
from dubito.measure import brier_score, expected_calibration_error, log_loss


def process_and_threads() -> tuple[int, str | None]:
    return os.getpid(), os.getenv("OMP_NUM_THREADS")


def test_a_fresh_process_has_its_own_threads_and_leaves_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    process, n_threads = in_fresh_process(process_and_threads)
    assert process != os.getpid()
    assert n_threads == "2"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "MKL_NUM_THREADS" not in os.environ


def test_figures_are_those_of_dubito() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(4), 300), rng.integers(0, 4, 300)
    found = evaluate(p, y)
    assert found.log_loss == pytest.approx(log_loss(y, p))
    assert found.brier == pytest.approx(brier_score(y, p))
    assert found.ece == pytest.approx(expected_calibration_error(y, p))


def test_zeros_that_come_true_are_finite_and_no_number_is_the_worst() -> None:
    assert evaluate(np.eye(2), np.array([1, 1])).log_loss == pytest.approx(-np.log(1e-12) / 2)
    assert evaluate(np.full((2, 2), np.nan), np.array([0, 1])).log_loss == np.inf


def test_our_own_work_is_not_that_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    before, mine = other_cpu_seconds(), os.times()
    more = os.times_result((mine.user + 1e6, mine.system, 0, 0, 0))
    monkeypatch.setattr(os, "times", lambda: more)
    assert other_cpu_seconds() < before - 9e5
