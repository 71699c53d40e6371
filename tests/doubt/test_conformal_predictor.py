"""Thresholds: the right rank, in each group, and never lower for being streamed."""

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import GaussianNB

from dubito import Logits, Normal
from dubito.data import Batch, Shards
from dubito.doubt import ConformalClassifier, ConformalRegressor, estimate_density_ratio
from dubito.doubt.conformal.predictor import (
    _finite_scores,
    _group_names,
    _threshold,
    _weighted_thresholds,
    rows_needed,
)
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.measure import RankingState


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
    assert (expected is None) == (len(scores) < rows_needed(float(level)))


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
    assert rows_needed(level) == n_rows


def test_groups_have_names_whatever_they_are() -> None:
    names, positions = _group_names(np.array([2, None, "a", 2, np.nan], dtype=object), 5)
    assert names == ["(missing)", "2", "a"]
    assert positions.tolist() == [1, 0, 2, 1, 0]
    assert _group_names(None, 2)[1].tolist() == [0, 0]
    names, positions = _group_names(np.array([2.5, np.nan, -1, np.nan]), 4)
    assert [names[i] for i in positions] == ["2.5", "(missing)", "-1.0", "(missing)"]
    names, positions = _group_names(np.array([True, False]), 2)
    assert [names[i] for i in positions] == ["True", "False"]


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 9)), min_size=1, max_size=30),
    st.lists(st.integers(0, 40), min_size=1, max_size=5),
    st.sampled_from([0.1, 0.5, 0.75, 0.9]),
)
def test_each_new_row_has_the_threshold_of_its_own_weight(
    rows: list[tuple[int, int]], new: list[int], level: float
) -> None:
    """The smallest score whose weight, of all and the new row's, is at least the level."""
    weight = [float(w) for _, w in rows]
    found = _weighted_thresholds(
        _finite_scores(state_of([s for s, _ in rows], weight)), level, np.array(new, float)
    )
    if not any(weight):
        return
    for threshold, own in zip(found, new, strict=True):
        total = sum(weight) + own
        expected = (s for s in range(-5, 6) if sum(w for t, w in rows if t <= s) / total >= level)
        assert threshold == next(expected, np.inf)


def test_equal_density_ratios_change_nothing_and_only_their_ratio_counts() -> None:
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(99, 3)), rng.integers(0, 3, 99)
    plain = ConformalClassifier(0.7).fit(Logits(logits), y)
    for ratio in (1.0, 0.125, 8.0):
        fitted = ConformalClassifier(0.7).fit(Logits(logits), y, density_ratio=np.full(99, ratio))
        assert fitted.thresholds_ == plain.thresholds_
        assert fitted.n_rows_ == pytest.approx(plain.n_rows_)
        found = fitted.predict(Logits(logits), density_ratio=np.full(99, ratio)).contains
        assert (found == plain.predict(Logits(logits)).contains).all()


def shifted(n_rows: int, seed: int) -> tuple[Any, Any, Any]:
    """Return predictions of 0, targets whose spread grows with x, and the density ratio to x > 0.5.

    Calibration rows have x uniform from 0 to 1, new rows the density 2x.
    """
    rng = np.random.default_rng(seed)
    x = rng.random(n_rows)
    return np.zeros(n_rows), x * rng.normal(size=n_rows), 2 * x


def test_a_density_ratio_restores_coverage_under_shift() -> None:
    outputs, y, ratio = shifted(4000, 0)
    new, new_y, new_ratio = shifted(20_000, 1)
    is_drawn = np.random.default_rng(2).random(20_000) < new_ratio / 2
    new, new_y, new_ratio = new[is_drawn], new_y[is_drawn], new_ratio[is_drawn]
    plain = ConformalRegressor(0.9, "absolute").fit(outputs, y).predict(new).coverage(new_y)
    fitted = ConformalRegressor(0.9, "absolute").fit(outputs, y, density_ratio=ratio)
    weighted = fitted.predict(new, density_ratio=new_ratio)
    assert plain < 0.87
    assert abs(weighted.coverage(new_y) - 0.9) < 0.015
    assert 2900 < fitted.n_rows_["all"] < 3100  # (E w)^2 / E w^2 = 3/4
    kept = ConformalRegressor.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert (kept.predict(new, density_ratio=new_ratio).high == weighted.high).all()


def test_groups_are_weighted_each_by_itself() -> None:
    outputs, y, ratio = shifted(400, 0)
    groups = np.arange(400) % 2
    fitted = ConformalRegressor(0.9, "absolute").fit(outputs, y, groups, ratio)
    found = fitted.predict(outputs, groups, ratio).high
    for group in (0, 1):
        rows = groups == group
        alone = ConformalRegressor(0.9, "absolute").fit(
            outputs[rows], y[rows], density_ratio=ratio[rows]
        )
        assert (alone.predict(outputs[rows], density_ratio=ratio[rows]).high == found[rows]).all()


def test_a_row_that_outweighs_the_others_is_unbounded_with_a_warning() -> None:
    outputs, y, ratio = shifted(50, 0)
    fitted = ConformalRegressor(0.9, "absolute").fit(outputs, y, density_ratio=ratio)
    with pytest.warns(DubitoWarning, match="density ratio of 1 of 2 rows is too large"):
        high = fitted.predict([0.0, 0.0], density_ratio=[1.0, 1000.0]).high
    assert np.isfinite(high).tolist() == [True, False]


class Streamed(Shards):
    """One batch, as if it were streamed."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return iter([partial(lambda one: one, self.batch)])


OUTPUTS, TARGETS, RATIO = shifted(30, 0)
PLAIN = ConformalRegressor(0.9).fit(OUTPUTS, TARGETS)
WEIGHTED = ConformalRegressor(0.9).fit(OUTPUTS, TARGETS, density_ratio=RATIO)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: PLAIN.predict(OUTPUTS, density_ratio=RATIO),
            BadTypeError,
            "was fitted without ratios, got ratios. Leave out density_ratio, or pass",
        ),
        (
            lambda: WEIGHTED.predict(OUTPUTS),
            BadTypeError,
            "was fitted with ratios, got none. Pass density_ratio, or fit without",
        ),
        (
            lambda: ConformalRegressor().fit(OUTPUTS, TARGETS, density_ratio=-RATIO),
            BadValueError,
            "`density_ratio` must be from 0 to 1e100.*in row 0.*not their logarithms",
        ),
        (
            lambda: ConformalRegressor().fit(OUTPUTS, TARGETS, density_ratio=RATIO[:3]),
            BadValueError,
            "`density_ratio` must have length 30",
        ),
        (
            lambda: ConformalRegressor().fit(
                Streamed(Batch.of(TARGETS, Normal(OUTPUTS, OUTPUTS + 1))), density_ratio=RATIO
            ),
            BadTypeError,
            "`density_ratio` must be None where rows are streamed",
        ),
        (
            lambda: estimate_density_ratio(np.ones((3, 2)), np.ones((3, 1))),
            BadValueError,
            "`new_features` must have 2 columns, like features, got 1",
        ),
        (
            lambda: estimate_density_ratio(np.ones((1, 2)), np.ones((3, 2))),
            BadValueError,
            "`features` must have at least 2 rows, got 1",
        ),
    ],
)
def test_wrong_ratios_are_reported(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


def test_scores_that_do_not_increase_raise() -> None:
    kept = WEIGHTED.to_dict()
    kept["fitted"]["weighted_scores_"]["all"]["scores"].reverse()
    with pytest.raises(BadValueError, match="increasing scores"):
        ConformalRegressor.from_dict(kept)


@pytest.mark.parametrize("classifier", [None, GaussianNB()])
def test_estimated_ratios_are_those_of_the_densities(classifier: Any) -> None:
    rng = np.random.default_rng(0)
    known, new = rng.normal(0, 1, (4000, 2)), rng.normal([1, 0], 1, (2000, 2))
    found = estimate_density_ratio(known, new, classifier)
    true = known[:, 0] - 0.5  # the log of N(1, 1) / N(0, 1)
    assert np.abs(np.log(found.calibration) - true).mean() < 0.06
    assert found.calibration.mean() == pytest.approx(1, abs=0.1)
    weights = np.exp(true)
    assert found.effective_rows == pytest.approx(weights.sum() ** 2 / (weights**2).sum(), rel=0.25)
    clipped = estimate_density_ratio(known, new, classifier, max_ratio=2)
    assert 0.5 <= clipped.calibration.min() <= clipped.new.max() <= 2
    assert clipped.n_clipped > 1000
