"""The benchmark of costs by row: its methods, by hand, on a few rows and on a small file."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.row_costs import OURS, Part, main, summary, threshold_of


def part_of(p: list[float], y: list[int], fp: float, fn: float) -> Part:
    n = len(p)
    costs = {"fp": np.full(n, fp), "fn": np.full(n, fn), "tp": np.zeros(n), "tn": np.zeros(n)}
    return Part(np.array(p), np.array(y), costs)


def test_the_threshold_is_the_cheapest_and_divides_no_tie() -> None:
    part = part_of([0.1, 0.4, 0.4, 0.8], [0, 1, 0, 1], fp=1, fn=3)
    found = threshold_of(part)
    assert found == 0.4
    costs = [part.paid(part.p >= t) for t in (0.0, 0.1, 0.4, 0.8, np.inf)]
    assert part.paid(part.p >= found) == min(costs) == 1
    assert threshold_of(part_of([0.9, 0.2], [0, 0], 1, 1)) == np.inf


def test_the_action_of_least_cost() -> None:
    part = part_of([0.1, 0.3, 0.5], [0, 0, 1], fp=1, fn=4)
    assert part.least(part.p).tolist() == [False, True, True]  # from 1 / (1 + 4) on
    assert part.paid(part.least(part.p)) == 1


def test_the_summary_compares_with_the_best() -> None:
    names = ["argmax", "one threshold", "raw", "sigmoid", "isotonic"]
    first = {**dict.fromkeys(names, 1.0), "beta": 0.5, OURS: 0.5}
    second = {**dict.fromkeys(names, 0.8), "beta": 0.9, OURS: 0.7}
    found = summary({"a": first, "b": second})
    assert found["ratios_to_best"] == pytest.approx({"a": 1.0, "b": 0.875})
    assert found["best_single_method"] == "beta"
    assert found["mean_ratio"] == pytest.approx(0.6 / 0.7)
    assert found["is_within_limits"]


@pytest.mark.slow
def test_a_folder_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for part in ("val", "test"):
        p = rng.beta(1, 5, 400)
        arrays |= {f"probs_{part}": p, f"y_{part}": rng.random(400) < p}
        costs = np.column_stack([np.ones(400), rng.lognormal(1, 1, 400), np.zeros((400, 2))])
        arrays[f"cost_mat_{part}"] = costs
    np.savez(tmp_path / "costs_made.npz", **arrays)
    monkeypatch.setattr(sys, "argv", ["row_costs", str(tmp_path), "--json"])
    main()
    one = json.loads(capsys.readouterr().out)["sets"]["made"]
    assert one[OURS] < one["one threshold"] < one["argmax"]
    assert max(one[OURS], one["raw"], one["beta"]) < one["one threshold"]
    monkeypatch.setattr(sys, "argv", ["row_costs", str(tmp_path)])
    main()
    assert "mean over sets, to the best single method" in capsys.readouterr().out
