"""Ratios of norms, and the names of what holds in every seed."""

import numpy as np

from studies.common.ood_images import KINDS
from studies.softmax_ood.evaluation import LAYERS
from studies.softmax_ood.reporting import in_every_seed, norm_ratios


def test_ratios_and_names_are_of_every_seed() -> None:
    layers = np.ones((2, 1 + len(KINDS), len(LAYERS), 2))
    layers[:, 0, :, 0] = 2.0
    layers[:, 1, -1, 0] = [3.0, 5.0]
    layers[:, 2, -1, 0] = [3.0, 1.0]
    ratios = norm_ratios(layers)[..., -1]
    assert ratios[:, :3].tolist() == [[1.5, 1.5, 0.5], [2.5, 0.5, 0.5]]
    assert in_every_seed(ratios > 1) == KINDS[0]
    assert in_every_seed(ratios > 9) == "none"
