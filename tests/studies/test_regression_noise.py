"""The study of regression noise runs, and its figures are those of plain NumPy and SciPy."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from dubito import Normal
from studies.minkowski import NOISE, POWERS, known_centre, minkowski_loss, skewed_rows
from studies.regression_data import Sizes, noisy_sine, parts_of, quiet_sine
from studies.regression_noise import figures_of, main
from studies.regression_telling import METHODS, TASKS, power_table, task_table


def test_it_prints_a_table_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--cache", str(tmp_path), "-o", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(lines) == len(TASKS) * (2 * len(METHODS) + 2) + len(POWERS) + 2
    assert printed.count("Differences of the same seed") == len(TASKS)
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


@pytest.mark.parametrize("draw", [noisy_sine, quiet_sine])
def test_known_noise_is_that_of_the_rows(draw: object) -> None:
    rows = draw(20_000, np.random.default_rng(1))  # type: ignore[operator]
    scores = (rows.y - rows.mean) / rows.std
    assert stats.kstest(scores, "norm").pvalue > 0.01


@pytest.mark.parametrize("task", TASKS)
def test_rows_to_judge_by_are_the_same_for_all_seeds(task: str) -> None:
    first, other = (parts_of(task, Sizes(200, 100, 142), seed) for seed in (0, 1))
    assert [len(part.y) for part in first] == [200, 100, 142]
    assert first.test.y.tolist() == other.test.y.tolist()
    assert first.train.y.tolist() != other.train.y.tolist()


def test_parts_of_diabetes_do_not_mix() -> None:
    parts = parts_of("diabetes", Sizes(200, 100, 142), seed=0)
    scale = np.concatenate([part.features for part in parts])
    assert len(np.unique(scale, axis=0)) == 442
    assert parts.train.features.mean(axis=0) == pytest.approx(0, abs=1e-9)
    assert parts.train.features.std(axis=0) == pytest.approx(1)


def test_centres_are_median_and_mean_and_near_the_midrange() -> None:
    assert known_centre(1) == pytest.approx(NOISE.median(), abs=1e-6)
    assert known_centre(2) == pytest.approx(NOISE.mean(), abs=1e-6)
    grid = np.linspace(0, 1, 2_001)
    draws = NOISE.ppf((np.arange(4_000) + 0.5) / 4_000)
    for power in (1.5, 4.0):
        losses = [np.mean(np.abs(draws - centre) ** power) for centre in grid]
        assert known_centre(power) == pytest.approx(grid[np.argmin(losses)], abs=1e-3)
    assert known_centre(16) < known_centre(60) < 0.5


@pytest.mark.parametrize("power", POWERS)
def test_the_loss_is_the_norm_and_its_slope_is_that_of_the_powers(power: float) -> None:
    generator = torch.Generator().manual_seed(0)
    y = 3 * torch.randn(50, generator=generator, dtype=torch.float64)
    outputs = torch.zeros(50, 1, dtype=torch.float64, requires_grad=True)
    loss = minkowski_loss(outputs, y, power)
    assert loss.item() == pytest.approx(np.linalg.norm(y.numpy(), power) / 50 ** (1 / power))
    torch.autograd.backward(loss)
    assert outputs.grad is not None
    slope = -np.sign(y.numpy()) * np.abs(y.numpy()) ** (power - 1)
    ratio = outputs.grad.squeeze(1).numpy() / slope
    assert ratio == pytest.approx(ratio[0])


def test_skewed_noise_has_its_quantiles() -> None:
    _, y, sine = skewed_rows(20_000, np.random.default_rng(2))
    assert stats.kstest(y - sine, NOISE.cdf).pvalue > 0.01


def test_tables_show_means_over_seeds() -> None:
    figures = np.zeros((2, len(METHODS), 2, 5))
    figures[:, 1, 1, 2] = [0.8, 0.9]
    row = task_table("diabetes", figures).splitlines()[2 + 3]
    assert row.startswith("| NLL, scaled | 0.00 ± 0.00 | 0.000 ± 0.000 | 0.850 ± 0.071 |")
    found = np.full((2, len(POWERS)), 0.2)
    row = power_table(found, found, found).splitlines()[2 + 2]
    assert row.startswith("| 2 | 0.200 | 0.200 ± 0.000 |")
