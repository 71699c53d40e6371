"""Cost against coverage and against the prior: each step by hand."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose as close
from scipy.special import softmax

from dubito import Logits, Probabilities
from dubito.decide import CostMatrix, cost_coverage_curve, cost_prior_curve
from dubito.errors import BadValueError
from dubito.measure import risk_coverage_curve


def made(n_rows: int, seed: int = 0) -> tuple[Any, Any]:
    """Return labels drawn from logits of three classes, and these logits."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (n_rows, 3))
    y = (softmax(logits, axis=1).cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    return np.minimum(y, 2), logits


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(0, 60), st.booleans())
@settings(max_examples=40)
def test_each_step_agrees_with_rejecting_the_rest(n_rows: int, seed: int, is_tied: bool) -> None:
    y, logits = made(n_rows, seed)
    rng = np.random.default_rng(seed)
    base, rejecting = rng.random((2, 3)), rng.random(3) / 2
    weight = rng.random(n_rows) + 0.1
    uncertainty = rng.integers(0, 4, n_rows).astype(float) if is_tied else None
    costs = CostMatrix(base, actions=["a", "b"]).with_reject(rejecting)
    found = cost_coverage_curve(
        y, Logits(logits), costs, uncertainty=uncertainty, sample_weight=weight
    )
    p = softmax(logits, axis=1)
    expected = p @ base.T
    acted = base[expected.argmin(axis=1), y]
    scores = expected.min(axis=1) - p @ rejecting if uncertainty is None else uncertainty
    assert found.total is not None
    for level, coverage, cost, total in zip(
        found.uncertainty, found.coverage, found.cost, found.total, strict=True
    ):
        kept = scores <= level + (1e-12 if uncertainty is None else 0)
        close(coverage, weight[kept].sum() / weight.sum())
        close(cost, np.average(acted[kept], weights=weight[kept]))
        close(total, np.average(np.where(kept, acted, rejecting[y]), weights=weight))
    close(found.coverage[-1], 1.0)


def test_under_zero_one_costs_it_is_the_risk_coverage_curve() -> None:
    y, logits = made(300)
    found = cost_coverage_curve(y, Logits(logits), CostMatrix.zero_one(3))
    known = risk_coverage_curve(y, Logits(logits))
    close(found.coverage, known.coverage)
    close(found.cost, known.risk, atol=1e-12)
    assert found.total is None


def test_the_lowest_total_is_where_a_calibrated_model_rejects() -> None:
    y, logits = made(20_000)
    found = cost_coverage_curve(y, Logits(logits), CostMatrix.zero_one(3).with_reject(0.2))
    assert found.total is not None
    by_doubt = found.total[np.searchsorted(found.uncertainty, 0.0)]
    assert by_doubt <= found.total.min() + 0.003


def test_cost_over_priors_agrees_with_rows_drawn_anew() -> None:
    y, logits = made(400)
    rng = np.random.default_rng(1)
    base, weight = rng.random((3, 3)), rng.random(400) + 0.1
    priors = np.array([0.0, 0.1, 0.5, 1.0])
    outputs = Logits(logits, classes=["a", "b", "c"])
    names = np.array(["a", "b", "c"])[y]
    found = cost_prior_curve(
        names, outputs, CostMatrix(base), class_="b", priors=priors, sample_weight=weight
    )
    p = softmax(logits, axis=1)
    share = weight[y == 1].sum() / weight.sum()
    close(found.measured, share)
    for i, prior in enumerate(priors):
        new = weight * np.where(y == 1, prior / share, (1 - prior) / (1 - share))
        by_action = base[:, y].T
        fixed = by_action[np.arange(400), (p @ base.T).argmin(axis=1)]
        close(found.cost[i], np.average(fixed, weights=new))
        odds = p * np.where(np.arange(3) == 1, prior / share, (1 - prior) / (1 - share))
        paid = by_action[np.arange(400), (odds @ base.T).argmin(axis=1)]
        close(found.adapted[i], np.average(paid, weights=new))
        close(found.constant[i], np.average(by_action, axis=0, weights=new).min())


def test_at_the_measured_prior_nothing_changes() -> None:
    y, logits = made(2000)
    share = float((y == 2).mean())
    found = cost_prior_curve(y, Logits(logits), CostMatrix.zero_one(3), class_=2, priors=[share])
    close(found.cost, (logits.argmax(axis=1) != y).mean())
    close(found.adapted, found.cost)


@pytest.mark.slow
def test_knowing_the_prior_helps_and_ends_at_nought() -> None:
    y, logits = made(20_000)
    found = cost_prior_curve(y, Logits(logits), CostMatrix.zero_one(3), class_=0)
    close(found.prior, np.linspace(0, 1, 21))
    assert (found.adapted <= found.cost + 0.005).all()
    assert (found.adapted <= found.constant + 0.005).all()
    assert found.adapted[-1] == 0.0
    close(np.diff(found.cost, 2), 0.0, atol=1e-12)  # a line in the prior


TWO = CostMatrix.zero_one(2)
EVEN = Probabilities([[0.5, 0.5]] * 2, classes=["no", "yes"])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: cost_coverage_curve([0], [[0.5, 0.5]], CostMatrix([[1, 1]], ["reject"])),
            r"`costs` .*got only a reject action\. Add a row of",
        ),
        (
            lambda: cost_coverage_curve([0], [[0.5, 0.5]], TWO, uncertainty=[1.0, 2.0]),
            r"`uncertainty`.*length 2\.",
        ),
        (
            lambda: cost_prior_curve(["no", "yes"], EVEN, TWO, class_="maybe"),
            r"`class_` .*got 'maybe'\. Name the class whose",
        ),
        (
            lambda: cost_prior_curve(["no", "no"], EVEN, TWO, class_="yes"),
            r"`y_true` .*got none of the class\. Pass rows of both",
        ),
        (
            lambda: cost_prior_curve(["no", "no"], EVEN, TWO, class_="no"),
            r"`y_true` .*got only this class\. Pass rows of both",
        ),
        (
            lambda: cost_prior_curve([[0.5, 0.5]] * 2, EVEN, TWO, class_="no"),
            r"`y_true` .*got label probabilities\. Pass the most probable",
        ),
        (
            lambda: cost_prior_curve(["no", "yes"], EVEN, TWO, class_="no", priors=[0.5, 2.0]),
            r"`priors`.*2\.0 in row 1\.",
        ),
    ],
)
def test_errors_say_what_to_do(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(BadValueError) as raised:
        call()
    assert re.search(message, str(raised.value))
