"""Several models as one: Bayes' rule, whatever is missing."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from scipy import special
from sklearn.naive_bayes import GaussianNB

from dubito import Logits, Members, Probabilities
from dubito.decide import combine_posteriors
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import log_loss

EVEN = [0.5, 0.5]


def reference(parts: Any, prior: Any, present: Any = None) -> Any:
    """Return the product rule a row and a class at a time, in plain probabilities."""
    n_rows, n_classes = np.shape(parts[0])
    result = np.empty((n_rows, n_classes))
    for i in range(n_rows):
        which = [m for m in range(len(parts)) if present is None or present[i][m]]
        for k in range(n_classes):
            product = np.prod([parts[m][i][k] for m in which])
            result[i, k] = product / prior[k] ** (len(which) - 1)
        result[i] /= result[i].sum()
    return result


@pytest.mark.parametrize("n_models", [1, 2, 5])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_it_is_the_product_over_the_prior(n_models: int, dtype: Any) -> None:
    rng = np.random.default_rng(n_models)
    logits = rng.normal(0, 2, (n_models, 30, 4)).astype(dtype)
    prior = rng.dirichlet(np.ones(4))
    present = rng.random((30, n_models)) < 0.6
    parts = special.softmax(logits.astype(np.float64), axis=2)
    for mask in (None, present):
        found = combine_posteriors([Logits(one) for one in logits], prior, present=mask)
        assert found.array.dtype == (np.float64 if dtype is np.float64 else np.float32)
        rtol = 1e-8 if dtype is np.float64 else 1e-5
        close(found.array, reference(parts, prior, mask), rtol=rtol)


def test_two_independent_models_reach_the_joint_model() -> None:
    rng = np.random.default_rng(0)
    y = rng.choice(3, 4000, p=[0.6, 0.3, 0.1])
    x = rng.normal(0, 1, (4000, 4)) + np.eye(4)[:3][y] * 1.5
    sides = [x[:, :2], x[:, 2:]]
    models = [GaussianNB().fit(side[:2000], y[:2000]) for side in sides]
    joint = GaussianNB().fit(x[:2000], y[:2000])
    parts = [m.predict_proba(side[2000:]) for m, side in zip(models, sides, strict=True)]
    together = combine_posteriors(parts, joint.class_prior_)
    of_joint = log_loss(y[2000:], joint.predict_proba(x[2000:]))
    assert log_loss(y[2000:], together) == pytest.approx(of_joint, abs=1e-8)
    assert of_joint < min(log_loss(y[2000:], part) for part in parts) - 0.05


def test_where_nothing_is_present_the_prior_remains() -> None:
    prior = [0.7, 0.2, 0.1]
    rows = np.full((2, 3), 1 / 3)
    found = combine_posteriors([rows, rows], prior, present=np.zeros((2, 2), bool))
    close(found.array, [prior, prior], rtol=1e-12)


def test_plain_rows_that_are_missing_may_hold_nan() -> None:
    camera = np.array([[0.9, 0.1], [np.nan, np.nan]])
    lidar = np.array([np.nan, 0.25], np.float32)
    found = combine_posteriors([camera, lidar], EVEN, present=[[True, False], [False, True]])
    close(found.array, [[0.9, 0.1], [0.75, 0.25]], rtol=1e-6)
    assert np.isnan(camera[1]).all()
    with pytest.raises(BadValueError, match="finite"):
        combine_posteriors([camera, camera], EVEN)


def test_a_class_of_prior_0_gets_0() -> None:
    p = [[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]]
    found = combine_posteriors([p, p], [0.0, 0.5, 0.5]).array
    close(found, [[0, 0.5, 0.5], [0, 0.5, 0.5]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sure_models_that_contradict_each_other_leave_both_open(dtype: Any) -> None:
    a, b = np.array([[1, 0, 0]], dtype), np.array([[0, 1, 0]], dtype)
    close(combine_posteriors([a, b], [1 / 3] * 3).array, [[0.5, 0.5, 0]], atol=1e-30, rtol=1e-5)
    big = Logits(np.array([[1e30, 0, 0]], dtype)), Logits(np.array([[0, 1e30, 0]], dtype))
    close(combine_posteriors(big, [1 / 3] * 3).array, [[0.5, 0.5, 0]], atol=1e-30, rtol=1e-5)


def test_names_of_one_model_are_those_of_all() -> None:
    named = Probabilities([[0.2, 0.8]], classes=["cat", "dog"])
    members = Members([[[0.4, 0.6]], [[0.2, 0.8]]])
    found = combine_posteriors([[[0.3, 0.7]], named, members], {"dog": 0.9, "cat": 0.1})
    assert found.classes == ("cat", "dog")
    parts = [[[0.3, 0.7]], [[0.2, 0.8]], [[0.3, 0.7]]]
    close(found.array, reference(parts, [0.1, 0.9]), rtol=1e-9)


@pytest.mark.slow
@settings(max_examples=75)
@given(st.data())
def test_the_order_of_models_does_not_matter_and_rows_are_alone(data: Any) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(2, 4)))
    logits = data.draw(hnp.arrays(dtype, shape, elements=st.floats(-1e4, 1e4, width=32)))
    present = data.draw(hnp.arrays(np.bool_, (shape[1], shape[0])))
    prior = np.arange(1, shape[2] + 1) / np.arange(1, shape[2] + 1).sum()
    models = [Logits(one) for one in logits]
    found = combine_posteriors(models, prior, present=present).array
    assert np.isfinite(found).all()
    close(found.sum(axis=1), 1, rtol=1e-5)
    turned = combine_posteriors(models[::-1], prior, present=present[:, ::-1]).array
    close(turned, found, rtol=1e-4, atol=1e-12)
    one = [model.take(slice(0, 1)) for model in models]
    assert (combine_posteriors(one, prior, present=present[:1]).array == found[:1]).all()


ROW = [[0.5, 0.5]]


@pytest.mark.parametrize(
    ("outputs", "present", "message"),
    [
        (
            [],
            None,
            r"`outputs` .*got 0\. Pass \[outputs_a, outputs_b\]",
        ),
        (
            [ROW, ROW * 2],
            None,
            r"`outputs\[1\]` .*got shape \(2, 2\), classes None\. Pass the same rows",
        ),
        (
            [Probabilities(ROW, classes=["a", "b"]), Probabilities(ROW, classes=["b", "a"])],
            None,
            r"`outputs\[1\]` .*got shape \(1, 2\), classes \('b', 'a'\)\. Pass the same rows",
        ),
        (
            [ROW, ROW],
            [[1, 0]],
            r"`present` .*got shape \(1, 2\), dtype int64\. Use ~np\.isnan\(\.\.\.\) of the",
        ),
        (
            [ROW, ROW],
            [[True]],
            r"`present` .*got 1\. Give one column per",
        ),
        (
            [ROW, ROW],
            [[True, True]] * 2,
            r"`present`.*length 2\.",
        ),
    ],
)
def test_models_that_do_not_fit_together(outputs: Any, present: Any, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        combine_posteriors(outputs, EVEN, present=present)
    assert re.search(message, str(caught.value))


@pytest.mark.parametrize("outputs", [Probabilities(ROW), None])
def test_one_model_is_no_list(outputs: Any) -> None:
    with pytest.raises(BadTypeError) as caught:
        combine_posteriors(outputs, EVEN)
    got = type(outputs).__name__
    assert re.search(rf"`outputs` .*got {got}\. Pass \[outputs_a", str(caught.value))
