"""Thresholds: the right rank, in each group, and never lower for being streamed."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.doubt.conformal.predictor import _group_names, _rows_needed, _threshold
from dubito.measure.ranking import RankingState


def state_of(scores: list[float], weight: list[float] | None = None) -> RankingState:
    n = len(scores)
    return RankingState.of_scores(np.zeros(n), np.array(scores), np.array(weight or [1.0] * n))


@pytest.mark.slow
@given(
    st.lists(st.floats(-10, 10) | st.just(1.0), min_size=1, max_size=60),
    st.integers(1, 999).map(lambda thousandths: Fraction(thousandths, 1000)),
)
def test_the_threshold_is_the_kth_smallest_score(scores: list[float], level: Fraction) -> None:
    k = -(-(len(scores) + 1) * level // 1)  # the ceiling, without rounding
    expected = sorted(scores)[int(k) - 1] if k <= len(scores) else None
    assert _threshold(state_of(scores), float(level)) == expected
    assert (expected is None) == (len(scores) < _rows_needed(float(level)))


def test_a_rank_that_is_whole_is_not_rounded_up() -> None:
    assert np.ceil(100 * 0.07) == 8  # what a plain ceiling would make of it
    assert _threshold(state_of([float(i) for i in range(1, 100)]), 0.07) == 7


def test_a_weight_counts_rows() -> None:
    assert _threshold(state_of([1, 2, 3], [2, 0, 6]), 0.3) == 3
    assert _threshold(state_of([1, 2, 3], [2, 1, 6]), 0.3) == 2


def test_an_infinite_score_is_no_threshold() -> None:
    assert _threshold(state_of([1.0, np.inf]), 0.6) is None
    assert _threshold(state_of([]), 0.6) is None


@pytest.mark.parametrize(
    ("level", "n_rows"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)]
)
def test_how_many_rows_it_takes(level: float, n_rows: int) -> None:
    assert _rows_needed(level) == n_rows


def test_groups_have_names_whatever_they_are() -> None:
    names, positions = _group_names(np.array([2, None, "a", 2, np.nan], dtype=object), 5)
    assert names == ["(missing)", "2", "a"]
    assert positions.tolist() == [1, 0, 2, 1, 0]
    assert _group_names(None, 2)[1].tolist() == [0, 0]
    names, positions = _group_names(np.array([2.5, np.nan, -1, np.nan]), 4)
    assert [names[i] for i in positions] == ["2.5", "(missing)", "-1.0", "(missing)"]
    names, positions = _group_names(np.array([True, False]), 2)
    assert [names[i] for i in positions] == ["True", "False"]
