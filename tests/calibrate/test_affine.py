"""The table that `fit_affine` returns has the least penalized loss, whichever way it is found."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special

from dubito import Logits
from dubito.calibrate.affine import MIN_PENALTY, fit_affine
from dubito.calibrate.basis import Basis
from dubito.data import Batch
from dubito.data.shards import ArrayShards
from dubito.errors import EmptyStateError

Floats = NDArray[np.float64]


def made(n_rows: int, n_classes: int) -> tuple[Floats, Floats, Floats]:
    """Return logits, label probabilities (one-hot) and weights."""
    rng = np.random.default_rng(n_classes)
    y = rng.integers(0, n_classes, n_rows)
    spread = np.eye(n_classes) + rng.random((n_classes, n_classes)) / 2
    logits = 2 * spread[y] + rng.normal(size=(n_rows, n_classes))
    return logits, np.eye(n_classes)[y], rng.random(n_rows)


def objective(
    logits: Floats, q: Floats, weight: Floats, beta: float, penalty: Floats
) -> Callable[[Floats], float]:
    """Return mean log loss plus penalty as a function of the table, written out."""
    x = special.log_softmax(beta * logits, axis=1)
    least = np.maximum(penalty, MIN_PENALTY)

    def loss(entries: Floats) -> float:
        table = entries.reshape(penalty.shape)
        scores = x + table[:, -1]
        scores = scores + (x * table[:, 0] if penalty.shape[1] == 2 else x @ table[:, :-1].T)
        losses = special.logsumexp(scores, axis=1) - (q * scores).sum(axis=1)
        return float(weight @ losses / weight.sum() + (least * table**2).sum())

    return loss


def least(loss: Callable[[Floats], float], size: int) -> float:
    options: dict[str, Any] = {"gtol": 1e-9, "maxiter": 5000}
    start = optimize.minimize(loss, np.zeros(size), method="BFGS", options=options)
    return float(start.fun)


@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("is_diagonal", [True, False], ids=["vector", "matrix"])
@pytest.mark.parametrize("strength", [1e-3, 0.1, 10.0])
def test_no_table_has_a_lower_objective(n_classes: int, is_diagonal: bool, strength: float) -> None:
    logits, q, weight = made(150, n_classes)
    shape = (n_classes, 2 if is_diagonal else n_classes + 1)
    penalty = strength * np.random.default_rng(0).uniform(0.5, 2, shape)
    shards = ArrayShards(Batch.of(q.argmax(axis=1), Logits(logits), sample_weight=weight))
    table = fit_affine(shards, Basis(0.8), penalty)
    assert table.shape == shape
    loss = objective(logits, q, weight, 0.8, penalty)
    got = loss(np.float64(table).ravel())
    assert got <= least(loss, penalty.size) + 1e-7
    assert got < loss(np.zeros(penalty.size))


@pytest.mark.slow
@pytest.mark.parametrize("is_diagonal", [True, False], ids=["vector", "matrix"])
def test_many_rows_in_single_precision_come_close(is_diagonal: bool) -> None:
    logits, q, _ = made(2_000, 40)
    y, single = q.argmax(axis=1), logits.astype(np.float32)
    penalty = np.full((40, 2 if is_diagonal else 41), 0.02)
    loss = objective(single.astype(np.float64), q, np.ones(2_000), 0.8, penalty)
    tables = [
        fit_affine(ArrayShards(Batch.of(y, Logits(array))), Basis(0.8), penalty)
        for array in (single, single.astype(np.float64))
    ]
    near, best = (loss(table.astype(np.float64).ravel()) for table in tables)
    assert near == pytest.approx(best, abs=1e-6 if is_diagonal else 1e-5)


def test_rows_that_weigh_nothing_are_no_rows() -> None:
    shards = ArrayShards(Batch.of([0, 1], Logits(np.eye(2)), sample_weight=[0.0, 0.0]))
    with pytest.raises(EmptyStateError):
        fit_affine(shards, Basis(1.0), np.ones((2, 2)))
