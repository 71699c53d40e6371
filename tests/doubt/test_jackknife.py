"""Jackknife+ and CV+ against a slow reference; `benchmarks.intervals` compares with MAPIE."""

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dubito.doubt import JackknifePlusRegressor
from dubito.errors import BadTypeError, BadValueError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
Y = X @ [1.0, -2.0, 0.5] + RNG.normal(size=60)
NEW = RNG.normal(size=(15, 3))


def reference(estimator: Any, splits: Any, level: float) -> tuple[Any, Any]:
    """Return the bounds of Barber et al. by plain loops."""
    n = len(Y)
    uppers, lowers = np.empty((n, len(NEW))), np.empty((n, len(NEW)))
    for known, held in splits:
        model = clone(estimator).fit(X[known], Y[known])
        for i in held:
            error = abs(Y[i] - model.predict(X[i : i + 1])[0])
            uppers[i], lowers[i] = model.predict(NEW) + error, model.predict(NEW) - error
    upper = np.sort(uppers, axis=0)[int(np.ceil(level * (n + 1))) - 1]
    lower = np.sort(lowers, axis=0)[int(np.floor((1 - level) * (n + 1))) - 1]
    return lower, upper


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [LinearRegression(), KNeighborsRegressor(3)], ids=str)
@pytest.mark.parametrize("level", [0.9, 0.75])
def test_bounds_are_those_of_the_reference(estimator: Any, level: float) -> None:
    one_out = [(np.delete(np.arange(60), i), [i]) for i in range(60)]
    folds = list(KFold(5, shuffle=True, random_state=3).split(X))
    for cv, splits in ((None, one_out), (KFold(5, shuffle=True, random_state=3), folds)):
        found = JackknifePlusRegressor(estimator, level, cv).fit(X, Y).predict_interval(NEW)
        low, high = reference(estimator, splits, level)
        close(found.low, low, atol=1e-12)
        close(found.high, high, atol=1e-12)
    seeded = JackknifePlusRegressor(estimator, level, 5, random_state=3).fit(X, Y)
    assert (seeded.predict_interval(NEW).high == found.high).all()


def test_it_is_a_scikit_learn_regressor() -> None:
    regressor = JackknifePlusRegressor(make_pipeline(StandardScaler(), Ridge()), cv=4)
    search = GridSearchCV(regressor, {"estimator__ridge__alpha": [0.1, 10.0]}, cv=3).fit(X, Y)
    assert search.best_params_ == {"estimator__ridge__alpha": 0.1}
    best = search.best_estimator_
    assert (best.n_features_in_, len(best.estimators_)) == (3, 4)
    assert (best.predict(NEW) == best.estimator_.predict(NEW)).all()
    restored = pickle.loads(pickle.dumps(best))
    assert (restored.predict_interval(NEW).low == best.predict_interval(NEW).low).all()
    assert repr(clone(regressor)) == repr(regressor)


@pytest.mark.slow
def test_new_rows_are_covered() -> None:
    rng, covered = np.random.default_rng(1), []
    for _ in range(40):
        x = rng.normal(size=(140, 2))
        y = x[:, 0] + rng.normal(size=140)
        regressor = JackknifePlusRegressor(LinearRegression(), 0.8, cv=5).fit(x[:40], y[:40])
        covered.append(regressor.predict_interval(x[40:]).coverage(y[40:]))
    assert abs(np.mean(covered) - 0.8) < 0.04


def test_few_rows_constant_targets_and_crossing_bounds() -> None:
    few = JackknifePlusRegressor(LinearRegression(), cv=None).fit(X[:5], Y[:5])
    assert np.isinf(few.predict_interval(NEW).width).all()
    same = JackknifePlusRegressor(LinearRegression(), cv=3).fit(X, np.full(60, 2.0))
    close(same.predict_interval(NEW).low, 2.0)
    close(same.predict_interval(NEW).high, 2.0)
    # Models that disagree by more than their errors: the nearest neighbor of each half.
    x = np.array([[0.0], [0.1], [10.0], [10.1]] * 5)
    folds = [(np.arange(20) % 4 < 2, np.arange(20) % 4 >= 2)]
    splits = [(np.flatnonzero(a), np.flatnonzero(b)) for a, b in (*folds, folds[0][::-1])]
    odd = JackknifePlusRegressor(KNeighborsRegressor(1), 0.5, splits).fit(x, np.zeros(20))
    found = odd.predict_interval([[5.0]])
    assert (found.low <= found.high).all()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"level": 1.0}, BadValueError, "`level`.*got 1.0"),
        ({"cv": 1}, BadValueError, "`cv`.*from 2 to 60.*got 1. Use cv=None"),
        ({"cv": ShuffleSplit(3, random_state=0)}, BadValueError, "`cv`.*hold out each row once"),
        ({"cv": [(np.arange(30), np.arange(30, 60))]}, BadValueError, "row 0 never held out"),
        ({"cv": "folds"}, BadTypeError, "`cv`.*got str. Use cv=10"),
    ],
)
def test_what_cannot_be_is_reported(settings: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        JackknifePlusRegressor(LinearRegression(), **settings).fit(X, Y)
