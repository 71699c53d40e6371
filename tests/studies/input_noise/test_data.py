"""Sets are split and corrupted as their names say."""

from pathlib import Path

import numpy as np
import pytest
import torch

from studies.common.images import FOLDER
from studies.input_noise.data import SPREADS, source_of


def test_a_seed_splits_rows_that_do_not_mix() -> None:
    first, other = (source_of("wine", 89, 89, seed, FOLDER) for seed in (0, 1))
    rows = torch.cat([first.train, first.test])
    assert len(torch.unique(rows, dim=0)) == len(rows) == 178
    assert not torch.equal(first.train, other.train)
    features = first.features(first.train)
    assert features.mean(0) == pytest.approx(np.zeros(13), abs=1e-9)
    assert features.std(0, ddof=1) == pytest.approx(np.ones(13))


def test_noise_of_a_table_is_in_standard_deviations() -> None:
    source = source_of("wine", 89, 89, 0, FOLDER)
    for level, spread in enumerate(SPREADS, start=1):
        noisy = source.features(source.worse(source.test, "noise", level, seed=3))
        assert (noisy - source.features(source.test)).std() == pytest.approx(spread, rel=0.08)


def test_larger_images_are_pooled(tiny_fashion: Path) -> None:
    source = source_of("Fashion-MNIST", 50, 20, 0, tiny_fashion)
    found = source.features(source.test).reshape(20, 14, 14)
    assert found[3, 2, 5] == pytest.approx(source.test[3, 0, 4:6, 10:12].mean().item())
