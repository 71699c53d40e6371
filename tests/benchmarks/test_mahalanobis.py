import sys

import pytest

from benchmarks import mahalanobis


def test_the_benchmark_prints_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mahalanobis", "--quick"])
    mahalanobis.main()
    printed = capsys.readouterr().out
    assert "x ours  peak memory" in printed
    assert "loop, ready whitened" in printed
    assert "furthest from the plain loop in float64" in printed
