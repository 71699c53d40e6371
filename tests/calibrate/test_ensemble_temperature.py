"""Mixture weights of maximum likelihood, and an unchanged predicted class."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import optimize, special

from dubito import Logits
from dubito.calibrate import EnsembleTemperatureScaling, TemperatureScaling
from dubito.calibrate.temperature import fit_mixture_weights
from dubito.measure import log_loss

Floats = NDArray[np.float64]


def made(n_rows: int, n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return logits that are sometimes sure and wrong, and labels."""
    rng = np.random.default_rng(n_classes)
    calibrated = rng.normal(0, 2, (n_rows, n_classes))
    draws = rng.random((n_rows, 1))
    y = (special.softmax(calibrated, axis=1).cumsum(axis=1) < draws).sum(axis=1)
    is_noise = rng.random(n_rows) < 0.1
    y = np.where(is_noise, rng.integers(0, n_classes, n_rows), np.minimum(y, n_classes - 1))
    return 2 * calibrated, y


def reference(likelihoods: Floats, weights: Floats) -> float:
    """Return the highest mean log likelihood over the simplex."""
    n_parts = likelihoods.shape[1]

    def loss(shares: Floats) -> float:
        return float(-weights @ np.log(likelihoods @ shares) / weights.sum())

    def slope(shares: Floats) -> Floats:
        mixed = likelihoods @ shares
        return np.asarray(-(weights / mixed) @ likelihoods / weights.sum())

    found = optimize.minimize(
        loss,
        np.full(n_parts, 1 / n_parts),
        jac=slope,
        method="SLSQP",
        bounds=[(0, 1)] * n_parts,
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    return float(-found.fun)


@pytest.mark.parametrize("n_parts", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_as_likely_as_those_of_the_reference(n_parts: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    likelihoods, weights = rng.random((300, n_parts)) ** 2, rng.random(300)
    shares = fit_mixture_weights(likelihoods, weights)
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    assert (shares >= 0).all()
    reached = weights @ np.log(likelihoods @ shares) / weights.sum()
    assert reached >= reference(likelihoods, weights) - 1e-6


def test_a_pull_is_weight_that_equal_shares_explain() -> None:
    rng = np.random.default_rng(0)
    likelihoods, weights = rng.random((50, 3)) ** 2, np.ones(50)
    free = fit_mixture_weights(likelihoods, weights)
    pulled = fit_mixture_weights(likelihoods, weights, 25.0)
    off = [np.abs(shares - 1 / 3).max() for shares in (free, pulled)]
    assert pulled.sum() == pytest.approx(1, abs=1e-12)
    assert 0 < off[1] < off[0]
    close(fit_mixture_weights(likelihoods, weights, 1e9), 1 / 3, atol=1e-6)


@pytest.mark.parametrize("n_classes", [2, 5, 100])
def test_the_mixture_is_as_likely_as_the_reference(n_classes: int) -> None:
    logits, y = made(2000, n_classes)
    mixture = EnsembleTemperatureScaling().fit(Logits(logits), y)
    assert mixture.weights_.sum() == pytest.approx(1, abs=1e-12)
    assert (mixture.weights_ >= 0).all()
    parts = [
        special.softmax(logits / mixture.temperature_, axis=1),
        special.softmax(logits, axis=1),
        np.full(logits.shape, 1 / n_classes),
    ]
    likelihoods = np.stack([part[np.arange(2000), y] for part in parts], axis=1)
    loss = log_loss(y, mixture.predict_proba(Logits(logits)))
    assert -loss >= reference(likelihoods, np.ones(2000)) - 1e-6
    mixed = np.tensordot(mixture.weights_, np.stack(parts), axes=1)
    close(mixture.predict_proba(Logits(logits)), mixed, rtol=1e-9)


def test_it_is_no_worse_than_temperature_scaling() -> None:
    logits, y = made(2000, 4)
    outputs = Logits(logits)
    losses = [
        log_loss(y, kind().fit(outputs, y).predict_proba(outputs))
        for kind in (EnsembleTemperatureScaling, TemperatureScaling)
    ]
    assert losses[0] <= losses[1] + 1e-6


@st.composite
def nasty_logits(draw: Any) -> NDArray[Any]:
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    one = dtype(1)
    close_by = [float(np.nextafter(one, dtype(0))), 1.0, float(np.nextafter(one, dtype(2)))]
    elements = st.sampled_from([0.0, -0.0, 1e-30, 1e4, -1e4, *close_by]) | st.floats(
        -1e4, 1e4, width=32 if dtype is np.float32 else 64
    )
    shape = draw(st.tuples(st.integers(1, 4), st.sampled_from([2, 3, 66])))
    array: NDArray[Any] = draw(hnp.arrays(dtype, shape, elements=elements))
    return array


@pytest.mark.slow
@settings(max_examples=75)
@given(nasty_logits(), st.floats(1e-3, 1e3), st.floats(0.1, 1), st.floats(0, 1))
def test_no_class_changes(logits: NDArray[Any], temperature: float, u: float, v: float) -> None:
    mixture = EnsembleTemperatureScaling()
    mixture.n_classes_, mixture.classes_, mixture.temperature_ = logits.shape[1], None, temperature
    mixture.weights_ = np.array([0.98 * u * v, 0.98 * u * (1 - v), 1 - 0.98 * u])
    p = mixture.predict_proba(Logits(logits))
    assert np.isfinite(p).all()
    assert p.argmax(axis=1).tolist() == logits.argmax(axis=1).tolist()


@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")
@pytest.mark.parametrize("n_classes", [2, 50])
def test_rows_that_are_all_right_leave_probabilities_finite(n_classes: int) -> None:
    y = np.arange(100) % n_classes
    outputs = Logits(np.where(np.eye(n_classes)[y] == 1, 1e4, -1e4))
    p = EnsembleTemperatureScaling().fit(outputs, y).predict_proba(outputs)
    close(p, np.eye(n_classes)[y], atol=1e-6)
    assert (p > 0).all()


def test_shares_of_exactly_0_leave_probabilities_finite() -> None:
    mixture = EnsembleTemperatureScaling()
    mixture.n_classes_, mixture.classes_, mixture.temperature_ = 2, None, 0.5
    mixture.weights_ = np.array([1.0, 0.0, 0.0])
    close(mixture.predict_proba(Logits([[1e4, -1e4]])), [[1.0, 1e-12]], rtol=1e-9)


def test_parts_that_explain_nothing_get_a_share_of_0() -> None:
    shares = fit_mixture_weights(np.array([[1.0, 0.0, 0.0], [0.5, 0.0, 1e-300]]), np.ones(2))
    close(shares, [1, 0, 0], atol=1e-9)


def test_the_summary_contains_the_mixture_weights() -> None:
    logits, y = made(500, 3)
    mixture = EnsembleTemperatureScaling().fit(Logits(logits), y)
    calibrated, original, uniform = mixture.weights_
    assert mixture.summary().startswith(
        f"{100 * calibrated:.1f} % at T = {mixture.temperature_:.3g}, {100 * original:.1f} % "
        f"uncalibrated, {100 * uniform:.1f} % uniform"
    )
