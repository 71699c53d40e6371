"""The explanation of a row, for every reason, with figures recomputed by hand."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, OODGate, Policy, RiskBound
from dubito.decide.policy.decide import REASON_TEXTS, REASONS
from dubito.decide.policy.explanation import REASON_CLAUSES
from dubito.errors import DubitoWarning
from tests.decide.growing import growing

RNG = np.random.default_rng(0)
Z = 4 * RNG.normal(size=(600, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
X = RNG.normal(size=(600, 2)) + 2 * Y[:, np.newaxis]
COSTS = CostMatrix.zero_one(["ant", "bee", "cat"]).with_reject(0.6, name="ask")


def fitted(**others: Any) -> Policy:
    settings: dict[str, Any] = {"costs": COSTS, "calibrator": TemperatureScaling()} | others
    return Policy.fit(Logits(Z), Y, **settings)


def of_temperature(policy: Policy, row: Any) -> Any:
    assert isinstance(policy.calibrator, TemperatureScaling)
    return softmax(np.array(row) / policy.calibrator.temperature_)


def test_every_reason_has_its_words() -> None:
    assert len(REASON_CLAUSES) == len(REASON_TEXTS) == len(REASONS)


@pytest.mark.slow
def test_the_least_cost() -> None:
    policy = fitted()
    row = [9.0, 1.0, 0.0]
    raw, p = softmax(row), of_temperature(policy, row)
    costs = [f"ant {1 - p[0]:.4g}", "ask 0.6", f"bee {1 - p[1]:.4g}", f"cat {1 - p[2]:.4g}"]
    assert policy.explain(Logits([row])).splitlines() == [
        "Action: ant, because it has the lowest expected cost.",
        f"The model predicts 'ant' at {100 * raw[0]:.1f} %; calibrated, 'ant' at "
        f"{100 * p[0]:.1f} %.",
        f"Expected costs: {', '.join(costs)}.",
    ]


@pytest.mark.slow
def test_asking_costs_less_under_another_prior() -> None:
    policy = fitted(deploy_prior=[0.31, 0.33, 0.36])
    row = [0.3, 0.2, 0.1]
    p = of_temperature(policy, row)
    shifted = p * [0.31, 0.33, 0.36] / policy.train_prior
    shifted /= shifted.sum()
    k = int(shifted.argmax())
    lines = policy.explain(Logits([[0.0, 9.0, 0.0], row]), row=1).splitlines()
    assert lines[0] == "Action: ask, because rejecting costs less than any other action."
    assert lines[1] == (
        f"The model predicts 'ant' at {100 * softmax(row)[0]:.1f} %; calibrated, 'ant' at "
        f"{100 * p[0]:.1f} %; under the deployment prior, {COSTS.actions[k]!r} at "
        f"{100 * shifted[k]:.1f} %."
    )
    assert lines[2].startswith("Expected costs: ask 0.6, ")


@pytest.mark.slow
def test_the_risk_bound() -> None:
    policy = fitted(risk=RiskBound(0.2))
    assert policy.risk is not None
    limit = 1 - policy.risk.threshold_
    wrong = (limit + 0.6) / 2
    assert 0 < limit < wrong < 0.6
    assert isinstance(policy.calibrator, TemperatureScaling)
    row = [policy.calibrator.temperature_ * np.log(2 * (1 - wrong) / wrong), 0.0, 0.0]
    p = of_temperature(policy, row)
    lines = policy.explain(Logits([row])).splitlines()
    assert lines[0] == "Action: ask, because no other action is certain enough for the risk bound."
    assert lines[3] == (
        f"Error probability of the best non-reject action: {100 * (1 - p[0]):.2f} %, above the "
        f"limit of {100 * limit:.2f} % set by the risk bound (at most 20 % errors among "
        "decided rows)."
    )
    sure = policy.explain(Logits([[40.0, 0.0, 0.0]])).splitlines()
    assert sure[0] == "Action: ant, because it has the lowest expected cost."
    assert f"non-reject action: 0.00 %, below the limit of {100 * limit:.2f} % set by" in sure[3]


@pytest.mark.slow
def test_a_bound_that_allows_all() -> None:
    lines = fitted(risk=RiskBound(1.0)).explain(Logits([[0.5, 0.0, 0.0]])).splitlines()
    assert lines[3].endswith("%; the risk bound rejects no further rows.")


@pytest.mark.slow
def test_an_out_of_distribution_input() -> None:
    policy = fitted(features=X, ood=OODGate(alpha=0.05))
    assert policy.ood is not None
    far = policy.ood.ood_scores(None, [[60.0, -60.0]])[0, 0]
    lines = policy.explain(Logits([[9.0, 0.0, 0.0]]), [[60.0, -60.0]]).splitlines()
    assert lines[0] == "Action: ask, because the input is out-of-distribution."
    assert lines[3] == (
        f"OOD score (MahalanobisDistance) {far:.4g}, p-value {1 / 601:.4g}: below alpha 0.05, "
        "so the input is out-of-distribution."
    )
    near = policy.explain(Logits([[9.0, 0.0, 0.0]]), [X[0]]).splitlines()
    assert near[0] == "Action: ant, because it has the lowest expected cost."
    assert near[3].endswith(": at or above alpha 0.05, so the input is in-distribution.")


@pytest.mark.slow
def test_costs_that_grow_and_many_actions() -> None:
    names = [f"act {k}" for k in range(7)]
    base = np.arange(21).reshape(7, 3)
    costs = CostMatrix(growing(base, np.ones((7, 3))), names)
    with pytest.warns(DubitoWarning, match="'act [1-6]' is optimal for none of the 600 rows"):
        policy = fitted(costs=costs, row_costs=np.ones(600))
    row, p = [1.0, 0.0, 0.0], of_temperature(fitted(), [1.0, 0.0, 0.0])
    shown = [f"act {k} {p @ base[k] + 2:.4g}" for k in range(5)]
    lines = policy.explain(Logits([row, row]), row_costs=[5.0, 2.0], row=1).splitlines()
    assert lines[2] == f"Expected costs: {', '.join(shown)} and 2 more."
    costs = CostMatrix(costs.cells[:1], names[:1]).with_reject(90)
    bound = fitted(costs=costs, row_costs=np.ones(600), risk=RiskBound(0.5))
    # A single action is right in the class where it costs least, the first one.
    wrong = 100 * (1 - p[0])
    assert f"non-reject action: {wrong:.2f} %" in bound.explain(Logits([row]), row_costs=[1.0])


@pytest.mark.slow
@pytest.mark.parametrize("row", [-1, 1])
def test_rows_that_are_not_there(row: int) -> None:
    with pytest.raises(ValueError, match="must be an integer from 0 to 0"):
        fitted().explain(Logits([[1.0, 0.0, 0.0]]), row=row)
