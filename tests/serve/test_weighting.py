"""Weighted samples represent all rows, whatever else was reviewed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito.serve.store.decisions import LabelDelay
from dubito.serve.weighted_estimates import propensity_weights
from tests.serve.stored import drawn_rows, fitted_policy, labels_where, without_draws


@pytest.fixture(scope="module")
def policy() -> Any:
    return fitted_policy()


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_weighted_metrics_are_unbiased_where_unweighted_ones_are_not(
    policy: Any, share: float
) -> None:
    plain, weighted, truth = [], [], []
    for seed in range(60):
        rows, y = drawn_rows(policy, 4000, share, seed=seed, sharper=2.6)
        sample = propensity_weights(rows)
        is_correct = rows.predicted_class == y
        seen = is_correct[sample.rows]
        truth.append(is_correct.mean())
        plain.append(is_correct[rows.label >= 0].mean())
        weighted.append(np.average(seen, weights=sample.weight))
    error = np.subtract(weighted, truth)
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(60)
    assert np.subtract(plain, truth).mean() < -0.1


def test_weights_are_inverse_probabilities_and_sum_to_all_rows(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.1)
    sample = propensity_weights(rows)
    assert sample.is_available
    assert sample.weight.sum() == pytest.approx(4000)
    is_sure = rows.propensity[sample.rows] == 1
    assert set(sample.weight[is_sure]) == {1.0}
    assert sample.weight[~is_sure] == pytest.approx(10, rel=0.2)


def test_a_changed_audit_fraction_is_accounted_for(policy: Any) -> None:
    rows, y = drawn_rows(policy, 4000, 0.5)
    # The second half is audited five times less often.
    late = np.arange(4000) >= 2000
    is_passed = rows.propensity < 1
    drawn = rows.is_audit & (~late | (np.random.default_rng(0).random(4000) < 0.2))
    changed = replace(
        rows,
        is_audit=drawn,
        propensity=np.where(is_passed & late, 0.1, rows.propensity),
        audit_probability=np.where(late, 0.1, 0.5),
        label=np.where(drawn | ~is_passed, y, -1),
    )
    sample = propensity_weights(changed)
    assert sample.weight.sum() == pytest.approx(4000)
    share = np.average(late[sample.rows], weights=sample.weight)
    assert share == pytest.approx(0.5, abs=0.05)
    weight = {p: sample.weight[changed.propensity[sample.rows] == p] for p in (0.1, 0.5)}
    assert weight[0.1] == pytest.approx(5 * weight[0.5][0])


def test_a_raised_audit_fraction_keeps_metrics_unbiased_while_rows_wait(policy: Any) -> None:
    """Rejected rows keep their weight although few were audited at first."""
    error = []
    for seed in range(40):
        rows, y = drawn_rows(policy, 4000, 0.5, seed=seed)
        late = np.arange(4000) >= 3000
        share = np.where(late, 0.5, 0.05)
        drawn = rows.is_audit & (late | (np.random.default_rng(seed).random(4000) < 0.1))
        is_passed = rows.propensity < 1
        # The early rows are the easy ones.
        is_correct = np.where(late, rows.predicted_class == y, True)
        waiting = replace(
            rows,
            is_audit=drawn,
            audit_probability=share,
            propensity=np.where(is_passed, share, 1.0),
            label=np.where(drawn, y, -1),
        )
        sample = propensity_weights(waiting)
        assert sample.is_available
        error.append(np.average(is_correct[sample.rows], weights=sample.weight) - is_correct.mean())
    assert abs(np.mean(error)) < 4 * np.std(error) / np.sqrt(40)
    assert np.std(error) < 0.05


def test_many_unresolved_rows_withhold_metrics(policy: Any) -> None:
    rows, y = drawn_rows(policy, 4000, 0.2)
    is_hard = (rows.predicted_class != y) & (rows.label >= 0)
    lost = replace(rows, label=np.where(is_hard, -1, rows.label), is_unresolved=is_hard)
    sample = propensity_weights(lost)
    n_seen = int((rows.label >= 0).sum())
    start = f"Reviewers escalated or skipped {is_hard.sum():,} of {n_seen:,} rows ("
    assert sample.unavailable.startswith(start)
    end = "by weight) without a label: above 2 %, metrics are withheld."
    assert sample.unavailable.endswith(end)


def test_a_few_unresolved_rows_are_reported(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.2)
    handed = np.flatnonzero((rows.propensity == 1) & ~rows.is_audit)
    is_lost = np.isin(np.arange(4000), handed[:3])
    some = replace(rows, label=np.where(is_lost, -1, rows.label), is_unresolved=is_lost)
    sample = propensity_weights(some)
    assert sample.is_available
    n_seen = int((rows.label >= 0).sum())
    assert sample.rows.size == n_seen - 3
    assert sample.weight.sum() == pytest.approx(4000)
    assert sample.note == (
        f"Reviewers could not resolve 3 of {n_seen:,} rows (0.1 % by weight); these are left out."
    )
    # One that nobody has looked at yet is another matter.
    waiting = propensity_weights(
        replace(some, is_unresolved=is_lost & (np.arange(4000) != handed[0]))
    )
    assert rows.is_audit[waiting.rows].all()


def test_rows_decided_before_the_audit_are_left_out(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.2)
    early = np.arange(4000) < 1000
    before = without_draws(rows)
    mixed = replace(
        rows,
        propensity=np.where(early, before.propensity, rows.propensity),
        audit_probability=np.where(early, 0.0, 0.2),
        is_audit=rows.is_audit & ~early,
        label=np.where((early & (rows.propensity < 1)), -1, rows.label),
    )
    sample, alone = propensity_weights(mixed), propensity_weights(mixed.take(~early))
    assert sample.is_available
    assert np.array_equal(sample.rows, 1000 + alone.rows)
    assert np.array_equal(sample.weight, alone.weight)
    assert sample.note == (
        "All metrics but coverage are of the 3,000 rows decided since 1970-01-01 16:40 UTC: "
        "no earlier row was audited."
    )
    # Where none is drawn now, nothing is known of now.
    ended = mixed.take(np.arange(4000)[::-1])
    assert not propensity_weights(ended).is_available


def test_one_row_is_one_row(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 400, 0.0)
    passed = rows.take(np.flatnonzero(rows.propensity < 1)[:1])
    words = "1 row was accepted without any being drawn for the audit."
    assert propensity_weights(passed).unavailable == words


def test_while_some_wait_only_audited_rows_count(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.1)
    worthwhile = rows.probabilities.max(axis=1) < 0.5  # looked at first
    waiting = labels_where(rows, rows.is_audit | worthwhile)
    sample = propensity_weights(waiting)
    assert sample.is_available
    assert rows.is_audit[sample.rows].all()
    assert sample.weight.sum() == pytest.approx(4000)


def test_unrequested_labels_do_not_count(policy: Any) -> None:
    rows, y = drawn_rows(policy, 4000, 0.1)
    sent = replace(rows, label=y)
    before, after = propensity_weights(rows), propensity_weights(sent)
    assert np.array_equal(before.rows, after.rows)
    assert np.array_equal(before.weight, after.weight)


def test_unavailable_samples_have_a_reason(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 400, 0.1)
    n_passed = int((rows.propensity < 1).sum())
    n_handed = 400 - n_passed
    none = without_draws(rows)
    cases = {
        "No rows have been decided yet.": rows.take(slice(0, 0)),
        f"{n_passed} rows were accepted without any being drawn for the audit.": none,
        f"No audited row of {n_passed} accepted rows has a label yet.": (
            labels_where(rows, rows.propensity == 1)
        ),
        f"Some of {n_handed} rejected rows still wait for review, and no audited one has a label "
        "yet.": labels_where(rows, rows.propensity < 1),
        "5 labels, equivalent to 5 of a random sample: at least 20 are needed.": labels_where(
            rows, few_drawn(rows)
        ),
    }
    for words, some in cases.items():
        sample = propensity_weights(some)
        assert not sample.is_available
        assert sample.unavailable == words


def few_drawn(rows: Any) -> Any:
    """Mark three audited rows that were accepted and two that were rejected."""
    passed = np.flatnonzero(rows.is_audit & (rows.propensity < 1))[:3]
    handed = np.flatnonzero(rows.is_audit & (rows.propensity == 1))[:2]
    return np.isin(np.arange(len(rows)), [*passed, *handed])


def rows_of_all(policy: Any, n: int = 2000, *, seed: int = 1) -> Any:
    """Return rows a minute apart whose labels all arrive, wrong ones ten times later; and now."""
    rows, y = drawn_rows(policy, n, 0.0, seed=seed)
    rng = np.random.default_rng(seed)
    late = np.where(rows.predicted_class == y, 600.0, 6000.0)
    arrives, now = rows.created + late * rng.random(n), float(rows.created[-1])
    is_here = arrives <= now
    labeled = np.where(is_here, arrives, np.nan)
    return replace(
        rows,
        audit_probability=np.ones(n),
        propensity=np.ones(n),
        label=np.where(is_here, y, -1),
        labeled=labeled,
        delay=LabelDelay.of(rows.created, labeled, now),
    ), y


def test_the_usual_delay_is_that_of_kaplan_and_meier() -> None:
    rng = np.random.default_rng(0)
    created, late = 10.0 * np.arange(5000), rng.exponential(1000.0, 5000)
    now = created[-1] + 10
    labeled = np.where(created + late <= now, created + late, np.nan)
    found = LabelDelay.of(created, labeled, now)
    # The product over all labels: the fraction of rows as old as it that outlive it.
    age = np.where(np.isnan(labeled), now, labeled) - created
    surviving, reference = 1.0, None
    for t in np.sort(age[~np.isnan(labeled)]):
        surviving *= 1 - 1 / (age >= t).sum()
        if surviving <= 0.02:
            reference = t
            break
    assert found.seconds == pytest.approx(reference)
    assert found.seconds == pytest.approx(1000 * np.log(50), rel=0.15)
    assert (found.n_rows, found.n_missing) == (5000, int(np.isnan(labeled).sum()))
    assert found.oldest == pytest.approx(age[np.isnan(labeled)].max())
    never = LabelDelay.of(created, np.where(np.arange(5000) % 20, labeled, np.nan), now)
    assert never.seconds is None
    assert never.due == -np.inf
    early = LabelDelay.of(np.array([5.0]), np.array([1.0]), 9.0)  # a label before its decision
    assert early.seconds == 0.0


def test_late_labels_bias_no_metric(policy: Any) -> None:
    error, early = [], []
    for seed in range(20):
        rows, y = rows_of_all(policy, seed=seed)
        sample = propensity_weights(rows)
        assert sample.is_available
        assert set(sample.weight.tolist()) == {1.0}
        is_correct = rows.predicted_class == y
        error.append(is_correct[sample.rows].mean() - is_correct.mean())
        seen = (rows.label >= 0) & (np.arange(2000) >= 1900)
        early.append(is_correct[seen].mean() - is_correct.mean())
    assert abs(np.mean(error)) < 0.004
    assert np.mean(early) > 0.03  # what the newest labels alone would claim


def test_metrics_of_all_labels_say_which_rows_they_are_of(policy: Any) -> None:
    rows, _ = rows_of_all(policy)
    sample = propensity_weights(rows)
    n_due = int((rows.created <= rows.delay.due).sum())
    assert sample.note.startswith(
        f"All metrics but coverage are of the {n_due:,} rows whose labels are due: 98 % of labels "
        "arrive within "
    )
    lost = labels_where(rows, np.arange(2000) % 20 > 0)
    assert "above 2 %, metrics are withheld" in propensity_weights(lost).unavailable
    unknown = replace(lost, delay=LabelDelay.of(lost.created, np.full(2000, np.nan), 1e6))
    words = "2,000 of 2,000 rows have no label yet, the oldest for 12 days: "
    assert propensity_weights(unknown).unavailable.startswith(words)
    recent = propensity_weights(rows.take(rows.created > rows.delay.due))
    assert recent.unavailable.startswith("No row is older than ")
    some = propensity_weights(rows.take(slice(0, 10)))
    assert "10 labels of rows older than" in some.unavailable


def test_metrics_of_rows_before_labels_stopped_arriving_stay(policy: Any) -> None:
    rows, y = drawn_rows(policy, 3000, 0.0)
    created = 100.0 * (np.arange(3000) // 100)  # requests of 100 rows
    labeled = np.where(np.arange(3000) < 2500, created + 0.3, np.nan)
    late = np.arange(3000) % 500 == 0
    labeled[late] = np.nan
    known = np.where(np.isnan(labeled), -1, y)
    now = float(created[-1] + 300)
    delay = LabelDelay.of(created, labeled, now)
    assert (delay.missing_since, delay.n_missing) == (2500.0, 505)
    assert delay.due < 2500 <= now - 300
    ones = np.ones(3000)
    rows = replace(rows, created=created, audit_probability=ones, label=known, delay=delay)
    sample = propensity_weights(rows)
    assert sample.is_available
    assert sample.rows.tolist() == np.flatnonzero(known >= 0).tolist()
    assert "of the 2,500 rows whose labels are due" in sample.note
    assert "98 % of labels arrive within a second" in sample.note
    assert "Rows decided since 1970-01-01 00:41 UTC are left out" in sample.note
    after = propensity_weights(rows.take(slice(2600, None)))
    assert after.unavailable == "Labels of rows decided since 1970-01-01 00:41 UTC are missing."
    # Labels that are missing here and there leave no rows before: the first have theirs by chance.
    some = np.where(np.arange(3000) % 3 == 2, np.nan, labeled)
    found = LabelDelay.of(created, some, now)
    assert (found.seconds, found.missing_since) == (None, None)


def test_rows_of_both_modes_are_kept_apart(policy: Any) -> None:
    rows, _ = rows_of_all(policy)
    audited, _ = drawn_rows(policy, 2000, 0.1)
    first = np.arange(2000) < 500
    mixed = replace(
        rows,
        audit_probability=np.where(first, 0.1, 1.0),
        is_audit=first & audited.is_audit,
    )
    assert propensity_weights(mixed).rows.min() >= 500
    # Back to audits: rows without the label that was expected represent nothing.
    back = replace(
        audited,
        audit_probability=np.where(first, 1.0, 0.1),
        is_audit=~first & audited.is_audit,
        propensity=np.where(first, 1.0, audited.propensity),
        label=np.where(first, -1, audited.label),
    )
    sample = propensity_weights(back)
    assert sample.is_available
    assert sample.rows.min() >= 500
