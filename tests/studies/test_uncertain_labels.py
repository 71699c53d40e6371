"""The study of uncertain labels: marks, policies, and differences paired by seed."""

from pathlib import Path

import numpy as np
import pytest

from studies.uncertain_labels import (
    MECHANISMS,
    POLICIES,
    UNMARKED,
    Setting,
    compared,
    draw_rows,
    main,
    mark,
    words,
)


@pytest.mark.slow
def test_quick_compares_every_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--quick", "--cache", str(tmp_path), "-o", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    tables = [part for part in printed.split("\n\n") if part.startswith("| ")]
    assert [len(table.splitlines()) for table in tables] == [2 + 7] * len(MECHANISMS)
    assert "nan" not in printed
    assert (tmp_path / "out" / "uncertain_labels.png").stat().st_size > 10_000


def test_marks_depend_on_the_mechanism() -> None:
    rows = draw_rows(5000, seed=0)
    assert rows.y.mean(axis=0) == pytest.approx(rows.p.mean(axis=0), abs=0.03)
    rates = {}
    for mechanism in MECHANISMS:
        marks = mark(rows, mechanism, seed=0)
        assert (marks == rows.y)[marks != -1].all()
        is_marked = marks == -1
        rates[mechanism] = [is_marked[rows.y == label].mean() for label in (0, 1)]
        if mechanism == "hard to tell":
            is_hard = np.abs(rows.p - 0.5) < 0.1
            assert is_marked[is_hard].mean() > 0.8
            assert is_marked[(rows.p < 0.05)].mean() < 0.2
    assert rates["at random"] == pytest.approx([0.3, 0.3], abs=0.02)
    assert rates["mainly positive"] == pytest.approx([0.1, 0.6], abs=0.02)
    assert rates["mainly negative"] == pytest.approx([0.4, 0.1], abs=0.02)


def test_differences_are_paired_by_seed() -> None:
    names = ("ROC-AUC", "log loss", "ECE", "log loss, calibrated", "ECE, calibrated")
    found = {}
    for seed in range(3):
        for mechanism in MECHANISMS:
            for k, policy in enumerate((UNMARKED, *POLICIES)):
                values = {name: np.array(seed + 0.1 * k) for name in names}
                found[Setting(mechanism, policy, seed)] = values
    rows = list(compared(found))
    assert len(rows) == len(MECHANISMS) * 7
    ones = next(row for row in rows if row.policy == "ones")
    gap = ones.difference("log loss")
    assert (gap.low, gap.value, gap.high) == pytest.approx((0.2, 0.2, 0.2))
    assert "log loss ignore to multi-class, 0.500 apart" in words(rows)
    assert "ROC-AUC multi-class to ignore, 0.500 apart" in words(rows)
