"""What everything that is fitted on features promises."""

import json
import pickle
from typing import Any, final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.testing import assert_array_equal as same
from sklearn.base import clone

from dubito import Probabilities
from dubito.arrays import FloatArray
from dubito.data import ArrayShards, Batch
from dubito.doubt import ClassConditionalDensity, JointDensity, MahalanobisDistance
from dubito.doubt.features import BaseOODScore, FeatureShards
from dubito.errors import BadValueError, MissingLabelsWarning, UnfittedError
from tests.doubt.test_feature_shards import streamed

RNG = np.random.default_rng(1)
Y = RNG.integers(0, 3, 300)
X = RNG.normal(size=(300, 4)) + RNG.normal(0, 3, (3, 4))[Y]
NEW = RNG.normal(0, 3, (50, 4))

DOUBTS: list[BaseOODScore] = [
    MahalanobisDistance(),
    MahalanobisDistance(normalize=True, shrinkage=0.1),
    MahalanobisDistance(relative=True),
    ClassConditionalDensity(),
    ClassConditionalDensity(covariance="per_class", shrinkage=0.2),
    ClassConditionalDensity(covariance="diagonal"),
]
each_doubt = pytest.mark.parametrize("uncertainty", DOUBTS, ids=repr)


@final
class MeanOfColumns(BaseOODScore):
    """Scores by the distance from the mean of the first column; what overflows is NaN."""

    mean_: float

    def _learn(self, shards: FeatureShards) -> None:
        total = shards.sum(lambda rows: rows.weight @ rows.features[:, 0])
        if total < 0:
            raise RuntimeError("below 0")
        self.mean_ = float(total / shards.weights.sum())

    def _score_rows(self, features: FloatArray) -> FloatArray:
        squares = np.square(features[:, 0] - self.mean_)
        return np.asarray(squares - np.where(np.isinf(squares), squares, 0))


def test_a_score_defines_only_what_it_learns_and_how_it_scores() -> None:
    uncertainty = MeanOfColumns().fit([[1.0], [3.0]], ["b", "a"], [1, 3])
    assert (uncertainty.mean_, uncertainty.n_features_, uncertainty.classes_) == (
        2.5,
        1,
        ("a", "b"),
    )
    found = uncertainty.score([[2.5], [0.0]])
    assert found.dtype == np.float64
    assert found.tolist() == [0, 6.25]
    assert uncertainty.score(np.empty((0, 1))).shape == (0,)


def test_a_score_that_overflows_is_the_largest() -> None:
    uncertainty = MeanOfColumns().fit([[0.0]])
    assert uncertainty.classes_ is None
    assert uncertainty.score([[1e200]]).tolist() == [np.finfo(np.float64).max]


def test_a_fit_that_fails_leaves_nothing() -> None:
    uncertainty = MeanOfColumns().fit([[1.0]])
    with pytest.raises(RuntimeError):
        uncertainty.fit([[-1.0]])
    with pytest.raises(UnfittedError, match=r"MeanOfColumns.*fit"):
        uncertainty.score([[1.0]])


def test_other_features_than_during_fit_raise() -> None:
    with pytest.raises(
        BadValueError, match=r"`features` .*, got 2\. Pass the same features as during fit"
    ):
        MeanOfColumns().fit([[1.0]]).score([[1.0, 2.0]])


@each_doubt
def test_missing_labels_are_left_out_with_a_warning(uncertainty: BaseOODScore) -> None:
    y = np.where(np.arange(300) % 3 == 0, np.nan, Y)
    text = f"{type(uncertainty).__name__}: 100 of 300 rows have no label and were left out."
    with pytest.warns(MissingLabelsWarning) as caught:
        found = clone(uncertainty).fit(X, y).score(NEW)
    assert [str(one.message) for one in caught] == [text]
    assert caught[0].filename == __file__
    kept = ~np.isnan(y)
    close(found, clone(uncertainty).fit(X[kept], Y[kept]).score(NEW), rtol=1e-9)


@each_doubt
def test_streams_learn_what_arrays_do(uncertainty: BaseOODScore) -> None:
    batch = Batch.of(Y, Probabilities(np.full((300, 5), 0.2)), features=X)
    expected = clone(uncertainty).fit(X, Y)
    again = clone(uncertainty).fit(ArrayShards(batch))
    same(again.score(NEW), expected.score(NEW))
    assert again.classes_ == expected.classes_ == (0, 1, 2)
    close(clone(uncertainty).fit(streamed(batch)).score(NEW), expected.score(NEW), rtol=1e-9)


@each_doubt
def test_threads_and_the_order_of_new_rows_change_no_digit(
    uncertainty: BaseOODScore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "128")
    found = []
    for threads in ("1", "3"):
        monkeypatch.setenv("DUBITO_THREADS", threads)
        found.append(clone(uncertainty).fit(X, Y).score(NEW))
    same(*found)


@each_doubt
def test_the_callers_arrays_stay_as_they_are(uncertainty: BaseOODScore) -> None:
    x, y, weight = X.copy(), Y.copy(), np.ones(300)
    clone(uncertainty).fit(x, y, weight).score(x)
    same(x, X)
    same(y, Y)


@each_doubt
def test_whole_weights_are_rows_that_came_again(uncertainty: BaseOODScore) -> None:
    weight = RNG.integers(0, 4, 300)
    for one in (uncertainty, clone(uncertainty).set_params(shrinkage=0.1)):
        expected = clone(one).fit(np.repeat(X, weight, axis=0), np.repeat(Y, weight))
        close(clone(one).fit(X, Y, weight).score(NEW), expected.score(NEW), rtol=1e-8)


@pytest.mark.parametrize("uncertainty", [DOUBTS[0], *DOUBTS[2:]], ids=repr)
def test_moving_all_features_far_away_changes_little(uncertainty: BaseOODScore) -> None:
    far = clone(uncertainty).fit(X + 1e7, Y).score(NEW + 1e7)
    close(far, clone(uncertainty).fit(X, Y).score(NEW), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@each_doubt
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_narrow_floats_are_read_as_what_they_are(uncertainty: BaseOODScore, kind: Any) -> None:
    x, new = X.astype(kind), NEW.astype(kind)
    expected = clone(uncertainty).fit(x.astype(np.float64), Y).score(new.astype(np.float64))
    close(clone(uncertainty).fit(x, Y).score(new), expected, rtol=1e-9)


@pytest.mark.slow
@each_doubt
@given(
    x=hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 12), st.integers(1, 3)),
        elements=st.one_of(st.sampled_from([0.0, 1.0, -1.0, 3e4]), st.floats(-100, 100, width=16)),
    ),
    seed=st.integers(0, 9),
)
@settings(max_examples=60)
def test_any_rows_give_finite_scores_or_a_clear_error(
    uncertainty: BaseOODScore, x: Any, seed: int
) -> None:
    y = np.random.default_rng(seed).integers(0, 3, len(x))
    try:
        fitted = clone(uncertainty).fit(x, y)
    except BadValueError:
        used = x.astype(np.float64)
        if getattr(uncertainty, "normalize", False):
            used = used / np.maximum(np.linalg.norm(used, axis=1, keepdims=True), 1e-9)
        lacks_classes = getattr(uncertainty, "relative", False) and np.unique(y).size < 2
        assert lacks_classes or not varies_within(used, y)
        return
    found = fitted.score(np.vstack([x.astype(np.float64), np.full(x.shape[1], 1e300)]))
    assert np.isfinite(found).all()
    assert found[-1] >= found[:-1].max() or getattr(uncertainty, "normalize", False)


def varies_within(x: Any, y: Any) -> bool:
    """Whether every class has two rows, and some feature varies within one: a fit must do."""
    groups = [x[y == k] for k in np.unique(y)]
    varies = any(np.ptp(group, axis=0).max() > 0.01 for group in groups)
    return varies and all(len(group) > 1 for group in groups)


KEPT: list[Any] = [
    *DOUBTS,
    JointDensity(n_components=2),
]


@pytest.mark.parametrize("kept", KEPT, ids=repr)
@pytest.mark.parametrize("names", [False, True])
def test_what_was_learned_is_kept(kept: Any, names: bool) -> None:
    y = np.array(["a", "b", "c"])[Y] if names and kept in DOUBTS else Y
    fitted = clone(kept).fit(X, y)
    text = json.dumps(fitted.to_dict(), allow_nan=False)
    copies = [type(kept).from_dict(json.loads(text)), pickle.loads(pickle.dumps(fitted))]
    for copy in copies:
        same(copy.score(NEW), fitted.score(NEW))
        assert copy.get_params() == fitted.get_params()
        assert copy.to_dict() == fitted.to_dict()
        assert getattr(copy, "classes_", None) == getattr(fitted, "classes_", None)
    with pytest.raises(UnfittedError):
        clone(fitted).to_dict()
