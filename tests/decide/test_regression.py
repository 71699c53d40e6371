"""One number of a distribution: mean, median, quantile, and when to ask instead."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy import integrate, optimize, stats

from dubito import Normal, Quantiles, Samples
from dubito.decide import (
    decompose_squared_loss,
    estimate_or_reject,
    minimum_expected_loss,
    minkowski_estimate,
    newsvendor_estimate,
)
from dubito.errors import BadTypeError, BadValueError, EmptyStateError, MissingLabelsWarning

RNG = np.random.default_rng(0)
DRAWS = RNG.gamma(2.0, 1.0, (5, 21, 2))
LEVELS = np.array([0.1, 0.4, 0.5, 0.8])
VALUES = np.sort(RNG.normal(size=(5, 4, 2)), axis=1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_two_is_the_mean_and_one_the_median(dtype: Any) -> None:
    draws = DRAWS.astype(dtype)
    close(minkowski_estimate(Samples(draws), 2), draws.astype(float).mean(axis=1), rtol=1e-12)
    close(minkowski_estimate(Samples(draws), 1), np.median(draws.astype(float), axis=1), rtol=1e-12)
    assert minkowski_estimate(Samples(draws), 2).dtype == np.float64


def test_near_two_and_one_the_search_agrees_with_mean_and_median() -> None:
    close(minkowski_estimate(Samples(DRAWS), 2 + 1e-9), DRAWS.mean(axis=1), rtol=1e-7)
    close(minkowski_estimate(Samples(DRAWS), 1 + 1e-9), np.median(DRAWS, axis=1), rtol=1e-6)


def test_to_nought_it_is_the_most_frequent_draw() -> None:
    draws = [[3.0, 1.0, 1.0, 9.0, 1.0, 9.0], [2.0, 2.0, 5.0, 5.0, 5.0, 0.0]]
    assert minkowski_estimate(Samples(draws), 1e-6).tolist() == [1.0, 5.0]


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.2, 1.0, 2.0, 3.5])
def test_of_a_normal_it_is_the_mean(q: float) -> None:
    outputs = Normal([[1.0, -2.0]], [[0.5, 3.0]])
    assert minkowski_estimate(outputs, q).tolist() == [[1.0, -2.0]]
    for column, (mean, std) in enumerate([(1.0, 0.5), (-2.0, 3.0)]):

        def loss(t: float, mean: float = mean, std: float = std) -> float:
            def integrand(y: float) -> float:
                return float(abs(y - t) ** q * stats.norm.pdf(y, mean, std))

            lower = integrate.quad(integrand, mean - 12 * std, t, epsabs=1e-10, limit=200)[0]
            return float(lower + integrate.quad(integrand, t, mean + 12 * std, limit=200)[0])

        best = minimum_expected_loss(outputs, q)[0, column]
        close(best, loss(mean), rtol=1e-6)
        assert all(loss(mean + shift * std) > best for shift in (-0.3, -0.05, 0.05, 0.3))


def test_of_quantiles_it_takes_each_coordinate_by_itself() -> None:
    outputs = Quantiles(VALUES, LEVELS)
    for q in (0.5, 1, 2, 3):
        whole = minkowski_estimate(outputs, q)
        apart = [minkowski_estimate(Quantiles(VALUES[..., k], LEVELS), q) for k in (0, 1)]
        close(whole, np.stack(apart, axis=1))
    close(minkowski_estimate(outputs, 1), VALUES[:, 2])
    below = VALUES[:, :1] - (VALUES[:, 1:2] - VALUES[:, :1]) * 0.1 / 0.3
    above = VALUES[:, -1:] + (VALUES[:, -1:] - VALUES[:, -2:-1]) * 0.2 / 0.3
    knots = np.concatenate([below, VALUES, above], axis=1)
    shares = np.diff(LEVELS, prepend=0.0, append=1.0)[:, np.newaxis]
    mean = (shares * (knots[:, 1:] + knots[:, :-1]) / 2).sum(axis=1)
    close(minkowski_estimate(outputs, 2), mean, rtol=1e-12)


def test_the_least_expected_squared_loss_is_the_variance() -> None:
    close(minimum_expected_loss(Samples(DRAWS), 2), DRAWS.var(axis=1), rtol=1e-12)


@pytest.mark.slow
def test_newsvendor_pays_least_of_all_numbers() -> None:
    under, over = 7.0, 2.0

    def cost(y: Any, t: float) -> Any:
        return under * np.maximum(y - t, 0) + over * np.maximum(t - y, 0)

    draws = DRAWS[..., 0]
    found = newsvendor_estimate(Samples(draws), under, over)
    for row, t in zip(draws, found, strict=True):
        grid = np.concatenate([np.linspace(0, row.max(), 2001), row])
        assert cost(row, t).mean() <= min(cost(row, g).mean() for g in grid) + 1e-12
    levels = (np.arange(4000) + 0.5) / 4000
    y = stats.norm.ppf(levels, 3, 2)
    best = optimize.minimize_scalar(lambda t: cost(y, t).mean(), bounds=(0, 9), method="bounded")
    close(newsvendor_estimate(Normal([3.0], [2.0]), under, over), best.x, atol=1e-2)
    close(newsvendor_estimate(Normal([3.0], [2.0]), under, over), stats.norm.ppf(7 / 9, 3, 2))


def test_newsvendor_lies_between_quantiles_or_on_them() -> None:
    outputs = Quantiles([[0.0, 1.0, 5.0]], [0.2, 0.5, 0.9])
    wanted = [(1.0, 1.0, 1.0), (0.7, 0.3, 3.0), (0.2, 0.8, 0.0), (0.9, 0.1, 5.0)]
    for under, over, value in wanted:
        close(newsvendor_estimate(outputs, under, over), [value], atol=1e-12)
    vectors = newsvendor_estimate(Samples(DRAWS), 3, 1)
    assert vectors.shape == (5, 2)
    close(vectors, np.quantile(DRAWS, 0.75, axis=1, method="inverted_cdf"))


def test_rejects_where_the_loss_of_all_targets_exceeds_the_cost() -> None:
    outputs = Normal([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], [[1.0, 1.0], [1.0, 2.0], [0.5, 0.5]])
    found = estimate_or_reject(outputs, cost=2.0)
    assert found.expected_loss.tolist() == [2.0, 5.0, 0.5]
    assert found.is_rejected.tolist() == [True, True, False]  # reject wins a tie
    assert found.estimate.tolist() == outputs.mean.tolist()
    flat = estimate_or_reject(Normal([0.0, 0.0], [1.0, 3.0]), cost=1.5, q=1)
    close(flat.expected_loss, np.array([1.0, 3.0]) * np.sqrt(2 / np.pi))
    assert flat.is_rejected.tolist() == [False, True]


@pytest.mark.parametrize(
    ("outputs", "variance"),
    [
        (Samples(DRAWS), DRAWS.var(axis=1)),
        (Normal(DRAWS.mean(axis=1), DRAWS.std(axis=1)), DRAWS.var(axis=1)),
    ],
)
def test_the_split_adds_up(outputs: Any, variance: Any) -> None:
    y = RNG.gamma(2.0, 1.0, (5, 2))
    weight = np.array([1.0, 2.0, 0.0, 1.0, 3.0])
    found = decompose_squared_loss(y, outputs, sample_weight=weight)
    total = np.average(((y - DRAWS.mean(axis=1)) ** 2).sum(axis=1), weights=weight)
    noise = np.average(variance.sum(axis=1), weights=weight)
    close([found.total, found.noise, found.model_error], [total, noise, total - noise])
    assert found.n_rows == 4


def test_the_split_finds_a_bias_that_was_put_in() -> None:
    x = RNG.normal(size=200_000)
    y = x + RNG.normal(0, 2, x.size)
    found = decompose_squared_loss(y, Normal(x + 0.5, np.full(x.size, 2.0)))
    close(found.model_error, 0.25, atol=0.05)
    close(found.noise, 4.0)
    assert str(found).startswith("Mean squared error 4.2")
    assert str(found).endswith("model error (200,000 rows).")


def test_missing_targets_are_left_out_of_the_split() -> None:
    outputs = Normal([0.0, 0.0], [1.0, 5.0])
    with pytest.warns(MissingLabelsWarning):
        found = decompose_squared_loss([2.0, np.nan], outputs)
    assert (found.total, found.noise, found.model_error, found.n_rows) == (4.0, 1.0, 3.0, 1)
    with pytest.raises(EmptyStateError):
        decompose_squared_loss([1.0, 1.0], outputs, sample_weight=[0.0, 0.0])


NORMAL = Normal([0.0], [1.0])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: minkowski_estimate([[0.5, 0.5]], 2),
            BadTypeError,
            r"`outputs` .*got list\. Wrap them, as in",
        ),
        (
            lambda: minimum_expected_loss(NORMAL, 0),
            BadValueError,
            r"`q` .*got 0\. Use q=2 for the",
        ),
        (
            lambda: minkowski_estimate(NORMAL, True),
            BadValueError,
            r"`q` .*got True\. Use q=2 for the",
        ),
        (
            lambda: estimate_or_reject(NORMAL, -1.0),
            BadValueError,
            r"`cost` .*got -1\.0\. Use cost=1\.0",
        ),
        (
            lambda: newsvendor_estimate(NORMAL, 1.0, np.inf),
            BadValueError,
            r"`over` .*got inf\. Use over=1\.0",
        ),
        (
            lambda: newsvendor_estimate(NORMAL, 1e300, 1e-300),
            BadValueError,
            r"`under` .*got 1e\+300 and 1e-300\. Use costs of similar",
        ),
        (
            lambda: newsvendor_estimate(Quantiles([[0.0, 1.0]], [0.1, 0.9]), 99, 1),
            BadValueError,
            r"`under` .*got 0\.99\. Pass Quantiles with a",
        ),
        (
            lambda: decompose_squared_loss([0.0], [0.5]),
            BadTypeError,
            r"`outputs` .*got list\. Wrap them, as in",
        ),
    ],
)
def test_errors_say_what_to_do(call: Callable[[], Any], kind: type, message: str) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert re.search(message, str(raised.value))
