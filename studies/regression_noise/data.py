"""Rows to regress on: scikit-learn's diabetes, and sines whose noise is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Self, final

import numpy as np
from sklearn.datasets import load_diabetes

from dubito.arrays import FloatArray, IntArray

TEST_SEED = 20_000  # the rows to judge by are the same whatever the seed


@final
@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Features, targets, and the mean and standard deviation they were drawn from, if known."""

    features: FloatArray
    y: FloatArray
    mean: FloatArray | None = None
    std: FloatArray | None = None

    def take(self, rows: IntArray) -> Self:
        """Rows of a set whose noise is not known."""
        return type(self)(self.features[rows], self.y[rows])


class Sizes(NamedTuple):
    """How many rows there are of each part."""

    train: int
    validation: int
    test: int


class RegressionParts(NamedTuple):
    """Rows to learn from, to stop and calibrate on, and to judge by."""

    train: Rows
    validation: Rows
    test: Rows


def parts_of(task: str, sizes: Sizes, seed: int) -> RegressionParts:
    """Return the rows of a task; a seed draws others to learn from and the same to judge by."""
    if task == "diabetes":
        return diabetes(sizes, seed)
    draw = DRAWN[task]
    rng = np.random.default_rng(seed)
    train, validation = (draw(n_rows, rng) for n_rows in (sizes.train, sizes.validation))
    return RegressionParts(train, validation, draw(sizes.test, np.random.default_rng(TEST_SEED)))


def diabetes(sizes: Sizes, seed: int) -> RegressionParts:
    """Return scikit-learn's diabetes, features on the scale of the rows to learn from."""
    features, y = load_diabetes(return_X_y=True, scaled=False)
    order = np.random.default_rng(TEST_SEED).permutation(len(y))
    test, others = order[: sizes.test], order[sizes.test :]
    drawn = np.random.default_rng(seed).permutation(others)
    train = drawn[: sizes.train]
    validation = drawn[sizes.train : sizes.train + sizes.validation]
    middle, scale = features[train].mean(axis=0), features[train].std(axis=0)
    rows = Rows((features - middle) / scale, y)
    return RegressionParts(rows.take(train), rows.take(validation), rows.take(test))


def noisy_sine(n_rows: int, rng: np.random.Generator) -> Rows:
    """Return y = x sin(x) with noise that grows with x, of variance 0.09 (1 + x^2), x in 0..10.

    Detlefsen, Jørgensen and Hauberg, "Reliable training and estimation of variance networks", 2019.
    """
    x = np.sort(rng.uniform(0, 10, n_rows))
    mean, std = x * np.sin(x), 0.3 * np.sqrt(1 + x**2)
    return Rows(x[:, np.newaxis] - 5, rng.normal(mean, std), mean, std)


def quiet_sine(n_rows: int, rng: np.random.Generator) -> Rows:
    """Return y = 0.4 sin(2 pi x) with hardly any noise, 0.01 everywhere, over six periods.

    After Seitzer et al., 2022, whose sine has twelve.
    """
    x = np.sort(rng.uniform(-3, 3, n_rows))
    mean, std = 0.4 * np.sin(2 * np.pi * x), np.full(n_rows, 0.01)
    return Rows(x[:, np.newaxis], rng.normal(mean, std), mean, std)


DRAWN: dict[str, Callable[[int, np.random.Generator], Rows]] = {
    "noisy sine": noisy_sine,
    "quiet sine": quiet_sine,
}
