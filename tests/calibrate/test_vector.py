"""Vector scaling against an independent minimization of the same objective."""

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import optimize, special

from dubito import Logits
from dubito.calibrate import TemperatureScaling, VectorScaling
from dubito.errors import BadValueError, BoundWarning
from dubito.measure import log_loss

Floats = NDArray[np.float64]


def made(n_rows: int, n_classes: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """Return logits that over-predict some classes with too much confidence, and labels."""
    rng = np.random.default_rng(seed + n_classes)
    calibrated = rng.normal(0, 1.5, (n_rows, n_classes))
    draws = rng.random((n_rows, 1))
    y = (special.softmax(calibrated, axis=1).cumsum(axis=1) < draws).sum(axis=1)
    sharper = rng.uniform(1.5, 3, n_classes)
    return calibrated * sharper + rng.normal(0, 1, n_classes), np.minimum(y, n_classes - 1)


def objective(entries: Floats, x: Floats, y: NDArray[np.int64], penalty: float) -> float:
    """Return mean log loss plus penalty of 2 x classes: scales less 1, biases."""
    off, bias = entries.reshape(2, -1)
    picked = special.log_softmax(x * (1 + off) + bias, axis=1)[np.arange(len(y)), y]
    return float(-picked.mean() + penalty * (entries**2).sum())


@pytest.mark.parametrize("kind", ["logits", "log_proba"])
@pytest.mark.parametrize("n_classes", [2, 3, 6])
@pytest.mark.parametrize("regularization", [0.0, 1.0, 30.0])
def test_the_objective_is_as_low_as_the_reference(
    n_classes: int, regularization: float, kind: str
) -> None:
    logits, y = made(300, n_classes)
    scaling = VectorScaling(regularization, kind).fit(Logits(logits), y)
    x, weight = logits / scaling.temperature_, scaling.weight_ * scaling.temperature_
    if kind == "log_proba":
        x, weight = special.log_softmax(x, axis=1), scaling.weight_
    penalty = max(regularization * n_classes / 300, 1e-6 if kind == "log_proba" else 1e-10)
    found = optimize.minimize(
        objective,
        np.zeros(2 * n_classes),
        (x, y, penalty),
        method="BFGS",
        options={"gtol": 1e-8, "maxiter": 5000},
    )
    got = np.concatenate([weight - 1, scaling.bias_])
    assert objective(got, x, y, penalty) <= found.fun + 1e-7
    assert objective(got, x, y, penalty) < objective(0 * got, x, y, penalty)


@pytest.mark.parametrize("n_classes", [2, 5])
def test_predictions_are_scaled_and_shifted_log_probabilities(n_classes: int) -> None:
    logits, y = made(300, n_classes)
    scaling = VectorScaling(input="log_proba").fit(Logits(logits), y)
    x = special.log_softmax(logits / scaling.temperature_, axis=1)
    expected = special.softmax(x * scaling.weight_ + scaling.bias_, axis=1)
    close(scaling.predict_proba(Logits(logits)), np.maximum(expected, 1e-12), rtol=1e-9)
    temperature = TemperatureScaling().fit(Logits(logits), y).temperature_
    assert scaling.temperature_ == pytest.approx(temperature, rel=1e-12)


def test_of_logits_it_is_the_published_form() -> None:
    logits, y = made(300, 4)
    scaling = VectorScaling().fit(Logits(logits), y)
    assert scaling.input_ == "logits"
    assert VectorScaling().fit(special.softmax(logits, axis=1), y).input_ == "log_proba"
    expected = special.softmax(logits * scaling.weight_ + scaling.bias_, axis=1)
    close(scaling.predict_proba(Logits(logits)), np.maximum(expected, 1e-12), rtol=1e-9)


def test_it_fits_better_than_a_temperature() -> None:
    logits, y = made(1000, 4)
    outputs = Logits(logits)
    by_vector = log_loss(y, VectorScaling().fit(outputs, y).predict_proba(outputs))
    by_temperature = log_loss(y, TemperatureScaling().fit(outputs, y).predict_proba(outputs))
    assert by_vector < by_temperature - 0.01


def test_a_huge_regularization_leaves_the_temperature_alone() -> None:
    logits, y = made(300, 5)
    outputs = Logits(logits)
    strong = VectorScaling(regularization=1e9).fit(outputs, y).predict_proba(outputs)
    close(strong, TemperatureScaling().fit(outputs, y).predict_proba(outputs), atol=1e-6)


@pytest.mark.parametrize("regularization", [0.0, 1.0])
def test_a_class_absent_from_the_labels_keeps_its_column(regularization: float) -> None:
    logits, y = made(300, 4)
    y = np.where(y == 2, 0, y)
    scaling = VectorScaling(regularization).fit(Logits(logits), y)
    p = scaling.predict_proba(Logits(logits))
    assert p.shape == (300, 4)
    assert np.isfinite(p).all()
    assert (p > 0).all()
    assert np.isfinite(scaling.weight_).all()
    assert p[:, 2].mean() < special.softmax(logits, axis=1)[:, 2].mean()


@pytest.mark.parametrize("regularization", [0.0, 1.0])
def test_separable_rows_leave_all_finite(regularization: float) -> None:
    y = np.arange(60) % 3
    logits = np.random.default_rng(0).normal(0, 0.1, (60, 3)) + np.eye(3)[y]
    with pytest.warns(BoundWarning):
        scaling = VectorScaling(regularization).fit(Logits(logits), y)
    assert np.isfinite(scaling.weight_).all()
    assert np.isfinite(scaling.bias_).all()
    p = scaling.predict_proba(Logits(logits))
    assert p.argmax(axis=1).tolist() == y.tolist()


def test_a_thousand_classes() -> None:
    logits, y = made(400, 1000)
    outputs = Logits(logits.astype(np.float32))
    scaling = VectorScaling(regularization=1.0).fit(outputs, y)
    assert scaling.weight_.shape == scaling.bias_.shape == (1000,)
    p = scaling.predict_proba(outputs)
    assert p.dtype == np.float32
    close(p.sum(axis=1, dtype=np.float64), 1, atol=1e-5)
    assert log_loss(y, p) < log_loss(y, outputs)


@pytest.mark.parametrize("kind", ["logits", "log_proba"])
def test_the_summary_contains_scales_and_shifts(kind: str) -> None:
    logits, y = made(300, 3)
    scaling = VectorScaling(input=kind).fit(Logits(logits), y)
    weight, bias = scaling.weight_, scaling.bias_
    what = "logits" if kind == "logits" else f"T = {scaling.temperature_:.3g}, then classes"
    assert scaling.summary() == (
        f"{what} scaled by {weight.min():.2f} to {weight.max():.2f} and shifted by "
        f"{bias.min():+.2f} to {bias.max():+.2f}"
    )


def test_an_unknown_input_raises() -> None:
    with pytest.raises(BadValueError) as caught:
        VectorScaling(input="scores").fit([[0.5, 0.5]], [0])
    assert str(caught.value) == (
        "VectorScaling: `input` must be 'auto', 'logits' or 'log_proba', got 'scores'. "
        "Use input='auto'."
    )
