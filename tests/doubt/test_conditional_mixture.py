"""A mixture conditioned on its inputs, beside the ratio of SciPy's densities."""

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy import stats
from scipy.integrate import quad

from dubito import NormalMixture
from dubito.arrays import FloatArray
from dubito.doubt.densities import ConditionalMixture

RNG = np.random.default_rng(8)
WEIGHTS = np.array([0.5, 0.3, 0.2])


def mixture(n_inputs: int, n_targets: int) -> tuple[ConditionalMixture, list[stats.rv_continuous]]:
    d = n_inputs + n_targets
    means, roots = RNG.normal(0, 2, (3, d)), RNG.normal(size=(3, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.2 * np.eye(d)
    both = [stats.multivariate_normal(m, c) for m, c in zip(means, covariances, strict=True)]
    return ConditionalMixture(WEIGHTS, means, covariances, n_inputs), both


def mean_and_std(conditional: ConditionalMixture, x: FloatArray) -> tuple[FloatArray, FloatArray]:
    weights, means, stds = conditional.moments(conditional.components(x))
    normal = NormalMixture(means, stds, weights).normal
    return normal.mean, normal.std


@pytest.mark.parametrize(("n_inputs", "n_targets"), [(1, 1), (3, 1), (2, 2)])
def test_the_density_is_the_ratio_of_joint_and_marginal(n_inputs: int, n_targets: int) -> None:
    conditional, both = mixture(n_inputs, n_targets)
    x, y = RNG.normal(size=(20, n_inputs)), RNG.normal(size=(20, n_targets))
    joint = sum(w * one.pdf(np.hstack([x, y])) for w, one in zip(WEIGHTS, both, strict=True))
    inputs = [
        stats.multivariate_normal(one.mean[:n_inputs], one.cov[:n_inputs, :n_inputs])
        for one in both
    ]
    marginal = sum(w * one.pdf(x) for w, one in zip(WEIGHTS, inputs, strict=True))
    close(np.exp(conditional.log_density(x, y)), joint / marginal, rtol=1e-9)
    close(np.exp(conditional.joint(x)).sum(axis=1), marginal, rtol=1e-9)


@pytest.mark.slow
def test_mean_and_deviation_are_integrals_of_the_density() -> None:
    conditional, _ = mixture(2, 1)
    for x in RNG.normal(size=(3, 1, 2)):

        def moment(power: int, about: float, x: np.ndarray = x) -> float:
            def weighted(y: float) -> float:
                density = np.exp(conditional.log_density(x, np.array([[y]])))[0]
                return float((y - about) ** power * density)

            return float(quad(weighted, -60, 60, limit=400)[0])

        mean, std = (float(one[0, 0]) for one in mean_and_std(conditional, x))
        assert moment(0, 0.0) == pytest.approx(1, rel=1e-6)
        assert moment(1, 0.0) == pytest.approx(mean, rel=1e-6)
        assert moment(2, mean) == pytest.approx(std**2, rel=1e-6)


@pytest.mark.slow
def test_draws_have_the_mean_the_deviation_and_the_density() -> None:
    conditional, _ = mixture(2, 2)
    x = RNG.normal(size=(4, 2))
    draws = conditional.draw(x, 40_000, np.random.default_rng(0))
    mean, std = mean_and_std(conditional, x)
    assert (np.abs(draws.mean(axis=1) - mean) < 0.03 * std).all()
    assert (np.abs(draws.std(axis=1) / std - 1) < 0.03).all()
    # E[1 / p] over a part of the plane is its area: a check of the joint shape of two targets.
    for i in range(4):
        off = (draws[i] - mean[i]) / std[i]
        inside = (np.abs(off) < 0.5).all(axis=1)
        chosen = draws[i][inside]
        inverse = np.exp(-conditional.log_density(np.repeat(x[i : i + 1], len(chosen), 0), chosen))
        assert inverse.sum() / 40_000 == pytest.approx(std[i].prod(), rel=0.1)


def test_far_inputs_still_have_a_density() -> None:
    conditional, _ = mixture(1, 1)
    x = np.array([[1e8]])
    middle = mean_and_std(conditional, x)[0]
    found = conditional.log_density(x, middle)
    spread = min(float(one.factor[0, 0]) for one in conditional.noise)
    assert found[0] <= -np.log(spread * np.sqrt(2 * np.pi)) + 1e-9
    assert found[0] > -100
