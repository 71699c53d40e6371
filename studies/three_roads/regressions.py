"""Three approaches to regression: the joint density, the conditional density, or only a function.

Bishop, "Pattern recognition and machine learning", 2006, section 1.5.5. Joint: a normal density of
inputs and target, of which p(t | x), p(x) and p(t | some of x) follow. Conditional: a linear mean
and a linear log standard deviation, p(t | x). Direct: least squares, a number per row.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import multivariate_normal
from sklearn.datasets import load_diabetes
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import train_test_split

from dubito import Normal
from dubito.arrays import FloatArray
from dubito.decide import newsvendor_estimate
from dubito.measure import roc_auc
from studies.three_roads.approaches import Source

UNDER = 9.0  # cost of a unit too low, if a unit too high costs 1
FAR = 3.0


class Rows(NamedTuple):
    """Training and test rows."""

    x: FloatArray
    t: FloatArray
    new_x: FloatArray
    new_t: FloatArray


class Joint(NamedTuple):
    """A normal density of inputs and target; the target is the last coordinate."""

    mean: FloatArray
    covariance: FloatArray

    @classmethod
    def of(cls, x: FloatArray, t: FloatArray) -> "Joint":
        """Fit by moments."""
        rows = np.column_stack([x, t])
        return cls(rows.mean(axis=0), np.cov(rows, rowvar=False))

    def given(self, x: FloatArray, columns: Any = slice(None)) -> Normal:
        """Return p(t | these columns of x), exact for the others being unknown."""
        seen = np.arange(self.mean.size - 1)[columns]
        cross, own = self.covariance[seen, -1], self.covariance[np.ix_(seen, seen)]
        weights = np.linalg.solve(own, cross)
        mean = self.mean[-1] + (x[:, seen] - self.mean[seen]) @ weights
        variance = self.covariance[-1, -1] - cross @ weights
        return Normal(mean, np.full(len(x), np.sqrt(variance)))

    def log_density(self, x: FloatArray) -> FloatArray:
        """Return log p(x)."""
        parts = self.mean[:-1], self.covariance[:-1, :-1]
        return np.asarray(multivariate_normal(*parts, allow_singular=True).logpdf(x))


def conditional(x: FloatArray, t: FloatArray, new_x: FloatArray) -> Normal:
    """Return p(t | x): least squares, then a line through the logs of the squared residuals."""
    mean = LinearRegression().fit(x, t)
    residuals = t - mean.predict(x)
    spread = LinearRegression().fit(x, np.log(residuals**2 + 1e-12))
    # The log of a squared normal variable is below that of its variance by 1.27 on average.
    raw = np.exp(spread.predict(x) / 2)
    scale = np.sqrt(np.mean((residuals / raw) ** 2))
    return Normal(mean.predict(new_x), scale * np.exp(spread.predict(new_x) / 2))


def direct(x: FloatArray, t: FloatArray, new_x: FloatArray) -> FloatArray:
    """Return a number per row."""
    return np.asarray(LinearRegression().fit(x, t).predict(new_x))


def normal(seed: int, n: int = 300, n_new: int = 2000) -> Rows:
    """Return jointly normal, correlated inputs and target, as the joint model assumes."""
    rng = np.random.default_rng(seed)
    mix = np.eye(5) + 0.4
    x = rng.normal(size=(n + n_new, 5)) @ mix
    t = x @ [1.0, -0.5, 0.5, 0.0, 0.25] + rng.normal(size=n + n_new)
    return Rows(x[:n], t[:n], x[n:], t[n:])


def growing(seed: int, n: int = 300, n_new: int = 2000) -> Rows:
    """Return a linear mean with noise that grows with one input: only p(t | x) is simple."""
    rng = np.random.default_rng(seed)
    x = rng.exponential(size=(n + n_new, 5))
    noise = np.exp(0.6 * x[:, 0] - 0.5) * rng.normal(size=n + n_new)
    t = x @ [1.0, -0.5, 0.5, 0.0, 0.25] + noise
    return Rows(x[:n], t[:n], x[n:], t[n:])


def real(seed: int, x: FloatArray, t: FloatArray, n_new: int) -> Rows:
    """Return a split of a real data set."""
    x, new_x, t, new_t = train_test_split(x, t, test_size=n_new, random_state=seed)
    return Rows(x, t, new_x, new_t)


def sources(is_quick: bool) -> dict[str, Any]:
    """Return the data sets by name."""
    if is_quick:
        sizes = {"n": 100, "n_new": 200}
        return {
            "normal": Source(partial(normal, **sizes), 0.0, 100),  # type: ignore[arg-type]
            "growing noise": Source(partial(growing, **sizes), 0.0, 100),  # type: ignore[arg-type]
        }
    x, t = load_diabetes(return_X_y=True)
    split = partial(real, x=x, t=t, n_new=142)
    return {
        "normal": Source(normal, 0.0, 300),  # type: ignore[arg-type]
        "growing noise": Source(growing, 0.0, 300),  # type: ignore[arg-type]
        "diabetes": Source(split, 142 / 300, 300),  # type: ignore[arg-type]
    }


def predictions(rows: Any) -> tuple[Normal, Normal, FloatArray]:
    """Return the predictions of the three approaches."""
    x, t, new_x, _ = rows
    return Joint.of(x, t).given(new_x), conditional(x, t, new_x), direct(x, t, new_x)


def errors(rows: Any) -> Mapping[str, float]:
    """Return the root mean squared error of each approach."""
    joint, given, plain = predictions(rows)
    means = {"joint": joint.mean, "conditional": given.mean, "direct": plain}
    return {name: float(np.sqrt(np.mean((rows.new_t - one) ** 2))) for name, one in means.items()}


def costs(rows: Any) -> Mapping[str, float]:
    """Return the mean cost where a unit too low costs more than one too high."""
    joint, given, plain = predictions(rows)
    estimates = {
        "joint": newsvendor_estimate(joint, under=UNDER, over=1),
        "conditional": newsvendor_estimate(given, under=UNDER, over=1),
        "direct": plain,
    }
    gaps = {name: rows.new_t - one for name, one in estimates.items()}
    return {name: float(np.where(gap > 0, UNDER * gap, -gap).mean()) for name, gap in gaps.items()}


def errors_without_a_feature(rows: Any) -> Mapping[str, float]:
    """Return the error where the feature of the largest weight is missing at test time.

    The joint model conditions on what is left; the others get its training mean instead.
    """
    x, t, new_x, new_t = rows
    scaled = LinearRegression().fit(x, t).coef_ * x.std(axis=0)
    missing = int(np.abs(scaled).argmax())
    filled = new_x.copy()
    filled[:, missing] = x[:, missing].mean()
    left = np.delete(np.arange(x.shape[1]), missing)
    means = {
        "joint": Joint.of(x, t).given(new_x, left).mean,
        "conditional": conditional(x, t, filled).mean,
        "direct": direct(x, t, filled),
    }
    return {name: float(np.sqrt(np.mean((new_t - one) ** 2))) for name, one in means.items()}


def detection(rows: Any) -> Mapping[str, float]:
    """Return the AUROC of rows that are farther from the middle than any training rows."""
    x, t, new_x, _ = rows
    far = x.mean(axis=0) + FAR * (new_x - x.mean(axis=0))
    both = np.concatenate([new_x, far])
    is_far = np.repeat([False, True], len(new_x))
    return {
        "joint density": roc_auc(is_far, -Joint.of(x, t).log_density(both)),
        "conditional std": roc_auc(is_far, conditional(x, t, both).std),
    }
