"""The prior from a confusion matrix: checked by hand, by resampling, and if singular."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from scipy.optimize import minimize

from dubito import Probabilities
from dubito.decide.priors import PriorConfusion
from dubito.errors import BadValueError, MissingLabelsWarning

COUNTS = np.array([[80, 10, 5], [10, 180, 5], [10, 10, 90]])


def test_counts_are_those_of_labeled_rows() -> None:
    seen = Probabilities([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.4, 0.6]], classes=["a", "b"])
    now = Probabilities([[0.9, 0.1], [0.2, 0.8], [0.1, 0.9]])
    with pytest.warns(MissingLabelsWarning, match="1 of 4 rows"):
        found = PriorConfusion.of(now, None, (["a", "b", "b", None], seen), "estimate_prior")
    assert found.counts.tolist() == [[1, 1], [0, 1]]
    assert found.predicted.tolist() == [1, 2]


def test_the_prior_solves_the_confusion() -> None:
    predicted = np.array([500, 300, 200])
    found = PriorConfusion(COUNTS, predicted).estimate()
    close(found, np.linalg.solve(COUNTS / COUNTS.sum(axis=0), predicted / 1000), rtol=1e-9)


@pytest.mark.slow
@settings(max_examples=60)
@given(hnp.arrays(np.int64, 3, elements=st.integers(0, 1000)).filter(lambda a: a.sum() > 0))
def test_shares_are_never_negative_and_fit_best(predicted: Any) -> None:
    found = PriorConfusion(COUNTS, predicted).estimate()
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    shares, wanted = COUNTS / COUNTS.sum(axis=0), predicted / predicted.sum()
    start, bounds = np.full(3, 1 / 3), [(0, None)] * 3
    best = minimize(lambda q: ((shares @ q - wanted) ** 2).sum(), start, bounds=bounds, tol=1e-14)
    close(found, best.x / best.x.sum(), atol=1e-3)


@pytest.mark.slow
def test_standard_errors_are_the_spread_of_resamples() -> None:
    confusion = PriorConfusion(COUNTS, np.array([500, 300, 200]))
    prior = confusion.estimate()
    drawn = np.stack([confusion.resampled(prior, seed) for seed in range(2000)])
    close(confusion.standard_errors(prior), drawn.std(axis=0), rtol=0.1)


@pytest.mark.parametrize(
    ("y", "seen", "message"),
    [
        (
            [0, 0],
            [[0.9, 0.1]] * 2,
            r"`validation` .*got none of class 1\. Pass more validation rows",
        ),
        (
            [0, 1],
            [[0.8, 0.1, 0.1]] * 2,
            r"`validation` .*got 3 columns, classes None\. Pass the same columns",
        ),
        (
            [0, 1],
            Probabilities([[0.5, 0.5]] * 2, classes=["b", "a"]),
            r"`validation` .*got 2 columns, classes \('b', 'a'\)\. Pass the same columns",
        ),
    ],
)
def test_validation_that_does_not_fit(y: Any, seen: Any, message: str) -> None:
    now = Probabilities([[0.9, 0.1]], classes=["a", "b"])
    with pytest.raises(BadValueError) as caught:
        PriorConfusion.of(now, None, (y, seen), "f")
    assert re.search(message, str(caught.value))
