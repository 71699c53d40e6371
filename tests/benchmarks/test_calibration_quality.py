import json
import sys
from pathlib import Path

import pytest

from benchmarks import calibration_quality
from benchmarks.peers import PEERS


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["calibration_quality", *arguments])
    calibration_quality.main()


def test_the_benchmark_prints_and_writes_its_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, cache = tmp_path / "quality.txt", tmp_path / "peers.json"
    run(monkeypatch, "--quick", "-o", str(path), "--cache", str(cache))
    printed, errors = capsys.readouterr()
    assert path.read_text() == printed
    assert "generated, 4 classes" in printed
    assert "below the best peer there on" in printed
    assert "scikit-learn temperature" in errors
    kept = json.loads(cache.read_text())
    assert "scikit-learn temperature" in kept
    assert not any(name.startswith("dubito") for name in kept)


def test_cached_peers_are_not_run_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cache = tmp_path / "peers.json"
    names = {"generated, 2 classes": [9.0] * 5, "generated, 4 classes": [9.0] * 5}
    cache.write_text(json.dumps(dict.fromkeys(PEERS, names)))
    run(monkeypatch, "--quick", "--cache", str(cache))
    printed, errors = capsys.readouterr()
    assert "scikit-learn" not in errors
    assert "9.00000" in printed


def test_a_folder_or_quick_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        run(monkeypatch)
