"""Tests and bounds of the mean of bounded losses."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dubito.decide.reject import LossUnit, RankedLosses, _binomial_bound, threshold_at_risk


def ranked(loss: Any, confidence: Any = None) -> RankedLosses:
    loss = np.asarray(loss, dtype=np.float64)
    scores = np.linspace(0, 0.5, loss.size) if confidence is None else 1 - confidence
    return RankedLosses.of(scores, loss, np.ones(loss.size), is_binary=False)


def test_the_upper_bound_is_that_of_clopper_and_pearson() -> None:
    for k, n in [(0, 1), (0, 30), (3, 30), (29, 30), (30, 30), (0, 0)]:
        expected = stats.beta.ppf(0.9, k + 1, n - k) if k < n else 1.0
        assert float(_binomial_bound(k, n, 0.1)) == pytest.approx(expected, rel=1e-9)
    tail = stats.binom.cdf(3, 30, float(_binomial_bound(3, 30, 0.1)))
    assert tail == pytest.approx(0.1)


def wealth_by_hand(losses: Any, limit: float, level: float) -> float:
    """Return the largest wealth of the predictable bets, one loss at a time."""
    wealth = largest = 1.0
    total, squares = limit, limit * (1 - limit)
    for i, loss in enumerate(losses):
        bet = (2 * np.log(1 / level) / (len(losses) * squares / (i + 1))) ** 0.5
        wealth *= 1 + min(bet, 0.9 / (1 - limit)) * (limit - loss)
        largest = max(largest, wealth)
        total += loss
        squares += (loss - total / (i + 2)) ** 2
    return largest


def test_the_p_value_of_bounded_losses_is_the_inverse_of_the_largest_wealth() -> None:
    rng = np.random.default_rng(0)
    losses = rng.beta(0.3, 3, 60)
    found = ranked(losses).p_value(40, 0.2, 0.05)
    order = np.random.default_rng(0).permutation(60)
    assert found == pytest.approx(1 / wealth_by_hand(losses[order[order < 40]], 0.2, 0.05))
    assert ranked(losses).p_value(40, 1.0, 0.05) == 0
    assert ranked(losses).p_value(40, 0.0, 0.05) == 1


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(0.1, 0.9), (2.0, 18.0)])  # almost 0 or 1; all near the mean
def test_a_mean_at_the_limit_is_rarely_called_lower(shape: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    p_values = [ranked(rng.beta(*shape, 100)).p_value(100, 0.1, 0.1) for _ in range(2000)]
    assert np.mean(np.array(p_values) <= 0.1) <= 0.1
    lower = [
        ranked(rng.beta(shape[0], 3 * shape[1], 200)).p_value(200, 0.1, 0.1) for _ in range(50)
    ]
    assert np.mean(np.array(lower) <= 0.1) > 0.5


def test_the_bound_of_a_mean_is_where_the_p_value_is_the_level() -> None:
    losses = np.random.default_rng(1).beta(0.5, 5, 300)
    rows = ranked(losses)
    bound = rows.upper_bound(300, 0.05)
    assert losses.mean() < bound < losses.mean() + 0.05
    assert rows.p_value(300, bound, 0.05) == pytest.approx(0.05, abs=1e-3)
    assert ranked([1.0] * 5).upper_bound(5, 0.05) == 1.0


@pytest.mark.slow
def test_the_mean_cost_is_kept_in_as_many_draws_as_promised() -> None:
    rng = np.random.default_rng(0)
    n_broken, kept = 0, []
    for _ in range(1000):
        score = rng.random(300)  # the mean loss above a score s is 0.05 + 0.15 (1 - s)
        loss = (0.05 + 0.3 * (1 - score)) * 2 * rng.random(300)
        choice = threshold_at_risk(ranked(loss, score), 0.15, 0.1)
        kept.append(1 - choice.threshold if choice.is_met else 0.0)
        n_broken += choice.is_met and 0.05 + 0.15 * (1 - choice.threshold) > 0.15
    assert n_broken <= 100
    assert np.mean(kept) > 0.4  # of 2 / 3


def test_costs_in_words_and_units() -> None:
    unit = LossUnit(-1.0, 9.0, is_cost=True)
    choice = threshold_at_risk(ranked([0.2] * 400), 0.3, 0.05, unit)
    assert choice.is_met
    assert [choice.risk, choice.risk_bound] == pytest.approx([1.0, 2.0])
    assert choice.summary == (
        "100.0 % of 400 rows are accepted (expected cost below 9). Their mean cost is 1, "
        "and at most 2 with 95 % confidence."
    )
    none = threshold_at_risk(ranked([0.2] * 400), 0.05, 0.05, unit)
    assert (none.is_met, none.threshold, none.coverage) == (False, 1.0, 0.0)
    assert none.risk_bound > 0
    assert none.summary.startswith(
        "No threshold guarantees a mean cost of at most -0.5 with 95 % confidence on 400 rows; the "
        "bound for the "
    )
    assert none.summary.endswith("All rows are rejected. Use more rows, or a higher limit.")


def test_very_many_rows_are_thinned_before_betting() -> None:
    rows = RankedLosses.of(np.array([0.1, 0.2]), np.array([0.0, 0.5]), np.full(2, 4e6), False)
    assert rows.n_rows == pytest.approx(1_000_000, rel=0.01)
