"""A weight of k is a row k times, in everything public that takes weights."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from dubito import Logits, Normal, Quantiles, Samples, TopLabel, calibrate, decide, doubt, measure
from dubito.calibrate import (
    CalibratedClassifier,
    ForestCalibration,
    OneVsRest,
    PlattScaling,
    QuantileRecalibration,
    VarianceScaling,
)
from dubito.data import Batch
from dubito.decide import CostMatrix
from dubito.decide.policy.report import proportion
from dubito.doubt import ConformalClassifier, ConformalRegressor
from dubito.measure.text import verdict_on
from dubito.serve.weighted_estimates import WeightedSample

N_ROWS = 120
RNG = np.random.default_rng(0)
LOGITS = 2.5 * RNG.normal(size=(N_ROWS, 3))
OTHER = LOGITS + RNG.normal(size=LOGITS.shape)
Y = (LOGITS / 2 + RNG.gumbel(size=LOGITS.shape)).argmax(axis=1)
CONFIDENCE = special.softmax(LOGITS, axis=1).max(axis=1)
CORRECT = LOGITS.argmax(axis=1) == Y
MEAN, STD = RNG.normal(size=N_ROWS), RNG.uniform(0.5, 2, N_ROWS)
TARGET = MEAN + 1.5 * STD * RNG.normal(size=N_ROWS)
DRAWS = MEAN[:, np.newaxis] + STD[:, np.newaxis] * RNG.normal(size=(N_ROWS, 30))
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
FEATURES = RNG.normal(size=(N_ROWS, 4)) + Y[:, np.newaxis]
LAST_LAYER, BIAS = RNG.normal(size=(3, 4)), RNG.normal(size=3)
COSTS = CostMatrix(1 - np.eye(3)).with_reject(0.3)
WEIGHT = RNG.integers(0, 4, N_ROWS).astype(np.float64)
REPEATED = np.repeat(np.arange(N_ROWS), WEIGHT.astype(int))

Rows = NDArray[np.int64]
Weight = NDArray[np.float64] | None
Run = Callable[[Rows, Weight], Any]


def numbers(value: Any) -> Any:
    """Return all numbers of a result, but counts of given rows and bootstrap intervals."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        left_out = {"n_rows", "n_missing", "n_impossible", "intervals", "groups", "interval"}
        kept = [f.name for f in dataclasses.fields(value) if f.name not in left_out]
        return [numbers(getattr(value, name)) for name in kept]
    if isinstance(value, dict):
        return [numbers(inner) for inner in value.values()]
    if isinstance(value, list | tuple):
        return [numbers(inner) for inner in value]
    return value


def flat(value: Any) -> list[Any]:
    found = numbers(value)
    if isinstance(found, list):
        return [one for inner in found for one in flat(inner)]
    return [found]


def assert_same(run: Run, atol: float = 1e-9) -> None:
    weighted = flat(run(np.arange(N_ROWS), WEIGHT))
    repeated = flat(run(REPEATED, None))
    assert len(weighted) == len(repeated)
    assert weighted
    for one, other in zip(weighted, repeated, strict=True):
        if one is None or isinstance(one, str | bool):
            assert one == other
        else:
            np.testing.assert_allclose(one, other, atol=atol, rtol=1e-7)


def of_classes(name: str, **settings: Any) -> Run:
    function = getattr(measure, name)
    return lambda rows, weight: function(
        Y[rows], Logits(LOGITS[rows]), sample_weight=weight, **settings
    )


def of_two_classes(name: str) -> Run:
    function = getattr(measure, name)
    return lambda rows, weight: function(
        Y[rows] % 2, np.round(CONFIDENCE[rows], 2), sample_weight=weight
    )


def of_errors(name: str) -> Run:
    function = getattr(measure, name)
    doubt_of = np.round(1 - CONFIDENCE, 2)
    return lambda rows, weight: function(~CORRECT[rows], doubt_of[rows], sample_weight=weight)


def of_targets(name: str, make: Callable[[Rows], Any]) -> Run:
    function = getattr(measure, name)
    return lambda rows, weight: function(TARGET[rows], make(rows), sample_weight=weight)


def normal(rows: Rows) -> Normal:
    return Normal(MEAN[rows], STD[rows])


def samples(rows: Rows) -> Samples:
    return Samples(DRAWS[rows])


def quantiles(rows: Rows) -> Quantiles:
    return Quantiles(np.quantile(DRAWS[rows], LEVELS, axis=1).T, LEVELS)


CLASS_METRICS = [
    "accuracy",
    "area_under_generalized_risk_coverage",
    "area_under_risk_coverage",
    "brier_score",
    "calibration_test",
    "classwise_calibration_error",
    "debiased_calibration_error",
    "excess_area_under_risk_coverage",
    "expected_calibration_error",
    "log_loss",
    "maximum_calibration_error",
    "reliability_curve",
    "risk_coverage_curve",
    "smooth_calibration_error",
]
METRICS: dict[str, Run] = {
    **{name: of_classes(name) for name in CLASS_METRICS},
    "coverage_at_risk": of_classes("coverage_at_risk", risk=0.2),
    "audit": of_classes("audit", n_resamples=0),
    "confusion_at": of_two_classes("confusion_at"),
    **{
        name: of_errors(name)
        for name in ("average_precision", "false_positive_rate_at_recall", "roc_auc")
    },
    "continuous_ranked_probability_score": of_targets(
        "continuous_ranked_probability_score", samples
    ),
    "interval_coverage": of_targets("interval_coverage", normal),
    "interval_score": of_targets("interval_score", normal),
    "minkowski_loss": of_targets("minkowski_loss", lambda rows: MEAN[rows]),
    "negative_log_likelihood": of_targets("negative_log_likelihood", normal),
    "pinball_loss": of_targets("pinball_loss", quantiles),
}
# A bootstrap draws rows at random: its law is tested below.
RANDOM = {"confidence_interval", "paired_difference"}


def test_every_metric_is_tested() -> None:
    public = {name: getattr(measure, name) for name in measure.__all__}
    weighted = {
        name
        for name, one in public.items()
        if inspect.isfunction(one) and "sample_weight" in inspect.signature(one).parameters
    }
    assert weighted == set(METRICS) | RANDOM


@pytest.mark.parametrize("name", sorted(METRICS))
def test_metrics(name: str) -> None:
    assert_same(METRICS[name])


def test_audits_of_two_classes() -> None:
    def run(rows: Rows, weight: Any) -> Any:
        settings = {"sample_weight": weight, "n_resamples": 0}
        found = measure.audit(Y[rows] % 2, np.round(CONFIDENCE[rows], 2), **settings).positive
        assert found is not None
        return found.figures, found.intervals, found.curve, found.deciles

    assert_same(run)


def test_comparisons_of_groups() -> None:
    def run(rows: Rows, weight: Any) -> Any:
        settings = {"sample_weight": weight, "groups": rows % 2, "n_resamples": 0, "threshold": 0.7}
        found = measure.audit(Y[rows] % 2, np.round(CONFIDENCE[rows], 2), **settings)
        assert found.group_comparison is not None
        return found.group_comparison.numbers

    assert_same(run)


@pytest.mark.parametrize("n_bins", [3, 40])
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_binned_errors(strategy: str, n_bins: int) -> None:
    for name in ("debiased_calibration_error", "expected_calibration_error", "reliability_curve"):
        assert_same(of_classes(name, strategy=strategy, n_bins=n_bins))


@pytest.mark.parametrize("make", [normal, samples, quantiles])
def test_audits_of_regressions(make: Callable[[Rows], Any]) -> None:
    run = of_targets("audit", make)
    assert_same(run)
    assert_same(lambda rows, weight: run(rows, weight).verdict.rpartition("rows: ")[2])


def test_audits_of_top_labels() -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        top = TopLabel(CONFIDENCE[rows], CORRECT[rows])
        return measure.audit(None, top, sample_weight=weight, n_resamples=0)

    assert_same(run)
    verdicts = [verdict_on(run(np.arange(N_ROWS), WEIGHT)), verdict_on(run(REPEATED, None))]
    assert verdicts[0].partition(":")[0] == verdicts[1].partition(":")[0]


@pytest.mark.slow
def test_bootstrap_intervals_are_as_wide() -> None:
    weight = np.full(N_ROWS, 4.0)
    rows = np.repeat(np.arange(N_ROWS), 4)
    for metric in ("log_loss", "accuracy", "expected_calibration_error"):
        of = measure.confidence_interval
        weighted = of(metric, Y, Logits(LOGITS), sample_weight=weight)
        repeated = of(metric, Y[rows], Logits(LOGITS[rows]))
        widths = [one.high - one.low for one in (weighted, repeated)]
        assert widths[0] == pytest.approx(widths[1], rel=0.15)  # 1,000 resamples each


@pytest.mark.parametrize("make", [normal, samples, quantiles])
@pytest.mark.parametrize("kind", [VarianceScaling, QuantileRecalibration])
def test_calibrators_of_regressions(kind: Any, make: Callable[[Rows], Any]) -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        fitted = kind().fit(make(rows), TARGET[rows], weight)
        found = fitted.transform(make(np.arange(N_ROWS)))
        return [found.mean, found.std] if isinstance(found, Normal) else found.array

    assert_same(run)


# `tests/calibrate/test_calibrator.py` holds every calibrator of classes to it. Those that make
# folds cannot be: a repeated row falls into several folds, and so is seen in the fit.
CROSS_FITTED = {
    "AutoCalibrator",
    "CalibratedClassifier",
    "ConfidenceCalibrator",
    "MultiLabelCalibrator",
}


def test_only_what_makes_folds_is_left_out() -> None:
    folding = {
        name
        for name in calibrate.__all__
        if inspect.isclass(getattr(calibrate, name))
        and "cv" in inspect.signature(getattr(calibrate, name).__init__).parameters
    }
    assert folding == CROSS_FITTED
    assert CalibratedClassifier.__name__ in folding


@pytest.mark.parametrize(
    "calibrator", [ForestCalibration(n_estimators=5), OneVsRest(PlattScaling())], ids=str
)
def test_weights_above_2(calibrator: Any) -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        fitted = calibrator.fit(Logits(LOGITS[rows]), Y[rows], weight)
        return fitted.predict_proba(Logits(LOGITS))

    assert_same(run, atol=1e-6)


def test_conformal_thresholds() -> None:
    def of_labels(rows: Rows, weight: Weight) -> Any:
        batch = Batch.of(Y[rows], Logits(LOGITS[rows]), sample_weight=weight)
        return [
            ConformalClassifier(level=0.9, method=method).fit(batch).thresholds_
            for method in ("lac", "aps")
        ]

    def of_numbers(rows: Rows, weight: Weight) -> Any:
        batch = Batch.of(TARGET[rows], normal(rows), sample_weight=weight)
        return [  # a learned method splits rows at random
            ConformalRegressor(level=0.9, method=method, symmetric=symmetric).fit(batch).thresholds_
            for method in ("absolute", "normalized", "quantiles")
            for symmetric in (True, False)
        ]

    def of_outliers(rows: Rows, weight: Weight) -> Any:
        detector = doubt.ConformalOutlierDetector(alpha=0.1)
        fitted = detector.fit(np.round(1 - CONFIDENCE[rows], 2), sample_weight=weight)
        return fitted.p_value(np.linspace(0, 1, 20))

    for run in (of_labels, of_numbers, of_outliers):
        assert_same(run)


def test_exact_intervals_ofproportions() -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        given = np.ones(len(rows)) if weight is None else weight
        return proportion(CORRECT[rows], given, given)

    assert_same(run)


# NearestNeighborDistance counts distinct rows as neighbors, and documents it.
@pytest.mark.parametrize(
    "score",
    [
        doubt.MahalanobisDistance(),
        doubt.MahalanobisDistance(relative=True),
        doubt.ClassConditionalDensity(covariance="per_class"),
        doubt.ClassConditionalDensity(),
        doubt.VirtualLogitMatching(LAST_LAYER, BIAS, n_dimensions=2),
        doubt.ReAct(LAST_LAYER, BIAS),
        doubt.DecisionBoundaryDistance(LAST_LAYER, BIAS),
    ],
    ids=lambda score: repr(score).replace("\n", "")[:60],
)
def test_scores_of_features(score: Any) -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        fitted = score.fit(FEATURES[rows], Y[rows], sample_weight=weight)
        return fitted.score(FEATURES[::3] + 0.1)

    assert_same(run, atol=1e-7)


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_laplace_approximations(covariance: Any) -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        model = doubt.BayesianLogisticRegression(covariance=covariance)
        layer = doubt.laplace_last_layer(
            FEATURES[rows], LAST_LAYER, BIAS, covariance=covariance, sample_weight=weight
        )
        fitted = model.fit(FEATURES[rows], Y[rows], sample_weight=weight)
        return [fitted.coef_, fitted.precision_, layer.precision_]

    assert_same(run, atol=1e-7)


@pytest.mark.parametrize("pool", [decide.LinearPool(), decide.LogLinearPool()], ids=str)
def test_pools(pool: Any) -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        outputs = [Logits(LOGITS[rows]), Logits(OTHER[rows])]
        fitted = pool.fit(outputs, Y[rows], sample_weight=weight)
        return fitted.predict_proba([Logits(LOGITS), Logits(OTHER)])

    assert_same(run, atol=1e-6)


def test_costs() -> None:
    def run(rows: Rows, weight: Weight) -> Any:
        outputs = Logits(LOGITS[rows])
        return [
            decide.realized_cost(Y[rows], LOGITS[rows].argmax(axis=1), COSTS, sample_weight=weight),
            decide.cost_coverage_curve(Y[rows], outputs, COSTS, sample_weight=weight),
            decide.cost_prior_curve(Y[rows], outputs, COSTS, class_=0, sample_weight=weight),
            decide.expected_risk(outputs, COSTS, sample_weight=weight),
            decide.decompose_squared_loss(TARGET[rows], normal(rows), sample_weight=weight),
        ]

    assert_same(run)


def test_propensity_weights_count_as_many_rows_as_their_labels_are_worth() -> None:
    sample = WeightedSample(np.arange(100), np.append(np.full(50, 19.0), np.ones(50)))
    assert sample.frequency.sum() == pytest.approx(1000**2 / (50 * 19**2 + 50))
    np.testing.assert_allclose(sample.frequency / sample.weight, sample.frequency[0] / 19)
