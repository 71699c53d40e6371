import sys

import pytest

from benchmarks import policy_decide
from dubito import Logits
from dubito.calibrate import TemperatureScaling


def test_the_benchmark_prints_ratios(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["policy_decide", "--quick"])
    policy_decide.main()
    printed = capsys.readouterr().out
    assert "10,000 x 10 float32 logits" in printed
    assert "x softmax" in printed
    for name in policy_decide.CALIBRATORS:
        assert f"Policy.decide, {name} " in printed
    assert "MB in, decisions" in printed


def test_both_sides_decide_the_same() -> None:
    policy = policy_decide.fitted(TemperatureScaling(), 500)
    logits, _ = policy_decide.some_rows(2_000)
    assert policy_decide.disagreement(policy, logits) < 0.001
    decisions = policy.decide(Logits(logits))
    assert 0.05 < decisions.is_rejected.mean() < 0.3
    assert policy_decide.size_of(decisions) == pytest.approx(6 * 8 * 2_000 / 2**20)
