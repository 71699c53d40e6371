import re
import sys

import pytest

from benchmarks import neighbors


def test_the_benchmark_prints_ratios_of_the_same_distances(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["neighbors", "--quick"])
    neighbors.main()
    printed = capsys.readouterr().out
    assert "x dubito" in printed
    assert "scikit-learn NearestNeighbors" in printed
    gap = re.search(r"largest gap between the two: (\S+)", printed)
    assert gap is not None
    assert float(gap[1]) < 1e-6
