"""The table of OOD scores is printed, written, and matches the stored one."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dubito.data import load_fashion_mnist
from studies import ood

DOCS = Path(__file__).parents[2] / "docs" / "ood.txt"


def test_the_stored_table_matches_the_printed_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "table.txt"
    monkeypatch.setattr(sys, "argv", ["ood", "-o", str(path)])
    ood.main()
    printed = capsys.readouterr().out
    assert printed == path.read_text()
    shown, found = (text.split("\n\n")[1].splitlines() for text in (DOCS.read_text(), printed))
    assert [line[:28] for line in shown] == [line[:28] for line in found]
    for ours, theirs in zip(shown[2:], found[2:], strict=True):
        figures = [[float(cell) for cell in line[28:].split()] for line in (ours, theirs)]
        assert figures[0] == pytest.approx(figures[1], abs=1e-3)


def test_auroc_equals_that_of_scikit_learn() -> None:
    sample = load_fashion_mnist()
    known, ood_scores = ood.images(sample, "test"), ood.images(sample, "digits")
    energy = ood.scores(sample)["energy"]
    found = ood.detection([energy(known)] * 2, [energy(ood_scores)] * 2)
    labels = np.repeat([0, 1], [4000, 1000])
    expected = roc_auc_score(labels, np.concatenate([energy(known), energy(ood_scores)]))
    assert found.auroc == pytest.approx(expected, abs=1e-12)
    assert (found.gain, found.error) == (0.0, 0.0)


def test_the_paired_standard_error_equals_that_of_resampling() -> None:
    rng = np.random.default_rng(0)
    base, more = rng.normal(size=400), rng.normal(size=300) + 1
    known = [base, base + rng.normal(size=400)]
    ood_scores = [more, more + rng.normal(size=300)]
    gain, error = ood.paired_gain(known, ood_scores)
    draws = []
    for _ in range(300):
        rows, found = rng.integers(0, 400, 400), rng.integers(0, 300, 300)
        pairs = ([one[rows] for one in known], [one[found] for one in ood_scores])
        draws.append(ood.paired_gain(*pairs)[0])
    assert gain == pytest.approx(np.mean(draws), abs=0.005)
    assert error == pytest.approx(np.std(draws), rel=0.15)
