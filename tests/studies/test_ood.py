"""The table of strangers is printed, written, and says in words what its figures say."""

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from dubito.data import load_fashion_mnist
from studies import strangers

DOCS = Path(__file__).parents[2] / "docs" / "ood.txt"


def test_the_docs_show_what_it_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "table.txt"
    monkeypatch.setattr(sys, "argv", ["strangers", "-o", str(path)])
    strangers.main()
    printed = capsys.readouterr().out
    assert printed == path.read_text()
    shown, found = (text.split("\n\n")[1].splitlines() for text in (DOCS.read_text(), printed))
    assert [line[:24] for line in shown] == [line[:24] for line in found]
    for ours, theirs in zip(shown[2:], found[2:], strict=True):
        figures = [[float(cell) for cell in line[24:].split()] for line in (ours, theirs)]
        assert figures[0] == pytest.approx(figures[1], abs=1e-3)


def test_auroc_of_the_table_is_scikit_learns() -> None:
    sample = load_fashion_mnist()
    known, met = strangers.images(sample, "test"), strangers.images(sample, "digits")
    energy = strangers.scores(sample)["energy"]
    found = strangers.detection([energy(known)] * 2, [energy(met)] * 2)
    labels = np.repeat([0, 1], [4000, 1000])
    expected = roc_auc_score(labels, np.concatenate([energy(known), energy(met)]))
    assert found.auroc == pytest.approx(expected, abs=1e-12)
    assert (found.gain, found.error) == (0.0, 0.0)


def test_the_paired_error_is_that_of_resampling() -> None:
    rng = np.random.default_rng(0)
    base, more = rng.normal(size=400), rng.normal(size=300) + 1
    known = [base, base + rng.normal(size=400)]
    met = [more, more + rng.normal(size=300)]
    gain, error = strangers.paired_gain(known, met)
    draws = []
    for _ in range(300):
        kept, found = rng.integers(0, 400, 400), rng.integers(0, 300, 300)
        pairs = ([one[kept] for one in known], [one[found] for one in met])
        draws.append(strangers.paired_gain(*pairs)[0])
    assert gain == pytest.approx(np.mean(draws), abs=0.005)
    assert error == pytest.approx(np.std(draws), rel=0.15)
