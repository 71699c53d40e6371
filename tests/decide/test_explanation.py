"""What is said of a row, for every reason, with figures recomputed by hand."""

from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, Policy
from dubito.decide.policy.decide import REASONS
from dubito.decide.policy.policy import WHY

RNG = np.random.default_rng(0)
Z = 4 * RNG.normal(size=(600, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
X = RNG.normal(size=(600, 2)) + 2 * Y[:, np.newaxis]
COSTS = CostMatrix.zero_one(["ant", "bee", "cat"]).with_reject(0.6, name="ask")


def fitted(**others: Any) -> Policy:
    wishes: dict[str, Any] = {"costs": COSTS, "calibrator": TemperatureScaling()} | others
    return Policy.fit(Logits(Z), Y, **wishes)


def of_temperature(policy: Policy, row: Any) -> Any:
    assert isinstance(policy.calibrator, TemperatureScaling)
    return softmax(np.array(row) / policy.calibrator.temperature_)


def test_every_reason_has_its_words() -> None:
    assert len(WHY) == len(REASONS)


def test_the_least_cost() -> None:
    policy = fitted()
    row = [9.0, 1.0, 0.0]
    raw, p = softmax(row), of_temperature(policy, row)
    costs = [f"ant {1 - p[0]:.4g}", "ask 0.6", f"bee {1 - p[1]:.4g}", f"cat {1 - p[2]:.4g}"]
    assert policy.explain(Logits([row])).splitlines() == [
        "Action: ant, as it costs least.",
        f"The model says 'ant' at {raw[0]:.1%}; calibrated it is 'ant' at {p[0]:.1%}.",
        f"Expected costs: {', '.join(costs)}.",
    ]


def test_asking_costs_less_under_another_prior() -> None:
    policy = fitted(deploy_prior=[0.31, 0.33, 0.36])
    row = [0.3, 0.2, 0.1]
    p = of_temperature(policy, row)
    shifted = p * [0.31, 0.33, 0.36] / policy.train_prior
    shifted /= shifted.sum()
    k = int(shifted.argmax())
    lines = policy.explain(Logits([[0.0, 9.0, 0.0], row]), row=1).splitlines()
    assert lines[0] == "Action: ask, as asking costs less."
    assert lines[1] == (
        f"The model says 'ant' at {softmax(row)[0]:.1%}; calibrated it is 'ant' at {p[0]:.1%}, and "
        f"{COSTS.actions[k]!r} at {shifted[k]:.1%} with the classes of deployment."
    )
    assert lines[2].startswith("Expected costs: ask 0.6, ")


def test_the_risk_bound() -> None:
    policy = fitted(max_risk=0.2)
    assert policy.bound is not None
    limit = 1 - policy.bound.threshold
    wrong = (limit + 0.6) / 2
    assert 0 < limit < wrong < 0.6
    assert isinstance(policy.calibrator, TemperatureScaling)
    row = [policy.calibrator.temperature_ * np.log(2 * (1 - wrong) / wrong), 0.0, 0.0]
    p = of_temperature(policy, row)
    lines = policy.explain(Logits([row])).splitlines()
    assert lines[0] == "Action: ask, as no other is sure enough for the risk bound."
    assert lines[3] == (
        f"The best action without asking is wrong with a chance of {1 - p[0]:.2%}; below "
        f"{limit:.2%} it may be taken, so that at most 20.00% of decided rows are wrong."
    )
    sure = policy.explain(Logits([[40.0, 0.0, 0.0]])).splitlines()
    assert sure[0] == "Action: ant, as it costs least."
    assert "wrong with a chance of 0.00%" in sure[3]


def test_a_bound_that_allows_all() -> None:
    lines = fitted(max_risk=1.0).explain(Logits([[0.5, 0.0, 0.0]])).splitlines()
    assert "; it may be taken, so that at most 100.00% of decided rows are wrong." in lines[3]


def test_a_strange_input() -> None:
    policy = fitted(features=X, epsilon=0.05)
    assert policy.gate is not None
    far = policy.gate.doubt(None, [[60.0, -60.0]])[0]
    lines = policy.explain(Logits([[9.0, 0.0, 0.0]]), [[60.0, -60.0]]).splitlines()
    assert lines[0] == "Action: ask, as it is a strange input."
    assert lines[3] == (
        f"Its doubt (MahalanobisDistance) of {far:.4g} is reached by {1 / 601:.2%} of known rows; "
        "strange, as that is below 5.00%."
    )
    near = policy.explain(Logits([[9.0, 0.0, 0.0]]), [X[0]]).splitlines()
    assert near[0] == "Action: ant, as it costs least."
    assert near[3].endswith("% of known rows; it would be strange below 5.00%.")


def test_costs_that_grow_and_many_actions() -> None:
    names = [f"act {k}" for k in range(7)]
    costs = CostMatrix(np.arange(21).reshape(7, 3), names, rate=np.ones((7, 3)))
    policy = fitted(costs=costs, amounts=np.ones(600))
    row, p = [1.0, 0.0, 0.0], of_temperature(fitted(), [1.0, 0.0, 0.0])
    told = [f"act {k} {p @ costs.array[k] + 2:.4g}" for k in range(5)]
    lines = policy.explain(Logits([row, row]), amounts=[5.0, 2.0], row=1).splitlines()
    assert lines[2] == f"Expected costs: {', '.join(told)} and 2 more."
    bound = fitted(costs=costs.with_reject(90), amounts=np.ones(600), max_risk=0.5)
    assert "is wrong with a chance of 0.00%" in bound.explain(Logits([row]), amounts=[1.0])


@pytest.mark.parametrize("row", [-1, 1])
def test_rows_that_are_not_there(row: int) -> None:
    with pytest.raises(ValueError, match="must be a row from 0 to 0"):
        fitted().explain(Logits([[1.0, 0.0, 0.0]]), row=row)
