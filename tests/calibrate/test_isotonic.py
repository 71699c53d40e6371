from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from dubito import Logits, Probabilities
from dubito.calibrate import IsotonicCalibration
from dubito.data import Columns, scan

rng = np.random.default_rng(0)
S = (rng.normal(size=800) * 2).round(1)
Y = (rng.random(800) < expit(S)).astype(int)
WEIGHT = rng.integers(0, 4, 800).astype(float)


def theirs(scores: Any, y: Any, weight: Any) -> Any:
    return IsotonicRegression(out_of_bounds="clip").fit(scores, y, sample_weight=weight)


@pytest.mark.parametrize("weight", [np.ones(800), WEIGHT, WEIGHT + rng.random(800)])
@pytest.mark.parametrize("kind", [Logits, Probabilities])
def test_the_curve_is_scikit_learns_but_for_certain_ends(kind: Any, weight: Any) -> None:
    rows = Logits(S) if kind is Logits else Probabilities(expit(S))
    curve = IsotonicCalibration().fit(rows, Y, weight)
    found = curve.predict_proba(rows)[:, 1]
    expected = theirs(S, Y, weight).predict(S)
    is_certain = (expected <= 0) | (expected >= 1)
    assert is_certain.any()
    assert_allclose(found[~is_certain], expected[~is_certain], atol=1e-9)
    assert_allclose(curve.n_certain_, weight[is_certain].sum())
    prior = (weight @ Y + 0.5) / (weight.sum() + 1)
    for end in (0, 1):
        rows_of_end = expected == end
        n = weight[rows_of_end].sum()
        assert_allclose(found[rows_of_end], (end * n + prior) / (n + 1), rtol=1e-9)


@pytest.mark.slow
@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(-5, 5), st.booleans(), st.integers(0, 3)), min_size=1, max_size=30
    ).filter(lambda rows: any(weight for *_, weight in rows))
)
def test_curves_never_fall_and_never_say_0_or_1(rows: list[tuple[int, bool, int]]) -> None:
    scores, y, weight = (np.array(column) for column in zip(*rows, strict=True))
    curve = IsotonicCalibration().fit(Logits(scores), y.astype(int), weight)
    assert (np.diff(curve.knots_) > 0).all()
    assert (np.diff(curve.values_) >= 0).all()
    found = curve.predict_proba(Logits(np.linspace(-9, 9, 181)))[:, 1]
    assert (np.diff(found) >= -1e-15).all()
    assert found.min() > 0
    assert found.max() < 1


def test_between_knots_it_is_linear_in_log_odds() -> None:
    curve = IsotonicCalibration().fit(Logits(S), Y)
    i = int(np.argmax(np.diff(curve.values_)))
    share = np.linspace(0, 1, 11)
    odds = (1 - share) * curve.knots_[i] + share * curve.knots_[i + 1]
    expected = (1 - share) * curve.values_[i] + share * curve.values_[i + 1]
    assert_allclose(curve.predict_proba(Probabilities(expit(odds)))[:, 1], expected, rtol=1e-9)
    beyond = curve.predict_proba(Logits([-50.0, 50.0]))[:, 1]
    assert_allclose(beyond, curve.values_[[0, -1]], rtol=1e-9)


def test_streamed_it_is_the_curve_of_scores_rounded_to_the_grid(tmp_path: Path) -> None:
    scores = rng.normal(size=5000)
    y = (rng.random(5000) < expit(scores)).astype(int)
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"logit": scores, "y": y}).to_parquet(path)
    streamed = IsotonicCalibration().fit(scan(path, Columns(label="y", logits="logit")))
    width = 56 / 4096
    rounded = (np.floor((scores + 28) / width) + 0.5) * width - 28
    assert np.abs(rounded - scores).max() <= 0.007
    assert np.unique(rounded).size < 600
    exact = IsotonicCalibration().fit(Logits(rounded), y)
    found = streamed.predict_proba(Logits(scores))
    assert_allclose(found, exact.predict_proba(Logits(rounded)), atol=1e-9)
    # So small a move of the scores costs next to nothing in squared error.
    held = IsotonicCalibration().fit(Logits(scores), y).predict_proba(Logits(scores))
    errors = [((p[:, 1] - y) ** 2).mean() for p in (held, found)]
    assert errors[0] <= errors[1] <= errors[0] + 2e-3


def test_words_tell_knots_ends_and_smoothed_rows() -> None:
    curve = IsotonicCalibration().fit(Logits([-2.0, -1.0, 0.0, 1.0, 2.0]), [0, 1, 0, 1, 1])
    prior = 3.5 / 6
    assert_allclose(curve.knots_, [-2, -1, 0, 1, 2], atol=1e-12)
    assert_allclose(curve.values_, [prior / 2, 0.5, 0.5, (2 + prior) / 3, (2 + prior) / 3])
    assert (
        curve._describe()
        == "an increasing curve with 5 knots from 0.292 to 0.861; 3 rows at its ends smoothed"
    )


def test_scores_that_are_all_the_same_get_the_share_of_positives() -> None:
    curve = IsotonicCalibration().fit(Probabilities(np.full(10, 0.7)), np.arange(10) < 4)
    assert_allclose(curve.predict_proba([0.1, 0.7, 0.9])[:, 1], 0.4, rtol=1e-9)
    assert_allclose(curve.knots_, [logit(0.7)])
