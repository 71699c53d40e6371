"""Matrix scaling against an independent minimization of the same objective."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import optimize, special
from sklearn.linear_model import LogisticRegression

from dubito import Logits
from dubito.calibrate import (
    BaseCalibrator,
    MatrixScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.errors import BadValueError, BoundWarning
from dubito.measure import log_loss

Floats = NDArray[np.float64]

each_kind = pytest.mark.parametrize("kind", [MatrixScaling, StructuredMatrixScaling])


def made(n_rows: int, n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return logits in which classes pass for each other, and labels."""
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, n_rows)
    spread = np.eye(n_classes) + rng.random((n_classes, n_classes)) / 2
    return 3 * spread[y] + 2 * rng.normal(size=(n_rows, n_classes)), y


def objective(entries: Floats, x: Floats, y: NDArray[np.int64], penalty: Floats) -> float:
    """Return mean log loss plus penalty of a table of matrix less identity, and intercept."""
    table = entries.reshape(penalty.shape)
    scores = x + x @ table[:, :-1].T + table[:, -1]
    picked = special.log_softmax(scores, axis=1)[np.arange(len(y)), y]
    return float(-picked.mean() + (penalty * table**2).sum())


def on_log_probabilities(kind: Any) -> Any:
    return kind(input="log_proba") if kind is MatrixScaling else kind()


def table_of(scaling: MatrixScaling | StructuredMatrixScaling) -> Floats:
    unit = scaling.temperature_ if scaling.input_ == "logits" else 1.0
    off = unit * scaling.weight_ - np.eye(scaling.n_classes_)
    return np.column_stack([off, scaling.bias_]).ravel()


def assert_least(
    scaling: MatrixScaling | StructuredMatrixScaling,
    logits: Floats,
    y: NDArray[np.int64],
    penalty: Floats,
) -> None:
    is_logits = scaling.input_ == "logits"
    penalty = np.maximum(penalty, 1e-10 if is_logits else 1e-6)
    x = logits / scaling.temperature_
    x = x if is_logits else special.log_softmax(x, axis=1)
    start = np.zeros(penalty.size)
    options = {"gtol": 1e-8, "maxiter": 5000}
    found = optimize.minimize(objective, start, (x, y, penalty), method="BFGS", options=options)
    got = objective(table_of(scaling), x, y, penalty)
    assert got <= found.fun + 1e-7
    assert got < objective(start, x, y, penalty)


def penalties(n_classes: int, diagonal: float, off_diagonal: float, intercept: float) -> Floats:
    table = np.full((n_classes, n_classes + 1), off_diagonal)
    table[np.arange(n_classes), np.arange(n_classes)] = diagonal
    table[:, -1] = intercept
    return table


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize(("off_diagonal", "intercept"), [(1.0, 1.0), (0.1, 0.01), (0.0, 0.0)])
@pytest.mark.parametrize("kind", ["logits", "log_proba"])
def test_matrix_scaling_is_as_low_as_the_reference(
    n_classes: int, off_diagonal: float, intercept: float, kind: str
) -> None:
    logits, y = made(200, n_classes)
    scaling = MatrixScaling(off_diagonal, intercept, kind).fit(Logits(logits), y)
    unit = n_classes / len(y)
    off_diagonal, intercept = off_diagonal * unit * (n_classes - 1), intercept * unit
    assert_least(scaling, logits, y, penalties(n_classes, 0.0, off_diagonal, intercept))


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 5])
@pytest.mark.parametrize("regularization", [0.0, 0.1, 1.0])
def test_structured_matrix_scaling_is_as_low_as_the_reference(
    n_classes: int, regularization: float
) -> None:
    logits, y = made(200, n_classes)
    scaling = StructuredMatrixScaling(regularization).fit(Logits(logits), y)
    own = regularization * n_classes / 200
    assert_least(scaling, logits, y, penalties(n_classes, own, own * (n_classes - 1), own))


@pytest.mark.parametrize("n_classes", [2, 3, 6])
def test_without_penalties_the_textbook_form_is_logistic_regression(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    logits = 2 * rng.normal(size=(600, n_classes)) + rng.normal(size=(600, 1))
    weight = 0.7 * np.eye(n_classes) + rng.normal(0, 0.5, (n_classes, n_classes))
    p = special.softmax(logits @ weight.T + rng.normal(size=n_classes), axis=1)
    y = np.minimum((p.cumsum(axis=1) < rng.random((600, 1))).sum(axis=1), n_classes - 1)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=10_000).fit(logits, y)
    scaling = MatrixScaling(off_diagonal=0, intercept=0).fit(Logits(logits), y)
    ours = scaling.predict_proba(Logits(logits))
    close(ours, theirs.predict_proba(logits), atol=1e-6)
    by_hand = special.softmax(logits @ scaling.weight_.T + scaling.bias_, axis=1)
    close(ours, np.maximum(by_hand, 1e-12), rtol=1e-8)
    # On log probabilities, the offset of a row is lost and cannot be fitted.
    blind = MatrixScaling(0, 0, input="log_proba").fit(Logits(logits), y)
    loss = log_loss(y, blind.predict_proba(Logits(logits)))
    assert log_loss(y, ours) < loss - 0.01


def test_only_of_log_probabilities_the_offset_of_a_row_makes_no_difference() -> None:
    logits, y = made(300, 4)
    moved = logits + np.random.default_rng(0).normal(size=(300, 1))
    for kind, is_same in (("log_proba", True), ("logits", False)):
        scaling = MatrixScaling(input=kind).fit(Logits(logits), y)
        before, after = (scaling.predict_proba(Logits(z)) for z in (logits, moved))
        assert np.allclose(before, after, atol=1e-9) == is_same


@pytest.mark.parametrize("kind", [VectorScaling, MatrixScaling])
def test_penalties_of_logits_are_towards_temperature_scaling(kind: Any) -> None:
    logits, y = made(300, 4)
    outputs = Logits(logits + 100)
    names = {"off_diagonal", "intercept", "regularization"} & set(kind().get_params())
    strong = kind(**dict.fromkeys(names, 1e9)).fit(outputs, y)
    if kind is VectorScaling:  # the diagonal of a matrix is free
        expected = TemperatureScaling().fit(outputs, y).predict_proba(outputs)
        close(strong.predict_proba(outputs), expected, atol=1e-5)
    else:
        off = strong.weight_ - np.diag(np.diag(strong.weight_))
        assert np.abs(off).max() < 1e-6


@each_kind
def test_predictions_are_the_matrix_times_log_probabilities(
    kind: type[MatrixScaling] | type[StructuredMatrixScaling],
) -> None:
    logits, y = made(300, 4)
    scaling = on_log_probabilities(kind).fit(Logits(logits), y)
    x = special.log_softmax(logits / scaling.temperature_, axis=1)
    expected = special.softmax(x @ scaling.weight_.T + scaling.bias_, axis=1)
    close(scaling.predict_proba(Logits(logits)), np.maximum(expected, 1e-12), rtol=1e-8)


@each_kind
def test_it_fits_better_than_a_temperature(kind: type[BaseCalibrator]) -> None:
    logits, y = made(2000, 4)
    outputs = Logits(logits)
    by_matrix = log_loss(y, kind().fit(outputs, y).predict_proba(outputs))
    by_temperature = log_loss(y, TemperatureScaling().fit(outputs, y).predict_proba(outputs))
    assert by_matrix < by_temperature - 0.01


@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_huge_regularization_leaves_the_temperature_alone(n_classes: int) -> None:
    logits, y = made(300, n_classes)
    outputs = Logits(logits)
    strong = StructuredMatrixScaling(regularization=1e9).fit(outputs, y).predict_proba(outputs)
    close(strong, TemperatureScaling().fit(outputs, y).predict_proba(outputs), atol=1e-6)


@each_kind
def test_a_class_absent_from_the_labels_keeps_its_column(kind: type[BaseCalibrator]) -> None:
    logits, y = made(300, 4)
    y = np.where(y == 2, 0, y)
    p = kind().fit(Logits(logits), y).predict_proba(Logits(logits))
    assert p.shape == (300, 4)
    assert np.isfinite(p).all()
    assert (p > 0).all()
    assert p[:, 2].mean() < special.softmax(logits, axis=1)[:, 2].mean()


@each_kind
def test_separable_rows_leave_all_finite(
    kind: type[MatrixScaling] | type[StructuredMatrixScaling],
) -> None:
    y = np.arange(60) % 3
    logits = np.random.default_rng(0).normal(0, 0.1, (60, 3)) + np.eye(3)[y]
    with pytest.warns(BoundWarning):
        scaling = kind().fit(Logits(logits), y)
    assert np.isfinite(scaling.weight_).all()
    assert np.isfinite(scaling.bias_).all()
    assert scaling.predict_proba(Logits(logits)).argmax(axis=1).tolist() == y.tolist()


def test_many_classes_and_few_rows_stay_near_the_temperature() -> None:
    logits, y = made(150, 60)
    outputs = Logits(logits)
    structured = StructuredMatrixScaling().fit(outputs, y)
    assert np.isfinite(structured.weight_).all()
    off = structured.weight_ - np.diag(np.diag(structured.weight_))
    assert np.abs(off).max() < 0.05


@pytest.mark.parametrize("argument", ["off_diagonal", "intercept"])
def test_a_negative_penalty_raises(argument: str) -> None:
    with pytest.raises(BadValueError) as caught:
        MatrixScaling().set_params(**{argument: -1.0}).fit([[0.5, 0.5]], [0])
    assert str(caught.value) == (
        f"MatrixScaling: `{argument}` must be a finite number of at least 0, got -1.0. "
        f"Pass {argument}=1.0."
    )


def test_a_negative_regularization_raises() -> None:
    with pytest.raises(BadValueError) as caught:
        StructuredMatrixScaling(-1.0).fit([[0.5, 0.5]], [0])
    assert str(caught.value) == (
        "StructuredMatrixScaling: `regularization` must be a finite number of at least 0, "
        "got -1.0. Pass regularization=1.0."
    )


@each_kind
def test_the_summary_contains_the_largest_off_diagonal_entry(
    kind: type[MatrixScaling] | type[StructuredMatrixScaling],
) -> None:
    logits, y = made(300, 3)
    names = ["cat", "dog", "fox"]
    scaling = on_log_probabilities(kind).fit(
        Logits(logits, classes=names), [names[code] for code in y]
    )
    diagonal = np.diag(scaling.weight_)
    off = scaling.weight_ - np.diag(diagonal)
    row, column = np.unravel_index(np.abs(off).argmax(), off.shape)
    expected = f": {names[column]} on {names[row]} ({off[row, column]:+.2f})"
    assert scaling.summary().startswith(f"T = {scaling.temperature_:.3g}, ")
    assert scaling.summary().endswith(expected)
