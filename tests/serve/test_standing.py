"""Rows that stand for all do, whatever was looked at besides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito.serve.standing import rows_taken, standing_for
from tests.serve.stored import drawn_rows, fitted_policy, labels_where, without_draws


@pytest.fixture(scope="module")
def policy() -> Any:
    return fitted_policy()


@pytest.mark.parametrize("share", [0.01, 0.05])
def test_weighted_figures_are_unbiased_where_plain_ones_are_not(policy: Any, share: float) -> None:
    plain, weighted, truth = [], [], []
    for seed in range(60):
        rows, y = drawn_rows(policy, 4000, share, seed=seed, sharper=2.6)
        standing = standing_for(rows)
        is_right = rows.class_ == y
        seen = is_right[standing.rows]
        truth.append(is_right.mean())
        plain.append(is_right[rows.label >= 0].mean())
        weighted.append(np.average(seen, weights=standing.weight))
    error = np.subtract(weighted, truth)
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(60)
    assert np.subtract(plain, truth).mean() < -0.1


def test_weights_sum_to_all_rows_and_are_one_over_the_chance(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.1)
    standing = standing_for(rows)
    assert standing.is_known
    assert standing.weight.sum() == pytest.approx(4000)
    is_sure = rows.propensity[standing.rows] == 1
    assert set(standing.weight[is_sure]) == {1.0}
    assert standing.weight[~is_sure] == pytest.approx(10, rel=0.2)


def test_a_chance_that_changed_is_weighed_too(policy: Any) -> None:
    rows, y = drawn_rows(policy, 4000, 0.5)
    # The second half is asked about five times less often.
    late = np.arange(4000) >= 2000
    is_passed = rows.propensity < 1
    drawn = rows.is_audit & (~late | (np.random.default_rng(0).random(4000) < 0.2))
    changed = replace(
        rows,
        is_audit=drawn,
        propensity=np.where(is_passed & late, 0.1, rows.propensity),
        audit_share=np.where(late, 0.1, 0.5),
        label=np.where(drawn | ~is_passed, y, -1),
    )
    standing = standing_for(changed)
    assert standing.weight.sum() == pytest.approx(4000)
    share = np.average(late[standing.rows], weights=standing.weight)
    assert share == pytest.approx(0.5, abs=0.05)
    weight = {p: standing.weight[changed.propensity[standing.rows] == p] for p in (0.1, 0.5)}
    assert weight[0.1] == pytest.approx(5 * weight[0.5][0])


def test_a_share_that_rose_while_rows_wait_keeps_figures_unbiased(policy: Any) -> None:
    """Rows that were handed over while few were drawn stand for as many as they are."""
    error = []
    for seed in range(40):
        rows, y = drawn_rows(policy, 4000, 0.5, seed=seed)
        late = np.arange(4000) >= 3000
        share = np.where(late, 0.5, 0.05)
        drawn = rows.is_audit & (late | (np.random.default_rng(seed).random(4000) < 0.1))
        is_passed = rows.propensity < 1
        # The early rows are the easy ones.
        is_right = np.where(late, rows.class_ == y, True)
        waiting = replace(
            rows,
            is_audit=drawn,
            audit_share=share,
            propensity=np.where(is_passed, share, 1.0),
            label=np.where(drawn, y, -1),
        )
        standing = standing_for(waiting)
        assert standing.is_known
        error.append(np.average(is_right[standing.rows], weights=standing.weight) - is_right.mean())
    assert abs(np.mean(error)) < 4 * np.std(error) / np.sqrt(40)
    assert np.std(error) < 0.05


def test_rows_that_readers_could_not_settle_are_never_dropped_in_silence(policy: Any) -> None:
    rows, y = drawn_rows(policy, 4000, 0.2)
    is_hard = (rows.class_ != y) & (rows.label >= 0)
    lost = replace(rows, label=np.where(is_hard, -1, rows.label), is_unsettled=is_hard)
    standing = standing_for(lost)
    n_seen = int((rows.label >= 0).sum())
    start = f"Readers passed on {is_hard.sum():,} of {n_seen:,} rows that would stand for all ("
    assert standing.unknown.startswith(start)
    end = "by weight), and nobody settled them: figures are told up to 2\u00a0%."
    assert standing.unknown.endswith(end)


def test_a_few_unsettled_rows_block_nothing_and_are_told(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.2)
    handed = np.flatnonzero((rows.propensity == 1) & ~rows.is_audit)
    is_lost = np.isin(np.arange(4000), handed[:3])
    some = replace(rows, label=np.where(is_lost, -1, rows.label), is_unsettled=is_lost)
    standing = standing_for(some)
    assert standing.is_known
    n_seen = int((rows.label >= 0).sum())
    assert standing.rows.size == n_seen - 3
    assert standing.weight.sum() == pytest.approx(4000)
    assert standing.note == (
        f"Readers could not settle 3 of {n_seen:,} rows that would stand for all "
        "(0.1\u00a0% by weight): left out."
    )
    # One that nobody has looked at yet is another matter.
    waiting = standing_for(replace(some, is_unsettled=is_lost & (np.arange(4000) != handed[0])))
    assert rows.is_audit[waiting.rows].all()


def test_rows_decided_without_an_audit_are_left_behind(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.2)
    early = np.arange(4000) < 1000
    before = without_draws(rows)
    mixed = replace(
        rows,
        propensity=np.where(early, before.propensity, rows.propensity),
        audit_share=np.where(early, 0.0, 0.2),
        is_audit=rows.is_audit & ~early,
        label=np.where((early & (rows.propensity < 1)), -1, rows.label),
    )
    standing, alone = standing_for(mixed), standing_for(rows_taken(mixed, ~early))
    assert standing.is_known
    assert np.array_equal(standing.rows, 1000 + alone.rows)
    assert np.array_equal(standing.weight, alone.weight)
    assert standing.note == (
        "All but coverage is of the 3,000 rows decided since 1970-01-01 16:40 UTC: "
        "before, none was drawn at random."
    )
    # Where none is drawn now, nothing is known of now.
    ended = rows_taken(mixed, np.arange(4000)[::-1])
    assert not standing_for(ended).is_known


def test_one_row_is_one_row(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 400, 0.0)
    passed = rows_taken(rows, np.flatnonzero(rows.propensity < 1)[:1])
    words = "1 row was let pass while none was drawn at random to be checked."
    assert standing_for(passed).unknown == words


def test_while_some_wait_only_those_that_chance_drew_count(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 4000, 0.1)
    worthwhile = rows.probabilities.max(axis=1) < 0.5  # looked at first
    waiting = labels_where(rows, rows.is_audit | worthwhile)
    standing = standing_for(waiting)
    assert standing.is_known
    assert rows.is_audit[standing.rows].all()
    assert standing.weight.sum() == pytest.approx(4000)


def test_labels_that_nobody_asked_for_do_not_count(policy: Any) -> None:
    rows, y = drawn_rows(policy, 4000, 0.1)
    sent = replace(rows, label=y)
    before, after = standing_for(rows), standing_for(sent)
    assert np.array_equal(before.rows, after.rows)
    assert np.array_equal(before.weight, after.weight)


def test_what_is_not_known_is_said(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 400, 0.1)
    n_passed = int((rows.propensity < 1).sum())
    n_handed = 400 - n_passed
    none = without_draws(rows)
    cases = {
        "No row was decided yet.": rows_taken(rows, slice(0, 0)),
        f"{n_passed} rows were let pass while none was drawn at random to be checked.": none,
        f"Of {n_passed} rows that were let pass, none that was drawn at random has a label yet.": (
            labels_where(rows, rows.propensity == 1)
        ),
        f"Of {n_handed} rows that were handed over some wait, and none that was drawn at random "
        "has a label yet.": labels_where(rows, rows.propensity < 1),
        "5 labels are worth 5 of a plain sample: 20 or more are needed.": labels_where(
            rows, few_drawn(rows)
        ),
    }
    for words, some in cases.items():
        standing = standing_for(some)
        assert not standing.is_known
        assert standing.unknown == words


def few_drawn(rows: Any) -> Any:
    """Mark three drawn rows that were let pass and two that were handed over."""
    passed = np.flatnonzero(rows.is_audit & (rows.propensity < 1))[:3]
    handed = np.flatnonzero(rows.is_audit & (rows.propensity == 1))[:2]
    return np.isin(np.arange(len(rows)), [*passed, *handed])
