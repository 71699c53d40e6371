import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import intervals


@pytest.mark.slow
def test_the_benchmark_compares_methods(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["intervals", "--quick"])
    intervals.main()
    printed = capsys.readouterr().out
    assert "generated, Quantiles: 3 splits, 600 rows to fit, 600 to test" in printed
    (one,) = intervals.load_sets(None)
    arrays: dict[str, Any] = {"levels": one.levels}
    for name in ("y", "quantiles", "mean", "std", "features"):
        arrays[f"cal_{name}"], arrays[f"test_{name}"] = np.split(getattr(one, name), [600])
    np.savez(tmp_path / "reg_some.npz", **arrays)
    monkeypatch.setattr(sys, "argv", ["intervals", str(tmp_path), "--quick", "--json"])
    intervals.main()
    found = json.loads(capsys.readouterr().out)
    for kind in ("Quantiles", "Normal"):
        rows = found["intervals"][f"some, {kind}"]
        ours, absolute = rows[intervals.OURS], rows["absolute residuals"]
        assert ours["interval_score"] < 0.9 * absolute["interval_score"]
        assert all(abs(row["coverage"] - 0.9) < 0.03 for row in rows.values())
        assert absolute["worst_slab"] < 0.75 < ours["worst_slab"]
    # The same figures as printed, to its digits.
    assert f"{ours['interval_score']:.3f}" in printed


def test_the_worst_slab_is_judged_where_a_limit_is_set() -> None:
    others = {"MAPIE": intervals.Figures(0.9, 1.0, 1.0, 0.8, 0.1)}
    for name, coverage, word in (
        ("bike", 0.866, "below 0.87"),
        ("concrete", 0.86, "at least 0.85"),
    ):
        [line] = intervals.verdicts(
            {
                f"{name}, Normal": {
                    intervals.OURS: intervals.Figures(0.9, 1, 1, coverage, 0.1),
                    **others,
                }
            }
        )
        assert word in line
    [line] = intervals.verdicts(
        {"wine": {intervals.OURS: intervals.Figures(0.9, 1.0, 1.0, 0.5, 0.1), **others}}
    )
    assert "below" not in line
