"""The study of segmentation runs, and separates kinds of uncertainty."""

from pathlib import Path

import numpy as np
import pytest

from studies.segmentation.mean_teacher import WEIGHTS
from studies.segmentation.reporting import ASKED, SCORES
from studies.segmentation.study import main, separation


def test_it_prints_its_tables(
    tmp_path: Path, blocks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--folder", str(blocks), "--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", *where])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == (2 * len(ASKED) * len(SCORES) + 2) + (4 + 2) + (1 + len(WEIGHTS) + 2)
    assert (tmp_path / "out" / "segmentation.png").stat().st_size > 10_000
    runs = [
        dict(np.load(path)) for path in (tmp_path / "segmentation-quick").glob("Uncertainty*.npz")
    ]
    assert len(runs) == 2
    for one in runs:
        assert one["aurocs"].shape == (2, 3, 3)
        assert ((one["aurocs"] >= 0) & (one["aurocs"] <= 1)).all()
        aleatoric, epistemic, total = np.moveaxis(one["means"], -1, 0)
        assert aleatoric + epistemic == pytest.approx(total, abs=1e-6)


def test_auroc_asks_which_of_two_pixels_has_more_doubt() -> None:
    assert separation(np.array([3.0, 2.0]), np.array([1.0, 2.0])) == pytest.approx(3.5 / 4)
