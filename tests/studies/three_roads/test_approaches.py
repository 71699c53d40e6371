"""True posteriors of simulated rows are right."""

import numpy as np
import pytest
from scipy.stats import norm

from studies.three_roads import approaches


def test_true_posteriors_of_normal_classes_follow_from_their_densities() -> None:
    rows = approaches.normal(0, 20, 30)
    one, other = (norm(middle).pdf(rows.new_x).prod(axis=1) for middle in (0.4, -0.4))
    assert rows.true_posterior == pytest.approx(one / (one + other))


def test_true_posteriors_of_skewed_classes_equal_their_frequencies() -> None:
    rows = approaches.skewed(0, 20, 40_000)
    assert rows.true_posterior is not None
    order = np.argsort(rows.true_posterior).reshape(20, -1)
    frequencies, posteriors = (
        rows.new_y[order].mean(axis=1),
        rows.true_posterior[order].mean(axis=1),
    )
    assert frequencies == pytest.approx(posteriors, abs=0.04)
