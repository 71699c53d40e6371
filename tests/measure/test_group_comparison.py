"""Groups: metrics equal scikit-learn's per group, and intervals hold for all groups at once."""

from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import beta, t
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    confusion_matrix,
    roc_auc_score,
)

from dubito import CostMatrix, Logits, audit
from dubito.arrays import FloatArray, IntArray
from dubito.data import Columns, scan
from dubito.errors import BadValueError
from dubito.measure import Audit, GroupComparison, Interval

NAMES = np.array(["a.b", "c/d e", "*"])
COSTS = CostMatrix([[0, 10], [1, 0]], actions=["pass", "block"]).with_reject(0.6)


def rows(n_rows: int = 900, seed: int = 0) -> tuple[IntArray, FloatArray, Any, FloatArray]:
    """Return labels, tied probabilities, groups of different rates, and weights."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 3, n_rows)
    odds = rng.normal(-1, 1.5, n_rows) + 0.5 * code
    y = (rng.random(n_rows) < expit(0.8 * odds)).astype(int)
    return y, np.round(expit(odds), 2), NAMES[code], rng.integers(0, 4, n_rows).astype(float)


def compared(found: Audit) -> GroupComparison:
    assert found.group_comparison is not None
    return found.group_comparison


@pytest.mark.parametrize("threshold", [0.3, 0.5])
def test_figures_per_group_equal_scikit_learn(threshold: float) -> None:
    y, p, groups, weight = rows()
    found = audit(y, p, groups=groups, sample_weight=weight, threshold=threshold, n_resamples=100)
    for name in NAMES:
        of = groups == name
        metrics = {key: one.value for key, one in compared(found).metrics[name].items()}
        settings = {"sample_weight": weight[of]}
        (tn, fp), (fn, tp) = confusion_matrix(y[of], p[of] >= threshold, **settings)
        base = np.average(y[of], weights=weight[of])
        wanted = {
            "base_rate": base,
            "selection_rate": (tp + fp) / weight[of].sum(),
            "false_positive_rate": fp / (fp + tn),
            "false_negative_rate": fn / (fn + tp),
            "precision": tp / (tp + fp),
            "positive_gap": np.average(p[of], weights=weight[of]) - base,
            "roc_auc": roc_auc_score(y[of], p[of], **settings),
            "average_precision": average_precision_score(y[of], p[of], **settings),
        }
        error = metrics.pop("positive_expected_calibration_error")
        assert metrics == pytest.approx(wanted, abs=1e-9)
        alone = audit(y[of], p[of], sample_weight=weight[of], n_resamples=0).positive
        assert alone is not None
        assert error == pytest.approx(alone.expected_calibration_error)
        inner = found.groups[name].positive
        assert inner is not None
        of &= (p > 0) & (p < 1)
        odds = logit(p[of])[:, np.newaxis]
        model = LogisticRegression(C=np.inf, tol=1e-12, solver="newton-cholesky")
        slope = model.fit(odds, y[of], weight[of]).coef_[0, 0]
        assert inner.calibration_slope == pytest.approx(slope, abs=1e-9)
        assert inner.calibration_intercept is not None
        shifted = expit(odds[:, 0] + inner.calibration_intercept)
        inside = np.average(y[of], weights=weight[of])
        assert np.average(shifted, weights=weight[of]) == pytest.approx(inside, abs=1e-9)
        of, settings = groups == name, {"sample_weight": weight[groups == name]}
        skill = 1 - brier_score_loss(y[of], p[of], **settings) / (base * (1 - base))
        assert inner.brier_skill_score == pytest.approx(skill, abs=1e-9)
        point = inner.operating_point
        assert (point.true_positive, point.false_positive) == pytest.approx((tp, fp))
        assert (point.false_negative, point.true_negative) == pytest.approx((fn, tn))


def test_intervals_are_those_of_clopper_and_pearson_and_of_student() -> None:
    y, p, groups, _ = rows()
    metrics = compared(audit(y, p, groups=groups, n_resamples=0)).metrics
    tail = (1 - 0.95 ** (1 / 3)) / 2
    for name in NAMES:
        of = groups == name
        n, k = of.sum(), (p[of] >= 0.5).sum()
        one = metrics[name]["selection_rate"]
        assert one.low == pytest.approx(beta.ppf(tail, k, n - k + 1))
        assert one.high == pytest.approx(beta.ppf(1 - tail, k + 1, n - k))
        gap, one = (p - y)[of], metrics[name]["positive_gap"]
        margin = t.ppf(1 - tail, n - 1) * gap.std(ddof=1) / np.sqrt(n)
        assert (one.low, one.high) == pytest.approx((gap.mean() - margin, gap.mean() + margin))


def test_differences_combine_the_intervals_of_both_groups() -> None:
    y, p, groups, _ = rows()
    found = compared(audit(y, p, groups=groups, n_resamples=0))
    one = found.disparities["false_positive_rate"]
    values = {name: metrics["false_positive_rate"].value for name, metrics in found.metrics.items()}
    assert one.highest == max(values, key=lambda name: values[name])
    assert one.lowest == min(values, key=lambda name: values[name])
    assert one.interval.value == pytest.approx(values[one.highest] - values[one.lowest])
    # The demographic parity difference, by hand.
    selected = [(p[groups == name] >= 0.5).mean() for name in NAMES]
    parity = found.disparities["selection_rate"].interval.value
    assert parity == pytest.approx(max(selected) - min(selected))
    tail = 0.05 / 3 / 2  # three pairs
    ends = []
    for name in (one.highest, one.lowest):
        is_negative = (groups == name) & (y == 0)
        n, k = is_negative.sum(), (p[is_negative] >= 0.5).sum()
        ends.append((k / n, beta.ppf(tail, k, n - k + 1), beta.ppf(1 - tail, k + 1, n - k)))
    (a, a_low, a_high), (b, b_low, b_high) = ends
    assert one.interval.low == pytest.approx(a - b - np.hypot(a - a_low, b_high - b))
    assert one.interval.high == pytest.approx(a - b + np.hypot(a_high - a, b - b_low))


def test_costs_decide_instead_of_a_threshold() -> None:
    y, p, groups, weight = rows()
    found = audit(y, p, groups=groups, sample_weight=weight, costs=COSTS, n_resamples=0)
    expected = np.stack([10 * p, 1 - p, np.full(p.size, 0.6)])
    expected[2] -= 1e-9  # reject wins a tie
    action = expected.argmin(axis=0)
    paid = np.stack([10.0 * y, 1.0 - y, np.full(p.size, 0.6)])[action, np.arange(p.size)]
    for name in NAMES:
        of = groups == name
        one = compared(found).metrics[name]
        assert one["mean_cost"].value == pytest.approx(np.average(paid[of], weights=weight[of]))
        assert one["selection_rate"].value == pytest.approx(
            np.average(action[of] == 1, weights=weight[of])
        )
        repeated = np.repeat(paid[of], weight[of].astype(int))
        level = 0.95 ** (1 / 3)
        wanted = t.interval(
            level, repeated.size - 1, repeated.mean(), repeated.std(ddof=1) / np.sqrt(repeated.size)
        )
        assert (one["mean_cost"].low, one["mean_cost"].high) == pytest.approx(wanted)
    assert found.mean_cost == pytest.approx(np.average(paid, weights=weight))
    assert found.positive is not None
    assert found.positive.operating_point.threshold is None
    assert "mean_cost" in found.figures


def test_many_classes_have_accuracy_gap_and_cost() -> None:
    rng = np.random.default_rng(0)
    logits, y = rng.normal(0, 2, (300, 3)), rng.integers(0, 3, 300)
    groups = np.arange(300) % 2
    costs = CostMatrix.zero_one(3).with_reject(0.4)
    found = compared(audit(y, Logits(logits), groups=groups, costs=costs, n_resamples=100))
    is_correct = logits.argmax(axis=1) == y
    for k in (0, 1):
        metrics = found.metrics[str(k)]
        names = ["accuracy", "gap", "expected_calibration_error", "mean_cost"]
        assert list(metrics) == names
        assert metrics["accuracy"].value == pytest.approx(is_correct[groups == k].mean())
        assert all(metrics[name].low <= metrics[name].value <= metrics[name].high for name in names)


def test_few_rows_are_not_compared_but_still_audited() -> None:
    y, p, _, _ = rows(60)
    groups = np.where(np.arange(60) < 5, "tiny", "large")
    found = audit(y, p, groups=groups, n_resamples=0)
    assert compared(found).too_few_rows == ("tiny",)
    assert list(compared(found).metrics) == ["large"]
    assert compared(found).disparities == {}
    assert found.groups["tiny"].n_rows == 5
    assert "Groups with fewer than 20 rows, not compared: tiny." in str(found)


def test_rare_outcomes_have_an_exact_gap() -> None:
    found = compared(audit([0] * 400, [0.001] * 400, groups=["a", "b"] * 200, n_resamples=0))
    tail = (1 - 0.95**0.5) / 2
    one = found.metrics["a"]["positive_gap"]
    assert (one.low, one.high) == pytest.approx((0.001 - beta.ppf(1 - tail, 1, 200), 0.001))


def test_streamed_groups_equal_those_in_memory(tmp_path: Any) -> None:
    import pandas as pd

    y, p, groups, weight = rows()
    frame = pd.DataFrame({"p": p, "y": y, "site": groups, "w": weight})
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    columns = Columns(label="y", probabilities="p", group="site", weight="w")
    settings: dict[str, Any] = {"threshold": 0.37, "costs": None, "n_resamples": 0}
    streamed = Audit.of(scan(tmp_path / "rows.parquet", columns), **settings)
    in_memory = audit(y, p, groups=groups, sample_weight=weight, **settings)
    for name in NAMES:
        for key, one in compared(in_memory).metrics[name].items():
            other = compared(streamed).metrics[name][key]
            abs_ = 2e-3 if key in ("roc_auc", "average_precision") else 1e-12  # of a fine grid
            assert other.value == pytest.approx(one.value, abs=abs_)
            assert (other.low, other.high) == pytest.approx((one.low, one.high), abs=abs_)
    assert in_memory.positive is not None
    assert streamed.positive is not None
    assert streamed.positive.operating_point == in_memory.positive.operating_point
    for key in ("base_rate", "mean_probability", "gap", "brier_skill_score"):  # without a grid
        wanted = getattr(in_memory.positive, key)
        assert getattr(streamed.positive, key) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.slow
def test_intervals_hold_for_all_groups_at_once() -> None:
    n_draws, names = 100, range(4)
    rates = {"selection_rate": 0, "false_positive_rate": 0, "positive_gap": 0, "roc_auc": 0}
    pairs = dict.fromkeys(rates, 0)
    big = [drawn(200_000, k, np.random.default_rng(k)) for k in names]
    truth = [truths(y, p) for y, p in big]
    for seed in range(n_draws):
        rng = np.random.default_rng(1000 + seed)
        parts = [drawn(150 + 50 * k, k, rng) for k in names]
        y, p = (np.concatenate(column) for column in zip(*parts, strict=True))
        groups = np.repeat(names, [len(one[0]) for one in parts])
        found = compared(audit(y, p, groups=groups, n_resamples=0))
        for name in rates:
            held = [covers(found.metrics[str(k)][name], truth[k][name]) for k in names]
            rates[name] += all(held)
            one = found.disparities[name]
            wanted = truth[int(one.highest)][name] - truth[int(one.lowest)][name]
            pairs[name] += covers(one.interval, wanted)
    assert min(rates.values()) >= 0.91 * n_draws
    assert min(pairs.values()) >= 0.91 * n_draws


def covers(interval: Interval, value: float) -> bool:
    return interval.low <= value <= interval.high


def drawn(n_rows: int, k: int, rng: np.random.Generator) -> tuple[IntArray, FloatArray]:
    """Return rows of a group whose probabilities are too high."""
    odds = rng.normal(-2 + 0.3 * k, 1.5, n_rows)
    return (rng.random(n_rows) < expit(odds - 0.1 * k)).astype(int), expit(odds)


def truths(y: IntArray, p: FloatArray) -> dict[str, float]:
    return {
        "selection_rate": (p >= 0.5).mean(),
        "false_positive_rate": (p >= 0.5)[y == 0].mean(),
        "positive_gap": (p - y).mean(),
        "roc_auc": float(roc_auc_score(y, p)),
    }


def test_a_threshold_is_a_probability() -> None:
    with pytest.raises(BadValueError, match="threshold"):
        audit([0, 1], [0.2, 0.7], threshold=1.5, n_resamples=0)
