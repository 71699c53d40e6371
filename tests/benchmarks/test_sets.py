"""The benchmark of sets evaluates by its definitions, runs on a folder and on generated rows."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.sets import OURS, generated, judged, main


def test_figures_are_those_of_their_definitions() -> None:
    contains = np.zeros((130, 4), dtype=bool)
    contains[:60, 0] = True  # size 1, 54 of 60 covered
    contains[60:120, :2] = True  # size 2, 45 of 60 covered
    contains[120:, :3] = True  # size 3, none of 10 covered: too few rows for a stratum
    y = np.array([0] * 54 + [3] * 6 + [1] * 45 + [3] * 15 + [3] * 10)
    found = judged(contains, y)
    assert found.size == pytest.approx((60 + 120 + 30) / 130)
    assert found.coverage == pytest.approx(99 / 130)
    assert found.violation == pytest.approx(0.15)
    assert found.violation_in_bins == pytest.approx(0.9 - 45 / 70)
    assert found.class_gap == pytest.approx((0.1 + 0.1 + 0.9) / 3)


@pytest.mark.slow
def test_it_runs_on_a_folder_and_on_generated_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    p, y = generated(300, 10)
    np.savez(tmp_path / "cifar100_made.npz", logprobs=np.log(p), labels=y)
    monkeypatch.setattr("benchmarks.sets.speeds", lambda *_: {"dubito LAC": (0.1, 0.2)})
    monkeypatch.setattr(sys, "argv", ["sets", str(tmp_path), "--quick", "--json"])
    main()
    found = json.loads(capsys.readouterr().out)["sets"]["made"]
    assert found.keys() == OURS.keys()
    assert all(0.8 < row["coverage"] < 1 for row in found.values())
    monkeypatch.setattr(sys, "argv", ["sets", "--quick"])
    main()
    printed = capsys.readouterr().out
    assert "generated: 1,200 rows, 20 classes, 3 halves at 90%" in printed
    assert "dubito SAPS, tuned" in printed
