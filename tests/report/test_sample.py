"""Outcomes of decisions on the sample, against plain loops."""

from base64 import b64decode
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Probabilities, TopLabel
from dubito.data import Batch
from dubito.decide import CostMatrix
from dubito.errors import BadTypeError
from dubito.report.sample import Outcome, Sample, _packed, class_names, draw_sample

COSTS = CostMatrix([[0, 4, 1], [2, 0, 1], [1, 1, 0]]).with_reject([0.5, 0.4, 0.3])


def made(n_rows: int = 300, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), n_rows)
    y = (p.cumsum(axis=1) > rng.uniform(size=(n_rows, 1))).argmax(axis=1)
    return Batch.of(y, Probabilities(p), sample_weight=rng.integers(1, 4, n_rows).astype(float))


def reference(batch: Batch, costs: CostMatrix, threshold: float | None) -> tuple[float, ...]:
    """Return coverage, risk and cost row by row; without a threshold, of lowest expected cost."""
    outputs: Any = batch.outputs
    labels: Any = batch.labels
    table, reject = costs.array, costs.reject
    kept = wrong = paid = 0.0
    for p, y, w in zip(outputs.array.astype(float), labels.codes, batch.weight, strict=True):
        expected = [float(sum(p * row) / p.sum()) for row in table]
        acting = min((k for k in range(len(table)) if k != reject), key=lambda k: expected[k])
        if threshold is None:
            is_rejected = expected[reject or 0] <= min(expected) + 1e-9
        else:
            is_rejected = p.max() / p.sum() <= threshold
        paid += w * table[reject if is_rejected else acting][y]
        kept += 0 if is_rejected else w
        least = min(table[k][y] for k in range(len(table)) if k != reject)
        wrong += 0 if is_rejected else w * (table[acting][y] > least)
    total = batch.weight.sum()
    return kept / total, wrong / kept if kept else 0.0, 1000 * paid / total


def numbers(outcome: Outcome) -> tuple[float, ...]:
    return outcome.coverage, outcome.risk, outcome.cost


@pytest.mark.parametrize("threshold", [0.0, 0.4, 0.555, 0.8, 1.0])
def test_a_threshold_matches_plain_loops(threshold: float) -> None:
    sample = draw_sample(made(), COSTS, 0)
    expected = reference(sample.batch, COSTS, threshold)
    assert numbers(sample.at(threshold)) == pytest.approx(expected, abs=1e-9)
    assert sample.at(threshold).reviewed == pytest.approx(1000 * (1 - expected[0]))


def test_lowest_expected_cost_matches_plain_loops() -> None:
    sample = draw_sample(made(), COSTS, 0)
    assert numbers(sample.optimal) == pytest.approx(reference(sample.batch, COSTS, None))


def test_all_steps_at_once_are_the_steps_one_by_one() -> None:
    sample = draw_sample(made(), COSTS, 0)
    for k in (0, 1, 333, 500, 747, 999, 1000):
        assert numbers(sample.steps[k]) == pytest.approx(numbers(sample.at(k / 1000)), abs=1e-9)
    least = min(step.cost for step in sample.steps)
    assert sample.at(sample.cheapest_threshold).cost == pytest.approx(least)


def test_many_classes_and_soft_labels_become_right_or_wrong() -> None:
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(100, 20))
    wide = draw_sample(Batch.of(rng.integers(0, 20, 100), Logits(logits)), None, 0)
    soft = draw_sample(Batch.of(rng.dirichlet([1, 1], 50), rng.dirichlet([1, 1], 50)), None, 0)
    top = draw_sample(Batch.of(None, TopLabel(rng.uniform(size=80), rng.uniform(size=80))), None, 0)
    for sample in (wide, soft, top):
        assert class_names(sample.batch) == ("wrong", "correct")
        rows, weight = sample.answers.rows, sample.weight
        for threshold in (0.1, 0.3, 0.6):
            is_kept = rows.confidence > threshold
            wrong = (weight * is_kept) @ (1 - rows.correct)
            found = sample.at(threshold)
            assert found.coverage == pytest.approx((weight @ is_kept) / weight.sum())
            assert found.risk == pytest.approx(wrong / max((weight * is_kept).sum(), 1e-300))
            paid = 1000 * (wrong + 0.1 * (weight @ ~is_kept)) / weight.sum()
            assert found.cost == pytest.approx(paid)


def test_costs_without_a_review_get_an_example_of_one() -> None:
    sample = draw_sample(made(), CostMatrix([[0, 4, 1], [2, 0, 1], [1, 1, 0]]), 0)
    assert sample.costs.array[-1].tolist() == [0.4, 0.4, 0.4]
    assert (sample.has_given_costs, sample.is_given_review) == (True, False)
    plain = draw_sample(made(), None, 0)
    assert plain.costs.array.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0], [0.1, 0.1, 0.1]]


def test_at_most_5000_rows_are_drawn_the_same_by_the_same_seed() -> None:
    batch = made(6000)
    first, again, other = (draw_sample(batch, COSTS, seed) for seed in (1, 1, 2))
    assert len(first.batch) == 5000
    assert first.to_dict() == again.to_dict()
    assert first.to_dict() != other.to_dict()


def test_a_decision_is_wrong_if_another_action_would_have_cost_less() -> None:
    costs = CostMatrix([[0, 20, 1], [2, 0, 2], [1, 20, 0]]).with_reject(0.5)
    sample = draw_sample(made(), costs, 0)
    nobody = np.zeros(len(sample.batch), bool)
    found = numbers(sample.outcome(nobody))
    assert found == pytest.approx(reference(sample.batch, costs, -1.0), abs=1e-9)
    errors = sample.weight @ (1 - sample.answers.rows.correct) / sample.weight.sum()
    assert found[1] > errors + 0.1


def test_costs_with_a_reject_action_get_no_second_one() -> None:
    table = [[0, 4, 1], [0.5, 0.4, 0.3], [2, 0, 1], [1, 1, 0]]
    costs = CostMatrix(table, ["a", "ask", "b", "c"], reject="ask")
    sample = draw_sample(made(), costs, 0)
    assert sample.costs.actions == ("a", "ask", "b", "c")
    assert (sample.costs.reject, sample.is_given_review) == (1, True)
    assert 1 not in sample.acting
    assert numbers(sample.at(0.5)) == pytest.approx(reference(sample.batch, costs, 0.5), abs=1e-9)
    named = draw_sample(made(), CostMatrix(np.eye(3), ["a", "review", "c"]), 0)
    assert named.costs.actions[-1] == "second review"


def test_decisions_of_a_policy_are_counted_action_by_action() -> None:
    batch = made()
    action = np.random.default_rng(0).integers(0, 4, len(batch))
    sample = draw_sample(batch, COSTS, 0, action)
    labels: Any = sample.batch.labels
    found, weight = sample.outcome_of(action), sample.weight
    paid = COSTS.array[action, labels.codes]
    kept = weight * (action != 3)
    assert found.cost == pytest.approx(1000 * (weight @ paid) / weight.sum())
    assert found.risk == pytest.approx(kept @ (paid > 0) / kept.sum())
    assert draw_sample(batch, None, 0, action).decided is None


def test_row_costs_are_replaced_by_an_example() -> None:
    costs = CostMatrix([[0, "fee", 1]] * 3)
    sample = draw_sample(made(), costs, 0)
    assert (sample.has_given_costs, sample.costs.columns) == (False, ())


def test_top_labels_cannot_have_class_costs() -> None:
    with pytest.raises(BadTypeError, match=r"`costs` must be None for top labels.*all classes\."):
        draw_sample(Batch.of(None, TopLabel([0.5], [1])), COSTS, 0)


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (np.array([0, 255]), "u1"),
        (np.array([0.0, 1.0]), "u1"),
        (np.array([0.5]), "f8"),
        (np.array([256]), "f8"),
        (np.array([1.0], np.float32), "f4"),
    ],
)
def test_packed_arrays_round_trip(array: Any, kind: str) -> None:
    found = _packed(array)
    assert found["type"] == kind
    assert np.frombuffer(b64decode(found["data"]), f"<{kind}").tolist() == array.tolist()


def test_no_accepted_rows_have_no_risk() -> None:
    sample: Sample = draw_sample(made(), COSTS, 0)
    assert sample.at(1.0).risk == 0.0
    assert sample.at(1.0).coverage == 0.0
