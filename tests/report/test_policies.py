"""What a policy does with rows, against the policy itself and plain sums."""

import numpy as np
import pytest

from dubito import Logits
from dubito.data.batch import Batch
from dubito.decide import CostMatrix, OODGate, Policy, realized_cost
from dubito.doubt import MahalanobisDistance
from dubito.report.summary import _decided_by


def test_figures_are_those_of_what_the_policy_decides() -> None:
    rng = np.random.default_rng(0)
    logits, y = 2 * rng.normal(size=(400, 3)), rng.integers(0, 3, 400)
    logits[np.arange(400), y] += 2
    features = rng.normal(size=(400, 2)) + y[:, np.newaxis]
    costs = CostMatrix([[0, 5, 1], [1, 0, 1], [1, 2, 0]]).with_reject(0.4)
    half, rest = slice(0, 200), slice(200, 400)
    policy = Policy.fit(
        Logits(logits[half]),
        y[half],
        costs=costs,
        features=features[half],
        ood=OODGate(MahalanobisDistance(), alpha=0.1),
    )
    weight = rng.integers(1, 4, 200).astype(float)
    batch = Batch.of(y[rest], Logits(logits[rest]), sample_weight=weight, features=features[rest])
    found = _decided_by(policy, batch, 0)
    expected = policy.decide(Logits(logits[rest]), features[rest])
    assert found.action.tolist() == expected.action.tolist()
    paid = realized_cost(y[rest], expected.action, costs, sample_weight=weight)
    assert found.report.cost.value == pytest.approx(paid)
    is_open = expected.action != 3
    assert found.report.coverage.value == pytest.approx(weight @ is_open / weight.sum())
    wrong = np.array([costs.array[a, k] > 0 for a, k in zip(expected.action, y[rest], strict=True)])
    assert found.report.risk is not None
    risk = weight @ (wrong & is_open) / (weight @ is_open)
    assert found.report.risk.value == pytest.approx(risk)
