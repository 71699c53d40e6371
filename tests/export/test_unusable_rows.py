"""Numbers that are not finite, in runtimes that cannot raise: rejected where an action rejects."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.export import run_onnx
from dubito import CostMatrix, LabelCosts, Logits, MultiLabel, MultiLabelPolicy, Policy
from dubito.calibrate import TemperatureScaling
from dubito.decide.policy.decide import OUT_OF_DISTRIBUTION
from dubito.export import to_module, to_onnx

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(300, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
X = RNG.normal(size=(300, 2)) + Y[:, np.newaxis]
CERTAIN = [9.0, 0.0, 0.0]
NEAR = X[Y == 0].mean(axis=0).tolist()
ROWS = [
    (CERTAIN, NEAR),
    (CERTAIN, [np.nan, 0.0]),
    (CERTAIN, [1e25, 1e25]),  # whose square float32 cannot hold
    (CERTAIN, [-np.inf, 0.0]),
    ([np.nan, 0.0, 0.0], NEAR),
    ([np.inf, 0.0, 0.0], NEAR),
    ([-np.inf, 9.0, 0.0], NEAR),
]


def fitted(reject: bool = True, **settings: Any) -> Policy:
    costs = CostMatrix.zero_one(3)
    costs = costs.with_reject(0.3) if reject else costs
    return Policy.fit(Logits(Z), Y, costs=costs, calibrator=TemperatureScaling(), **settings)


def in_targets(policy: Any, inputs: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Return what ONNX, in each precision, and PyTorch make of inputs."""
    found = []
    for precision in ("mixed", "float32", "float64"):
        kind = np.float64 if precision == "float64" else np.float32
        to_onnx(policy, folder / "policy.onnx", precision=precision)
        given = {name: one.astype(kind) for name, one in inputs.items()}
        found.append(run_onnx(folder / "policy.onnx", given))
    for module in (to_module(policy), to_module(policy).float()):
        results = module(*(torch.from_numpy(one) for one in inputs.values()))
        found.append({name: one.numpy() for name, one in results.items()})
    return found


@pytest.mark.torch
def test_rows_that_are_not_finite_are_rejected(tmp_path: Path) -> None:
    logits, features = (np.array(part) for part in zip(*ROWS, strict=True))
    policy = fitted(features=X)
    for found in in_targets(policy, {"logits": logits, "features": features}, tmp_path):
        assert found["action"].tolist() == [0] + [3] * 6
        assert found["reason"].tolist() == [0] + [OUT_OF_DISTRIBUTION] * 6
    for found in in_targets(fitted(), {"logits": logits}, tmp_path):
        assert found["action"].tolist() == [0] * 4 + [3] * 3


@pytest.mark.torch
def test_without_an_action_that_rejects_the_expected_cost_is_not_a_number(tmp_path: Path) -> None:
    logits = np.array([CERTAIN, [np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0]])
    for found in in_targets(fitted(reject=False), {"logits": logits}, tmp_path):
        assert found["action"][0] == 0
        assert np.isnan(found["expected_cost"]).tolist() == [False, True, True]


@pytest.mark.torch
@pytest.mark.parametrize("review_row", [None, 0.9])
def test_labels_that_are_not_finite_are_reviewed(tmp_path: Path, review_row: Any) -> None:
    outputs = MultiLabel.from_logits(Z)
    labels = (RNG.random(Z.shape) < outputs.array).astype(float)
    costs = LabelCosts(1, 5, review=[0.3, None, 0.2], review_row=review_row)
    policy = MultiLabelPolicy.fit(outputs, labels, costs=costs)
    logits = np.array([[9.0, 9.0, 9.0], [np.nan, 0.0, 9.0]])
    for found in in_targets(policy, {"logits": logits}, tmp_path):
        assert found["row_action"].tolist() == [0, 1 if review_row is None else 2]
        assert found["action"][1, [0, 2]].tolist() == [2, 2]
