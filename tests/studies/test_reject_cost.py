"""The study of a reject cost decides the benchmarks' halves, and its words follow its figures."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from benchmarks.datasets import generate_logits, small_datasets
from dubito import Probabilities
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, cost_savings
from dubito.measure import Interval
from studies import reject_cost as study


def made() -> tuple[FloatArray, IntArray]:
    logits, y = generate_logits(600, 4)
    return softmax(logits.astype(float), axis=1), y


def paid(probabilities: FloatArray, y: IntArray) -> float:
    is_asked = 1 - probabilities.max(axis=1) >= study.REJECT_COST
    is_wrong = probabilities.argmax(axis=1) != y
    return float(np.where(is_asked, study.REJECT_COST, is_wrong).mean())


def test_halves_are_those_of_the_benchmarks() -> None:
    entry = next(small_datasets())
    for ours, theirs in zip(study.halves(entry.y.size), entry.splits, strict=True):
        assert all((one == other).all() for one, other in zip(ours, theirs, strict=True))


def test_costs_are_those_of_rejecting_by_hand() -> None:
    probabilities, y = made()
    found = study.saved(Probabilities(probabilities), y, TemperatureScaling)
    for one, (fit, rest) in zip(found, study.halves(y.size), strict=True):
        scaling = TemperatureScaling().fit(Probabilities(probabilities[fit]), y[fit])
        after = scaling.predict_proba(Probabilities(probabilities[rest]))
        assert one.before == pytest.approx(paid(probabilities[rest], y[rest]))
        assert one.after == pytest.approx(paid(after, y[rest]))
        assert one.gap_before.value == pytest.approx(
            np.minimum(1 - probabilities[rest].max(axis=1), study.REJECT_COST).mean() - one.before
        )


def test_a_figure_above_its_bound_is_said_to_be() -> None:
    probabilities, y = made()
    costs = CostMatrix.zero_one(4).with_reject(study.REJECT_COST)
    outputs = Probabilities(probabilities)
    found = [cost_savings(y, outputs, outputs, costs, n_resamples=100)] * 2
    small, large = Interval(0.4, 0.3, 0.5), Interval(0.7, 0.6, 0.8)
    fine = [replace(one, ratio=small, gap_ratio=small) for one in found]
    words = "\n".join(study.verdict("it", fine))
    assert "largest ratio is 0.400,\n  its interval to 0.500: within the 0.62" in words
    assert "0.400 of the gap before,\n  its interval to 0.500: within the 0.5" in words
    for key, bound in {"ratio": 0.62, "gap_ratio": 0.5}.items():
        ratios = {"ratio": small, "gap_ratio": small} | {key: large}
        bad = [*fine[:-1], replace(fine[-1], ratio=ratios["ratio"], gap_ratio=ratios["gap_ratio"])]
        assert f"ABOVE the {bound} that was required" in "\n".join(study.verdict("it", bad))


def test_it_prints_and_writes_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    probabilities, y = made()
    np.savez(tmp_path / study.FILE, probs=probabilities.astype(np.float32), labels=y)
    study.main([str(tmp_path), "-o", str(tmp_path / "table.txt")])
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "table.txt").read_text()
    assert printed.startswith("600 rows, reject at 0.05 where an error costs 1; 5 halves;\n")
    assert "AutoCalibrator: " in printed
