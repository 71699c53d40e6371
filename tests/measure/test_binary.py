"""The positive class of two: figures equal scikit-learn's, with ties and weights."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import binom, binomtest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    roc_auc_score,
)

from dubito import Logits, Probabilities, audit
from dubito.arrays import FloatArray, IntArray
from dubito.data import Batch
from dubito.errors import BadValueError
from dubito.measure import BinaryAudit, confusion_at
from dubito.measure.binary import _outcomes_at, error_draws, rank_positives


def rare(n_rows: int = 4000, seed: int = 0, digits: int = 2) -> tuple[IntArray, FloatArray]:
    """Return labels, about 5 % of them positive, and tied probabilities, too extreme."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-4, 1.5, n_rows)
    y = (rng.random(n_rows) < expit(0.7 * odds - 0.3)).astype(int)
    return y, np.round(expit(odds), digits)


def audited(y: Any, p: Any, weight: Any = None, **settings: Any) -> BinaryAudit:
    return BinaryAudit.of(rank_positives(Batch.of(y, p, sample_weight=weight)), **settings)


@pytest.mark.parametrize("digits", [2, 12])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_ranking_equals_scikit_learn(digits: int, is_weighted: bool) -> None:
    y, p = rare(digits=digits)
    weight = np.random.default_rng(1).integers(0, 4, y.size) if is_weighted else None
    found = audited(y, p, weight)
    assert found.roc_auc == pytest.approx(roc_auc_score(y, p, sample_weight=weight), abs=1e-9)
    wanted = average_precision_score(y, p, sample_weight=weight)
    assert found.average_precision == pytest.approx(wanted, abs=1e-9)
    base = np.average(y, weights=weight)
    brier = brier_score_loss(y, p, sample_weight=weight)
    assert found.brier_skill_score == pytest.approx(1 - brier / (base * (1 - base)), abs=1e-9)
    assert found.base_rate == pytest.approx(base, abs=1e-12)
    assert found.gap == pytest.approx(np.average(p - y, weights=weight), abs=1e-12)


@pytest.mark.parametrize("threshold", [0.0, 0.01, 0.03, 0.5, 1.0])
def test_confusion_equals_scikit_learn(threshold: float) -> None:
    y, p = rare()
    weight = np.random.default_rng(1).integers(0, 4, y.size)
    found = confusion_at(y, p, threshold=threshold, sample_weight=weight)
    wanted = confusion_matrix(y, p >= threshold, sample_weight=weight, labels=[0, 1])
    shown = [
        [found.true_negative, found.false_positive],
        [found.false_negative, found.true_positive],
    ]
    assert np.allclose(shown, wanted, atol=1e-9)
    assert found == audited(y, p, weight).confusion(threshold)
    assert found.accuracy == pytest.approx(np.average((p >= threshold) == y, weights=weight))
    assert found.selection_rate == pytest.approx(np.average(p >= threshold, weights=weight))


@pytest.mark.parametrize("digits", [2, 6])
def test_slope_and_intercept_are_those_of_a_logistic_regression(digits: int) -> None:
    y, p = rare(digits=digits)
    weight = np.random.default_rng(1).integers(0, 4, y.size).astype(float)
    found = audited(y, p, weight)
    is_inside = (p > 0) & (p < 1)  # the others have no finite log odds
    assert found.saturated_fraction == pytest.approx(np.average(~is_inside, weights=weight))
    y, odds, weight = y[is_inside], logit(p[is_inside]), weight[is_inside]
    model = LogisticRegression(C=np.inf, tol=1e-12, max_iter=1000, solver="newton-cholesky")
    model.fit(odds[:, np.newaxis], y, sample_weight=weight)
    assert found.calibration_slope == pytest.approx(model.coef_[0, 0], abs=1e-9)
    assert found.joint_intercept == pytest.approx(model.intercept_[0], abs=1e-9)
    assert found.figures["joint_intercept"] == found.joint_intercept
    # The shift at slope 1 makes the mean of the shifted probabilities right.
    shifted = expit(odds + found.calibration_intercept)
    assert np.average(shifted, weights=weight) == pytest.approx(
        np.average(y, weights=weight), abs=1e-9
    )
    # The standard error is that of the inverse Fisher information.
    fitted = model.predict_proba(odds[:, np.newaxis])[:, 1]
    columns = np.column_stack([np.ones(odds.size), odds])
    information = columns.T @ (columns * (weight * fitted * (1 - fitted))[:, np.newaxis])
    interval = found.intervals["calibration_slope"]
    error = np.sqrt(np.linalg.inv(information)[1, 1])
    assert (interval.high - interval.low) / 2 == pytest.approx(1.959964 * error, rel=1e-5)


def test_the_operating_point_has_intervals_and_figures() -> None:
    y, p = rare()
    found = audited(y, p, operating_point=confusion_at(y, p, threshold=0.1))
    is_selected = p >= 0.1
    for name, rows in (("precision", y[is_selected]), ("recall", is_selected[y == 1])):
        wanted = binomtest(int(rows.sum()), rows.size).proportion_ci(0.95, "wilson")
        one = found.intervals[name]
        assert (one.low, one.high) == pytest.approx((wanted.low, wanted.high))
        assert found.figures[name] == pytest.approx(rows.mean())
        assert found.figures[f"{name}.low"] == one.low
    assert found.figures["false_positive_rate"] == is_selected[y == 0].mean()
    assert "positive_gap.low" in found.figures
    assert audited(y, p).operating_point == confusion_at(y, p, threshold=0.5)


def test_drawn_calibration_errors_are_those_of_resampled_rows() -> None:
    y, p = rare(2000, digits=12)
    found = audited(y, p)
    drawn, _ = error_draws(found.ranked, found.curve.edges, 2000, seed=0)
    rng = np.random.default_rng(1)
    bins = np.clip(np.searchsorted(found.curve.edges, p) - 1, 0, None)
    wanted = []
    for _ in range(500):
        weight = rng.poisson(1.0, y.size)
        wanted.append(np.abs(np.bincount(bins, weight * (p - y))).sum() / weight.sum())
    assert np.quantile(drawn, [0.025, 0.5, 0.975]) == pytest.approx(
        np.quantile(wanted, [0.025, 0.5, 0.975]), rel=0.06
    )


def test_delongs_variance_is_that_of_all_pairs() -> None:
    y, p = rare(300, digits=2)
    found = audited(y, p).intervals["roc_auc"]
    pairs = np.subtract.outer(p[y == 1], p[y == 0])
    wins = (pairs > 0) + 0.5 * (pairs == 0)
    variance = wins.mean(axis=1).var(ddof=1) / (y == 1).sum()
    variance += wins.mean(axis=0).var(ddof=1) / (y == 0).sum()
    area = wins.mean()
    margin = 1.959964 * np.sqrt(variance) / (area * (1 - area))
    assert found.low == pytest.approx(expit(logit(area) - margin), abs=1e-6)
    assert found.high == pytest.approx(expit(logit(area) + margin), abs=1e-6)


@pytest.mark.slow
def test_intervals_cover_the_truth() -> None:
    y, p = rare(200_000, seed=9, digits=9)
    truth = audited(y, p)
    names = ["base_rate", "gap", "roc_auc", "brier_skill_score", "calibration_slope"]
    names += ["calibration_intercept", "mean_probability", "average_precision"]
    names += ["expected_calibration_error"]
    covered = dict.fromkeys(names, 0)
    n_draws = 300
    for seed in range(n_draws):
        rows = np.random.default_rng(seed).choice(y.size, 2000)
        intervals = audited(y[rows], p[rows], n_resamples=200).intervals
        for name in names:
            covered[name] += intervals[name].low <= getattr(truth, name) <= intervals[name].high
    assert {name for name, n in covered.items() if not 0.91 * n_draws <= n} == set()


@pytest.mark.slow
@pytest.mark.parametrize(("slope", "n_rows"), [(1.0, 300), (1.0, 2000), (0.9, 2000), (0.5, 300)])
def test_the_interval_of_an_error_holds_near_0_too(slope: float, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 1.5, 400_000)
    edges = np.quantile(expit(odds), np.arange(11) / 10)
    bins = np.clip(np.searchsorted(edges, expit(odds)) - 1, 0, 9)
    truth = np.abs(np.bincount(bins, expit(odds) - expit(slope * odds))).sum() / odds.size
    covered = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        odds = rng.normal(-1, 1.5, n_rows)
        y = (rng.random(n_rows) < expit(slope * odds)).astype(int)
        found = audited(y, expit(odds), n_resamples=200, seed=seed)
        one = found.intervals["expected_calibration_error"]
        covered += one.low <= truth <= one.high
    assert covered >= 0.9 * 150


@pytest.mark.parametrize("strategy", ["quantile", "uniform", "log"])
def test_bins_hold_all_rows_and_their_means(strategy: str) -> None:
    y, p = rare(digits=3)
    found = audited(y, p, bin_strategy=strategy, n_bins=8)
    curve = found.curve
    assert found.bin_strategy == strategy
    assert curve.count.sum() == y.size
    assert len(curve.bins) <= 8
    for k, count, mean, frequency in zip(
        curve.bins, curve.count, curve.confidence, curve.accuracy, strict=True
    ):
        low, high = curve.edges[k], curve.edges[k + 1]
        is_inside = ((p > low) | ((k == 0) & (p == low))) & (p <= high)
        assert is_inside.sum() == count
        assert p[is_inside].mean() == pytest.approx(mean)
        assert y[is_inside].mean() == pytest.approx(frequency)
    if strategy == "quantile":
        assert curve.count.max() < 1.5 * y.size / 8  # ties keep them from being equal


def test_deciles_are_cumulative_and_never_divide_ties() -> None:
    y, p = rare()
    lines = audited(y, p).deciles
    assert lines[-1].fraction == pytest.approx(1)
    assert lines[-1].recall == pytest.approx(1)
    for line in lines:
        is_above = p >= line.threshold
        assert is_above.mean() == pytest.approx(line.fraction)
        assert y[is_above].sum() / y.sum() == pytest.approx(line.recall)
    assert lines[0].lift == pytest.approx(lines[0].frequency / y.mean())


def test_logits_and_probabilities_give_the_same() -> None:
    y, p = rare(digits=9)
    table = np.column_stack([1 - p, p])
    logits = Logits(np.log(np.maximum(table, 1e-12)) + 3.0)
    a, b = audited(y, Probabilities(table)), audited(y, logits)
    assert a.roc_auc == pytest.approx(b.roc_auc, abs=1e-6)
    assert a.calibration_slope == pytest.approx(b.calibration_slope, abs=1e-6)


def test_the_other_class_mirrors_the_figures() -> None:
    y, p = rare(digits=9)
    batch = Batch.of(y, np.column_stack([1 - p, p]))
    first, second = (BinaryAudit.of(rank_positives(batch, column)) for column in (0, 1))
    assert first.base_rate == pytest.approx(1 - second.base_rate)
    assert first.roc_auc == pytest.approx(second.roc_auc)
    assert first.calibration_slope == pytest.approx(second.calibration_slope)
    assert first.calibration_intercept == pytest.approx(-second.calibration_intercept)  # type: ignore[operator]


def test_separable_labels_have_no_slope_and_one_class_no_ranking() -> None:
    separable = audited([0, 0, 1, 1], [0.1, 0.2, 0.8, 0.9])
    assert separable.calibration_slope is None
    assert separable.roc_auc == 1
    single = audited([0, 0, 0], [0.1, 0.2, 0.3])
    assert (single.roc_auc, single.brier_skill_score, single.calibration_intercept) == (None,) * 3
    assert single.intervals["base_rate"].high < 0.6


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1e-9, 0.25, 0.5, 1.0]), st.booleans(), st.integers(0, 3)),
        min_size=1,
        max_size=30,
    )
)
def test_nasty_rows_leave_all_finite(rows: list[tuple[float, bool, int]]) -> None:
    p, y, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    if not weight.any():
        weight[0] = 1
    found = audited(y.astype(int), p, weight)
    for interval in found.intervals.values():
        assert np.isfinite([interval.value, interval.low, interval.high]).all()
        assert interval.low <= interval.value <= interval.high
    assert found.curve.count.sum() == pytest.approx(weight.sum())


def test_three_classes_and_unknown_strategies_raise() -> None:
    with pytest.raises(BadValueError, match="`outputs` must have two classes, got 3"):
        rank_positives(Batch.of([0], [[0.2, 0.3, 0.5]]))
    y, p = rare(50)
    with pytest.raises(BadValueError, match="bin_strategy"):
        audited(y, p, bin_strategy="equal")


def test_few_bins_of_a_calibrated_model_are_outside_its_range() -> None:
    outside = np.zeros(10)
    for seed in range(15):
        rng = np.random.default_rng(seed)
        p = expit(rng.normal(-5, 1.5, 3000))
        curve = audited((rng.random(3000) < p).astype(int), p).curve
        outside += (curve.accuracy < curve.low) | (curve.accuracy > curve.high)
    assert (outside / 60).max() < 0.12


@pytest.mark.parametrize(("p", "n"), [(0.5, 10), (0.001, 500), (0.03, 15_000), (0.2, 1)])
def test_the_range_of_a_bin_is_that_of_the_binomial_distribution(p: float, n: int) -> None:
    low, high = _outcomes_at(p, n)
    assert low * n == pytest.approx(binom.ppf(0.025, n, p))
    assert high * n == pytest.approx(binom.ppf(0.975, n, p))


def test_rounding_to_0_and_1_is_no_evidence_but_errors_there_are() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-6, 2.5, 8000)
    y = (rng.random(8000) < expit(odds)) * 1
    coarse = np.round(expit(odds), 2)
    found = audit(y, coarse, n_resamples=0)
    assert found.positive is not None
    assert found.verdict.startswith("No sign of miscalibration of P(1)")
    fraction = f"{((coarse == 0) | (coarse == 1)).mean() * 100:.2f} % of the probabilities are"
    said = "exactly 0 or 1: slope and intercept leave them out. Write more digits."
    assert f"{fraction} {said}" in " ".join(str(found).split())
    y[np.flatnonzero(coarse == 0)[:200]] = 1  # far more than rounding explains
    wrong = audit(y, coarse, n_resamples=0)
    assert wrong.positive is not None
    assert wrong.positive.calibration_p_value < 1e-6
    hard = audit([0, 1, 1, 0, 0, 1] * 30, [0.0, 1.0, 1.0, 0.0, 1.0, 0.0] * 30, n_resamples=0)
    assert hard.verdict.startswith("P(1) is too extreme: calibration slope 0.03")
    assert "depend on how these are clipped, at 1e-12" in " ".join(str(hard).split())


@pytest.mark.slow
def test_no_verdict_contradicts_an_interval_that_is_shown() -> None:
    verdicts = set()
    for seed in range(60):
        rng = np.random.default_rng(seed)
        p = rng.beta(0.5, 12, 100)
        found = audit((rng.random(100) < p) * 1, p, n_resamples=0)
        assert found.positive is not None
        known = found.positive.intervals
        pairs = (("calibration_intercept", 0), ("calibration_slope", 1))
        is_off = any(k in known and not known[k].low <= at <= known[k].high for k, at in pairs)
        assert not (is_off and found.verdict.startswith("No sign"))
        verdicts.add(found.verdict.split(" of ")[0])
        if "brier_skill_score" in known:
            assert known["brier_skill_score"].high <= 1
    assert {"No sign", "Weak evidence"} <= verdicts


def test_the_range_of_a_calibrated_bin_can_occur() -> None:
    curve = audited([0, 1] * 50, np.linspace(0.0001, 0.01, 100)).curve
    assert (curve.low == 0).all()
    assert set(np.round(curve.high * 10, 9)) == {0.0, 1.0}  # of ten rows
