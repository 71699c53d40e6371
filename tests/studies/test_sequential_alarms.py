"""False alarms stay below their level, drift is found, and the study prints both."""

import sys

import numpy as np
import pytest

from studies import sequential_alarms as study


def test_false_alarms_are_as_rare_as_promised_and_drift_is_found_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study, "N_LABELS", 3000)
    for case in ("calibrated", "calibrated, some labels"):
        assert study.outcome_of(case, 60, seed=1).fraction <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / 60)
    sharp = study.outcome_of("1.5x too sharp", 40, seed=1)
    assert sharp.fraction == 1.0
    assert sharp.median is not None
    assert sharp.most is not None
    assert 20 < sharp.median < sharp.most < 300


def test_rows_have_the_requested_calibration_and_sampling_weights() -> None:
    rng = np.random.default_rng(0)
    confidence, is_correct = study.labels(rng, 100_000, 1.0)
    assert confidence.mean() == pytest.approx(is_correct.mean(), abs=0.005)
    sharp, right = study.labels(rng, 100_000, 1.5)
    assert sharp.mean() > right.mean() + 0.05
    stated, found, weight = study.sampled_labels(rng, 100_000, 1.0)
    assert weight @ (stated - found) / weight.sum() == pytest.approx(0, abs=0.02)
    assert weight.sum() == pytest.approx(100_000, rel=0.05)


def test_it_prints_what_it_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "outcome_of", lambda case, n_runs: study.Outcome(0.5, 80, None))
    monkeypatch.setattr(sys, "argv", ["sequential_alarms", "--quick"])
    study.main()
    printed = capsys.readouterr().out
    assert "1.5x is detected after 80 labels" in printed
    assert "100 runs of at most 10,000 labels" in printed
    assert printed.splitlines()[-1].split()[-3:] == ["50.0%", "80", "-"]
