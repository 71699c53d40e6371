"""Several labels per row: figures against scikit-learn, unknown labels, streams."""

import json
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from dubito import MultiLabel, audit
from dubito.arrays import FloatArray
from dubito.calibrate import MultiLabelCalibrator
from dubito.data import ArrayShards, Batch
from dubito.doubt import MultiLabelRiskControl
from dubito.errors import BadTypeError, BadValueError, EmptyStateError, StateMismatchError
from dubito.measure import MultiLabelAudit, MultiLabelState
from dubito.measure.multilabel import _areas_of

NAMES = ["cough", "fever", "pain", "rash"]


def findings(n_rows: int = 300, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return labels that depend on each other, and tied probabilities that are too extreme."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(-0.5, 1, (n_rows, 4)) + rng.normal(0, 1, (n_rows, 1))
    y = rng.random((n_rows, 4)) < 1 / (1 + np.exp(-0.6 * odds))
    return y * 1.0, (1 / (1 + np.exp(-odds))).round(2)


def with_gaps(y: FloatArray) -> FloatArray:
    return np.where(np.random.default_rng(1).random(y.shape) < 0.2, np.nan, y)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_figures_are_those_of_scikit_learn(is_weighted: bool) -> None:
    y, p = findings()
    weight = np.random.default_rng(2).integers(0, 4, 300) * 1.0 if is_weighted else np.ones(300)
    found = audit(y, MultiLabel(p, NAMES), sample_weight=weight, n_resamples=0)
    given: dict[str, Any] = {"sample_weight": weight}
    predicted = p >= 0.5
    for kind in ("macro", "micro", "weighted"):
        expected = {
            "roc_auc": metrics.roc_auc_score(y, p, average=kind, **given),
            "average_precision": metrics.average_precision_score(y, p, average=kind, **given),
            "f1": metrics.f1_score(y, predicted, average=kind, **given),
            "precision": metrics.precision_score(y, predicted, average=kind, **given),
            "recall": metrics.recall_score(y, predicted, average=kind, **given),
        }
        assert {name: found.means[kind][name] for name in expected} == pytest.approx(
            expected, abs=1e-9
        )
    rows = {
        "subset_accuracy": metrics.accuracy_score(y, predicted, **given),
        "hamming_loss": metrics.hamming_loss(y, predicted, **given),
        "coverage_error": metrics.coverage_error(y, p, **given),
        "ranking_loss": metrics.label_ranking_loss(y, p, **given),
        "label_ranking_average_precision": (
            metrics.label_ranking_average_precision_score(y, p, **given)
        ),
    }
    assert {name: getattr(found, name) for name in rows} == pytest.approx(rows, abs=1e-9)
    for k, name in enumerate(NAMES):
        alone = audit(y[:, k], p[:, k], sample_weight=weight, n_resamples=0).positive
        assert alone is not None
        own = {f"label.{name}.{key.removeprefix('positive_')}" for key in alone.figures}
        assert own <= set(found.figures)
        for key, value in alone.figures.items():
            figure = found.figures[f"label.{name}.{key.removeprefix('positive_')}"]
            assert figure == pytest.approx(value, abs=1e-9)


def test_unknown_labels_are_left_out_pair_by_pair() -> None:
    y, p = findings(80)
    y, weight = with_gaps(y), np.random.default_rng(3).random(80)
    y[:3], y[4, 0], p[4, 0] = np.nan, 1.0, 0.0
    floored = np.clip(p, 1e-12, 1 - 1e-12)
    found = audit(y, MultiLabel(p, NAMES), sample_weight=weight, n_resamples=0)
    is_known, predicted = ~np.isnan(y), p >= 0.5
    pairs = np.broadcast_to(weight[:, np.newaxis], y.shape)[is_known]
    assert found.n_missing == 3 + (~is_known[3:].any(axis=1)).sum()
    assert found.hamming_loss == pytest.approx(
        pairs @ (y != predicted)[is_known] / pairs.sum(), abs=1e-9
    )
    micro = metrics.roc_auc_score(y[is_known], p[is_known], sample_weight=pairs)
    assert found.means["micro"]["roc_auc"] == pytest.approx(micro, abs=1e-9)
    expected = {
        "average_precision": metrics.average_precision_score(
            y[is_known], p[is_known], sample_weight=pairs
        ),
        "f1": metrics.f1_score(y[is_known], predicted[is_known], sample_weight=pairs),
        "log_loss": metrics.log_loss(y[is_known], floored[is_known], sample_weight=pairs),
        "brier_score": metrics.brier_score_loss(y[is_known], p[is_known], sample_weight=pairs),
    }
    assert {name: found.means["micro"][name] for name in expected} == pytest.approx(
        expected, abs=1e-9
    )
    each: dict[str, list[float]] = {"roc_auc": [], "average_precision": [], "f1": []}
    each |= {"log_loss": [], "brier_score": []}
    positives = []
    for k, name in enumerate(NAMES):
        rows = is_known[:, k]
        given: dict[str, Any] = {"sample_weight": weight[rows]}
        each["roc_auc"].append(metrics.roc_auc_score(y[rows, k], p[rows, k], **given))
        each["average_precision"].append(
            metrics.average_precision_score(y[rows, k], p[rows, k], **given)
        )
        each["f1"].append(metrics.f1_score(y[rows, k], predicted[rows, k], **given))
        each["log_loss"].append(metrics.log_loss(y[rows, k], floored[rows, k], **given))
        each["brier_score"].append(metrics.brier_score_loss(y[rows, k], p[rows, k], **given))
        assert found.figures[f"label.{name}.log_loss"] == pytest.approx(each["log_loss"][-1])
        assert found.brier_scores[name] == pytest.approx(each["brier_score"][-1], abs=1e-9)
        positives.append(weight[rows] @ y[rows, k])
        assert found.labels[name].roc_auc == pytest.approx(each["roc_auc"][-1], abs=1e-9)
    for name, values in each.items():
        assert found.means["macro"][name] == pytest.approx(np.mean(values), abs=1e-9)
        by_support = np.average(values, weights=positives)
        assert found.means["weighted"][name] == pytest.approx(by_support, abs=1e-9)
    # Row by row, over the known labels of each.
    total = right = loss = coverage = precision = 0.0
    for truth, chance, w in zip(y, p, weight, strict=True):
        some = ~np.isnan(truth)
        if not some.any():
            continue
        one = truth[some][np.newaxis], chance[some][np.newaxis]
        total += w
        right += w * bool(((one[1] >= 0.5) == one[0]).all())
        if some.sum() == 1:
            coverage += w * truth[some][0]
            precision += w
        else:
            loss += w * metrics.label_ranking_loss(*one)
            coverage += w * metrics.coverage_error(*one)
            precision += w * metrics.label_ranking_average_precision_score(*one)
    assert found.subset_accuracy == pytest.approx(right / total, abs=1e-9)
    assert found.ranking_loss == pytest.approx(loss / total, abs=1e-9)
    assert found.coverage_error == pytest.approx(coverage / total, abs=1e-9)
    assert found.label_ranking_average_precision == pytest.approx(precision / total, abs=1e-9)


def test_states_add_up_to_the_whole_and_survive_json() -> None:
    y, p = findings()
    batch = Batch.of(with_gaps(y), MultiLabel(p, NAMES))
    whole = MultiLabelState.of(batch, n_buckets=7)
    parts = [slice(0, 99), slice(99, 300)]
    one, other = (MultiLabelState.of(batch.take(rows), n_buckets=7) for rows in parts)
    loaded = MultiLabelState.from_dict(json.loads(json.dumps(whole.to_dict())))
    for state in (one + other, loaded):
        for name in ("n_known", "rows", "sums", "cells"):
            np.testing.assert_allclose(getattr(state, name), getattr(whole, name), atol=1e-12)
        for a, b in zip(state.rankings, whole.rankings, strict=True):
            np.testing.assert_allclose(a.positive, b.positive)
    with pytest.raises(StateMismatchError, match="threshold"):
        _ = whole + MultiLabelState.of(batch, n_buckets=7, threshold=0.2)
    with pytest.raises(EmptyStateError):
        _ = MultiLabelState.of(batch.take(slice(0, 0))).value


def test_pooled_areas_do_not_depend_on_the_ranges_they_are_summed_in() -> None:
    y, p = findings()
    p[:, 1] *= 0.1
    rankings = MultiLabelState.of(Batch.of(y, MultiLabel(p))).rankings
    expected = metrics.roc_auc_score(y, p, average="micro")
    precision = metrics.average_precision_score(y, p, average="micro")
    for n_together in (7, 100, 10_000):
        found = _areas_of(rankings, n_together)
        assert found["roc_auc"] == pytest.approx(expected, abs=1e-12)
        assert found["average_precision"] == pytest.approx(precision, abs=1e-12)


def test_streamed_rows_have_the_same_figures() -> None:
    y, p = findings(600)
    batch = Batch.of(with_gaps(y), MultiLabel(p, NAMES), groups=["a", "b"] * 300)
    shards = ArrayShards(batch)
    exact = MultiLabelAudit.of(shards, n_resamples=40)
    # Shards that are not `ArrayShards` are streamed.
    streamed = MultiLabelAudit.of(shards.map(lambda rows: rows), n_resamples=40)
    assert list(streamed.labels) == list(exact.labels)
    assert set(streamed.figures) == set(exact.figures)
    sums = ("subset_accuracy", "hamming_loss", "f1", "base_rate")
    within = [1e-9 if name.rpartition(".")[2] in sums else 0.02 for name in exact.figures]
    figures = streamed.figures
    values = [(value, figures[name]) for name, value in exact.figures.items()]
    assert (np.abs(np.diff(values)[:, 0]) <= within).all()
    group = audit(batch.labels.values[::2], MultiLabel(p[::2], NAMES), n_resamples=0)  # type: ignore[union-attr]
    figures = exact.groups["a"].figures
    assert {name: figures[name] for name in group.figures} == pytest.approx(group.figures, abs=1e-9)


@pytest.mark.slow
def test_groups_are_compared_as_by_binary_audits() -> None:
    y, p = findings(900)
    y, sites = with_gaps(y), np.array(["north", "south", "west"] * 300)
    p[sites == "south", 2] **= 3
    found = audit(y, MultiLabel(p, NAMES), groups=sites, n_resamples=200)
    level = 1 - 0.05 / 4  # for four labels at once
    for k, name in enumerate(NAMES):
        rows = ~np.isnan(y[:, k])
        alone = audit(y[rows, k], p[rows, k], groups=sites[rows], n_resamples=200)
        binary, several = alone.group_comparison, found.group_comparison[name]
        assert binary is not None
        assert several.level == level
        for site, intervals in several.metrics.items():
            for metric, one in intervals.items():
                other = binary.metrics[site][metric]
                assert one.value == pytest.approx(other.value, abs=1e-9)
                assert one.low <= other.low + 1e-9
                assert one.high >= other.high - 1e-9
        for metric, disparity in several.disparities.items():
            other = binary.disparities[metric].interval
            assert disparity.interval.value == pytest.approx(other.value, abs=1e-9)
            assert disparity.interval.low <= other.low + 1e-9
    # Exact: the interval of a rate that holds for 3 groups and 4 labels at once.
    rows = (sites == "west") & ~np.isnan(y[:, 0])
    hits, n = y[rows, 0].sum(), rows.sum()
    tail = (1 - level ** (1 / 3)) / 2
    rate = found.group_comparison["cough"].metrics["west"]["base_rate"]
    assert rate.low == pytest.approx(stats.beta.ppf(tail, hits, n - hits + 1), abs=1e-9)
    assert found.figures["group.west.label.cough.base_rate.low"] == rate.low
    assert found.figures["disparity.label.pain.gap"] > 0.05
    assert "pain, calibration gap" in str(found)
    assert "cough" not in str(found).split("beyond chance")[1]
    inner = found.groups["north"]
    assert inner.intervals["macro.f1"].low < inner.means["macro"]["f1"]
    assert inner.labels["cough"].intervals["expected_calibration_error"].high > 0
    json.dumps(found.to_dict(), allow_nan=False)
    few = audit(y[:50], MultiLabel(p[:50], NAMES), groups=sites[:50], n_resamples=40)
    assert set(few.small_groups) == {"north", "south", "west"}
    assert not few.group_comparison


def test_the_number_of_bins_is_passed_on() -> None:
    y, p = findings()
    few, many = (audit(y, MultiLabel(p, NAMES), n_bins=n, n_resamples=40) for n in (3, 12))
    alone = audit(y[:, 1], p[:, 1], n_bins=3, n_resamples=0).positive
    assert alone is not None
    assert few.labels["fever"].curve.count.size == 3
    assert few.labels["fever"].expected_calibration_error == alone.expected_calibration_error
    assert many.labels["fever"].curve.count.size == 12
    name = "macro.expected_calibration_error"
    assert few.intervals[name].value == few.means["macro"]["expected_calibration_error"]
    assert few.intervals[name].high < many.intervals[name].high


@pytest.mark.slow
def test_intervals_resample_whole_rows() -> None:
    y, p = findings(400)
    twice = MultiLabel(np.tile(p, 2))  # the same labels again add nothing
    once = audit(y, MultiLabel(p), n_resamples=400).intervals
    more = audit(np.tile(y, 2), twice, n_resamples=400).intervals
    for name in ("macro.roc_auc", "macro.f1", "micro.average_precision", "hamming_loss"):
        assert (more[name].low, more[name].high) == pytest.approx(
            (once[name].low, once[name].high), abs=1e-9
        )
    # As wide as repeated samples of rows show.
    areas = [metrics.roc_auc_score(*findings(400, seed), average="macro") for seed in range(10, 50)]
    width = once["macro.roc_auc"].high - once["macro.roc_auc"].low
    assert 0.7 < width / (2 * 1.96 * np.std(areas)) < 1.4


def test_intervals_of_one_label_are_those_of_a_binary_audit() -> None:
    y, p = findings(2000)
    found = audit(y[:, :1], MultiLabel(p[:, :1]), n_resamples=400)
    names = ("roc_auc", "average_precision", "brier_skill_score", "base_rate", "gap", "precision")
    for name in (*names, "calibration_slope", "calibration_intercept"):
        one, other = found.intervals[f"macro.{name}"], found.labels["0"].intervals[name]
        assert one.value == pytest.approx(other.value, abs=1e-9)
        assert 0.75 < (one.high - one.low) / (other.high - other.low) < 1.3


def test_labels_are_ranked_by_calibration_beyond_chance() -> None:
    y, p = findings(3000)
    p[:, 2] = p[:, 2] ** 3
    y[50:, 3] = np.nan  # few rows, a large error by chance
    found = audit(y, MultiLabel(p, NAMES), n_resamples=0)
    assert next(iter(found.labels)) == "pain"
    assert found.miscalibrated[0] == "pain"
    assert "rash" not in found.miscalibrated
    assert "'pain' the most" in found.verdict
    assert "* pain" in str(found)


def test_labels_without_positives_or_rows_have_stated_figures() -> None:
    y, p = findings()
    y[:, 1], y[:, 2] = 0, np.nan
    found = audit(y, MultiLabel(p, NAMES), n_resamples=40)
    assert found.n_known["pain"] == 0
    assert "pain" not in found.labels
    assert "left out: pain" in str(found)
    assert found.labels["fever"].roc_auc is None
    text = json.dumps(found.to_dict(), allow_nan=False)
    assert "NaN" not in text
    assert np.isfinite(list(found.figures.values())).all()
    both = [metrics.roc_auc_score(y[:, k], p[:, k]) for k in (0, 3)]
    assert found.means["macro"]["roc_auc"] == pytest.approx(np.mean(both), abs=1e-9)


def test_one_label_and_one_row_claim_no_more_than_they_show() -> None:
    y, p = findings()
    one = audit(y[:, :1], MultiLabel(p[:, :1] ** 3, ["cough"]), n_resamples=40)
    assert one.verdict.startswith("1 of 1 label is miscalibrated, 'cough': ")
    assert "ECE (10 bins), macro" in str(one)
    assert "ECE: equal-mass bins per label; micro: the mean over pairs" in str(one)
    alone = audit(y[:1], MultiLabel(p[:1], NAMES), n_resamples=40)
    assert not alone.intervals
    assert " to " not in str(alone).split("label  ")[0]


def test_invalid_arguments_raise() -> None:
    y, p = findings(30)
    for run in (
        lambda y, p: audit(y, MultiLabel(p)),
        lambda y, p: MultiLabelCalibrator().fit(p, y),
        lambda y, p: MultiLabelRiskControl().fit(p, y),
    ):
        with pytest.raises(BadValueError, match=r"such as 0\.\d+\. Exchange labels and outputs"):
            run(p, y)
        with pytest.raises(BadValueError, match="the same numbers in every row"):
            run(y, y)
        with pytest.raises(BadValueError, match="the same numbers in every row"):
            run(with_gaps(p), p)
    assert audit(y[:9], MultiLabel(y[:9]), n_resamples=0).hamming_loss == 0  # may be by chance
    with pytest.raises(BadValueError, match=r"got -1.* in row 3, column 1\. .*from_logits"):
        MultiLabel(np.where(np.arange(120).reshape(30, 4) == 13, -1, p))
    with pytest.raises(EmptyStateError):
        audit(np.full((30, 4), np.nan), MultiLabel(p))
    with pytest.raises(BadTypeError, match="must be the labels"):
        audit(None, MultiLabel(p))
    with pytest.raises(BadTypeError, match="must be MultiLabel"):
        MultiLabelAudit.of(ArrayShards(Batch.of([0, 1], [0.1, 0.9])))
    assert "Too few rows" in audit(y[:5], MultiLabel(p[:5])).verdict


def test_intervals_of_average_precision_hold_with_few_positives() -> None:
    rng, n_labels = np.random.default_rng(0), 20

    def drawn(n_rows: int, n_columns: int) -> tuple[FloatArray, FloatArray]:
        y = (rng.random((n_rows, n_columns)) < 0.01) * 1.0
        return y, 1 / (1 + np.exp(4 - y - rng.normal(size=y.shape)))

    y, p = drawn(200_000, 1)
    truth = metrics.average_precision_score(y[:, 0], p[:, 0])
    y, p = drawn(1000, n_labels)
    found = audit(y, MultiLabel(p), n_resamples=200, random_state=0)
    for kind in ("macro", "micro", "weighted"):
        interval = found.intervals[f"{kind}.average_precision"]
        assert 0 <= interval.low <= interval.value <= interval.high <= 1
    macro = found.intervals["macro.average_precision"]
    assert macro.low < truth < macro.value - 0.01  # biased upwards, which the interval allows for
