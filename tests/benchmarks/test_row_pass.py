import sys

import pytest

from benchmarks import row_pass


def test_the_benchmark_prints_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["row_pass", "--quick"])
    row_pass.main()
    printed = capsys.readouterr().out
    assert "x numpy.sum" in printed
    assert "scikit-learn log_loss" in printed
    assert "1,000 resamples of ECE" in printed
