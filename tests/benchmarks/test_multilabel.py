import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import multilabel


@pytest.mark.slow
def test_the_benchmark_compares_methods(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["multilabel", "--quick"])
    multilabel.main()
    printed = capsys.readouterr().out
    assert "generated: 6 labels, 800 rows to fit, 800 to test" in printed
    assert "log loss, generated: 0.9" in printed
    (one,) = multilabel.load_sets(None)
    arrays: dict[str, Any] = dict(
        zip(("probs_cal", "labels_cal", "probs_test", "labels_test"), one[1:], strict=True)
    )
    np.savez(tmp_path / "multilabel_some.npz", **arrays)
    monkeypatch.setattr(sys, "argv", ["multilabel", str(tmp_path), "--quick", "--json"])
    multilabel.main()
    printed = json.loads(capsys.readouterr().out)
    figures = printed["calibration"]["some"]
    assert figures[multilabel.OURS]["log_loss"] < figures["Platt"]["log_loss"]
    halves = printed["recall_control"]["some"]["uncalibrated, 50 halves"]
    assert abs(halves["recall"] - 0.9) < 2 * halves["sd"]
    # The mean over halves lies between the promise and the rows of the fit, up to its error.
    error = halves["sd"] / 50**0.5
    assert 0.9 - 3 * error < halves["recall"] < halves["fitted"] + 3 * error
    assert 0.9 < halves["fitted"] < 0.9 + 6 / 401
    assert any(line.startswith("labels per row, some: ") for line in printed["verdicts"])
