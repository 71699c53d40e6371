"""Areas of error along one feature, against quadrature and closed forms."""

import re
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dubito.decide import CostMatrix, error_areas
from dubito.errors import BadTypeError, BadValueError, DubitoError

GRID = np.linspace(-12, 12, 241)


def gaussians(means: Any, widths: Any) -> list[Any]:
    return [stats.norm(mean, width) for mean, width in zip(means, widths, strict=True)]


@pytest.mark.slow
@settings(max_examples=60)
@given(
    st.floats(0.05, 0.95),
    st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    st.tuples(st.floats(0.3, 1.5), st.floats(0.3, 1.5)),
    st.lists(st.floats(-5, 5), min_size=1, max_size=3, unique=True),
)
def test_areas_are_those_of_the_closed_form(prior: Any, means: Any, widths: Any, cuts: Any) -> None:
    pair, cuts = gaussians(means, widths), sorted(cuts)
    areas = error_areas([prior, 1 - prior], [one.pdf for one in pair], GRID, cuts)
    edges = [-np.inf, *cuts, np.inf]
    missed = [0.0, 0.0]
    for number, (low, high) in enumerate(pairwise(edges)):
        other = 1 - number % 2
        share = (prior, 1 - prior)[other]
        missed[other] += share * (pair[other].cdf(high) - pair[other].cdf(low))
    np.testing.assert_allclose(areas.decision.missed, missed, atol=1e-8)
    assert areas.decision.cost == pytest.approx(sum(missed), abs=1e-8)
    assert areas.decision.decided.tolist() == [k % 2 for k in range(len(cuts) + 1)]
    assert areas.avoidable >= -1e-9
    np.testing.assert_allclose(areas.joint[0], prior * pair[0].pdf(GRID))
    np.testing.assert_allclose(areas.joint[1], (1 - prior) * pair[1].pdf(GRID))


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.floats(0.05, 0.95),
    st.floats(0.5, 3),
    st.floats(0.4, 1.5),
    st.floats(0.2, 5),
    st.floats(0.2, 5),
)
def test_the_best_boundary_of_equal_gaussians(
    prior: float, mean: float, width: float, false_positive: float, false_negative: float
) -> None:
    pair = gaussians((-mean, mean), (width, width))
    costs = CostMatrix.from_errors(false_positive=false_positive, false_negative=false_negative)
    best = error_areas([prior, 1 - prior], [one.pdf for one in pair], GRID, costs=costs).best
    odds = prior * false_positive / ((1 - prior) * false_negative)
    boundary = width**2 / (2 * mean) * np.log(odds)
    assert best.boundaries.tolist() == pytest.approx([boundary], abs=1e-9)
    assert best.decided.tolist() == [0, 1]
    missed = [prior * pair[0].sf(boundary), (1 - prior) * pair[1].cdf(boundary)]
    assert best.missed.tolist() == pytest.approx(missed, abs=1e-9)
    assert best.cost == pytest.approx(
        false_positive * missed[0] + false_negative * missed[1], abs=1e-8
    )


def test_a_narrow_class_inside_a_wide_one_has_two_boundaries() -> None:
    pair = gaussians((0, 0.5), (2, 0.5))
    areas = error_areas([0.4, 0.6], [one.pdf for one in pair], GRID)
    # log 0.4 - log 2 - x^2 / 8 = log 0.6 - log 0.5 - 2 (x - 0.5)^2
    roots = sorted(np.roots([-1 / 8 + 2, -2, 0.5 + np.log(0.4 * 0.5 / (2 * 0.6))]).tolist())
    assert areas.best.boundaries.tolist() == pytest.approx(roots)
    assert areas.best.decided.tolist() == [0, 1, 0]
    assert areas.decision is areas.best
    assert areas.avoidable == 0
    least, _ = integrate.quad(
        lambda x: min(0.4 * pair[0].pdf(x), 0.6 * pair[1].pdf(x)), -12, 12, points=roots, limit=200
    )
    assert areas.best.cost == pytest.approx(least, abs=1e-9)
    turned = error_areas([0.6, 0.4], [pair[1].pdf, pair[0].pdf], GRID)
    assert turned.best.decided.tolist() == [1, 0, 1]
    assert turned.best.missed.tolist() == pytest.approx(areas.best.missed[::-1].tolist())
    assert turned.best.at([-5, 0.5, 5]).tolist() == [1, 0, 1]
    assert turned.best.at(turned.best.boundaries).tolist() == [1, 0]


@pytest.mark.slow
def test_no_boundaries_on_a_fine_grid_cost_less_than_the_best() -> None:
    pair = gaussians((0, 1), (2, 0.7))
    costs = CostMatrix([[-1, 4], [1, 0.5]])
    asked = partial(error_areas, [0.5, 0.5], [one.pdf for one in pair], GRID, costs=costs)
    best, missed = asked().best.cost, asked().best.missed
    others = [
        asked([low, high]).decision.cost
        for low in np.linspace(-3, 1, 11)
        for high in np.linspace(1.1, 5, 11)
    ]
    assert best <= min(others) + 1e-12
    assert min(others) == pytest.approx(best, abs=0.03)
    kept = 0.5 - missed
    assert best == pytest.approx(-kept[0] + 0.5 * kept[1] + missed[0] + 4 * missed[1])


def test_arrays_are_straight_lines_between_points() -> None:
    x = np.array([0.0, 1.0, 3.0, 4.0])
    first, second = np.array([0.8, 0.4, 0.1, 0.0]), np.array([0.0, 0.1, 0.5, 0.7])
    first /= np.trapezoid(first, x)
    second /= np.trapezoid(second, x)
    areas = error_areas([0.5, 0.5], [first, second], x, 2.25)
    missed = [
        integrate.quad(lambda at: 0.5 * np.interp(at, x, first), 2.25, 4, points=[3])[0],
        integrate.quad(lambda at: 0.5 * np.interp(at, x, second), 0, 2.25, points=[1])[0],
    ]
    np.testing.assert_allclose(areas.decision.missed, missed, atol=1e-12)
    (boundary,) = areas.best.boundaries
    assert np.interp(boundary, x, first) == pytest.approx(np.interp(boundary, x, second))


def test_where_nothing_is_to_be_decided_nothing_changes() -> None:
    same = stats.norm.pdf
    alike = error_areas([0.5, 0.5], [same, same], GRID).best
    assert (alike.boundaries.tolist(), alike.decided.tolist()) == ([], [0])
    assert alike.cost == pytest.approx(0.5)
    certain = error_areas([0, 1], [same, same], GRID).best
    assert (certain.boundaries.tolist(), certain.decided.tolist()) == ([], [1])
    assert certain.cost == pytest.approx(0)
    # Beyond x = 40 both densities are 0 in floating point, left of the second class too.
    far = error_areas(
        [0.5, 0.5], [one.pdf for one in gaussians((1, -1), (1, 1))], np.linspace(-99, 99, 991)
    ).best
    assert far.decided.tolist() == [1, 0]
    assert far.boundaries.tolist() == pytest.approx([0], abs=1e-9)
    x = np.array([0.0, 1.0, 1.001, 2.0, 2.001, 3.0])
    apart = error_areas([0.5, 0.5], [[1, 1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1]], x).best
    assert apart.decided.tolist() == [0, 1]
    assert 1.001 <= apart.boundaries[0] <= 2.0
    assert apart.cost == pytest.approx(0, abs=1e-12)


def mass(one: Any, low: float, high: float) -> float:
    """Return the mass of a density, by quadrature."""
    return float(integrate.quad(one.pdf, low, high, epsabs=1e-13, limit=200)[0])


def test_three_classes_have_the_boundaries_and_areas_of_the_closed_form() -> None:
    priors, means = np.array([0.2, 0.5, 0.3]), (-2.0, 0.0, 2.5)
    three = gaussians(means, (1, 1, 1))
    areas = error_areas(priors, [one.pdf for one in three], GRID, [-2.0, 3.0])
    cuts = [
        (low + high) / 2 + np.log(priors[k] / priors[k + 1]) / (high - low)
        for k, (low, high) in enumerate(pairwise(means))
    ]
    assert areas.best.boundaries.tolist() == pytest.approx(cuts, abs=1e-9)
    assert areas.best.decided.tolist() == areas.decision.decided.tolist() == [0, 1, 2]
    for decision, bounds in ((areas.best, cuts), (areas.decision, [-2.0, 3.0])):
        edges = [-12, *bounds, 12]
        hit = [priors[k] * mass(three[k], edges[k], edges[k + 1]) for k in range(3)]
        np.testing.assert_allclose(decision.correct, hit, atol=1e-9)
        np.testing.assert_allclose(decision.missed, priors - hit, atol=1e-9)
        assert decision.p_correct == pytest.approx(sum(hit), abs=1e-9)
        assert decision.p_correct + decision.p_mistake == pytest.approx(1, abs=1e-9)
        assert decision.cost == pytest.approx(decision.p_mistake, abs=1e-9)


def test_costs_of_three_classes_with_reject_have_the_least_expected_cost_everywhere() -> None:
    priors = np.array([0.3, 0.4, 0.3])
    four = gaussians((-1.5, 0.2, 1.0), (1, 0.4, 1.6))
    costs = CostMatrix([[0, 2, 6], [1, 0, 1], [3, 4, 0]]).with_reject(0.45)
    best = error_areas(priors, [one.pdf for one in four], GRID, costs=costs).best

    def least(x: float) -> float:
        joint = priors * [one.pdf(x) for one in four]
        return float((costs.array @ joint).min())

    edges = [-12, *best.boundaries, 12]
    expected = sum(
        integrate.quad(least, low, high, epsabs=1e-12, limit=200)[0]
        for low, high in pairwise(edges)
    )
    assert best.cost == pytest.approx(expected, abs=1e-9)
    assert costs.reject in best.decided
    rejected = sum(
        priors[k] * mass(four[k], low, high)
        for (low, high), action in zip(pairwise(edges), best.decided, strict=True)
        for k in range(3)
        if action == costs.reject
    )
    assert best.p_correct + best.p_mistake + rejected == pytest.approx(1, abs=1e-9)
    inner = np.setdiff1d(np.linspace(-6, 6, 301), best.boundaries)
    joint = priors[:, None] * np.stack([one.pdf(inner) for one in four])
    assert best.at(inner).tolist() == (costs.array @ joint).argmin(axis=0).tolist()


def test_a_third_region_inside_one_step_of_the_grid_is_found() -> None:
    # The boundaries of the class in the middle are -0.02 and 0.02, between two grid points.
    priors = np.array([1, np.exp(-1.96), 1])
    priors /= priors.sum()
    three = gaussians((-2, 0, 2), (1, 1, 1))
    best = error_areas(priors, [one.pdf for one in three], GRID + 0.05).best
    assert best.decided.tolist() == [0, 1, 2]
    assert best.boundaries.tolist() == pytest.approx([-0.02, 0.02], abs=1e-9)


def test_intervals_take_the_actions_that_are_given() -> None:
    areas = error_areas([0.5, 0.5], PAIR, GRID, [-1, 1], decided=[1, 1, 0])
    assert areas.decision.decided.tolist() == [1, 1, 0]
    assert areas.decision.missed.tolist() == pytest.approx(
        [0.5 * stats.norm(-1).cdf(1), 0.5 * stats.norm(1).sf(1)], abs=1e-9
    )


PAIR = (stats.norm(-1).pdf, stats.norm(1).pdf)
NAME = "of error_areas must be"

BAD: list[tuple[dict[str, Any], type[DubitoError], str]] = [
    (
        {"priors": [1.0]},
        BadValueError,
        r"`priors` .*got shape \(1,\)\. Use priors=\[0\.5, 0\.5\]",
    ),
    (
        {"priors": [0.5, 0.6]},
        BadValueError,
        r"`priors` must sum to 1, got 1\.1",
    ),
    (
        {"densities": PAIR[:1]},
        BadValueError,
        r"`densities` .*got 1\. Pass one function of",
    ),
    (
        {"densities": PAIR[0]},
        BadTypeError,
        r"`densities` .*got method\. Pass one function of",
    ),
    (
        {"densities": (PAIR[0], lambda x: 2 * PAIR[1](x))},
        BadValueError,
        r"`densities\[1\]` .*got 2\. Use a wider or",
    ),
    (
        {"densities": (np.ones(3), PAIR[1])},
        BadValueError,
        r"`densities\[0\]`.*length 3\.",
    ),
    (
        {"densities": (lambda x: x, PAIR[1])},
        BadValueError,
        r"`densities\[0\]` .*got -12\.0 in row 0\. Pass densities, not their",
    ),
    (
        {"x": [1.0]},
        BadValueError,
        r"`x` .*got 1\. Use np\.linspace\(low, high, 201\)",
    ),
    (
        {"x": [1.0, 1.0, 2.0]},
        BadValueError,
        r"`x` .*got 1\.0 in row 1\. Use np\.unique\(x\)",
    ),
    (
        {"boundary": 13},
        BadValueError,
        r"`boundary` .*got 13\.0 in row 0\. Pass sorted numbers inside",
    ),
    (
        {"boundary": [1, float("nan")]},
        BadValueError,
        r"`boundary` .*got nan in row 1\. Pass sorted numbers inside",
    ),
    (
        {"costs": CostMatrix.zero_one(3)},
        BadValueError,
        r"3 classes",
    ),
    (
        {"boundary": 0.0, "decided": [0, 2]},
        BadValueError,
        r"`decided` must be 2 actions from 0 to 1, one per interval, got \[0, 2\]\. Pass one",
    ),
]


@pytest.mark.parametrize(("change", "kind", "message"), BAD)
def test_invalid_arguments_raise(change: Any, kind: type[DubitoError], message: str) -> None:
    given_: Any = {"priors": [0.5, 0.5], "densities": PAIR, "x": GRID}
    with pytest.raises(kind) as caught:
        error_areas(**{**given_, **change})
    assert re.search(message, str(caught.value))
