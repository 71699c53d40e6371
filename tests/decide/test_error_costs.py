"""Expected costs against integrals, and best values against brute force over a fine grid."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy import integrate, stats

from dubito import ErrorCosts, Normal, Quantiles, Samples
from dubito.decide import newsvendor_estimate
from dubito.errors import BadValueError

RNG = np.random.default_rng(0)
MEANS, STDS = RNG.normal(50, 10, 4), np.array([0.01, 1.0, 4.0, 30.0])
DRAWS = RNG.gamma(3, 4, (4, 31))
LEVELS = np.array([0.05, 0.1, 0.25, 0.5, 0.8, 0.95])
VALUES = np.sort(RNG.normal(20, 8, (4, 6)), axis=1)
VALUES[2, 2] = VALUES[2, 3]  # a point of probability 0.25
VALUES[3] = 7.0
OUTPUTS: dict[str, Any] = {
    "Normal": Normal(MEANS, STDS),
    "Samples": Samples(DRAWS),
    "Quantiles": Quantiles(VALUES, LEVELS),
}
COSTS = {
    "linear": ErrorCosts.linear(under=9, over=1),
    "absolute": ErrorCosts.absolute(),
    "squared": ErrorCosts.squared(2.5),
    "convex": ErrorCosts([-10, -5, 0, 2, 8], [30, 10, 0, 1, 10]),
    "shifted": ErrorCosts([-3, 2, 3], [5, 1, 9]),
    "capped": ErrorCosts([-20, -10, 0, 10, 20], [10, 10, 0, 10, 10]),
    "tolerant": ErrorCosts([-30, -6, -1, 0, 3, 5], [8, 7, 0, 0, 1, 20]),
}


def density_parts(kind: str, row: int) -> list[tuple[float, float, Any]]:
    """Return ranges of a distribution with their densities; points have a number instead."""
    if kind == "Normal":
        one = stats.norm(MEANS[row], STDS[row])
        ends = one.mean() + one.std() * np.linspace(-12, 12, 13)
        return [(a, b, one.pdf) for a, b in pairwise(ends)]
    if kind == "Samples":
        return [(draw, draw, 1 / 31) for draw in DRAWS[row]]
    q, weight = VALUES[row], np.diff(LEVELS, prepend=0.0, append=1.0)
    reach = q[-1] - q[0]
    first = q[0] - min((q[1] - q[0]) * weight[0] / weight[1], reach)
    last = q[-1] + min((q[-1] - q[-2]) * weight[-1] / weight[-2], reach)
    parts: list[tuple[float, float, Any]] = []
    for (a, b), w in zip(pairwise([first, *q, last]), weight, strict=True):
        parts.append((a, b, w if a == b else lambda _, d=w / (b - a): d))
    return parts


def cost_by_hand(costs: ErrorCosts, error: float) -> float:
    """Return the cost of one error, line by line."""
    if costs.square is not None:
        return costs.square * error**2
    points = list(zip(costs.errors, costs.costs, strict=True))
    inside = [pair for pair in pairwise(points) if pair[0][0] <= error <= pair[1][0]]
    outer = (points[0], points[1]) if error < costs.errors[0] else (points[-2], points[-1])
    (a, low), (b, high) = inside[0] if inside else outer
    return low + (high - low) / (b - a) * (error - a)


def cost_by_integral(costs: ErrorCosts, kind: str, row: int, value: float) -> float:
    total = 0.0
    for a, b, density in density_parts(kind, row):
        if a == b:
            total += density * cost_by_hand(costs, value - a)
            continue
        ends = sorted({a, b, *(value - e for e in costs.errors if a < value - e < b)})
        for left, right in pairwise(ends):
            total += integrate.quad(
                lambda y: cost_by_hand(costs, value - y) * density(y),  # noqa: B023
                left,
                right,
                epsabs=1e-12,
                epsrel=1e-12,
            )[0]
    return total


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_expected_costs_are_integrals(kind: str, name: str) -> None:
    costs, outputs = COSTS[name], OUTPUTS[kind]
    best = costs.best(outputs)
    for shift in (0.0, -7.3):
        values = best.value + shift
        found = costs.expected(outputs, values)
        by_hand = [cost_by_integral(costs, kind, row, values[row]) for row in range(4)]
        close(found, by_hand, rtol=1e-9, atol=1e-9)
    close(best.cost, costs.expected(outputs, best.value), rtol=0)


@pytest.mark.parametrize("name", COSTS)
@pytest.mark.parametrize("kind", OUTPUTS)
def test_no_value_of_a_fine_grid_costs_less(kind: str, name: str) -> None:
    costs, outputs = COSTS[name], OUTPUTS[kind]
    best = costs.best(outputs)
    for row in range(4):
        near = best.value[row] + np.linspace(-1e-3, 1e-3, 101)
        grid = np.concatenate([np.linspace(-80, 180, 1500), near])
        one = outputs.take(np.full(grid.size, row))
        assert best.cost[row] <= costs.expected(one, grid).min() + 1e-12


def test_expected_costs_are_means_over_many_draws() -> None:
    draws = MEANS[1] + STDS[1] * RNG.normal(size=200_000)
    for costs in COSTS.values():
        paid = costs.of_errors(MEANS[1] + 0.5 - draws)
        found = costs.expected(Normal(MEANS[1:2], STDS[1:2]), np.array([MEANS[1] + 0.5]))
        assert abs(paid.mean() - found[0]) < 4 * paid.std() / np.sqrt(draws.size)


@pytest.mark.parametrize(("under", "over"), [(9, 1), (1, 1), (3, 5)])
@pytest.mark.parametrize("kind", OUTPUTS)
def test_linear_costs_are_those_of_the_newsvendor(kind: str, under: float, over: float) -> None:
    costs, outputs = ErrorCosts.linear(under, over), OUTPUTS[kind]
    assert costs.fractile == pytest.approx(under / (under + over))
    close(costs.best(outputs).value, newsvendor_estimate(outputs, under, over), rtol=1e-12)
    if kind == "Normal":
        level = under / (under + over)
        expected = (under + over) * STDS * stats.norm.pdf(stats.norm.ppf(level))
        close(costs.best(outputs).cost, expected, rtol=1e-9)


@pytest.mark.parametrize("kind", OUTPUTS)
def test_of_listed_values_the_one_of_lowest_cost_is_taken(kind: str) -> None:
    for costs in COSTS.values():
        listed = ErrorCosts(costs.errors, costs.costs, [0, 10, 20, 50], costs.square)
        each = np.stack(
            [costs.expected(OUTPUTS[kind], np.full(4, v)) for v in (0.0, 10.0, 20.0, 50.0)]
        )
        best = listed.best(OUTPUTS[kind])
        assert (
            best.value.tolist() == np.array([0.0, 10.0, 20.0, 50.0])[each.argmin(axis=0)].tolist()
        )
        close(best.cost, each.min(axis=0), rtol=1e-12)


def test_realized_costs_line_by_line() -> None:
    errors = np.linspace(-40, 40, 33)
    for costs in COSTS.values():
        close(costs.of_errors(errors), [cost_by_hand(costs, e) for e in errors], rtol=1e-12)


def test_huge_and_tiny_numbers_stay_finite() -> None:
    huge: list[Any] = [
        Normal([1e300, -1e200, 1e-300], [1e300, 1e-300, 1e-300]),
        Samples([[1e308, -1e308], [1e-320, 0.0], [5.0, 5.0]]),
        Quantiles([[-1e308, 1e308], [0.0, 0.0], [1e-320, 1e300]], [0.1, 0.9]),
    ]
    for outputs in huge:
        for costs in COSTS.values():
            best = costs.best(outputs)
            assert np.isfinite(best.value).all()
            assert np.isfinite(best.cost).all()
            assert (best.cost >= costs.lowest).all()


@pytest.mark.parametrize(
    ("argument", "given", "rule"),
    [
        ("errors", {"errors": [0, 1], "costs": [0, 1]}, "at least 3 increasing"),
        ("errors", {"errors": [0, 1, 1], "costs": [0, 1, 2]}, "at least 3 increasing"),
        ("errors", {"errors": ["a", "b", "c"], "costs": [1, 0, 1]}, "list of numbers"),
        ("costs", {"errors": [-1, 0, 1], "costs": [1, 0]}, "3 numbers of at least 0"),
        ("costs", {"errors": [-1, 0, 1], "costs": [1, -1, 1]}, "at least 0"),
        ("costs", {"errors": [-1, 0, 1], "costs": [0, 1, 0]}, "fall and then rise"),
        ("costs", {"errors": [-1, 0, 1], "costs": [1, 0, 0]}, "fall and then rise"),
        ("values", {"errors": [-1, 0, 1], "costs": [1, 0, 1], "values": [3, 1]}, "increasing"),
        ("square", {"square": 0.0}, "above 0"),
        ("square", {"errors": [-1, 0, 1], "costs": [1, 0, 1], "square": 1.0}, "None beside"),
    ],
)
def test_costs_that_have_no_best_value_are_rejected(
    argument: str, given: dict[str, Any], rule: str
) -> None:
    with pytest.raises(BadValueError, match=rule) as caught:
        ErrorCosts(**given)
    assert caught.value.argument == argument


def test_costs_are_described() -> None:
    assert str(ErrorCosts.linear(9, 1)) == "9 per unit below the truth, 1 per unit above it"
    assert str(ErrorCosts.absolute()) == "absolute error"
    assert str(ErrorCosts.squared(2, values=[0, 5])) == "2 x squared error; values 0 and 5"
    assert "10 at an error of -5" in str(COSTS["convex"])
