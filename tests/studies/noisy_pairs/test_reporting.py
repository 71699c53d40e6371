"""The floor that is reported was chosen on validation rows."""

from pathlib import Path

import numpy as np
import pytest

from studies.common.runs import Arrays
from studies.common.study import Options
from studies.noisy_pairs.losses import FLOORS
from studies.noisy_pairs.reporting import Table
from studies.noisy_pairs.training import FASHION, Setting, fashion


def test_each_seed_takes_the_floor_of_least_validation_loss(tiny_fashion: Path) -> None:
    options = Options((0, 1), is_quick=True, folder=tiny_fashion)
    losses = {0: (0.3, 0.1, 0.2), 1: (0.1, 0.2, 0.3)}
    found: dict[Setting, Arrays] = {}
    for seed, values in losses.items():
        for floor, value in zip(FLOORS, values, strict=True):
            run = {"validation log loss": [9.0, value], "test accuracy": [0.0, 1 - value]}
            setting = fashion(options, floor, 0.4, seed)
            found[setting] = {name: np.array(curve) for name, curve in run.items()}
    table = Table.of(found, FASHION, (0.4,))
    chosen = table.last("joint, chosen floor", 0.4, "test accuracy")
    assert chosen.tolist() == pytest.approx([0.9, 0.9])
    expected = '"joint, floor -4" in 1 of 2 seeds, "joint, floor -7" in 1 of 2 seeds'
    assert table.chosen(0.4) == expected
