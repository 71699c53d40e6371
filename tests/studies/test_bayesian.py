"""The study of frequentist and Bayesian answers: its figures, sizes and a quick run."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dubito import Logits, Probabilities
from dubito.measure import log_loss
from studies import bayesian as study


def test_weights_are_counted_and_distances_are_total_variation() -> None:
    setting = study.Setting(0, 50, 4, n_steps=1)
    rows = np.zeros((5, 10), np.float32), np.arange(5) % 3
    network, _ = study.trained(setting, rows, rows, 0.0)
    assert setting.n_weights == sum(one.numel() for one in network.parameters())
    assert setting.n_last == sum(one.numel() for one in network[-1].parameters())
    said, plain = Probabilities([[0.6, 0.3, 0.1]]), Probabilities([[0.2, 0.7, 0.1]])
    found = study.figures(np.array([0]), said, plain, 0.25)
    assert found[study.LOG_LOSS] == pytest.approx(-np.log(0.6))
    assert found[study.DISTANCE] == pytest.approx(0.4)
    assert found[study.EPISTEMIC] == 0.25


def test_training_stops_at_the_lowest_validation_loss() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 10)).astype(np.float32)
    y = rng.integers(0, 3, 60)  # nothing to learn: every step that fits the rows is one too many
    setting = study.Setting(0, 30, 16, n_steps=150)
    last, stopped = study.trained(setting, (x[:30], y[:30]), (x[30:], y[30:]), 0.0)
    losses = [log_loss(y[30:], Logits(study.logits(one, x[30:]))) for one in (last, stopped)]
    assert losses[1] < losses[0] - 0.5


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_it_runs_and_writes_tables_by_rows_and_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.main(["--quick", "--cache", str(tmp_path / "cache"), "-o", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "| 200 rows, width 8 | 187 (27) |" in printed
    assert (tmp_path / "bayesian.png").stat().st_size > 10_000
    assert torch.get_num_threads() == 1
