"""Results show what they are in one line, never the entries of their arrays."""

from typing import Any

import numpy as np
import pytest

from dubito import Logits, Normal
from dubito.calibrate import TemperatureScaling
from dubito.decide import (
    CostMatrix,
    OODGate,
    Policy,
    RiskBound,
    conditional_independence_test,
    cost_coverage_curve,
    cost_prior_curve,
    decision_regions,
    error_areas,
    estimate_or_reject,
    estimate_prior,
)
from dubito.monitor import detect_drift

COSTS = CostMatrix.zero_one(2).with_reject(0.25)
P = np.random.default_rng(0).dirichlet([1, 1], 60)
Y = (np.random.default_rng(1).random(60) < P[:, 1]).astype(int)


def density(x: Any, at: float) -> Any:
    return np.exp(-((x - at) ** 2) / 2) / np.sqrt(2 * np.pi)


def test_costs() -> None:
    assert repr(COSTS) == "CostMatrix(3 actions x 2 classes, reject='reject')"
    grows = CostMatrix([[0, "amount"], ["2 * fee", 0]])
    assert repr(grows) == "CostMatrix(2 actions x 2 classes, columns=('amount', 'fee'))"
    errors = CostMatrix.from_errors(false_positive=1, false_negative=2, pos_label="churn")
    assert repr(errors) == "CostMatrix(2 actions x 2 classes, pos_label='churn')"


@pytest.mark.slow
def test_policies() -> None:
    settings: dict[str, Any] = {"costs": COSTS, "calibrator": TemperatureScaling()}
    plain = Policy.fit(P, Y, **settings)
    assert repr(plain) == "Policy(3 actions x 2 classes, TemperatureScaling)"
    every = Policy.fit(
        P, Y, ood=OODGate("entropy", 0.05), risk=RiskBound(0.3), deploy_prior=[0.5, 0.5], **settings
    )
    assert repr(every) == (
        "Policy(3 actions x 2 classes, TemperatureScaling, deployment prior, "
        "OOD gate entropy alpha=0.05, risk bound max_risk=0.3)"
    )
    costly = Policy.fit(P, Y, risk=RiskBound(max_cost=0.5), **settings)
    assert repr(costly).endswith("risk bound max_cost=0.5)")
    assert repr(plain.decide(P)).startswith("Decisions(shape (60,), mean probability 0.")


@pytest.mark.parametrize(
    "make",
    [
        lambda: cost_coverage_curve(Y, P, COSTS),
        lambda: cost_prior_curve(Y, P, COSTS, class_=1),
        lambda: decision_regions(lambda z: np.full(len(z), 0.5), (0, 1), (0, 1), n_points=9),
        lambda: error_areas(
            [0.5, 0.5],
            [lambda x: density(x, -1), lambda x: density(x, 1)],
            np.linspace(-9, 9, 99),
        ),
        lambda: estimate_or_reject(Normal(np.zeros(50), np.ones(50)), 1.0),
        lambda: estimate_prior(P, [0.5, 0.5], n_resamples=40),
        lambda: conditional_independence_test([P, P], Y),
        lambda: detect_drift(Logits(P), Logits(P)),
    ],
)
def test_other_results_hold_no_dump_of_arrays(make: Any) -> None:
    found = make()
    text = repr(found)
    assert text.startswith(f"{type(found).__name__}(")
    assert "array(" not in text
    assert "\n" not in text
    assert len(text) < 200
