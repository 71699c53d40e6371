"""Three approaches from data to a decision, and data sets to compare them on.

Bishop, "Pattern recognition and machine learning", 2006, section 1.5.4. Generative: normal
densities of each class, and with them p(x). Discriminative: logistic regression, p(class | x).
Discriminant: a linear support vector machine, which only predicts a class.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from dubito.arrays import FloatArray, IntArray
from dubito.data import load_fashion_mnist
from dubito.doubt import ClassConditionalDensity


class Rows(NamedTuple):
    """Training and test rows; for simulated sets, also the true p(1 | x) of the test rows."""

    x: FloatArray
    y: IntArray
    new_x: FloatArray
    new_y: IntArray
    true_posterior: FloatArray | None = None


class Source(NamedTuple):
    """A data set: one draw per seed, and the overlap of the draws."""

    draw: Callable[[int], Rows]
    test_to_train: float  # 0 if all rows are new at every draw
    largest: int  # number of training rows


def normal(seed: int, n: int = 2000, n_new: int = 4000) -> Rows:
    """Return two normal classes with independent features, as the generative model assumes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n + n_new)
    middle = np.where(y == 1, 0.4, -0.4)[:, np.newaxis]
    x = middle + rng.normal(size=(n + n_new, 10))
    return Rows(x[:n], y[:n], x[n:], y[n:], expit(0.8 * x[n:].sum(axis=1)))


def skewed(seed: int, n: int = 2000, n_new: int = 4000) -> Rows:
    """Return skewed, correlated features; only p(class | x) has a simple form."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=(n + n_new, 1))
    x = np.exp(0.7 * shared + 0.7 * rng.normal(size=(n + n_new, 10)))
    chance = expit(x @ np.where(np.arange(10) % 2, 1.2, -1.2))
    y = (rng.random(n + n_new) < chance).astype(np.int64)
    return Rows(x[:n], y[:n], x[n:], y[n:], chance[n:])


def correlated(seed: int, n: int = 2000, n_new: int = 4000) -> Rows:
    """Return two normal classes with weakly correlated features: naive Bayes is nearly right."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n + n_new)
    middle = np.where(y == 1, 0.5, -0.5)[:, np.newaxis] * np.linspace(1.4, 0.0, 10)
    shared, own = rng.normal(size=(n + n_new, 1)), rng.normal(size=(n + n_new, 10))
    x = middle + np.sqrt(0.1) * shared + np.sqrt(0.9) * own
    return Rows(x[:n], y[:n], x[n:], y[n:])


def real(seed: int, x: FloatArray, y: IntArray, n: int, n_new: int) -> Rows:
    """Return a stratified split of a real data set."""
    sizes = {"train_size": n, "test_size": n_new, "stratify": y, "random_state": seed}
    known_x, new_x, known_y, new_y = train_test_split(x, y, **sizes)
    return Rows(known_x, known_y, new_x, new_y)


def sources(is_quick: bool) -> dict[str, Source]:
    """Return the data sets by name."""
    if is_quick:
        sizes = {"n": 200, "n_new": 500}
        small = partial(normal, **sizes), partial(skewed, **sizes)
        return {"normal": Source(small[0], 0.0, 50), "skewed": Source(small[1], 0.0, 50)}
    cancer_x, cancer_y = load_breast_cancer(return_X_y=True)
    cancer = partial(real, x=cancer_x, y=1 - cancer_y, n=398, n_new=171)
    sample = load_fashion_mnist()
    features = np.concatenate([sample.validation_features, sample.test_features])
    labels = np.concatenate([sample.validation_labels, sample.test_labels])
    is_shirt = (labels == sample.classes.index("Shirt")).astype(np.int64)
    shirts = partial(real, x=features.astype(np.float64), y=is_shirt, n=2000, n_new=1000)
    return {
        "normal": Source(normal, 0.0, 2000),
        "skewed": Source(skewed, 0.0, 2000),
        "breast cancer": Source(cancer, 171 / 398, 200),
        "shirts": Source(shirts, 0.5, 2000),
    }


class OODRows(NamedTuple):
    """Training rows, new rows from the same distribution, and out-of-distribution rows."""

    x: FloatArray
    y: IntArray
    new_x: FloatArray
    ood_x: FloatArray


def ood_rows(is_quick: bool) -> Mapping[str, OODRows]:
    """Return several kinds of out-of-distribution rows by name."""
    simulated = normal(0, 500, 1000)
    found = {"far away": OODRows(simulated.x, simulated.y, simulated.new_x, 4 * simulated.new_x)}
    if is_quick:
        return found
    x, y = load_digits(return_X_y=True)
    known_x, new_x, known_y, _ = train_test_split(
        x[y < 8], y[y < 8], stratify=y[y < 8], random_state=0
    )
    found["8 and 9"] = OODRows(known_x, known_y, new_x, x[y >= 8])
    sample = load_fashion_mnist()
    fashion = (
        sample.validation_features.astype(np.float64),
        sample.validation_labels.astype(np.int64),
        sample.test_features.astype(np.float64),
    )
    kinds = {"bags and boots": "unseen_classes", "digits": "digits", "corrupted": "corrupted"}
    return found | {
        name: OODRows(*fashion, getattr(sample, f"{kind}_features").astype(np.float64))
        for name, kind in kinds.items()
    }


def regression(weight: float = 1.0) -> Any:
    """Return an unfitted logistic regression; with a large weight the penalty vanishes."""
    return make_pipeline(StandardScaler(), LogisticRegression(C=weight, max_iter=10_000))


def logistic(x: FloatArray, y: IntArray, weight: float = 1.0) -> Any:
    """Return a fitted logistic regression, the discriminative approach."""
    return regression(weight).fit(x, y)


def linear_svm(x: FloatArray, y: IntArray, miss: float = 1.0) -> Any:
    """Return a fitted SVM, the discriminant approach, for the cost of missing class 1."""
    weight = {0: 1.0, 1: miss} if miss != 1 else None
    return make_pipeline(StandardScaler(), LinearSVC(dual=False, class_weight=weight)).fit(x, y)


def posteriors(x: FloatArray, y: IntArray, new_x: FloatArray) -> Mapping[str, FloatArray]:
    """Return p(class | x) of new rows by the two approaches that have it."""
    return {
        "generative": ClassConditionalDensity("shared").fit(x, y).posteriors(new_x).array,
        "discriminative": logistic(x, y).predict_proba(new_x),
    }
