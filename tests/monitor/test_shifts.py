"""Tests of two periods are those of SciPy, or exact by simulation."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp
from scipy import stats

from dubito.arrays import FloatArray
from dubito.doubt import ConformalOutlierDetector
from dubito.monitor.metrics import (
    class_shift,
    distribution_shift,
    mean_shift,
    mean_with_error,
    ood_shift,
)

RNG = np.random.default_rng(0)
numbers = hnp.arrays(np.float64, st.integers(1, 30), elements=st.floats(-100, 100))


@pytest.mark.parametrize("n", [30, 700])
@pytest.mark.parametrize("shift", [0.0, 0.2])
def test_distributions_are_compared_as_by_scipy(n: int, shift: float) -> None:
    a, b = RNG.random(n), RNG.random(2 * n) ** 2 + shift
    found = distribution_shift(a, b, 0.9)
    expected = stats.ks_2samp(a, b, method="asymp")
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.distance == pytest.approx(expected.statistic)
    assert (found.reference, found.current) == pytest.approx((a.mean(), b.mean()))
    between = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.9)
    assert found.difference is not None
    assert (found.difference.low, found.difference.high) == pytest.approx(tuple(between))


def test_means_of_many_rows_are_compared_by_welch() -> None:
    a, b = RNG.exponential(size=600), 1.1 * RNG.exponential(size=900)
    found = mean_shift(a, b, 0.95)
    expected = stats.ttest_ind(b, a, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.difference is not None
    assert found.difference.value == pytest.approx(b.mean() - a.mean())
    assert (found.difference.low, found.difference.high) == pytest.approx(
        tuple(expected.confidence_interval(0.95))
    )


@pytest.mark.parametrize(("n_a", "n_b"), [(6, 5), (5, 6), (3, 9)])
def test_means_of_few_rows_are_compared_by_permutations(n_a: int, n_b: int) -> None:
    a, b = RNG.exponential(size=n_a), RNG.exponential(size=n_b) + 0.8
    exact = stats.permutation_test(
        (a, b), lambda x, y: abs(x.mean() - y.mean()), alternative="greater", n_resamples=np.inf
    )
    found = mean_shift(a, b, 0.95, seed=1)
    error = np.sqrt(exact.pvalue * (1 - exact.pvalue) / 2000)
    assert found.p_value == pytest.approx(exact.pvalue, abs=4 * error + 1 / 2000)
    assert mean_shift(a, b, 0.95, seed=1) == found


@pytest.mark.slow
def test_permutations_stay_valid_with_a_few_large_losses() -> None:
    rng = np.random.default_rng(0)
    n_false = {"permutations": 0, "welch": 0}
    for seed in range(200):
        a, b = rng.exponential(size=30) ** 3, rng.exponential(size=400) ** 3
        p_value = mean_shift(a, b, 0.95, seed, n_permutations=199).p_value
        n_false["permutations"] += p_value is not None and p_value < 0.05
        n_false["welch"] += stats.ttest_ind(a, b, equal_var=False).pvalue < 0.05
    assert n_false["permutations"] <= 200 * 0.05 + 3 * np.sqrt(200 * 0.05 * 0.95)
    assert n_false["welch"] > 20


@pytest.mark.slow
@settings(max_examples=50)
@given(numbers, numbers)
def test_any_numbers_give_a_p_value(a: FloatArray, b: FloatArray) -> None:
    both = (mean_shift(a, b, 0.95, n_permutations=19), distribution_shift(a, b, 0.95))
    for found in both:
        assert found.p_value is not None
        assert 0 <= found.p_value <= 1
        assert found.difference is not None
        assert found.difference.low <= found.difference.value <= found.difference.high


def test_constant_numbers_are_equal_or_not() -> None:
    ones = np.ones(600)
    assert mean_shift(ones, ones, 0.95).p_value == 1.0
    assert mean_shift(ones, 2 * ones, 0.95).p_value == 0.0
    assert mean_with_error(np.array([3.0])) == (3.0, 0.0)


def test_class_frequencies_are_compared_by_chi_square() -> None:
    a, b = RNG.integers(0, 4, 200), RNG.choice(4, 300, p=[0.4, 0.2, 0.2, 0.2])
    counts = np.stack([np.bincount(a, minlength=4), np.bincount(b, minlength=4)])
    expected = stats.chi2_contingency(counts, correction=False)
    found = class_shift(a, b, 6)  # classes that never occur change nothing
    assert found.p_value == pytest.approx(expected.pvalue)
    shares = counts / counts.sum(axis=1, keepdims=True)
    assert found.distance == pytest.approx(np.abs(shares[0] - shares[1]).sum() / 2)


def test_rare_classes_are_pooled() -> None:
    a = np.repeat([0, 1, 2, 3], [100, 90, 1, 2])
    b = np.repeat([0, 1, 2, 3], [100, 90, 6, 4])
    pooled = stats.chi2_contingency([[100, 90, 3], [100, 90, 10]], correction=False)
    assert class_shift(a, b, 4).p_value == pytest.approx(pooled.pvalue)
    assert class_shift(np.zeros(30, int), np.zeros(30, int), 3).p_value == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("n_known", "n_rows"), [(59, 100), (200, 50)])
def test_the_number_of_ood_rows_has_its_exact_distribution(n_known: int, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(500):
        region = ConformalOutlierDetector(0.05).fit(rng.normal(size=n_known))
        n_ood = int(region.predict(rng.normal(size=n_rows)).sum())
        p_values.append(ood_shift(n_known, n_rows, n_ood, 0.05).p_value)
    for level in (0.05, 0.2):
        share = np.mean(np.array(p_values) <= level)
        assert share <= level + 3 * np.sqrt(level * (1 - level) / 500)
        assert share > level / 4
    found = ood_shift(n_known, n_rows, n_rows, 0.05)
    assert (found.reference, found.current) == (0.05, 1.0)
    assert found.p_value is not None
    assert found.p_value < 1e-9


def test_too_few_known_rows_detect_nothing() -> None:
    assert ood_shift(18, 100, 0, 0.05).p_value == 1.0
