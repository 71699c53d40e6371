"""Who wins a contest, from likelihoods written down by hand."""

import numpy as np
import pytest
from numpy.typing import NDArray

from dubito import Logits
from dubito.calibrate import TemperatureScaling, VectorScaling
from dubito.calibrate.auto import Contest, IdentityCalibrator, Tried, _name_of
from dubito.calibrate.cross_validation import HeldOut, folds_of
from dubito.data import Batch

Floats = NDArray[np.float64]
CANDIDATES = [IdentityCalibrator(), TemperatureScaling(), VectorScaling()]


def contest(likelihoods: Floats, weights: Floats | None = None) -> Contest:
    """Return a contest between as many candidates as columns, in five folds."""
    n_rows, n_tried = likelihoods.shape
    tried = [Tried(candidate, 1.0) for candidate in CANDIDATES[:n_tried]]
    weights = np.ones(n_rows) if weights is None else weights
    rows = np.arange(n_rows)
    return Contest(tried, [HeldOut(one, weights, rows % 5, rows) for one in likelihoods.T])


def test_the_mixture_wins_where_candidates_know_different_rows() -> None:
    first, second = [0.3, 0.9, 0.1], [0.3, 0.1, 0.9]
    won = contest(np.array([first, second] * 50))
    assert won.is_mixed
    assert won.chosen == "mixture"
    assert won.shares[1:] == pytest.approx(won.shares[:0:-1], abs=1e-3)
    assert won.loss == pytest.approx(-np.log(0.5), abs=1e-2)


def test_a_candidate_that_is_better_everywhere_wins_alone() -> None:
    rng = np.random.default_rng(0)
    others = rng.uniform(0.1, 0.3, (200, 2))
    won = contest(np.column_stack([others, others.max(axis=1) + 0.5]))
    assert won.chosen == "VectorScaling()"
    assert "better alone" in won.reason
    assert won.shares.tolist() == [0.0, 0.0, 1.0]
    members, shares = won.winners()
    assert [_name_of(member) for member in members] == ["VectorScaling()"]
    assert shares.tolist() == [1.0]


def test_it_never_loses_to_doing_nothing() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        won = contest(rng.beta(2, 1, (25, 3)))
        assert won.loss <= won.losses[0] + 1e-12


def test_weights_count_as_rows() -> None:
    likelihoods = np.random.default_rng(0).uniform(0.1, 1, (110, 3))
    weights = np.array([2.0] * 5 + [1.0] * 105)
    doubled = np.concatenate([likelihoods, likelihoods[:5]])
    weighted, repeated = contest(likelihoods, weights), contest(doubled)
    assert weighted.losses == pytest.approx(repeated.losses)
    assert weighted.shares == pytest.approx(repeated.shares, abs=1e-6)


def test_the_leaderboard_has_a_line_for_each_and_for_the_mixture() -> None:
    lines = contest(np.random.default_rng(0).uniform(0.1, 1, (50, 3))).leaderboard()
    assert {line["name"] for line in lines} == {*map(_name_of, CANDIDATES), "mixture"}
    assert [line["log_loss"] for line in lines] == sorted(line["log_loss"] for line in lines)
    assert sum(line["weight"] or 0 for line in lines) == pytest.approx(1)
    (mixture,) = (line for line in lines if line["name"] == "mixture")
    assert mixture["seconds"] == 3.0


def test_a_likelihood_of_nothing_stays_finite() -> None:
    won = contest(np.array([[0.0, 0.5]] * 20))
    assert np.isfinite(won.loss)
    assert np.isfinite(won.losses).all()


def test_no_time_is_time_for_two() -> None:
    logits = np.random.default_rng(0).normal(size=(60, 3))
    batch = Batch.of(logits.argmax(axis=1), Logits(logits))
    held = Contest.held(batch, folds_of(batch, 5), 0)
    assert [_name_of(one.calibrator) for one in held.tried] == [
        "IdentityCalibrator()",
        "TemperatureScaling()",
    ]


def test_rows_held_out_twice_count_once() -> None:
    likelihoods = np.random.default_rng(0).uniform(0.1, 1, (120, 2))
    rows = np.arange(120)
    tried = [Tried(candidate, 1.0) for candidate in CANDIDATES[:2]]
    once = Contest(tried, [HeldOut(one, np.ones(120), rows % 5, rows) for one in likelihoods.T])
    twice = Contest(
        tried,
        [
            HeldOut(np.tile(one, 2), np.ones(240), np.arange(240) // 24, np.tile(rows, 2))
            for one in likelihoods.T
        ],
    )
    assert twice.n_rows == once.n_rows == 120
    values = likelihoods[:, 0]
    assert twice.error(np.tile(values, 2)) == pytest.approx(once.error(values))
    for part in np.unique(twice.part_of):  # no row on both sides
        is_seen = twice.part_of != part
        assert not set(twice.row_of[is_seen]) & set(twice.row_of[~is_seen])


def test_one_fold_is_judged_in_parts() -> None:
    likelihoods = np.random.default_rng(0).uniform(0.1, 1, (120, 2))
    rows = np.arange(120)
    tried = [Tried(candidate, 1.0) for candidate in CANDIDATES[:2]]
    single = Contest(tried, [HeldOut(one, np.ones(120), 0 * rows, rows) for one in likelihoods.T])
    assert np.unique(single.part_of).size > 1
    assert np.isfinite(single.loss)


def test_only_parametric_candidates_are_tried_on_demand() -> None:
    logits = np.random.default_rng(0).normal(size=(1000, 2))
    batch = Batch.of(logits.argmax(axis=1), Logits(logits))
    held = Contest.held(batch, folds_of(batch, 2), None, parametric_only=True)
    names = [_name_of(one.calibrator) for one in held.tried]
    assert "EnsembleTemperatureScaling()" in names
    assert not any("Isotonic" in name or "Forest" in name for name in names)
