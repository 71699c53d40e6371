"""The cosines of the study are those of plain loops, and the stored tables are those printed."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from dubito import Logits
from studies import simplex_angles
from studies.ood import Images, Setting

DOCS = Path(__file__).parents[2] / "docs" / "simplex_angles.txt"


def test_a_simplex_obeys_the_assumption() -> None:
    centered = np.eye(4) - 1 / 4
    weight = centered / np.linalg.norm(centered, axis=1, keepdims=True)
    assert simplex_angles.weight_cosines(weight) == pytest.approx(np.full(6, -1 / 3))
    features = 5 * weight[[0, 1, 1, 3]]
    of = Images(Logits(features @ weight.T), features)
    labels = np.array([0, 1, 1, 3])
    setting = Setting("a simplex", features, labels, weight, np.zeros(4), of, labels, {})
    near, other, spread, low, high, *errors = simplex_angles.figures(setting, of)
    assert near == pytest.approx(1)
    assert [other, low, high] == pytest.approx([-1 / 3] * 3)
    assert [spread, *errors] == pytest.approx([0] * 3, abs=1e-12)


def test_cosines_to_other_classes_leave_the_nearest_out() -> None:
    cosines = np.array([[0.5, -0.1, 0.2], [0.0, 0.1, -0.9]])
    assert simplex_angles.other_cosines(cosines).tolist() == [[-0.1, 0.2], [-0.9, 0.0]]


@pytest.mark.slow
def test_the_stored_tables_match_the_printed_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "table.txt"
    monkeypatch.setattr(sys, "argv", ["simplex_angles", "-o", str(path)])
    simplex_angles.main()
    assert capsys.readouterr().out == path.read_text()
    shown, found = (text.split("\n\n\n")[0] for text in (DOCS.read_text(), path.read_text()))
    numbers = [[float(one) for one in re.findall(r"-?\d+\.\d+", text)] for text in (shown, found)]
    assert numbers[0] == pytest.approx(numbers[1], abs=1e-3)
