"""Metrics that represent all rows, reasons where they are unavailable, and alarms."""

import json
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss as sklearn_log_loss

from dubito.data.stream import write_stream
from dubito.decide import CostMatrix
from dubito.measure import expected_calibration_error, log_loss
from dubito.monitor import SequentialAlarm
from dubito.serve.monitor import _as_json
from dubito.serve.policy_metrics import _class_reliability, monitor_classes
from dubito.serve.schemas import ARROW
from dubito.serve.service import Settings
from dubito.serve.store import Store
from dubito.serve.weighted_estimates import propensity_weights
from studies.common.serving import fitted_policy
from tests.decide.growing import growing
from tests.serve import stored
from tests.serve.conftest import SURE, TORN, Api
from tests.serve.stored import (
    drawn_rows,
    history_of,
    labels_where,
    report_of,
    without_draws,
)


@pytest.fixture(scope="module")
def stored_policy() -> Any:
    return stored.fitted_policy()


def test_metrics_are_those_of_weighted_labels(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 4000, 0.05)
    report = report_of(rows, stored_policy)
    sample = propensity_weights(rows)
    label, p = rows.label[sample.rows], rows.probabilities[sample.rows].astype(float)
    p /= p.sum(axis=1, keepdims=True)
    overall = report.overall
    assert (overall.n_rows, overall.n_labels) == (4000, sample.rows.size)
    assert (overall.start, overall.end) == (0.0, 60.0 * 3999)
    assert overall.coverage.interval is not None
    assert overall.coverage.interval.value == pytest.approx((rows.action != 3).mean())
    assert overall.log_loss.interval is not None
    expected = sklearn_log_loss(label, p, sample_weight=sample.weight)
    assert overall.log_loss.interval.value == pytest.approx(expected, abs=1e-6)
    assert overall.calibration_error.interval is not None
    expected = expected_calibration_error(label, p, sample_weight=sample.weight)
    assert overall.calibration_error.interval.value == pytest.approx(expected, abs=1e-6)
    assert overall.cost.interval is not None
    action = rows.action[sample.rows]
    paid = np.where(action == 3, 0.25, action != label)
    expected = np.average(paid, weights=sample.weight)
    assert overall.cost.interval.value == pytest.approx(expected)
    assert overall.expected_if_calibrated is not None
    assert 0 < overall.expected_if_calibrated < 0.05
    assert len(report.windows) == 8
    assert [window.n_rows for window in report.windows] == [500] * 8
    found = (overall.coverage, overall.log_loss, overall.calibration_error, overall.cost)
    for interval in (one.interval for one in found):
        assert interval is not None
        assert interval.low <= interval.value <= interval.high


def test_intervals_cover_the_truth_where_unweighted_labels_mislead(stored_policy: Any) -> None:
    held, n_runs = np.zeros(2), 12
    for seed in range(n_runs):
        rows, y = drawn_rows(stored_policy, 1500, 0.05, seed=seed, sharper=2.6)
        overall = report_of(rows, stored_policy).overall
        truth = log_loss(y, rows.probabilities)
        labeled = rows.label >= 0
        assert log_loss(y[labeled], rows.probabilities[labeled]) > truth + 0.1
        paid = np.where(rows.action == 3, 0.25, rows.action != y).mean()
        for k, (figure, true) in enumerate(((overall.log_loss, truth), (overall.cost, paid))):
            assert figure.interval is not None
            held[k] += figure.interval.low <= true <= figure.interval.high
    assert (held >= 0.8 * n_runs).all()


def test_without_an_audit_only_coverage_is_available(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 600, 0.05)
    blind = without_draws(labels_where(rows, rows.propensity == 1))
    report = report_of(blind, stored_policy)
    n_passed = int((rows.propensity < 1).sum())
    words = f"{n_passed} rows were accepted without any being drawn for the audit."
    for figure in (report.overall.calibration_error, report.overall.log_loss, report.overall.cost):
        assert (figure.interval, figure.unavailable) == (None, words)
    assert report.overall.coverage.interval is not None
    assert report.overall.expected_if_calibrated is None
    assert report.alarms["calibration"].n_labels == 0


def test_nothing_decided_yet(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 10, 0.5)
    report = report_of(rows.take(slice(0, 0)), stored_policy)
    assert report.overall.coverage.unavailable == "No rows have been decided yet."
    assert report.prior is None
    assert report.uncertainty is None
    assert not any(alarm.has_alarmed for alarm in report.alarms.values())


def test_miscalibration_raises_an_alarm(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 6000, 0.05)
    quiet = report_of(rows, stored_policy)
    assert not quiet.alarms["calibration"].has_alarmed
    assert not quiet.alarms["uncertainty"].has_alarmed
    rows, _ = drawn_rows(stored_policy, 6000, 0.15, sharper=2.7)
    sharp = report_of(rows, stored_policy).alarms["calibration"]
    assert sharp.direction == "over"
    assert sharp.n_labels == int(rows.is_audit.sum())


def test_alarms_use_the_whole_history_and_metrics_the_rows(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 6000, 0.15, sharper=2.7)
    history = history_of(rows)
    late = monitor_classes(rows.take(slice(5000, None)), stored_policy, history)
    assert late.overall.n_rows == 1000
    assert late.windows[0].start == 60.0 * 5000
    by_hand = SequentialAlarm(tolerance=0.02).update(history.confidence, history.is_correct)
    assert by_hand.has_alarmed
    assert late.alarms["calibration"].to_dict() == by_hand.to_dict()
    assert late.alarms["uncertainty"].n_labels == 5000


def test_uncertainty_alarms_compare_with_a_fixed_reference(stored_policy: Any) -> None:
    before, _ = drawn_rows(stored_policy, 1500, 0.0)
    after, _ = drawn_rows(stored_policy, 3000, 0.0, seed=2, sharper=0.9)
    rows = rows_joined(before, after)
    alarms = [
        report_of(rows.take(slice(0, n)), stored_policy).alarms["uncertainty"]
        for n in (900, 1000, 2500, 3500, 4500)
    ]
    assert [alarm.n_labels for alarm in alarms] == [0, 0, 1500, 2500, 3500]
    found = [alarm.alarmed_after for alarm in alarms if alarm.has_alarmed]
    assert found
    assert len(set(found)) == 1


def test_shifts_of_uncertainty_and_priors_are_found_without_labels(stored_policy: Any) -> None:
    before, _ = drawn_rows(stored_policy, 2000, 0.0)
    after, _ = drawn_rows(stored_policy, 2000, 0.0, seed=2, sharper=0.9)
    joined = rows_joined(before, after)
    report = report_of(joined, stored_policy)
    assert report.alarms["uncertainty"].direction == "under"
    assert report.uncertainty is not None
    assert report.uncertainty.difference is not None
    assert report.uncertainty.difference.low > 0.05
    keep = (before.predicted_class != 0) | (np.arange(2000) % 4 == 0)
    rare = report_of(before.take(keep), stored_policy)
    assert rare.prior is not None
    assert rare.reference_prior is not None
    assert rare.prior.high[0] < rare.reference_prior[0]


def rows_joined(first: Any, second: Any) -> Any:
    names = [name for name in first.__dataclass_fields__ if name != "delay"]
    both = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names}
    return type(first)(**both)


def test_unavailable_metrics_have_a_reason(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 400, 1.0)
    sure = rows.probabilities.copy()
    wrong = int(rows.label[0] == 0)
    sure[0] = np.eye(3)[wrong]
    infinite = report_of(replace(rows, probabilities=sure), stored_policy).overall.log_loss
    assert infinite.unavailable == "It is infinite: a class with probability 0 occurred."
    table = [*(1 - np.eye(3)), [0.25] * 3]
    costs = CostMatrix(growing(np.zeros((4, 3)), table), reject="3")
    cost = report_of(rows, replace(stored_policy, costs=costs)).overall.cost
    assert cost.unavailable == "The costs depend on `amount`, and some rows have none."
    row_costs = np.random.default_rng(0).uniform(1, 9, 400)
    texts = [json.dumps({"amount": amount}) for amount in row_costs.tolist()]
    given = replace(rows, row_costs=np.array(texts, object))
    found = report_of(given, replace(stored_policy, costs=costs)).overall.cost.interval
    assert found is not None
    paid = np.where(rows.action == 3, 0.25, rows.action != rows.label) * row_costs
    assert found.value == pytest.approx(paid.mean())
    two = CostMatrix.zero_one(3)
    cost = report_of(rows, replace(stored_policy, costs=two)).overall.cost
    assert cost.unavailable == "Some rows were decided by a policy with other actions."


def test_metrics_of_stored_rows(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN] * 30, "ids": list(range(30))})
    api.client.post("/v1/labels", json={"ids": list(range(30)), "labels": ["a"] * 30})
    answer = api.client.get("/v1/monitor")
    assert answer.status_code == 200
    content = answer.json()
    assert (content["policy"], content["days"], content["n_rows"]) == (1, 30.0, 30)
    assert content["overall"]["n_labels"] == 30
    for days in ("0", "-1", "x", "nan"):
        assert api.client.get("/v1/monitor", params={"days": days}).status_code == 422


def test_rows_of_the_previous_policy_are_left_out(api: Api) -> None:
    api.client.post("/v1/decide", json={"logits": [TORN] * 30, "ids": list(range(30))})
    api.client.post("/v1/labels", json={"ids": list(range(30)), "labels": ["b"] * 30})
    other = fitted_policy(reject_cost=0.2).to_json()
    number = api.client.post("/v1/policies", content=other).json()["id"]
    api.client.post(f"/v1/policies/{number}/activate")
    content = api.client.get("/v1/monitor").json()
    assert (content["policy"], content["n_rows"], content["overall"]["n_labels"]) == (number, 0, 0)
    ids = list(range(30, 55))
    api.client.post("/v1/decide", json={"logits": [TORN] * 25, "ids": ids})
    api.client.post("/v1/labels", json={"ids": ids, "labels": ["a"] * 25})
    content = api.client.get("/v1/monitor").json()
    assert (content["n_rows"], content["overall"]["n_labels"]) == (25, 25)
    assert content["overall"]["cost"]["interval"]["value"] == pytest.approx(0.2)
    api.client.post("/v1/policies/rollback")
    assert api.client.get("/v1/monitor").json()["n_rows"] == 30


def test_without_an_audit_metrics_are_unavailable(
    small_store: Store, running: Callable[..., Api]
) -> None:
    api = running(small_store, Settings(audit_fraction=0.0))
    ids = list(range(60))
    api.client.post("/v1/decide", json={"logits": [TORN] * 30 + [SURE] * 30, "ids": ids})
    api.client.post("/v1/labels", json={"ids": ids, "labels": ["a"] * 60})
    overall = api.client.get("/v1/monitor").json()["overall"]
    for name in ("calibration_error", "log_loss", "cost"):
        assert overall[name] == {
            "interval": None,
            "unavailable": "30 rows were accepted without any being drawn for the audit.",
        }
    assert overall["coverage"]["interval"]["value"] == 0.5


def test_metrics_are_unbiased_while_reviewers_take_uncertain_rows_first(
    small_store: Store, running: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the audited rows are reviewed, and of the others the most uncertain ones."""
    api = running(small_store, Settings(audit_fraction=0.2))
    api.app.state.service.rng = np.random.default_rng(0)
    monkeypatch.setattr("dubito.serve.store.decisions.random", Random(0).random)
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(6000, 3)).astype(np.float32)
    truth = (0.6 * logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    content = write_stream({"logits": logits, "ids": np.arange(6000).astype(str)})
    api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    rows = api.store.decisions_since()
    at = rows.id.astype(int)
    waits = api.store.review_queue("ann", 6000)
    n_drawn = int(rows.is_audit.sum())
    read = np.array([*waits[: n_drawn // 2], *waits[n_drawn : n_drawn + 200]], int)
    api.store.add_labels(read.astype(str).tolist(), truth[read].tolist())
    overall = api.client.get("/v1/monitor").json()["overall"]
    y, p = truth[at], rows.probabilities
    loss = -np.log(p[np.arange(6000), y])
    expected = {
        "log_loss": loss.mean(),
        "cost": np.where(rows.action == 3, 0.3, rows.action != y).mean(),
    }
    is_read = np.isin(at, read)
    assert overall["n_labels"] == n_drawn // 2
    assert loss[is_read].mean() > overall["log_loss"]["interval"]["high"]
    for name, value in expected.items():
        interval = overall[name]["interval"]
        assert interval["low"] <= value <= interval["high"]


def test_one_sorted_batch_is_no_drift(small_store: Store, running: Callable[..., Api]) -> None:
    """Rows of one request come in their order, whatever their ids are."""
    api = running(small_store)
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(4000, 3)).astype(np.float32)
    is_sure = np.sort(logits, axis=1)[:, -1] - np.sort(logits, axis=1)[:, -2] > 2
    ids = [f"{'A' if sure else 'B'}-{k}" for k, sure in enumerate(is_sure)]
    content = write_stream({"logits": logits, "ids": np.array(ids)})
    api.client.post("/v1/decide", content=content, headers={"Content-Type": ARROW})
    content = api.client.get("/v1/monitor").json()
    assert content["alarms"]["uncertainty"]["n_labels"] == 3000
    assert content["alarms"]["uncertainty"]["alarmed_after"] is None


def test_labels_that_came_before_their_rows_do_not_change_an_alarm(
    small_store: Store, running: Callable[..., Api]
) -> None:
    early = [f"early-{k}" for k in range(300)]
    first = running(small_store, Settings(audit_fraction=1.0))
    first.client.post("/v1/labels", json={"ids": early, "labels": ["a"] * 300})
    wrong = [f"wrong-{k}" for k in range(60)]
    first.client.post("/v1/decide", json={"logits": [SURE] * 60, "ids": wrong})
    first.client.post("/v1/labels", json={"ids": wrong, "labels": ["c"] * 60})
    before = first.client.get("/v1/monitor").json()["alarms"]["calibration"]
    assert before["direction"] == "over"
    first.client.post("/v1/decide", json={"logits": [TORN] * 300, "ids": early})
    after = first.client.get("/v1/monitor").json()["alarms"]["calibration"]
    assert after["n_labels"] == 360
    for name in ("direction", "alarmed_after"):
        assert after[name] == before[name]


def test_one_row_without_an_audit_does_not_hide_what_came_since(
    small_store: Store, running: Callable[..., Api]
) -> None:
    blind = running(small_store, Settings(audit_fraction=0.0))
    blind.client.post("/v1/decide", json={"logits": [SURE], "ids": ["blind"]})
    api = running(small_store, Settings(audit_fraction=1.0))
    ids = list(range(60))
    api.client.post("/v1/decide", json={"logits": [SURE] * 60, "ids": ids})
    api.client.post("/v1/labels", json={"ids": ids, "labels": ["a"] * 60})
    overall = api.client.get("/v1/monitor").json()["overall"]
    assert (overall["n_rows"], overall["n_labels"]) == (61, 60)
    assert overall["cost"]["interval"] is not None
    assert overall["note"].startswith("All metrics but coverage are of the 60 rows decided since ")


def test_metrics_of_no_rows(api: Api) -> None:
    assert api.client.get("/v1/monitor").json()["n_rows"] == 0


def test_numbers_that_are_not_finite_are_null() -> None:
    nasty = {"a": np.array([1.0, np.nan]), 2: (np.float64("inf"), np.int64(3), "x", None)}
    assert _as_json(nasty) == {"a": [1.0, None], "2": [None, 3, "x", None]}


def test_reliability_is_weighted_and_its_intervals_hold(stored_policy: Any) -> None:
    rows, y = drawn_rows(stored_policy, 4000, 0.1, sharper=1.8)
    found = monitor_classes(rows, stored_policy, history_of(rows)).reliability
    sample = propensity_weights(rows)
    assert found is not None
    assert found.n_labels.sum() == sample.rows.size
    p = rows.probabilities.max(axis=1)[sample.rows].astype(float)
    is_correct = (rows.predicted_class == y)[sample.rows]
    order = np.argsort(p, kind="stable")
    ends = np.cumsum(found.n_labels)
    for k, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        rows_of_bin = order[start:end]
        weight = sample.weight[rows_of_bin]
        mean = np.average(is_correct[rows_of_bin], weights=weight)
        assert found.observed[k] == pytest.approx(mean)
        assert found.stated[k] == pytest.approx(np.average(p[rows_of_bin], weights=weight))
        n = weight.sum() ** 2 / (weight @ weight)
        # Wilson's ends are the frequencies from which the mean is 1.96 standard errors away.
        for one in (found.low[k], found.high[k]):
            if 0 < one < 1 and one != mean:
                z = (mean - one) / np.sqrt(one * (1 - one) / n)
                assert abs(z) == pytest.approx(1.95996, abs=1e-3)
    inside = []
    for seed in range(20):
        calibrated = _class_reliability(
            drawn_rows(stored_policy, 3000, 0.1, seed=seed)[0], stored_policy
        )
        assert calibrated is not None
        inside += [low <= p <= high for p, _, low, high, _ in calibrated.rows]
    assert 0.88 < np.mean(inside) < 0.99
    sharp = _class_reliability(drawn_rows(stored_policy, 4000, 0.5, sharper=4.0)[0], stored_policy)
    assert sharp is not None
    assert (sharp.stated > sharp.high).sum() >= 7  # over-confident
