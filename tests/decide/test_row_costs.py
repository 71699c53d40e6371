"""Costs that differ by row, from the fit to the file and back, against plain NumPy."""

import re
import warnings
from typing import Any

import numpy as np
import pytest

from dubito import CostMatrix, Policy, Probabilities
from dubito.calibrate import IdentityCalibrator
from dubito.data import Batch
from dubito.data.labels import Labels
from dubito.decide import RiskBound, expected_costs
from dubito.decide.row_costs import CostTerms, RowCosts
from dubito.errors import BadTypeError, BadValueError, DubitoWarning

RNG = np.random.default_rng(0)
P = RNG.beta(1, 4, 300)
Y = (RNG.random(300) < P).astype(int)
COLUMNS = {"amount": RNG.lognormal(3, 1, 300), "a fee": 1 + RNG.random(300)}
COSTS = CostMatrix(
    [[0, "amount"], ["2 * `a fee`", 0]], ["pass", "block"], ["legit", "fraud"]
).with_reject("min(2, 0.1 * amount)", "review")


def tables(columns: dict[str, Any]) -> Any:
    """Return rows x actions x classes."""
    amount, fee = columns["amount"], columns["a fee"]
    zero, review = np.zeros(amount.size), np.minimum(2, 0.1 * amount)
    return np.moveaxis(np.array([[zero, amount], [2 * fee, zero], [review, review]]), 2, 0)


def fitted(**settings: Any) -> Policy:
    arguments = {"costs": COSTS, "row_costs": COLUMNS, "calibrator": IdentityCalibrator()}
    outputs, names = Probabilities(P, ["legit", "fraud"]), np.array(["legit", "fraud"])
    return Policy.fit(outputs, names[Y], **{**arguments, **settings})


def test_a_policy_decides_by_the_costs_of_each_row_and_survives_its_file() -> None:
    policy = fitted()
    again = Policy.from_json(policy.to_json())
    assert again.costs.texts == COSTS.texts
    two = np.column_stack([1 - P, P])
    expected = np.einsum("nk,nak->na", two, tables(COLUMNS))
    for one in (policy, again):
        found = one.decide(Probabilities(P), row_costs=COLUMNS)
        assert found.action.tolist() == expected.argmin(axis=1).tolist()
        assert found.expected_cost == pytest.approx(expected.min(axis=1))
        oracle = (two * tables(COLUMNS)[:, :2].min(axis=1)).sum(axis=1)
        # A review is worth what it saves, less its own cost, which differs from row to row.
        saved = expected[:, :2].min(axis=1) - oracle - expected[:, 2]
        assert found.review_value == pytest.approx(np.where(found.is_rejected, saved, 0.0))
        assert (np.diff(saved[found.review_order]) <= 1e-9).all()
    paid = tables(COLUMNS)[np.arange(300), expected.argmin(axis=1), Y]
    assert policy.report.cost.value == pytest.approx(paid.mean())
    by_array = fitted(costs=CostMatrix.zero_one(2).with_reject(0.3), row_costs=tables(COLUMNS))
    same = by_array.decide(Probabilities(P), row_costs=tables(COLUMNS))
    assert same.action.tolist() == expected.argmin(axis=1).tolist()


def test_a_policy_states_its_thresholds_for_a_median_row() -> None:
    policy = fitted()
    assert policy.thresholds == ()
    assert policy.provenance["medians"] == pytest.approx(
        {name: float(np.median(column)) for name, column in COLUMNS.items()}
    )
    amount, fee = (float(np.median(COLUMNS[name])) for name in ("amount", "a fee"))
    review = min(2, 0.1 * amount)
    stated = str(Policy.from_json(policy.to_json())).splitlines()[0]
    assert stated.startswith(f"For a row with amount {amount:.4g} and a fee {fee:.4g} (the med")
    assert f"by calibrated P(fraud): pass below {review / amount:.3g} " in stated
    assert f"review from {review / amount:.3g} to {1 - review / (2 * fee):.3g} " in stated
    one = fitted(costs=CostMatrix([[0, "amount"], [1, 0]]), row_costs=COLUMNS["amount"])
    assert str(one).startswith(f"For a row with amount {amount:.4g} (the median), by calibrated")
    changed = fitted().to_dict()
    changed["costs"]["costs"][0][1] = "1 / (amount - amount)"
    undefined = Policy.from_dict(changed)
    assert str(undefined).startswith("Mean cost per row")


def test_an_action_that_is_optimal_for_no_row_is_warned_about() -> None:
    costs = CostMatrix(COSTS.cells[:2], COSTS.actions[:2], COSTS.classes)
    with pytest.warns(DubitoWarning, match="'review' is optimal for none of the") as caught:
        policy = fitted(costs=costs.with_reject(1e4, "review"))
    [note] = policy.report.notes
    assert str(caught[0].message) == f"Policy.fit: {note}"
    [stated] = re.findall(r"have to cost ([\d.]+) or less\.$", note)
    for factor, is_used in ((0.99, True), (1.01, False)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DubitoWarning)
            again = fitted(costs=costs.with_reject(factor * float(stated), "review"))
        assert (again.report.actions["review"] > 0) == is_used


def test_costs_given_by_row_have_no_thresholds_and_are_needed_again() -> None:
    by_row = np.array([[[0.0, 9.0], [1.0, 0.0]], [[0.0, 2.0], [1.0, 0.0]]])[np.arange(P.size) % 2]
    placeholder = CostMatrix([[0, 1], [1, 0]], ["pass", "block"], COSTS.classes)
    policy = Policy.from_json(fitted(costs=placeholder, row_costs=by_row).to_json())
    assert (policy.thresholds, policy.thresholds_between(*policy.classes)) == ((), ())
    assert str(policy).startswith("The costs of each row were given (row_costs): there are no")
    with pytest.raises(BadTypeError, match="`row_costs` must hold the costs of the rows, as in"):
        policy.decide(Probabilities([[0.7, 0.3]], COSTS.classes))
    outputs = Probabilities([[0.7, 0.3]] * 2, COSTS.classes)
    assert policy.decide(outputs, row_costs=by_row[:2]).action.tolist() == [1, 0]


def test_a_limit_of_reviews_is_met_by_the_cost_that_is_stated() -> None:
    costs = CostMatrix(COSTS.cells[:2], COSTS.actions[:2], COSTS.classes)
    with pytest.warns(DubitoWarning, match="above the limit of 5.0 %; that limit is") as caught:
        fitted(costs=costs.with_reject(0.2, "review"), max_review_rate=0.05)
    [stated] = re.findall(r"if 'review' costs ([\d.]+) instead of 0.2", str(caught[0].message))
    again = fitted(costs=costs.with_reject(float(stated), "review"), max_review_rate=0.05)
    assert 0.03 < again.report.actions["review"] <= 0.05
    with pytest.warns(DubitoWarning, match=r"above the limit of 1.0 %\.$"):
        fitted(max_review_rate=0.01)  # there is no single cost of a review


def test_a_bound_on_the_cost_needs_costs_that_are_the_same_for_all_rows() -> None:
    costs, bound = CostMatrix.zero_one(2).with_reject(0.3), RiskBound(max_cost=0.2)
    with pytest.raises(BadValueError, match="`row_costs` must be None where the mean cost is"):
        fitted(costs=costs, row_costs=tables(COLUMNS), risk=bound)
    with pytest.raises(BadValueError, match="needs costs that are the same for all rows, got amou"):
        fitted(risk=bound)


def test_batches_hold_columns_and_arrays() -> None:
    batch = Batch.of(Y, Probabilities(P), row_costs=COLUMNS)
    half = batch.take(slice(0, 150))
    assert half.row_costs is not None
    assert half.row_costs.dtype.names == ("amount", "a fee")
    assert not half.row_costs.flags.writeable
    found = expected_costs(half.outputs, COSTS, half.row_costs)
    assert found == pytest.approx(expected_costs(P, COSTS, COLUMNS)[:150])
    with pytest.raises(BadTypeError, match=r"`row_costs\['note'\]` must be an array of real"):
        Batch.of(None, Probabilities(P), row_costs={"note": ["x"] * 300})


def test_costs_relative_to_the_cheapest_action() -> None:
    base = np.array([[0.0, 5.0, 0.0], [1.0, 0.0, 0.0]])
    entries = np.array([[1, 1, 0], [0, 2, 1], [1, 2, 0]])
    values = np.array([[3.0, 7.0], [-2.0, 4.0]])
    terms = CostTerms(base, entries, values)
    p = np.array([[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]])
    whole = np.array([[[0, 5, -2], [1, 3, 3]], [[0, 5, 4], [1, 7, 7]]])
    assert terms.expected(p) == pytest.approx(np.einsum("nk,nak->na", p, whole))
    above = terms.above_cheapest()
    cheapest = whole.min(axis=1)
    wanted = np.einsum("nk,nak->na", p, whole - cheapest[:, np.newaxis])
    assert above.expected(p)[:, :2] == pytest.approx(wanted)
    assert above.expected(p)[:, 2] == pytest.approx((p * cheapest).sum(axis=1))
    assert (above.base[:2] >= 0).all()
    assert all((above.values[v] >= 0).all() for a, _, v in above.entries.tolist() if a < 2)


def test_costs_of_labels_and_of_one_action_per_row() -> None:
    by_row = RowCosts.of(COLUMNS, COSTS, 300, "test")
    whole = tables(COLUMNS)
    rows = np.arange(300)
    assert by_row.of_labels(Labels(Y)) == pytest.approx(whole[rows, :, Y])
    soft = np.column_stack([1 - P, P])
    assert by_row.of_labels(Labels(Y, soft)) == pytest.approx(np.einsum("nk,nak->na", soft, whole))
    action = RNG.integers(0, 3, 300)
    assert by_row.expected(soft, action) == pytest.approx((soft * whole[rows, action]).sum(axis=1))
    assert by_row.take(np.array([7])).in_class(1).tolist() == whole[7, :, 1][:, None].tolist()


def test_an_explanation_names_the_positive_class_the_costs_and_the_thresholds() -> None:
    policy = Policy.from_json(fitted(pos_label="fraud").to_json())
    row = {"amount": [50.0], "a fee": [2.0]}
    lines = policy.explain(Probabilities([[0.7, 0.3]], COSTS.classes), row_costs=row).splitlines()
    assert lines[1] == "The model predicts P(fraud) = 30.00 %; calibrated, P(fraud) = 30.00 %."
    wanted = "amount = 50, 2 * `a fee` = 4 and min(2, 0.1 * amount) = 2"
    assert lines[3] == f"In the costs of this row, {wanted}."
    assert lines[4].startswith(
        "Thresholds of calibrated P(fraud): pass below 0.04 (uncalibrated 0.04), rev"
    )
    by_row = tables({name: np.array(column) for name, column in row.items()})
    again = policy.explain(Probabilities([[0.7, 0.3]], COSTS.classes), row_costs=by_row)
    assert again.splitlines() == lines[:3] + lines[4:]
