import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import calarena
from benchmarks.calibration_quality import Outcome
from benchmarks.datasets import generate_logits
from dubito.calibrate import TemperatureScaling


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    logits, y = generate_logits(120, 3)
    np.savez(tmp_path / "three.npz", logits=logits, labels=y)
    np.savez(tmp_path / "features.npz", X=logits, y=y)
    return tmp_path


def test_the_adapter_takes_what_calarena_passes() -> None:
    raw, y = generate_logits(200, 2)
    logits = raw.astype(float) / 8
    positive = 1 / (1 + np.exp(logits[:, 0] - logits[:, 1]))
    both = np.column_stack([1 - positive, positive])
    alone, pair, scores = (
        calarena.ArenaCalibrator(TemperatureScaling(), takes_logits=inputs is logits)
        .fit(inputs, y)
        .predict_proba(inputs)
        for inputs in (positive, both, logits)
    )
    assert alone.shape == (200, 2)
    assert np.array_equal(alone, pair)
    assert scores == pytest.approx(pair, abs=1e-6)


def test_every_registered_calibrator_can_be_made() -> None:
    made = {name: make().calibrator for name, make in calarena.CUSTOM_CALIBRATORS.items()}
    assert type(made[calarena.OURS]).__name__ == "AutoCalibrator"
    assert len(made) == 5


def test_a_method_that_fails_is_reported(folder: Path) -> None:
    def fail(inputs: object, y: object) -> None:
        raise RuntimeError("no\nsecond line")

    right = calarena.outcomes_or_errors("none", folder)
    assert isinstance(right["three"], Outcome)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(calarena.CUSTOM_CALIBRATORS, calarena.OURS, fail)
        wrong = calarena.outcomes_or_errors(calarena.OURS, folder)
    assert "TypeError" in str(wrong["three"])


def test_ratios_and_wins(folder: Path) -> None:
    found: dict[str, calarena.Results] = {
        name: {"three": Outcome(0.8, 0.4, 0.1, 0.1, 1.0)}
        for name, method in calarena.arena_methods().items()
        if method.is_installed
    }
    found[calarena.OURS] = {"three": Outcome(0.6, 0.3, 0.1, 0.1, 1.0)}
    found["scikit-learn sigmoid"] = {"three": Outcome(0.5, 0.3, 0.1, 0.1, 1.0)}
    found["scikit-learn isotonic"] = {"three": "ValueError: singular"}
    text = calarena.report(found, folder)
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "of each dataset: 1.2000 (full mixture 1.6000); lower on 0 of 1" in text
    assert "features.npz left out: no class probabilities or logits" in text
    assert "scikit-learn isotonic failed on three: ValueError: singular" in text
    assert lines["scikit-learn sigmoid"].split()[2:5] == ["1", "0.00", "1.2000"]
    assert lines["scikit-learn sigmoid"].endswith("three")
    assert lines["scikit-learn temperature"].split()[2:5] == ["1", "1.00", "0.7500"]


def test_known_peers_do_not_run_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def results(function: object, calls: list[tuple[str, Path]], **settings: int) -> Iterator[Any]:
        return (calarena.outcomes_or_errors("none", path) for _, path in calls)

    monkeypatch.setattr(calarena, "in_fresh_processes", results)
    first, second = folder / "first.json", folder / "second.json"
    monkeypatch.setattr("sys.argv", ["calarena", str(folder), "--json", str(first)])
    calarena.main()
    printed, ran = capsys.readouterr()
    assert "scikit-learn sigmoid" in ran
    assert "mean ratio to the best peer of each dataset: 1.0000" in printed
    command = ["calarena", str(folder), "--reuse", str(first), "--json", str(second)]
    monkeypatch.setattr("sys.argv", command)
    calarena.main()
    assert capsys.readouterr().err.split() == list(calarena.CUSTOM_CALIBRATORS)
    assert json.loads(second.read_text()).keys() == json.loads(first.read_text()).keys()


def test_a_folder_without_outputs_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["calarena", str(tmp_path)])
    with pytest.raises(SystemExit):
        calarena.main()
    assert "has no NPZ file of class probabilities" in capsys.readouterr().err
