import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito import Logits
from dubito.data import Batch
from dubito.data.batch import Ranks
from dubito.measure import RankingState, detection
from dubito.measure.detection import GRID_STEP, _on_grid


@pytest.mark.slow
@given(st.lists(st.floats(1e-300, 1.0), min_size=1, max_size=50))
def test_the_grid_keeps_order_and_moves_nothing_by_more_than_a_step(values: list[float]) -> None:
    uncertainty = np.array(values)
    grid = _on_grid(uncertainty)
    assert (
        np.abs(uncertainty - grid) <= GRID_STEP * np.minimum(uncertainty, 1 - uncertainty) + 1e-15
    ).all()
    order = np.argsort(uncertainty, kind="stable")
    assert (np.diff(grid[order]) >= 0).all()


def test_a_grid_holds_few_cells_however_many_rows() -> None:
    uncertainty = 10 ** np.random.default_rng(0).uniform(-16, 0, 200_000)
    assert np.unique(_on_grid(uncertainty)).size < 55_000
    assert np.unique(_on_grid(1 - uncertainty)).size < 55_000


def test_ties_are_one_step_whatever_the_order_of_rows() -> None:
    p = np.array([0.9, 0.9, 0.6, 0.9, 0.6])
    batch = Batch.of([1, 0, 1, 1, 0], p)
    state = RankingState.of(batch)
    assert state.weight.tolist() == [3, 2]
    assert state.positive.tolist() == [1, 1]


def test_rows_without_weight_leave_no_step() -> None:
    batch = Batch.of([1, 0, None], [0.9, 0.7, 0.6], sample_weight=[1, 0, 1])
    assert RankingState.of(batch).weight.tolist() == [1]


def test_streamed_and_exact_rankings_pool_to_the_same_totals() -> None:
    rng = np.random.default_rng(1)
    batch = Batch.of(rng.integers(0, 5, 900), Logits(rng.normal(0, 3, (900, 5))))
    parts = [batch.take(slice(i, i + 300)) for i in (0, 300, 600)]
    exact = RankingState.of(batch)
    pooled = RankingState.of(parts[0]) + RankingState.of(parts[1]) + RankingState.of(parts[2])
    for name, values in exact.to_dict().items():
        assert pooled.to_dict()[name] == pytest.approx(values)
    gridded = [RankingState.of(part, is_gridded=True) for part in parts]
    total = gridded[0] + gridded[1] + gridded[2]
    assert total.weight.sum() == exact.weight.sum()
    assert total.positive.sum() == exact.positive.sum()


@pytest.mark.parametrize("most", [0, 1_000_000], ids=["sorted", "by cells"])
def test_a_gridded_ranking_is_that_of_scores_moved_to_the_grid(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detection, "MAX_CELLS_PER_ROW", most)
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 1, (400, 5)) * rng.choice([0.1, 1.0, 9.0], (400, 1))
    y = [None, *rng.integers(0, 5, 399)]
    batch = Batch.of(y, Logits(logits), sample_weight=rng.integers(0, 3, 400))
    ranks, weight = Ranks.of(_on_grid(batch.rows.least_confidence)), batch.labeled_weight
    expected = RankingState.of_ranks(ranks, weight, weight * (1 - batch.rows.correct))
    found = RankingState.of(batch, is_gridded=True)
    for name, values in expected.to_dict().items():
        assert found.to_dict()[name] == values


def test_no_rows_have_no_gridded_ranking() -> None:
    batch = Batch.of([], np.zeros((0, 2)))
    assert RankingState.of(batch, is_gridded=True).weight.size == 0
