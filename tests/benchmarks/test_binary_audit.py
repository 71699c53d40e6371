import sys

import pytest

from benchmarks import binary_audit


@pytest.mark.slow
def test_the_benchmark_prints_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["binary_audit", "--quick"])
    binary_audit.main()
    printed = capsys.readouterr().out
    assert "5,000 x 2 probabilities" in printed
    assert "x scikit-learn (at most 3)" in printed
    assert "bootstrap intervals: " in printed
