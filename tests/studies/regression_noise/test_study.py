"""The study of regression noise runs, and its figures are those of SciPy."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from dubito import Normal
from studies.regression_noise.data import noisy_sine
from studies.regression_noise.minkowski import POWERS
from studies.regression_noise.reporting import METHODS, TASKS
from studies.regression_noise.study import figures_of, main


def test_it_prints_a_table_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--cache", str(tmp_path), "-o", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(lines) == len(TASKS) * (2 * len(METHODS) + 2) + len(POWERS) + 2
    assert printed.count("Paired differences, with 95 % intervals") == len(TASKS)
    assert (tmp_path / "out" / "regression_noise.png").stat().st_size > 10_000
    for path in (tmp_path / "regression_noise-quick").glob("*sine*.npz"):
        figures = np.load(path)["figures"]
        assert figures.shape == (len(METHODS), 2, 5)
        # A factor for deviations moves no mean.
        assert (figures[:, 0, 0] == figures[:, 1, 0]).all()
        # Fitted on other rows, it changes the likelihood of these.
        assert (figures[:, 0, 1] != figures[:, 1, 1]).all()


def test_figures_are_those_of_scipy() -> None:
    rows = noisy_sine(400, np.random.default_rng(0))
    assert rows.std is not None
    mean, std = np.zeros(400), np.full(400, 2.0)
    found = figures_of(rows, Normal(mean, std))
    shares = [
        np.mean(np.abs(rows.y / 2) < stats.norm.ppf((1 + q) / 2)) for q in (0.5, 0.8, 0.9, 0.95)
    ]
    expected = [
        np.sqrt(np.mean(rows.y**2)),
        -stats.norm(0, 2).logpdf(rows.y).mean(),
        shares[2],
        np.abs(np.array(shares) - [0.5, 0.8, 0.9, 0.95]).mean(),
        np.sqrt(np.mean((np.log(2) - np.log(rows.std)) ** 2)),
    ]
    assert found == pytest.approx(expected)
