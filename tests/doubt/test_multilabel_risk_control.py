from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from dubito import MultiLabel, Normal
from dubito.arrays import FloatArray
from dubito.data import ArrayShards, Batch
from dubito.data.shards import CountedShards
from dubito.doubt import MultiLabelRiskControl
from dubito.errors import BadTypeError, BadValueError, DubitoError, DubitoWarning


def rows(n_rows: int, n_labels: int = 4, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return probabilities, with ties, and labels, some unknown."""
    rng = np.random.default_rng(seed)
    p = np.round(rng.beta(1, 2, size=(n_rows, n_labels)), 2)
    y = (rng.random(p.shape) < p).astype(float)
    y[rng.random(p.shape) < 0.1] = np.nan
    return p, y


def inverse_known(y: FloatArray) -> FloatArray:
    """Return the inverse of how often each label is known, in rows with a known label."""
    is_known = ~np.isnan(y)
    return np.asarray(1 / is_known[is_known.any(axis=1)].mean(axis=0))


def mean_loss(metric: str, p: FloatArray, y: FloatArray, threshold: float) -> tuple[float, int]:
    """Return the mean loss of a threshold and the number of rows, row by row.

    False labels count by the inverse of how often their label is known.
    """
    losses = []
    stands_for = inverse_known(y)
    for scores, labels in zip(p, y, strict=True):
        is_known = ~np.isnan(labels)
        taken, truth = scores[is_known] >= threshold, labels[is_known] == 1
        if metric == "recall" and truth.any():
            losses.append(1 - (taken & truth).sum() / truth.sum())
        elif metric == "false_positives" and is_known.any():
            losses.append((taken & ~truth) @ stands_for[is_known])
        elif metric == "precision" and is_known.any():
            size = max((scores >= threshold).sum(), 1)
            losses.append((taken & ~truth) @ stands_for[is_known] / size)
    return float(np.mean(losses)), len(losses)


@pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("target", [0.6, 0.9, 0.95])
def test_recall_is_the_highest_threshold_of_a_brute_force_search(target: float, seed: int) -> None:
    p, y = rows(60, seed=seed)
    control = MultiLabelRiskControl(target=target).fit(p, y)
    fine = [0.0]
    for threshold in np.unique(p):
        loss, n = mean_loss("recall", p, y, threshold)
        fine += [threshold] if (n * loss + 1) / (n + 1) <= 1 - target + 1e-12 else []
    assert control.thresholds_.tolist() == [max(fine)] * 4
    assert control.n_rows_[0] == n


@pytest.mark.parametrize("target", [0.2, 0.5, 1.5])
def test_false_positives_are_as_many_as_allowed(target: float) -> None:
    p, y = rows(80)
    threshold = MultiLabelRiskControl("false_positives", target).fit(p, y).thresholds_[0]
    for at, is_fine in ((threshold, True), (threshold - 1e-6, False)):
        loss, n = mean_loss("false_positives", p, y, at)
        assert ((n * loss + inverse_known(y).sum()) / (n + 1) <= target) == is_fine


def test_precision_is_tested_from_high_to_low() -> None:
    p, y = rows(400)
    control = MultiLabelRiskControl("precision", 0.6, delta=0.1).fit(p, y)
    lowest, worst = 2.0, inverse_known(y).max()
    for threshold in np.unique(p)[::-1]:
        loss, n = mean_loss("precision", p, y, threshold)
        loss, limit = loss / worst, 0.4 / worst  # losses of at most 1
        low = min(loss, limit)
        entropy = low * np.log(low / limit) if low else 0
        entropy += (1 - low) * np.log((1 - low) / (1 - limit))
        bentkus = np.e * binom.cdf(np.ceil(n * loss - 1e-9), n, limit)
        if min(bentkus, np.exp(-n * entropy)) > 0.1:
            break
        lowest = threshold
    assert (control.predict(p).contains == (p >= lowest)).all()
    assert 0 < lowest < 1


def test_each_label_has_its_own_recall() -> None:
    p, y = rows(300, 3)
    control = MultiLabelRiskControl(target=0.8, per_label=True).fit(p, y)
    for k in range(3):
        scores = np.sort(p[y[:, k] == 1, k])
        n_missed = int(np.floor(0.2 * (scores.size + 1) + 1e-9)) - 1
        assert control.thresholds_[k] == scores[n_missed]
        assert control.n_rows_[k] == scores.size


def test_the_promise_is_kept_on_new_rows() -> None:
    p, y = rows(4000, seed=5)
    rng, recalls = np.random.default_rng(0), []
    for _ in range(200):
        order = rng.permutation(4000)
        control = MultiLabelRiskControl().fit(p[order[:200]], y[order[:200]])
        threshold = control.thresholds_[0]
        truth = y[order[200:]] == 1
        found = (truth & (p[order[200:]] >= threshold)).sum(axis=1)[truth.any(axis=1)]
        recalls.append((found / truth.sum(axis=1)[truth.any(axis=1)]).mean())
    assert 0.9 - 2 * np.std(recalls) / np.sqrt(200) <= np.mean(recalls) <= 0.92


@pytest.mark.parametrize("metric", ["false_positives", "precision"])
def test_the_promise_covers_labels_that_are_unknown_at_random(metric: str) -> None:
    p, _ = rows(4000, seed=6)
    rng, found = np.random.default_rng(0), []
    y = (rng.random(p.shape) < p).astype(float)
    target, delta = (0.5, None) if metric == "false_positives" else (0.6, 0.1)
    for _ in range(150):
        order = rng.permutation(4000)
        first, rest = order[:300], order[300:]
        known = np.where(rng.random((300, 4)) < 0.3, np.nan, y[first])
        control = MultiLabelRiskControl(metric, target, delta=delta).fit(p[first], known)
        taken = p[rest] >= control.thresholds_[0]
        loss = (taken * (1 - y[rest])).sum(axis=1)
        found.append((loss if delta is None else loss / np.maximum(taken.sum(axis=1), 1)).mean())
    if delta is None:
        assert 0.45 < np.mean(found) < target + 2 * np.std(found) / np.sqrt(150)
    else:
        assert np.mean(np.array(found) > 1 - target) < delta


def test_what_no_promise_covers_is_warned_about() -> None:
    p, y = rows(100)
    y[:, 2] = np.nan
    with pytest.warns(DubitoWarning, match="unknown in every row: 2"):
        MultiLabelRiskControl("false_positives", 0.5).fit(p, y)
    y[:, 2] = np.where(np.arange(100) % 2, 1, np.nan)
    y[:40, 1] = np.nan
    with pytest.warns(DubitoWarning, match="of the labels are unknown.*Pass per_label=True"):
        MultiLabelRiskControl("recall", 0.5).fit(p, y)
    MultiLabelRiskControl("recall", 0.5, per_label=True).fit(p, y)


def test_too_few_rows_take_every_label_and_say_so() -> None:
    p, y = [[0.2, 0.9]] * 8, [[1, 1]] * 8
    with pytest.warns(DubitoWarning, match="labels are always in the set: cough and fever"):
        control = MultiLabelRiskControl().fit(MultiLabel(p, ["cough", "fever"]), y)
    assert control.predict([[0.0, 0.0]]).names(0) == ["cough", "fever"]
    with pytest.warns(DubitoWarning, match="never in the set"):
        control = MultiLabelRiskControl("false_positives", 0.1).fit(p, y)
    assert not control.predict([[1.0, 1.0]]).contains.any()


def test_weights_and_streams_count_rows() -> None:
    p, y = rows(100)
    weight = 1 + np.arange(100) % 2
    index = np.repeat(np.arange(100), weight)
    expected = MultiLabelRiskControl().fit(p[index], y[index]).thresholds_
    assert np.array_equal(MultiLabelRiskControl().fit(p, y, weight).thresholds_, expected)
    batch = Batch.of(y[index], MultiLabel(p[index]))
    streamed = CountedShards(ArrayShards(batch, 50))
    assert np.array_equal(MultiLabelRiskControl().fit(streamed).thresholds_, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "f1"}, "not monotone"),
        ({"metric": "precision"}, "Pass delta=0.1, or control metric='false_positives'"),
        ({"metric": "precision", "delta": 0.1, "per_label": True}, "must be False for precision"),
        ({"delta": 0.1}, "must be None for recall"),
        ({"target": 90}, "target"),
        ({"metric": "false_positives", "target": 0}, "a number of false labels per row"),
    ],
)
def test_settings_that_cannot_be_kept_raise(settings: Any, message: str) -> None:
    with pytest.raises(DubitoError) as caught:
        MultiLabelRiskControl(**settings).fit(*rows(30))
    assert message in str(caught.value)


def test_other_rows_than_labels_raise() -> None:
    p, y = rows(30)
    with pytest.raises(BadTypeError, match="must hold the labels"):
        MultiLabelRiskControl().fit(p)
    with pytest.raises(BadTypeError, match="must be MultiLabel"):
        MultiLabelRiskControl().fit(Normal(p[:, 0], np.ones(30)), y)
    with pytest.raises(BadValueError, match="must have the 4 labels of the fit, got 2"):
        MultiLabelRiskControl(target=0.5).fit(p, y).predict(p[:, :2])
