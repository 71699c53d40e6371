import json
import sys

import numpy as np
import pytest

from benchmarks import forecasts


@pytest.mark.slow
def test_the_benchmark_compares_methods(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["forecasts", "--quick", "--json"])
    forecasts.main()
    printed = json.loads(capsys.readouterr().out)
    rows = printed["panels"]["generated"]
    assert rows["uncalibrated"]["score"] == 1.0
    assert rows[forecasts.OURS]["score"] < 1
    assert abs(printed["series"]["generated"][forecasts.OURS]["coverage"] - 0.9) < 0.05


def test_interval_scores_are_winklers() -> None:
    bounds = np.array([0.0, 0.0]), np.array([1.0, 2.0])
    found = forecasts.interval_scores(bounds, np.array([0.5, 3.0]))
    assert found == pytest.approx([1.0, 2.0 + 20.0])
