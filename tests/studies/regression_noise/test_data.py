"""Rows have the noise that is known of them, and parts do not mix."""

import numpy as np
import pytest
from scipy import stats

from studies.regression_noise.data import Sizes, noisy_sine, parts_of, quiet_sine
from studies.regression_noise.reporting import TASKS


@pytest.mark.parametrize("draw", [noisy_sine, quiet_sine])
def test_known_noise_is_that_of_the_rows(draw: object) -> None:
    rows = draw(20_000, np.random.default_rng(1))  # type: ignore[operator]
    scores = (rows.y - rows.mean) / rows.std
    assert stats.kstest(scores, "norm").pvalue > 0.01


@pytest.mark.parametrize("task", TASKS)
def test_rows_to_judge_by_are_the_same_for_all_seeds(task: str) -> None:
    first, other = (parts_of(task, Sizes(200, 100, 142), seed) for seed in (0, 1))
    assert [len(part.y) for part in first] == [200, 100, 142]
    assert first.test.y.tolist() == other.test.y.tolist()
    assert first.train.y.tolist() != other.train.y.tolist()


def test_parts_of_diabetes_do_not_mix() -> None:
    parts = parts_of("diabetes", Sizes(200, 100, 142), seed=0)
    scale = np.concatenate([part.features for part in parts])
    assert len(np.unique(scale, axis=0)) == 442
    assert parts.train.features.mean(axis=0) == pytest.approx(0, abs=1e-9)
    assert parts.train.features.std(axis=0) == pytest.approx(1)
