"""Rows that stand for all do, whatever was looked at besides."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito.serve.standing import rows_taken, standing_for
from tests.serve.stored import drawn_rows, fitted_policy, labels_where


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
        label=np.where(drawn | ~is_passed, y, -1),
    )
    standing = standing_for(changed)
    assert standing.weight.sum() == pytest.approx(4000)
    share = np.average(late[standing.rows], weights=standing.weight)
    assert share == pytest.approx(0.5, abs=0.05)
    weight = {p: standing.weight[changed.propensity[standing.rows] == p] for p in (0.1, 0.5)}
    assert weight[0.1] == pytest.approx(5 * weight[0.5][0])


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
    none = replace(rows, propensity=np.where(rows.propensity < 1, 0.0, 1.0))
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
