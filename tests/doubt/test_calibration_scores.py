"""Streamed scores: exact while they are few, never too low where they are many."""

import numpy as np

from dubito.doubt.conformal.predictor import CalibrationScores, _in_cells, rank_scores


def test_few_scores_are_those_of_memory() -> None:
    rng = np.random.default_rng(0)
    scores, weight = rng.integers(0, 50, 400) / 7, rng.integers(0, 3, 400).astype(float)
    parts = [CalibrationScores.of(scores[i::5], weight[i::5]) for i in range(5)]
    found, expected = sum(parts[1:], parts[0]).ranked, rank_scores(scores, weight)
    assert found.score.tolist() == expected.score.tolist()
    assert found.weight.tolist() == expected.weight.tolist()


def test_many_scores_move_up_past_few_others() -> None:
    rng = np.random.default_rng(0)
    piled = np.log(2) - 1e-9 * rng.random(10_000)  # half of all, where no grid would separate them
    scores = rng.permutation(np.concatenate([piled, rng.lognormal(-3, 2, 10_000)]))
    parts = [CalibrationScores.of(part, np.ones(len(part)), 2_000) for part in np.split(scores, 40)]
    found = sum(parts[1:], parts[0])
    state, ordered = found.ranked, np.sort(scores)
    assert found.size <= 2_000
    assert state.weight.sum() == 20_000
    assert set(state.score.tolist()) <= set(scores.tolist())
    held = np.repeat(state.score, state.weight.astype(int))
    assert (held >= ordered).all()
    steps = np.searchsorted(ordered, held) - np.arange(20_000)
    # 20 times some scores were cut into cells, of 1/1,000 of the rows so far: 10 in the mean.
    assert 0 < steps.max() <= 20 * 10 + 20


def test_cells_are_cut_by_weight() -> None:
    found = _in_cells(
        rank_scores(np.array([1.0, 2.0, 3.0, np.inf]), np.array([1.0, 1.0, 96.0, 2.0])), n_cells=2
    )
    assert found.score.tolist() == [2.0, np.inf]
    assert found.weight.tolist() == [2.0, 98.0]
    few = rank_scores(np.array([1.0, 2.0]), np.ones(2))
    assert _in_cells(few, n_cells=2) is few
