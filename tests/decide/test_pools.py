"""Pools: the best weights, their benefit, and the same after JSON."""

import json
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from scipy import special
from scipy.optimize import minimize
from sklearn.base import clone

from dubito import Logits, Probabilities
from dubito.decide import LinearPool, LogLinearPool
from dubito.decide.combine import BasePool
from dubito.errors import (
    BadTypeError,
    BadValueError,
    EmptyStateError,
    MissingLabelsWarning,
    UnfittedError,
)
from dubito.measure import log_loss

POOLS = [LinearPool(), LogLinearPool(), LogLinearPool(fit_intercept=True)]
each_pool = pytest.mark.parametrize("pool", POOLS, ids=["linear", "log-linear", "biased"])


def made(n_rows: int = 1200, dtype: Any = np.float64, seed: int = 0) -> Any:
    """Return two models that each see a side of the rows, the second too sure, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n_rows, p=[0.5, 0.3, 0.2])
    sides = 1.5 * np.eye(3)[y] + rng.normal(0, 1, (2, n_rows, 3))
    logits = np.array([1.5, 3.0])[:, None, None] * sides + np.log([0.5, 0.3, 0.2])
    return [Logits(one.astype(dtype)) for one in logits], y


def parts_of(models: Any) -> Any:
    return [special.softmax(model.array.astype(np.float64), axis=1) for model in models]


def test_linear_weights_are_the_most_likely() -> None:
    models, y = made()
    weight = np.random.default_rng(1).random(len(y))
    likelihoods = np.stack([p[np.arange(len(y)), y] for p in parts_of(models)], axis=1)

    def loss(w: Any) -> float:
        return float(-weight @ np.log(likelihoods @ [w[0], 1 - w[0]]))

    best = minimize(loss, [0.5], bounds=[(0, 1)], tol=1e-14).x[0]
    found = LinearPool().fit(models, y, weight)
    close(found.weights_, [best, 1 - best], atol=3e-3)
    p, q = parts_of(models)
    expected = found.weights_[0] * p + found.weights_[1] * q
    close(found.predict_proba(models), expected, rtol=1e-9, atol=2e-12)


@pytest.mark.slow
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_log_linear_weights_are_the_best(fit_intercept: bool) -> None:
    models, y = made(300)
    weight = np.random.default_rng(1).random(len(y))
    logs = np.stack([np.log(p) for p in parts_of(models)])

    def loss(x: Any) -> float:
        scores = np.tensordot(x[:2], logs, axes=1) + (x[2:] if fit_intercept else 0)
        losses = special.logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]
        away = x - np.append([0.5, 0.5], np.zeros(len(x) - 2))
        return float((weight @ losses + 0.5 * 2.0 * away @ away) / weight.sum())

    start = np.full(5 if fit_intercept else 2, 0.1)
    best = minimize(loss, start, method="Nelder-Mead", tol=1e-12, options={"maxfev": 20000}).x
    found = LogLinearPool(fit_intercept, regularization=2.0).fit(models, y, weight)
    close(found.weights_, best[:2], atol=1e-4)
    close(found.bias_, best[2:] if fit_intercept else [0, 0, 0], atol=1e-4)
    scores = np.tensordot(found.weights_, logs, axes=1) + found.bias_
    close(found.predict_proba(models), special.softmax(scores, axis=1), rtol=1e-8, atol=2e-12)


def test_powers_are_never_negative() -> None:
    (model, _), y = made()
    wrong = Logits(-model.array)
    found = LogLinearPool().fit([wrong, model], y)
    assert found.weights_[0] == 0
    assert found.weights_[1] > 0.3


@each_pool
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_pool_beats_both_models_on_held_out_rows(pool: BasePool, dtype: Any) -> None:
    models, y = made(4000, dtype)
    fit, held_out = ([m.take(part) for m in models] for part in (slice(2000), slice(2000, None)))
    found = clone(pool).fit(fit, y[:2000])
    p = found.predict_proba(held_out)
    assert p.dtype == (np.float64 if dtype is np.float64 else np.float32)
    alone = min(log_loss(y[2000:], model) for model in held_out)
    assert log_loss(y[2000:], p) < alone - 0.01
    close(found.log_losses_, [log_loss(y[:2000], model) for model in fit], rtol=1e-4)


@each_pool
def test_the_log_loss_is_that_of_each_half_by_the_other(pool: BasePool) -> None:
    models, y = made(101)
    is_first = np.random.default_rng(0).permutation(101) % 2 == 0
    p = np.empty((101, 3))
    for half in (is_first, ~is_first):
        fit, rest = ([m.take(np.flatnonzero(part)) for m in models] for part in (~half, half))
        p[half] = clone(pool).fit(fit, y[~half]).predict_proba(rest)
    assert clone(pool).fit(models, y).log_loss_ == pytest.approx(log_loss(y, p), rel=1e-8)


@each_pool
def test_missing_labels_and_weights_of_0_leave_rows_out(pool: BasePool) -> None:
    models, y = made(200)
    expected = clone(pool).fit([m.take(slice(100)) for m in models], y[:100])
    labels = y.astype(float)
    labels[100:150] = np.nan
    weight = np.ones(200)
    weight[150:] = 0
    with pytest.warns(MissingLabelsWarning) as caught:
        found = clone(pool).fit(models, labels, weight)
    assert caught[0].filename == __file__
    assert found.n_rows_ == 100
    close(found.weights_, expected.weights_, rtol=1e-9)


@each_pool
def test_label_probabilities_count_as_shares_of_rows(pool: BasePool) -> None:
    models, y = made(100)
    soft = clone(pool).fit(models, np.eye(3)[y])
    close(soft.weights_, clone(pool).fit(models, y).weights_, rtol=1e-9)


@each_pool
def test_it_is_serialized_pickled_and_cloned(pool: BasePool) -> None:
    models, y = made(100)
    named = [Logits(m.array, classes=["a", "b", "c"]) for m in models]
    found = clone(pool).fit(named, np.array(["a", "b", "c"])[y])
    kept = type(pool).from_dict(json.loads(json.dumps(found.to_dict())))
    for restored in (kept, pickle.loads(pickle.dumps(found))):
        assert (restored.predict_proba(named) == found.predict_proba(named)).all()
        assert restored.summary() == found.summary()
        assert restored.classes_ == ("a", "b", "c")
    assert clone(found).get_params() == pool.get_params()


@pytest.mark.slow
@each_pool
@settings(max_examples=40)
@given(data=st.data())
def test_nasty_rows_leave_probabilities(pool: BasePool, data: Any) -> None:
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    shape = data.draw(st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(2, 4)))
    values = st.sampled_from([0.0, 1.0, -1.0, 1e4, -1e4])
    values = values if dtype is np.float16 else values | st.sampled_from([1e30, -1e30])
    logits = data.draw(hnp.arrays(dtype, shape, elements=values))
    y = data.draw(hnp.arrays(np.int64, shape[1], elements=st.integers(0, shape[2] - 1)))
    models = [Logits(one) for one in logits]
    found = clone(pool).fit(models, y)
    assert np.isfinite(found.weights_).all()
    assert (found.weights_ >= 0).all()
    p = found.predict_proba(models)
    close(p.sum(axis=1, dtype=np.float64), 1, rtol=1e-5)


@pytest.mark.slow
def test_without_a_penalty_separable_rows_end_somewhere() -> None:
    y = np.arange(30) % 3
    p = 0.7 * np.eye(3)[y] + 0.1
    found = LogLinearPool(regularization=0.0).fit([p, p], y)
    assert np.isfinite(found.weights_).all()
    close(found.predict_proba([p, p]), np.eye(3)[y], atol=1e-3)


def test_the_summary_says_what_a_pool_is_worth() -> None:
    models, y = made(200)
    found = LinearPool().fit(models, y)
    first, second = found.weights_
    best = int(np.argmin(found.log_losses_))
    assert found.summary() == (
        f"weights {first:.3g}, {second:.3g}; log loss {found.log_loss_:.4g} cross-fitted on 200 "
        f"rows, {found.log_losses_[best]:.4g} for the best single model (index {best})"
    )
    few = LinearPool().fit([m.take(slice(5)) for m in models], y[:5])
    first, second = few.weights_
    assert few.log_loss_ is None
    assert few.summary() == (
        f"weights {first:.3g}, {second:.3g}, 5 rows: too few for cross-fitting"
    )


ROW = [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (
            [ROW],
            r"`outputs` .*got 1\. Pass the models of",
        ),
        (
            [[[0.2, 0.3, 0.5]]] * 2,
            r"`outputs` .*got 3\. Pass the columns of",
        ),
        (
            [ROW, Probabilities(ROW, classes=["b", "a"])],
            r"`outputs` .*got \('b', 'a'\)\. Pass the columns of",
        ),
    ],
)
def test_other_models_than_those_of_the_fit(outputs: Any, message: str) -> None:
    pool = LinearPool().fit([Probabilities(ROW, classes=["a", "b"]), ROW], ["a"])
    with pytest.raises(BadValueError) as caught:
        pool.predict_proba(outputs)
    assert re.search(message, str(caught.value))


def test_labels_are_needed() -> None:
    with pytest.raises(BadTypeError) as caught:
        LinearPool().fit([ROW, ROW], None)
    assert re.search(r"`y` .*got None\. Pass the true labels", str(caught.value))
    with pytest.raises(EmptyStateError, match="A pool needs at least 1 labeled row"):
        LinearPool().fit([ROW, ROW], [0], [0.0])


def test_a_fit_is_needed() -> None:
    for method in ("summary", "to_dict"):
        with pytest.raises(UnfittedError, match="This LinearPool is not fitted yet"):
            getattr(LinearPool(), method)()
    with pytest.raises(UnfittedError, match="This LinearPool is not fitted yet"):
        LinearPool().predict_proba([ROW])


def test_a_negative_regularization_raises() -> None:
    with pytest.raises(BadValueError) as caught:
        LogLinearPool(regularization=-1.0).fit([ROW, ROW], [0])
    assert re.search(r"`regularization`.*-1\.0\.", str(caught.value))
