"""Labels and outputs in each other's place are an error; legitimate calls never are."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dubito import (
    AutoCalibrator,
    CostMatrix,
    Logits,
    MultiLabel,
    Normal,
    Policy,
    Probabilities,
    TopLabel,
    audit,
)
from dubito.calibrate import (
    MultiLabelCalibrator,
    PlattScaling,
    TemperatureScaling,
    VarianceScaling,
    cross_validate_calibrator,
    decompose_loss,
)
from dubito.data import Batch, as_shards
from dubito.data.labels import Labels
from dubito.decide import (
    ErrorCosts,
    LabelCosts,
    LinearPool,
    MultiLabelPolicy,
    RegressionPolicy,
    choose_threshold,
    cost_coverage_curve,
    cost_prior_curve,
    cost_report,
    cost_savings,
    decompose_squared_loss,
    estimate_prior,
)
from dubito.doubt import ConformalClassifier, ConformalRegressor, MultiLabelRiskControl
from dubito.errors import DubitoError, EmptyStateError
from dubito.measure import (
    average_precision,
    brier_score,
    confidence_interval,
    confusion_at,
    continuous_ranked_probability_score,
    expected_calibration_error,
    log_loss,
    risk_coverage_curve,
    roc_auc,
    smooth_calibration_error,
)
from dubito.monitor import compare, detect_drift
from dubito.report import make_report

RNG = np.random.default_rng(0)
P = RNG.dirichlet([1, 1], 200)
Y = (RNG.random(200) < P[:, 1]).astype(int)
SEVERAL = RNG.random((200, 3))
FINDINGS = (RNG.random((200, 3)) < SEVERAL).astype(int)
VALUES = Normal(np.zeros(200), np.ones(200))
TARGETS = RNG.normal(size=200)
COSTS = CostMatrix.zero_one(2).with_reject(0.2)
COMPARE: Callable[[Any, Any], Any] = compare

# Each takes labels and outputs, which the test gives it exchanged; then the order that is shown.
METRICS: dict[str, Callable[[Any, Any], Any]] = {
    "audit": lambda y, p: audit(y, p),
    "log_loss": log_loss,
    "brier_score": brier_score,
    "expected_calibration_error": expected_calibration_error,
    "smooth_calibration_error": smooth_calibration_error,
    "risk_coverage_curve": risk_coverage_curve,
    "confusion_at": confusion_at,
    "choose_threshold": lambda y, p: choose_threshold(y, p, risk=0.1),
    "cost_report": lambda y, p: cost_report(y, p, COSTS),
    "cost_coverage_curve": lambda y, p: cost_coverage_curve(y, p, COSTS),
    "cost_prior_curve": lambda y, p: cost_prior_curve(y, p, COSTS, class_=1),
    "decompose_loss": decompose_loss,
    "make_report": make_report,
    "Batch.of": Batch.of,
}
FITS: dict[str, Callable[[Any, Any], Any]] = {
    "Policy.fit": lambda p, y: Policy.fit(p, y, costs=COSTS),
    "TemperatureScaling.fit": TemperatureScaling().fit,
    "PlattScaling.fit": PlattScaling().fit,
    "AutoCalibrator.fit": AutoCalibrator().fit,
    "ConformalClassifier.fit": ConformalClassifier().fit,
    "as_shards": as_shards,
}
LABELS = {
    "integers": Y,
    "booleans": Y == 1,
    "a list": Y.tolist(),
    "a column": Y[:, np.newaxis],
    "a data frame": pd.DataFrame({"label": Y}),
    "floats, one missing": np.where(np.arange(200) == 3, np.nan, Y),
    "floats": Y.astype(np.float64),
    "text": np.where(Y == 1, "yes", "no"),
    "text with gaps": ["yes", None] * 100,
    "-1 and 1": 2 * Y - 1,
    "three classes": Y + (np.arange(200) % 7 == 0),
}
OUTPUTS = {
    "a matrix": P,
    "a list of lists": P.tolist(),
    "a data frame": pd.DataFrame(P, columns=["no", "yes"]),
    "logits as a plain array": np.log(P),
    "Probabilities": Probabilities(P),
    "Logits": Logits(np.log(P)),
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=list(LABELS))
@pytest.mark.parametrize("outputs", OUTPUTS.values(), ids=list(OUTPUTS))
def test_labels_and_outputs_of_all_forms(labels: Any, outputs: Any) -> None:
    with pytest.raises(DubitoError, match=r"swapped: .*The order is audit\(y_true, outputs\)\."):
        audit(outputs, labels)
    with pytest.raises(DubitoError, match=r"swapped: .*The order is Policy\.fit\(outputs, y\)\."):
        Policy.fit(labels, outputs, costs=COSTS)


@pytest.mark.parametrize("outputs", [P, Logits(np.log(P)), P[:, 1]], ids=["P", "Logits", "column"])
@pytest.mark.parametrize("name", METRICS)
def test_metrics(name: str, outputs: Any) -> None:
    with pytest.raises(DubitoError) as caught:
        METRICS[name](outputs, Y)
    assert "got its arguments swapped: `y_true` " in str(caught.value)
    assert f"The order is {name}(y_true, outputs)." in str(caught.value)


@pytest.mark.parametrize("outputs", [P, Logits(np.log(P)), P[:, 1]], ids=["P", "Logits", "column"])
@pytest.mark.parametrize("name", FITS)
def test_estimators(name: str, outputs: Any) -> None:
    with pytest.raises(DubitoError) as caught:
        FITS[name](Y, outputs)
    assert "got its arguments swapped: `y` " in str(caught.value)
    assert f"The order is {name}(outputs, y)." in str(caught.value)


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "cross_validate_calibrator": (
        lambda: cross_validate_calibrator(TemperatureScaling(), Y, P),
        "cross_validate_calibrator(",
    ),
    "a pool": (lambda: LinearPool().fit(Y, [P, P]), "LinearPool.fit(outputs, y)"),
    "savings": (lambda: cost_savings(P, Y, P, COSTS), "cost_savings(y_true, before)"),
    "an interval": (
        lambda: confidence_interval("log_loss", P, Y),
        "(y_true, outputs)",
    ),
    "a validation set": (
        lambda: estimate_prior(P, [0.5, 0.5], method="bbse", validation=(P, Y)),
        "Pass validation=(y, outputs)",
    ),
    "a comparison": (lambda: COMPARE({"a": P, "b": P}, Y), "compare(y_true, models)"),
    "models of a comparison": (lambda: compare(P, {"a": Y, "b": Y}), "compare(y_true, models)"),
    "drift": (
        lambda: detect_drift(Y, Y, y_reference=P, y_current=P),
        "Exchange `y_reference` and `reference`",
    ),
    "labels as outputs": (lambda: METRICS["audit"](P, Labels(Y)), "audit(y_true, outputs)"),
    "a top label": (
        lambda: METRICS["audit"](TopLabel(P[:, 1], Y), Y),
        "Leave the labels out",
    ),
    "AUROC": (lambda: roc_auc(P[:, 1], Y), "roc_auc(y_true, y_score)"),
    "precision": (lambda: average_precision(P[:, 1], Y), "average_precision(y_true, y_score)"),
    "calibrating several labels": (
        lambda: MultiLabelCalibrator().fit(FINDINGS, SEVERAL),
        "MultiLabelCalibrator.fit(outputs, y)",
    ),
    "several labels, declared": (
        lambda: METRICS["audit"](MultiLabel(SEVERAL), FINDINGS),
        "audit(y_true, outputs)",
    ),
    "a risk bound on several labels": (
        lambda: MultiLabelRiskControl().fit(FINDINGS, SEVERAL),
        "MultiLabelRiskControl.fit(outputs, y)",
    ),
    "a policy of several labels": (
        lambda: MultiLabelPolicy.fit(FINDINGS, SEVERAL, costs=LabelCosts(1, 1, 0.1)),
        "MultiLabelPolicy.fit(outputs, y)",
    ),
    "a regression": (lambda: METRICS["audit"](VALUES, TARGETS), "audit(y_true, outputs)"),
    "a metric of regressions": (
        lambda: continuous_ranked_probability_score(VALUES, TARGETS),
        "continuous_ranked_probability_score(y_true, outputs)",
    ),
    "a loss of regressions": (
        lambda: decompose_squared_loss(VALUES, TARGETS),
        "decompose_squared_loss(y_true, outputs)",
    ),
    "a calibrator of regressions": (
        lambda: VarianceScaling().fit(TARGETS, VALUES),
        "VarianceScaling.fit(outputs, y)",
    ),
    "intervals": (
        lambda: ConformalRegressor().fit(TARGETS, VALUES),
        "ConformalRegressor.fit(outputs, y)",
    ),
    "a policy of a regression": (
        lambda: RegressionPolicy.fit(TARGETS, VALUES, costs=ErrorCosts.linear(1, 1)),
        "RegressionPolicy.fit(outputs, y)",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions(name: str) -> None:
    call, order = OTHERS[name]
    with pytest.raises(DubitoError, match="swapped") as caught:
        call()
    assert order in str(caught.value)


HARD = [Y, Y.astype(float), Y[:, np.newaxis], np.eye(2)[Y], np.eye(2, dtype=int)[Y]]
SOFT = np.where(np.arange(200)[:, np.newaxis] % 2, P, np.eye(2)[Y])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("outputs", HARD, ids=lambda array: f"{array.dtype}{array.shape}")
def test_hard_probabilities_are_legitimate(outputs: Any) -> None:
    """Beside labels of one class per row, and one-hot labels; beside soft ones if declared."""
    for labels in (Y, Y.astype(float), Y == 1, np.eye(2)[Y], np.where(Y == 1, 1.0, np.nan)):
        assert brier_score(labels, outputs) == 0
    soft = brier_score(SOFT, Probabilities(outputs))
    assert soft == pytest.approx(((SOFT - np.eye(2)[Y]) ** 2).sum(axis=1).mean())
    cross_validate_calibrator(TemperatureScaling(), np.eye(2)[Y], Y)


@pytest.mark.filterwarnings("ignore")
def test_saturated_floats_beside_a_few_soft_labels_are_legitimate() -> None:
    few = np.eye(2)[Y]
    few[:20] = 0.5
    assert brier_score(few, Y.astype(float)) == pytest.approx(0.05)
    assert brier_score(SOFT[1:30:2], Y[1:30:2].astype(float)) >= 0


def test_scores_and_targets_of_whole_numbers_are_legitimate() -> None:
    roc_auc(Y, Y)
    roc_auc(Y == 1, P[:, 1])
    roc_auc(np.where(np.arange(200) % 3 == 0, 0.5, Y), np.arange(200) % 4)
    ConformalRegressor().fit(Y, P[:, 1])
    audit(Y, VALUES)


numbers = st.integers(2, 60)


@st.composite
def legitimate(draw: st.DrawFn) -> tuple[Any, Any]:
    """Labels and outputs of two or three classes, in every form that is supported."""
    n, k = draw(numbers), draw(st.integers(2, 3))
    raw = draw(arrays(np.float64, (n, k), elements=st.floats(0.0, 1.0)))
    whole = raw.sum(axis=1, keepdims=True)
    p = np.where(whole > 0, raw / np.where(whole > 0, whole, 1), 1 / k)
    if draw(st.booleans()):  # hard probabilities
        p = np.eye(k)[p.argmax(axis=1)]
    y = draw(arrays(np.int64, n, elements=st.integers(0, k - 1)))
    labels: list[Any] = [y, y.tolist(), y.astype(float), np.eye(k)[y], np.where(y == 0, np.nan, y)]
    outputs: list[Any] = [p, p.tolist(), Probabilities(p), Logits(np.log(np.maximum(p, 1e-9)))]
    if k == 2:
        outputs += [p[:, 1], p[:, 1:], Probabilities(p[:, 1])]
        labels += [y == 1]
        if np.isin(p, (0.0, 1.0)).all():
            outputs += [p[:, 1].astype(int)]
    if draw(st.booleans()):  # soft labels, beside outputs that are no column of integers
        labels, outputs = [p[::-1].copy()], outputs[:4]
    return draw(st.sampled_from(labels)), draw(st.sampled_from(outputs))


@given(legitimate())
def test_legitimate_calls_pass(rows: tuple[Any, Any]) -> None:
    labels, outputs = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert as_shards(outputs, labels).sum(len) == len(Batch.of(labels, outputs))
        with suppress(EmptyStateError):  # all labels may be missing
            brier_score(labels, outputs)
            TemperatureScaling().fit(outputs, labels)
