"""Coverage follows its distribution, and the study would detect if it did not."""

import sys

import numpy as np
import pytest
from scipy import stats

from studies import conformal_coverage as study


@pytest.mark.slow
@pytest.mark.parametrize("method", study.METHODS)
@pytest.mark.parametrize(("n", "m"), [(60, 40), (200, 200)])
def test_coverage_of_fresh_draws_follows_its_law(method: str, n: int, m: int) -> None:
    distribution = study.distribution_of(method, n, m)
    n_draws = 120 if method in study.CALIBRATING else 400  # those that learn take longer
    counts = study.covered(method, n_draws, n, m, seed=1)
    fit = study.fit_of(counts, distribution, m)
    assert fit.p_value > study.MIN_P_VALUE
    error = distribution.std() / m / np.sqrt(n_draws)
    assert fit.mean == pytest.approx(fit.expected, abs=4 * error)
    assert fit.expected >= study.LEVEL


@pytest.mark.slow
@pytest.mark.parametrize("method", study.BOUNDED)
def test_coverage_reaches_its_lower_bound(method: str) -> None:
    share = study.covered(method, 120, 100, 50, seed=1) / 50
    assert share.mean() > study.LEVEL - 3 * share.std() / np.sqrt(120)


def test_the_law_is_the_beta_binomial_of_the_textbook() -> None:
    # 99 known rows, level 0.9: coverage is Beta(90, 10), so that the mean is exactly 90 %.
    distribution = study.coverage_distribution(99, 50, 0.9)
    assert distribution.mean() / 50 == pytest.approx(0.9)
    beta = stats.beta(90, 10)
    expected = beta.expect(lambda chance: stats.binom.pmf(47, 50, chance))
    assert distribution.pmf(47) == pytest.approx(expected, rel=1e-6)


def test_another_distribution_would_be_detected() -> None:
    counts = study.covered("ConformalRegressor, absolute", 1000, seed=1)
    wrong = [
        study.coverage_distribution(200, 200, 0.92),
        study.coverage_distribution(100, 200, 0.9),
        stats.binom(200, 0.9),
    ]
    for distribution in wrong:
        assert study.fit_of(counts, distribution, 200).p_value < study.MIN_P_VALUE


@pytest.mark.slow
def test_the_study_says_first_how_many_methods_keep_their_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["conformal_coverage", "--quick"])
    study.main()
    printed = capsys.readouterr().out
    n = len(study.METHODS)
    assert printed.startswith(
        f"{n} of {n} methods have the coverage that theory gives: nominal 90%"
    )
    assert "40 fresh draws of 200 known and 200 new rows" in printed
    assert all(name in printed for name in study.METHODS)
