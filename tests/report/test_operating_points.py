"""Thresholds between actions: costs, confusions and sizes as other functions of the library."""

import numpy as np
import pytest

from dubito import Probabilities
from dubito.data import Batch
from dubito.decide import CostMatrix, realized_cost
from dubito.measure import confusion_at
from dubito.report.sample import MAX_THRESHOLD_ROWS, Thresholds

COSTS = CostMatrix([[0, 9], [3, 0], [0.5, 0.7]], ["pass", "block", "review"], reject="review")


def made(n_rows: int = 400) -> tuple[Batch, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    p = rng.beta(0.5, 4, n_rows).astype(np.float32).astype(np.float64)
    y = (rng.random(n_rows) < p).astype(int)
    weight = rng.integers(1, 4, n_rows).astype(float)
    return Batch.of(y, Probabilities(p), sample_weight=weight), p, y


@pytest.mark.parametrize("thresholds", [(0.1, 0.6), (0.0, 0.0), (0.3, 1.0)])
def test_outcomes_are_those_of_the_library(thresholds: tuple[float, float]) -> None:
    batch, p, y = made()
    rows = Thresholds.of(batch, COSTS, 1, 0)
    assert rows.actions == (0, 2, 1)
    found = rows.at(thresholds)
    taken = np.take(rows.actions, np.searchsorted(thresholds, p, side="right"))
    paid = realized_cost(y, taken, COSTS, sample_weight=batch.weight)
    assert found.cost == pytest.approx(paid, abs=1e-12)
    for one, threshold in zip(found.confusions, thresholds, strict=True):
        expected = confusion_at(y, p, threshold=threshold, sample_weight=batch.weight)
        assert one.recall == pytest.approx(expected.recall, abs=1e-12)
        assert one.precision == pytest.approx(expected.precision, abs=1e-12)
        assert one.selection_rate == pytest.approx(expected.selection_rate, abs=1e-12)
    for action, side in np.ndindex(3, 2):
        part = batch.weight[(taken == action) & (y == side)].sum() / batch.weight.sum()
        assert found.table[action, side] == pytest.approx(part, abs=1e-12)


def test_the_first_class_may_be_the_positive_one() -> None:
    batch, p, y = made()
    mirrored = Batch.of(
        1 - y, Probabilities(np.column_stack([p, 1 - p])), sample_weight=batch.weight
    )
    costs = CostMatrix(COSTS.array[:, ::-1], COSTS.actions, reject="review")
    one, other = Thresholds.of(batch, COSTS, 1, 0), Thresholds.of(mirrored, costs, 0, 0)
    assert one.optimal == pytest.approx(other.optimal)
    assert one.at(one.optimal).cost == pytest.approx(other.at(one.optimal).cost, abs=1e-12)
    assert (one.classes, other.classes) == (("0", "1"), ("1", "0"))


def test_many_rows_are_sampled_and_errors_cost_1_without_costs() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(MAX_THRESHOLD_ROWS + 7)
    rows = Thresholds.of(Batch.of(rng.random(p.size) < p, Probabilities(p)), None, 1, 0)
    assert rows.n_rows == rows.weight.sum() == MAX_THRESHOLD_ROWS
    assert rows.optimal == (0.5,)
    costs = rows.costs_over_first(rows.optimal, [0.0, 0.5, 1.0])
    assert costs.argmin() == 1
    assert costs[0] == pytest.approx(1 - rows.positive.sum() / MAX_THRESHOLD_ROWS)
