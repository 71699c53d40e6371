import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import confidence


@pytest.mark.slow
def test_the_benchmark_compares_methods(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["confidence", "--quick"])
    confidence.main()
    printed = capsys.readouterr().out
    assert "generated: 3 models, 300 rows to fit, 600 to test" in printed
    (one,) = confidence.load_sets(None)
    np.savez(tmp_path / "cascade_some.npz", confidence_test=one[1], correct_test=one[2])
    monkeypatch.setattr(sys, "argv", ["confidence", str(tmp_path), "--quick", "--json"])
    confidence.main()
    found = json.loads(capsys.readouterr().out)
    rows = found["figures"]["some"]
    assert f"{rows['Platt']['log_loss']:.4f}" in printed
    assert rows[confidence.SEVERAL]["log_loss"] < rows[confidence.OURS]["log_loss"]
    assert rows[confidence.OURS]["log_loss"] < rows["uncalibrated"]["log_loss"]
    assert "models and metrics above uncalibrated: 0 (at most 0)" in found["verdicts"]
