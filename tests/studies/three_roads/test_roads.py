"""The truth of made rows is the truth."""

import numpy as np
import pytest
from scipy.stats import norm

from studies.three_roads import roads


def test_the_truth_of_normal_classes_is_that_of_their_densities() -> None:
    rows = roads.normal(0, 20, 30)
    one, other = (norm(middle).pdf(rows.new_x).prod(axis=1) for middle in (0.4, -0.4))
    assert rows.truth == pytest.approx(one / (one + other))


def test_the_truth_of_skewed_classes_is_how_often_they_come() -> None:
    rows = roads.skewed(0, 20, 40_000)
    assert rows.truth is not None
    order = np.argsort(rows.truth).reshape(20, -1)
    shares, chances = rows.new_y[order].mean(axis=1), rows.truth[order].mean(axis=1)
    assert shares == pytest.approx(chances, abs=0.04)
