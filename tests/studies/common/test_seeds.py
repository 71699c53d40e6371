"""The interval over seeds is that of SciPy's paired test, and one seed has none."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from studies.common.seeds import mean_interval, points


def test_the_interval_is_scipys() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(0.8, 0.01, 5), rng.normal(0.79, 0.01, 5)
    found = mean_interval(ours - theirs)
    expected = ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.value == pytest.approx(ours.mean() - theirs.mean())


def test_one_seed_has_no_interval() -> None:
    assert points(mean_interval([-0.012])) == "-1.20"
