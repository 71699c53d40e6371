import sys

import numpy as np
import pytest

from benchmarks import uncertainty_scores


def test_the_benchmark_prints_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["uncertainty_scores", "--quick"])
    uncertainty_scores.main()
    printed = capsys.readouterr().out
    assert "500 x 1,000 float32 logits" in printed
    assert "x numpy.sum" in printed
    assert "SciPy, softmax and entropy" in printed
    assert "x faster than two of SciPy's" in printed


def test_both_sides_say_the_same() -> None:
    logits = uncertainty_scores.some_logits(50, 100).astype(np.float64)
    off = uncertainty_scores.largest_differences(logits)
    assert len(off) == 4
    assert max(off.values()) < 1e-12
    least, entropy = uncertainty_scores.of_scipy(logits)
    every = uncertainty_scores.all_of_scipy(logits)
    assert np.allclose(least, every[0])
    assert np.allclose(entropy, every[1])
