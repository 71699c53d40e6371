"""The study of frequentist and Bayesian answers: its figures, sizes and a quick run."""

from pathlib import Path

import numpy as np
import pytest
import torch

from studies import bayesian as study


def test_weights_are_counted_and_distances_are_total_variation() -> None:
    setting = study.Setting(0, 50, 4, n_steps=1)
    network = study.trained(setting, np.zeros((5, 10), np.float32), np.arange(5) % 3, 0.0)
    assert setting.n_weights == sum(one.numel() for one in network.parameters())
    said, plain = np.array([[0.5, 0.5, 0.0]]), np.array([[0.2, 0.7, 0.1]])
    said[0] = [0.6, 0.3, 0.1]
    found = study.figures(np.array([0]), said, plain, 0.25)
    assert found[study.LOG_LOSS] == pytest.approx(-np.log(0.6))
    assert found[study.DISTANCE] == pytest.approx(0.4)
    assert found[study.EPISTEMIC] == 0.25


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_it_runs_and_writes_tables_by_rows_and_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.main(["--quick", "--cache", str(tmp_path / "cache"), "-o", str(tmp_path)])
    printed = capsys.readouterr().out
    assert "| 200 rows, width 8 | 1.1 |" in printed
    assert (tmp_path / "bayesian.png").stat().st_size > 10_000
    assert torch.get_num_threads() == 1
