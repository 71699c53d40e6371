"""Priors: the outputs of a model trained on 50:50 where classes are 1:99."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from scipy import special

from dubito import Logits, Members, Probabilities
from dubito.decide import adjust_prior
from dubito.errors import BadTypeError, BadValueError

EVEN = [0.5, 0.5]


def reference(p: Any, before: Any, after: Any) -> Any:
    """Return Bayes' rule in plain probabilities."""
    product = np.asarray(p, np.float64) * np.asarray(after) / np.asarray(before)
    return product / product.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3, 40])
def test_it_is_bayes_rule(dtype: Any, n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    logits = rng.normal(0, 3, (50, n_classes)).astype(dtype)
    before, after = rng.dirichlet(np.ones(n_classes), 2)
    p = special.softmax(logits.astype(np.float64), axis=1)
    found = adjust_prior(Logits(logits), before, after).array
    assert found.dtype == (np.float64 if dtype is np.float64 else np.float32)
    close(found, reference(p, before, after), rtol=1e-9 if dtype is np.float64 else 1e-5)
    wide = p if dtype is np.float64 else p.astype(np.float32)
    close(adjust_prior(wide, before, after).array, found, rtol=2e-5)


def test_trained_on_even_classes_deployed_on_rare_ones() -> None:
    found = adjust_prior([[0.5, 0.5], [0.01, 0.99]], EVEN, [0.99, 0.01])
    close(found.array, [[0.99, 0.01], [0.5, 0.5]], rtol=1e-12)


@pytest.mark.slow
def test_blocks_of_rows_are_all_adjusted() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(2), 700_000)
    close(adjust_prior(p, EVEN, [0.1, 0.9]).array, reference(p, EVEN, [0.1, 0.9]), rtol=1e-9)


def test_names_stay_and_may_say_the_prior() -> None:
    outputs = Probabilities([[0.2, 0.8]], classes=["cat", "dog"])
    found = adjust_prior(outputs, {"dog": 0.5, "cat": 0.5}, {"dog": 0.1, "cat": 0.9})
    assert found.classes == ("cat", "dog")
    close(found.array, reference([[0.2, 0.8]], EVEN, [0.9, 0.1]))


def test_members_are_their_mean() -> None:
    members = Members([[[0.2, 0.8]], [[0.4, 0.6]]])
    close(adjust_prior(members, EVEN, [0.9, 0.1]).array, reference([[0.3, 0.7]], EVEN, [0.9, 0.1]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_class_of_prior_0_gets_0_even_where_it_was_sure(dtype: Any) -> None:
    after = [0.0, 0.75, 0.25]
    p = np.array([[0.5, 0.25, 0.25], [1, 0, 0]], dtype)
    found = adjust_prior(p, [0.5, 0.25, 0.25], after).array
    close(found, [[0, 0.75, 0.25], [0, 0.75, 0.25]], rtol=1e-6)
    assert (found[:, 0] == 0).all()
    logits = np.array([[1e4, 0, 0], [1e4, 0, -1e4]], dtype)
    found = adjust_prior(Logits(logits), [0.5, 0.25, 0.25], after).array
    close(found, np.array([[0, 0.75, 0.25], [0, 1, 0]]), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_near_the_largest_number_leave_probabilities(dtype: Any) -> None:
    top = float(np.finfo(dtype).max) / 4
    logits = Logits(np.array([[top, 0, 0], [top, 0, -top], [-top, -top, top]], dtype))
    found = adjust_prior(logits, [0.5, 0.25, 0.25], [0.0, 0.75, 0.25]).array
    assert (found[:, 0] == 0).all()
    close(found.sum(axis=1), np.ones(3), rtol=1e-6)
    assert found[2].tolist() == [0, 0, 1]


def test_no_saturated_logit_is_lost_in_float32() -> None:
    logits = Logits(np.array([[0, 60]], np.float32))
    found = adjust_prior(logits, [1 - 1e-30, 1e-30], [1 - 1e-30, 1e-30])
    close(found.array, special.softmax([[0, 60.0]], axis=1), rtol=1e-5)
    shifted = adjust_prior(logits, EVEN, [1.0, 1e-30]).array
    close(shifted, special.softmax([[0, 60.0 + np.log(1e-30)]], axis=1), rtol=1e-5)


@pytest.mark.slow
@settings(max_examples=75)
@given(st.data())
def test_there_and_back_again(data: Any) -> None:
    dtype = data.draw(st.sampled_from([np.float32, np.float64]))
    shape = data.draw(st.tuples(st.integers(0, 4), st.integers(2, 5)))
    elements = st.floats(-50, 50, width=32)
    logits = data.draw(hnp.arrays(dtype, shape, elements=elements))
    shares = data.draw(hnp.arrays(np.float64, (2, shape[1]), elements=st.floats(0.01, 1)))
    before, after = shares / shares.sum(axis=1, keepdims=True)
    there = adjust_prior(Logits(logits), before, after)
    close(there.array.sum(axis=1), 1, rtol=1e-5)
    back = adjust_prior(there, after, before).array
    expected = special.softmax(logits.astype(np.float64), axis=1)
    close(back, expected, rtol=2e-5 if dtype is np.float32 else 1e-9, atol=1e-30)


def test_the_callers_array_is_not_changed() -> None:
    p = np.array([[0.2, 0.8]])
    adjust_prior(p, EVEN, [0.1, 0.9])
    assert p.tolist() == [[0.2, 0.8]]
    assert p.flags.writeable


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            [0.0, 1.0],
            EVEN,
            r"`train_prior` .*got 0 for class 0\. Drop columns that no",
        ),
        (
            EVEN,
            [1.0],
            r"`deploy_prior` .*got 1\. Give one for every",
        ),
        (
            EVEN,
            [1, 99],
            r"`deploy_prior`.*must sum to 1, got 100\.",
        ),
        (
            EVEN,
            [[0.5, 0.5]],
            r"`deploy_prior` .*got shape \(1, 2\)\. Give one for every",
        ),
        (
            EVEN,
            {"cat": 1.0},
            r"`deploy_prior` .*got \['cat'\]\. Use the class names",
        ),
    ],
)
def test_a_prior_that_is_none(before: Any, after: Any, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        adjust_prior([[0.5, 0.5]], before, after)
    assert re.search(message, str(caught.value))


def test_a_prior_that_is_no_list() -> None:
    with pytest.raises(BadTypeError) as caught:
        adjust_prior([[0.5, 0.5]], EVEN, 0.5)
    assert re.search(r"`deploy_prior`.*a single float\.", str(caught.value))
