import sys
from pathlib import Path

import pytest

from benchmarks import calibration_speed


def test_the_benchmark_prints_and_writes_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "tables" / "speed.txt"
    monkeypatch.setattr(sys, "argv", ["calibration_speed", "--quick", "-o", str(path)])
    calibration_speed.main()
    printed = capsys.readouterr().out
    assert path.read_text() == printed
    assert "Temperature, 1,000 x 50" in printed
    assert "dubito IsotonicCalibration" in printed
    assert "scikit-learn isotonic" in printed
    assert "error of T: dubito TemperatureScaling" in printed
    assert "Selection, 100 x 3" in printed
    assert "Selection, 1,000 x 5" in printed
    assert "processors used by other processes" in printed
