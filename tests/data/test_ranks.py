"""Rows are sorted once, and weights summed over runs of equal scores."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from dubito.data.batch import Ranks


def dictionary_sums(scores: Any, weights: Any) -> dict[float, float]:
    sums: dict[float, float] = defaultdict(float)
    for score, weight in zip(scores, weights, strict=True):
        sums[float(score)] += float(weight)
    return dict(sorted(sums.items()))


def test_rows_come_in_the_order_of_their_score() -> None:
    ranks = Ranks.of(np.array([0.3, 0.1, 0.2]))
    assert ranks.order.tolist() == [1, 2, 0]
    assert ranks.starts.tolist() == [0, 1, 2]
    assert ranks.values.tolist() == [0.1, 0.2, 0.3]


def test_equal_scores_are_one_run_in_the_order_they_came() -> None:
    ranks = Ranks.of(np.array([0.5, 0.1, 0.5, 0.1, 0.5]))
    assert ranks.order.tolist() == [1, 3, 0, 2, 4]
    assert ranks.starts.tolist() == [0, 2]
    assert ranks.values.tolist() == [0.1, 0.5]
    assert ranks.sums(np.array([1.0, 2.0, 4.0, 8.0, 16.0])).tolist() == [10.0, 21.0]


@pytest.mark.parametrize("scores", [[0.25], [0.25] * 7], ids=["one row", "all the same"])
def test_there_may_be_one_run_alone(scores: list[float]) -> None:
    ranks = Ranks.of(np.array(scores))
    assert ranks.values.tolist() == [0.25]
    assert ranks.sums(np.ones(len(scores))).tolist() == [len(scores)]


def test_no_rows_have_no_runs() -> None:
    ranks = Ranks.of(np.empty(0))
    for numbers in (ranks.order, ranks.starts, ranks.values, ranks.sums(np.empty(0))):
        assert numbers.shape == (0,)


def test_neighboring_numbers_are_not_equal_and_signed_zeros_are() -> None:
    tiny = float(np.finfo(np.float64).smallest_subnormal)
    ranks = Ranks.of(np.array([1.0, np.nextafter(1, 0), -0.0, tiny, 0.0]))
    assert ranks.sums(np.ones(5)).tolist() == [2.0, 1.0, 1.0, 1.0]


def test_scores_may_be_infinite_or_far_apart() -> None:
    largest = float(np.finfo(np.float64).max)
    ranks = Ranks.of(np.array([np.inf, -largest, -np.inf, largest, np.inf, -np.inf]))
    assert ranks.values.tolist() == [-np.inf, -largest, largest, np.inf]
    assert ranks.sums(np.ones(6)).tolist() == [2.0, 1.0, 1.0, 2.0]


def test_a_run_without_weight_stays_a_run() -> None:
    assert Ranks.of(np.array([0.1, 0.2])).sums(np.array([0.0, 3.0])).tolist() == [0.0, 3.0]


def test_scores_and_weights_are_left_unchanged() -> None:
    scores, weights = np.array([0.3, 0.1]), np.array([1.0, 2.0])
    Ranks.of(scores).sums(weights)
    assert (scores.tolist(), weights.tolist()) == ([0.3, 0.1], [1.0, 2.0])


@pytest.mark.slow
@settings(max_examples=75)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.1, 0.5, 1.0]) | st.floats(allow_nan=False),
            st.floats(0, 100),
        ),
        max_size=50,
    ),
    st.sampled_from([np.float32, np.float64]),
)
def test_sums_are_those_of_a_dictionary(rows: list[tuple[float, float]], dtype: Any) -> None:
    with np.errstate(over="ignore"):
        scores = np.array([score for score, _ in rows], np.float64).astype(dtype)
    weights = np.array([weight for _, weight in rows], np.float64)
    ranks = Ranks.of(scores)
    expected = dictionary_sums(scores, weights)
    assert ranks.values.tolist() == list(expected)
    assert_allclose(ranks.sums(weights), list(expected.values()), rtol=1e-12, atol=1e-300)
    assert sorted(ranks.order.tolist()) == list(range(len(rows)))
