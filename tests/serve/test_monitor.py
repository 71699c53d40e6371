"""Figures that stand for all rows, "unknown" where none do, and alarms that come and do not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import log_loss as sklearn_log_loss

from dubito.decide import CostMatrix
from dubito.measure import expected_calibration_error, log_loss
from dubito.monitor.sequential import SequentialAlarm
from dubito.serve.monitor import monitor_figures
from dubito.serve.standing import rows_taken, standing_for
from tests.serve.stored import (
    drawn_rows,
    figures_of,
    fitted_policy,
    history_of,
    labels_where,
    without_draws,
)


@pytest.fixture(scope="module")
def policy() -> Any:
    return fitted_policy()


def test_figures_are_those_of_weighted_labels(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.05)
    figures = figures_of(rows, policy)
    standing = standing_for(rows)
    label, p = rows.label[standing.rows], rows.probabilities[standing.rows].astype(float)
    p /= p.sum(axis=1, keepdims=True)
    whole = figures.whole
    assert (whole.n_rows, whole.n_labels) == (4000, standing.rows.size)
    assert (whole.start, whole.end) == (0.0, 60.0 * 3999)
    assert whole.coverage.interval is not None
    assert whole.coverage.interval.value == pytest.approx((rows.action != 3).mean())
    assert whole.log_loss.interval is not None
    expected = sklearn_log_loss(label, p, sample_weight=standing.weight)
    assert whole.log_loss.interval.value == pytest.approx(expected, abs=1e-6)
    assert whole.calibration_error.interval is not None
    expected = expected_calibration_error(label, p, sample_weight=standing.weight)
    assert whole.calibration_error.interval.value == pytest.approx(expected, abs=1e-6)
    assert whole.cost.interval is not None
    action = rows.action[standing.rows]
    paid = np.where(action == 3, 0.25, action != label)
    expected = np.average(paid, weights=standing.weight)
    assert whole.cost.interval.value == pytest.approx(expected)
    assert whole.if_calibrated is not None
    assert 0 < whole.if_calibrated < 0.05
    assert len(figures.windows) == 8
    assert [window.n_rows for window in figures.windows] == [500] * 8
    found = (whole.coverage, whole.log_loss, whole.calibration_error, whole.cost)
    for interval in (one.interval for one in found):
        assert interval is not None
        assert interval.low <= interval.value <= interval.high


def test_intervals_hold_what_all_labels_say_where_plain_labels_mislead(policy: Any) -> None:
    held, n_runs = np.zeros(2), 12
    for seed in range(n_runs):
        rows, y = drawn_rows(policy, 1500, 0.05, seed=seed, sharper=2.6)
        whole = figures_of(rows, policy).whole
        truth = log_loss(y, rows.probabilities)
        asked = rows.label >= 0
        assert log_loss(y[asked], rows.probabilities[asked]) > truth + 0.1
        paid = np.where(rows.action == 3, 0.25, rows.action != y).mean()
        for k, (figure, true) in enumerate(((whole.log_loss, truth), (whole.cost, paid))):
            assert figure.interval is not None
            held[k] += figure.interval.low <= true <= figure.interval.high
    assert (held >= 0.8 * n_runs).all()


def test_without_an_audit_the_figures_are_unknown_but_coverage_is_not(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 600, 0.05)
    blind = without_draws(labels_where(rows, rows.propensity == 1))
    figures = figures_of(blind, policy)
    n_passed = int((rows.propensity < 1).sum())
    words = f"{n_passed} rows were let pass while none was drawn at random to be checked."
    for figure in (figures.whole.calibration_error, figures.whole.log_loss, figures.whole.cost):
        assert (figure.interval, figure.unknown) == (None, words)
    assert figures.whole.coverage.interval is not None
    assert figures.whole.if_calibrated is None
    assert figures.alarms["calibration"].n_labels == 0


def test_nothing_decided_yet(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 10, 0.5)
    figures = figures_of(rows_taken(rows, slice(0, 0)), policy)
    assert figures.whole.coverage.unknown == "No row was decided yet."
    assert figures.prior is None
    assert figures.doubt is None
    assert not any(alarm.has_alarmed for alarm in figures.alarms.values())


def test_an_alarm_comes_where_confidence_is_no_longer_true(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 6000, 0.05)
    quiet = figures_of(rows, policy)
    assert not quiet.alarms["calibration"].has_alarmed
    assert not quiet.alarms["doubt"].has_alarmed
    rows, _ = drawn_rows(policy, 6000, 0.15, sharper=2.7)
    sharp = figures_of(rows, policy).alarms["calibration"]
    assert sharp.direction == "over"
    assert sharp.n_labels == int(rows.is_audit.sum())


def test_alarms_look_at_the_whole_history_and_figures_at_the_rows(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 6000, 0.15, sharper=2.7)
    history = history_of(rows)
    late = monitor_figures(rows_taken(rows, slice(5000, None)), policy, history)
    assert late.whole.n_rows == 1000
    assert late.windows[0].start == 60.0 * 5000
    by_hand = SequentialAlarm(tolerance=0.02).update(history.confidence, history.is_right)
    assert by_hand.has_alarmed
    assert late.alarms["calibration"].to_dict() == by_hand.to_dict()
    assert late.alarms["doubt"].n_labels == 5000


def test_alarms_of_doubt_compare_with_the_same_rows_always(policy: Any) -> None:
    before, _ = drawn_rows(policy, 1500, 0.0)
    after, _ = drawn_rows(policy, 3000, 0.0, seed=2, sharper=0.9)
    rows = rows_joined(before, after)
    alarms = [
        figures_of(rows_taken(rows, slice(0, n)), policy).alarms["doubt"]
        for n in (900, 1000, 2500, 3500, 4500)
    ]
    assert [alarm.n_labels for alarm in alarms] == [0, 0, 1500, 2500, 3500]
    found = [alarm.alarmed_after for alarm in alarms if alarm.has_alarmed]
    assert found
    assert len(set(found)) == 1


def test_doubt_and_classes_that_shift_are_found_without_labels(policy: Any) -> None:
    before, _ = drawn_rows(policy, 2000, 0.0)
    after, _ = drawn_rows(policy, 2000, 0.0, seed=2, sharper=0.9)
    joined = rows_joined(before, after)
    figures = figures_of(joined, policy)
    assert figures.alarms["doubt"].direction == "under"
    assert figures.doubt is not None
    assert figures.doubt.difference is not None
    assert figures.doubt.difference.low > 0.05
    keep = (before.class_ != 0) | (np.arange(2000) % 4 == 0)
    rare = figures_of(rows_taken(before, keep), policy)
    assert rare.prior is not None
    assert rare.prior.high[0] < rare.usual_prior[0]


def rows_joined(first: Any, second: Any) -> Any:
    names = first.__dataclass_fields__
    both = {name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in names}
    return type(first)(**both)


def test_what_cannot_be_told_says_why(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 400, 1.0)
    sure = rows.probabilities.copy()
    wrong = int(rows.label[0] == 0)
    sure[0] = np.eye(3)[wrong]
    infinite = figures_of(replace(rows, probabilities=sure), policy).whole.log_loss
    assert infinite.unknown == "It is infinite: a class that was given probability 0 happened."
    table = [*(1 - np.eye(3)), [0.25] * 3]
    growing = CostMatrix(table, reject="3", rate=table)
    cost = figures_of(rows, replace(policy, costs=growing)).whole.cost
    assert cost.unknown == "Costs grow with row_costs, and some rows came without."
    row_costs = np.random.default_rng(0).uniform(1, 9, 400)
    given = replace(rows, amount=row_costs)
    growing = CostMatrix(np.zeros((4, 3)), reject="3", rate=table)
    found = figures_of(given, replace(policy, costs=growing)).whole.cost.interval
    assert found is not None
    paid = np.where(rows.action == 3, 0.25, rows.action != rows.label) * row_costs
    assert found.value == pytest.approx(paid.mean())
    two = CostMatrix.zero_one(3)
    cost = figures_of(rows, replace(policy, costs=two)).whole.cost
    assert cost.unknown == "Some rows were decided by another policy, with other actions."
