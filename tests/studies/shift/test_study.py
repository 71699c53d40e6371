"""The study of shift runs, and its figures obey what must hold of any networks."""

from pathlib import Path

import numpy as np
import pytest

from dubito.learn import CORRUPTIONS
from studies.shift.reporting import METHODS
from studies.shift.study import main

ACCURACY, ECE, LOG_LOSS = range(3)


def test_it_prints_tables_of_figures_that_can_be(
    fashion_mnist_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--folder", str(fashion_mnist_folder), "--cache", str(tmp_path)]
    main(["--quick", *places, "-o", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert len(lines) == 5 * (len(METHODS) + 2) + len(CORRUPTIONS) + 2
    assert all(line.count("|") == 8 for line in lines[: 4 * (len(METHODS) + 2)])
    assert "Of 25 shifts (corruption, severity, seed), lowest log loss: " in printed
    assert (tmp_path / "out" / "shift.png").stat().st_size > 10_000

    (path,) = (tmp_path / "shift-quick").glob("*.npz")
    figures = np.load(path)["figures"]
    assert figures.shape == (len(METHODS), len(CORRUPTIONS), 6, 3)
    plain, scaled, _, _, ensemble, both = figures
    clean = figures[:, :, 0]
    assert (clean == clean[:, :1]).all()
    # No temperature changes a class, and a mean of members never has more loss than they have.
    assert scaled[..., ACCURACY] == pytest.approx(plain[..., ACCURACY])
    assert both[..., ACCURACY] == pytest.approx(ensemble[..., ACCURACY])
    assert (ensemble[..., LOG_LOSS] < plain[..., LOG_LOSS]).all()
    assert ((figures[..., ECE] >= 0) & (figures[..., ECE] <= 1)).all()
