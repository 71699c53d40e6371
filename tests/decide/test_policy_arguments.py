"""The arguments of a fit are checked before anything is fitted."""

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

from dubito import Logits, MultiLabel, Normal
from dubito.arrays import column_names_of
from dubito.calibrate import AutoCalibrator, TemperatureScaling
from dubito.data import ArrayShards, Batch
from dubito.decide import CostMatrix, ErrorCosts, OODGate, Policy, RegressionPolicy, RiskBound
from dubito.decide.policy.fit import (
    _fresh_calibrator,
    _require_reject,
    as_feature_names,
    evaluation_batch,
)
from dubito.doubt import MahalanobisDistance
from dubito.errors import BadTypeError, BadValueError

P = [[0.9, 0.1], [0.4, 0.6]]


def test_shards_hold_their_own_columns() -> None:
    shards, costs = ArrayShards(Batch.of([0, 1], P)), CostMatrix.zero_one(2)
    message = r"Policy\.fit: `features` must be None when `outputs` is shards, got list"
    with pytest.raises(BadTypeError, match=message):
        Policy.fit(shards, features=[[1.0]], costs=costs)
    with pytest.raises(BadTypeError, match=r"over classes, got Normal\. Use RegressionPolicy\.fit"):
        Policy.fit(Normal([1.0], [1.0]), [0], costs=costs)
    with pytest.raises(BadTypeError, match=r"got MultiLabel\. Use MultiLabelPolicy\.fit\."):
        Policy.fit(MultiLabel([[0.5]]), [[1]], costs=costs)


KNOWN = Logits([[3.0, 0.0]])


def test_calibrators_start_afresh() -> None:
    assert isinstance(_fresh_calibrator("auto", KNOWN), AutoCalibrator)
    known = TemperatureScaling("ece", 7).fit(Logits([[3.0, 0.0]] * 4), [0, 1, 0, 0])
    fresh = _fresh_calibrator(known, KNOWN)
    assert fresh.get_params() == clone(known).get_params()
    assert not hasattr(fresh, "temperature_")


@pytest.mark.parametrize(
    ("calibrator", "call"),
    [
        *((one, "TemperatureScaling()") for one in (None, "platt", 5, TemperatureScaling)),
        ("PlattScaling", "PlattScaling()"),
        ("simple", "AutoCalibrator(max_parts=1)"),
    ],
)
def test_an_invalid_calibrator_raises(calibrator: Any, call: str) -> None:
    with pytest.raises(BadTypeError) as caught:
        _fresh_calibrator(calibrator, KNOWN)
    assert str(caught.value) == (
        "Policy.fit: `calibrator` must be 'auto' or a dubito calibrator, "
        f"got {calibrator!r}. Use calibrator={call}."
    )


def test_features_ask_for_a_gate() -> None:
    assert isinstance(OODGate().resolved(has_features=True).score, MahalanobisDistance)
    assert OODGate("entropy").resolved(has_features=False).score == "entropy"
    with pytest.raises(BadTypeError, match=r"`features` must be given .* use OODGate\('entropy'\)"):
        OODGate(MahalanobisDistance()).resolved(has_features=False)


def test_a_gate_or_bound_without_a_reject_action_raises() -> None:
    plain = CostMatrix.zero_one(2)
    _require_reject(plain, None, None)
    _require_reject(plain.with_reject(1), OODGate(), RiskBound(0.1))
    with pytest.raises(BadValueError, match=r"a reject action for the OOD .*with_reject"):
        _require_reject(plain, OODGate(), None)
    with pytest.raises(BadValueError, match=r"a reject action for the risk .*with_reject"):
        _require_reject(plain, None, RiskBound(0.1))
    alone = CostMatrix([[1, 1]], ["reject"])
    with pytest.raises(BadValueError, match="an action that does not reject"):
        _require_reject(alone, None, None)


def test_the_error_for_feature_names_names_the_policy_that_is_fitted() -> None:
    outputs, features = Normal([1.0] * 20, [1.0] * 20), [[0.0, 1.0]] * 20
    message = r"^RegressionPolicy\.fit: `feature_names` must have 2 names"
    with pytest.raises(BadValueError, match=message):
        RegressionPolicy.fit(
            outputs, [1.0] * 20, costs=ErrorCosts.absolute(), features=features, feature_names=["a"]
        )


def test_rows_to_be_judged_on() -> None:
    batch = Batch.of([0, 1], P)
    assert evaluation_batch(batch, 0, "Policy.fit") is batch
    assert evaluation_batch(ArrayShards(batch), 0, "Policy.fit") is batch
    assert evaluation_batch("cross-fit", 0, "Policy.fit") is None
    for wrong, got in (("in-sample", "'in-sample'"), (None, "None"), ((P, [0, 1]), "a tuple")):
        with pytest.raises(BadTypeError) as caught:
            evaluation_batch(wrong, 0, "Policy.fit")
        assert str(caught.value) == (
            "Policy.fit: `evaluate_on` must be 'cross-fit', a Batch or Shards, "
            f"got {got}. Pass Batch.of(y, outputs, features=...)."
        )


def test_names_of_features() -> None:
    frame = pd.DataFrame([[1.0, 2.0]] * 2, columns=["a", "b"])
    first = Batch.of([0, 1], P, features=frame.to_numpy())
    assert as_feature_names(None, frame, first, "Policy.fit") == ("a", "b")
    assert as_feature_names(["x", "y"], frame, first, "Policy.fit") == ("x", "y")
    assert as_feature_names([1, 2], None, first, "Policy.fit") == ("1", "2")
    assert as_feature_names(None, frame.to_numpy(), first, "Policy.fit") is None
    assert as_feature_names(["x"], None, Batch.of([0, 1], P), "Policy.fit") is None
    assert column_names_of(pa.table({"a": [1.0], "b": [2.0]})) == ("a", "b")
    with pytest.raises(BadValueError) as caught:
        as_feature_names(["x"], frame, first, "Policy.fit")
    assert str(caught.value) == (
        "Policy.fit: `feature_names` must have 2 names, one per feature, got 1. Name every column."
    )
