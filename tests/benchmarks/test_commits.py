"""Two commits side by side: the best of alternating runs, and what a commit lacks."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import commits
from benchmarks.commits import compare_times, table_lines


def tree_with(folder: Path, module: str) -> Path:
    """Return a worktree whose package `dubito.decide` is this text."""
    package = folder / "src" / "dubito" / "decide"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("Logits = None")
    (package / "__init__.py").write_text(module)
    (package.parent / "calibrate.py").write_text("TemperatureScaling = None")
    return folder


def test_runs_alternate_and_the_best_of_each_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    values = {"old": iter([9.0, 4.0, 6.0]), "new": iter([0.1, 3.0, 2.0])}

    def measured(tree: Path, name: str, seconds: float) -> dict[str, float]:
        order.append(tree.name)
        value = next(values[tree.name])
        return {"a call, s": value, "rows/s": value}

    monkeypatch.setattr(commits, "_measured", measured)
    old, new = compare_times((Path("old"), Path("new")), "row_pass", 2, 1.0)
    assert order == ["old", "new"] * 3
    assert old == {"a call, s": 4.0, "rows/s": 6.0}  # the first run compiles, and does not count
    assert new == {"a call, s": 2.0, "rows/s": 3.0}
    lines = [line.split() for line in table_lines("row_pass", old, new)]
    assert [line[-3:] for line in lines] == [["4", "2", "0.500"], ["6", "3", "0.500"]]


def test_the_name_that_a_commit_lacks_is_printed(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, "CostMatrix = None")
    found: Any = commits._measured(tree, "policy_decide", 1.0)
    assert "cannot import name 'Policy' from 'dubito.decide'" in found
    [line] = table_lines("policy_decide", found, {"a call, s": 1.0})
    assert line.startswith("policy_decide: OLD does not have what this needs: ImportError")


def test_other_failures_end_the_comparison(tmp_path: Path) -> None:
    tree = tree_with(tmp_path, "raise RuntimeError('out of order')")
    with pytest.raises(SystemExit, match="out of order"):
        commits._measured(tree, "policy_decide", 1.0)
