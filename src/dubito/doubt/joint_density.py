"""A joint density of inputs and targets: conditional predictions and out-of-distribution scores."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from dubito.arrays import FloatArray, RandomState, draw_seed, require_random_state
from dubito.data.labels import Targets
from dubito.data.shards import Shards, sample_rows
from dubito.doubt.densities import as_count
from dubito.doubt.features import BaseFeatureScore, as_feature_matrix, over_blocks
from dubito.doubt.gaussians import PerClassGaussians, Whitening, require_covariance, squares_of
from dubito.doubt.moments import require_summable
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, EmptyStateError
from dubito.measure.state import warn_of_missing
from dubito.outputs import Normal, Samples
from dubito.serialization.arrays import array, distribution
from dubito.serialization.fields import MOST, Entry, declare, integer, optional


@final
class ConditionalMixture:
    """p(y | x) of a mixture of normal distributions over (x, y), x in the first `n_inputs` columns.

    Given x, each component is normal about a plane, and weighs what x makes of it. Bishop, "Pattern
    recognition and machine learning", 2.3.1.
    """

    def __init__(
        self, weights: FloatArray, means: FloatArray, covariances: FloatArray, n_inputs: int
    ) -> None:
        d = n_inputs
        self.log_weights = np.log(weights)
        self.inputs = PerClassGaussians(means[:, :d], covariances[:, :d, :d])
        self.target_means = means[:, d:]
        # Slopes of the planes (components x inputs x targets), and what is left about them.
        self.slopes = np.stack([cho_solve(cho_factor(c[:d, :d]), c[:d, d:]) for c in covariances])
        explained = np.einsum("kij,kil->kjl", self.slopes, covariances[:, :d, d:])
        left = covariances[:, d:, d:] - explained
        self.noise = [Whitening.of((one + one.T) / 2) for one in left]

    def is_finite(self) -> bool:
        """Tell whether nothing was too large to be held."""
        parts = [self.slopes, *(one.matrix for one in self.noise)]
        return all(bool(np.isfinite(part).all()) for part in parts)

    def joint(self, x: FloatArray) -> FloatArray:
        """Return log p(x, component), rows x components."""
        return np.asarray(self.inputs.log_likelihoods(x) + self.log_weights)

    def means(self, x: FloatArray) -> FloatArray:
        """Return what each component expects: rows x components x targets."""
        parts = [
            mean + (x - middle) @ slopes
            for mean, middle, slopes in zip(
                self.target_means, self.inputs.means, self.slopes, strict=True
            )
        ]
        return np.stack(parts, axis=1)

    def log_density(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return log p(y | x) of each row."""
        log_shares, off = log_softmax(self.joint(x), axis=1), y[:, np.newaxis] - self.means(x)
        constant = y.shape[1] * np.log(2 * np.pi)
        conditional = np.stack(
            [
                -0.5 * (squares_of(off[:, k] @ one.matrix) + one.log_determinant + constant)
                for k, one in enumerate(self.noise)
            ],
            axis=1,
        )
        return np.asarray(logsumexp(log_shares + conditional, axis=1))

    def mean_and_std(self, x: FloatArray) -> FloatArray:
        """Return rows x 2 x targets: the mean of y given x, and its standard deviation."""
        shares, means = softmax(self.joint(x), axis=1)[:, :, np.newaxis], self.means(x)
        variances = np.stack([squares_of(one.factor) for one in self.noise])
        mean = (shares * means).sum(axis=1)
        between = np.square(means - mean[:, np.newaxis])
        return np.stack([mean, np.sqrt((shares * (variances + between)).sum(axis=1))], axis=1)

    def draws(self, x: FloatArray, n_draws: int, random: np.random.Generator) -> FloatArray:
        """Return rows x draws x targets of y given x."""
        shares = softmax(self.joint(x), axis=1)
        ends = np.cumsum(shares, axis=1)[:, np.newaxis, :-1]
        chosen = (random.random((len(x), n_draws, 1)) > ends).sum(axis=2)
        noise = random.standard_normal((len(x), n_draws, self.target_means.shape[1]))
        factors = np.stack([one.factor for one in self.noise])
        middle = self.means(x)[np.arange(len(x))[:, np.newaxis], chosen]
        return np.asarray(middle + np.einsum("rdij,rdj->rdi", factors[chosen], noise))


MOST_ROWS = 100_000  # that a mixture is fitted on; of streams, a seeded sample
MOST_ROUNDS = 1_000
LEAST_WEIGHT = float(np.finfo(np.float64).tiny)  # of a component, so that its log is finite
CONSTANT = 1e-12  # a deviation this small beside the mean is rounding
LEAST_VARIANCE = 1e-6  # of a component, as a share of the variance of the column


@final
class JointDensity(BaseFeatureScore):
    """A Gaussian mixture over inputs and targets: p(y | x) of a regression, doubt is -log p(x).

    For noise that depends on the inputs, and for targets of several branches. `n_components` is how
    many normal distributions are mixed. Of shards, 100,000 rows are drawn at most, seeded.
    Ghahramani and Jordan, "Supervised learning from incomplete data via an EM approach", 1994.

    >>> x = np.linspace(0, 1, 50)[:, np.newaxis]
    >>> density = JointDensity(n_components=1).fit(x, 3 * x[:, 0] + np.sin(40 * x[:, 0]) / 10)
    >>> density.predict([[0.5]]).mean.round(2).tolist()
    [1.5]
    """

    n_targets_: int | None  # None for one number a row
    weights_: FloatArray
    means_: FloatArray
    covariances_: FloatArray

    fitted_fields = declare(
        n_targets_=optional(integer(1)),
        weights_=distribution(None, low=LEAST_WEIGHT),
        means_=array("weights_", None, low=-MOST, high=MOST),
        covariances_=array("weights_", None, None, low=-MOST, high=MOST),
    )

    def __init__(self, n_components: int = 5, random_state: RandomState = 0):
        self.n_components = n_components
        self.random_state = random_state

    def _check_params(self) -> None:
        as_count(self.n_components, "n_components", type(self).__name__, 5)
        require_random_state(self.random_state, type(self).__name__)

    def _check_fitted(self, entry: Entry) -> None:
        n_columns, n_parts = self.n_features_ + (self.n_targets_ or 1), self.weights_.size
        shapes = {"means_": (n_parts, n_columns), "covariances_": (n_parts, n_columns, n_columns)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                got = " x ".join(map(str, getattr(self, name).shape))
                raise entry.at(name).error(" x ".join(map(str, shape)), got)
        for k, covariance in enumerate(self.covariances_):
            require_covariance(covariance, entry.at(f"covariances_[{k}]"))
        with np.errstate(all="ignore"):
            try:
                is_fine = self._conditional.is_finite()
            except np.linalg.LinAlgError:
                is_fine = False
        if not is_fine:
            rule = "such that some of the targets' variance is left given the features"
            raise entry.at("covariances_").error(rule, "none")

    def fit(self, features: Any, y: Any = None) -> Self:
        """Learn from rows x dimensions and targets, or from shards that hold both."""
        name = type(self).__name__
        self._check_params()
        n_components, seed = int(self.n_components), draw_seed(self.random_state, name)
        rows, targets = _rows_and_targets(features, y, name)
        warn_of_missing(targets.n_missing, len(rows), name, stacklevel=3)
        is_known = ~targets.is_missing
        both = np.column_stack([rows, targets.values]).astype(np.float64)[is_known]
        _require_enough(both, n_components, name)
        mixture = _mixture_of(both, n_components, seed, name)
        self._forget()
        self.n_features_ = rows.shape[1]
        self.n_targets_ = None if targets.values.ndim == 1 else targets.values.shape[1]
        self.weights_, self.means_, self.covariances_ = mixture
        return self

    def log_density(self, features: Any, y: Any) -> FloatArray:
        """Return log p(y | x) of each row."""
        both, d = self._known_pairs(features, y, "log_density"), self.n_features_
        return over_blocks(
            lambda rows: self._conditional.log_density(rows[:, :d], rows[:, d:]),
            both,
            self._n_entries(),
        )

    def density(self, features: Any, y: Any) -> FloatArray:
        """Return p(y | x) of each row."""
        return np.asarray(np.exp(self.log_density(features, y)))

    def predict(self, features: Any) -> Normal:
        """Return the mean and the standard deviation of p(y | x)."""
        known = self._known(features, "predict")
        both = over_blocks(self._conditional.mean_and_std, known, self._n_entries())
        mean, std = (self._as_targets(both[:, i]) for i in range(2))
        return Normal(mean, std)

    def sample(self, features: Any, n_samples: int = 100, random_state: RandomState = 0) -> Samples:
        """Return draws of y given x, rows x draws (x targets)."""
        known = self._known(features, "sample")
        n_draws = as_count(n_samples, "n_samples", f"{type(self).__name__}.sample")
        random = np.random.default_rng(draw_seed(random_state, f"{type(self).__name__}.sample"))
        return Samples(self._as_targets(self._conditional.draws(known, n_draws, random)))

    def _doubt(self, features: FloatArray) -> FloatArray:
        return np.asarray(-logsumexp(self._conditional.joint(features), axis=1))

    def _n_entries(self) -> int:
        n_targets = self.n_targets_ or 1
        return self.n_features_ + self.weights_.size * (n_targets + 1)

    def _as_targets(self, values: FloatArray) -> FloatArray:
        """Return values without the axis of targets where a target is one number."""
        return values[..., 0] if self.n_targets_ is None else values

    def _known_pairs(self, features: Any, y: Any, method: str) -> FloatArray:
        """Return checked features and targets, side by side."""
        known = self._known(features, method)
        caller = f"{type(self).__name__}.{method}"
        targets = Targets.of(y, len(known), "y", caller)
        n_targets = None if targets.values.ndim == 1 else targets.values.shape[1]
        if n_targets != self.n_targets_ or targets.n_missing:
            wanted = "one number a row" if self.n_targets_ is None else f"{self.n_targets_} targets"
            got = f"shape {targets.values.shape}, {targets.n_missing} rows missing"
            fix = "targets as in the fit, without missing ones"
            raise BadValueError("y", caller, f"{wanted}, none missing", got, fix)
        return np.column_stack([known, targets.values]).astype(np.float64)

    @cached_property
    def _conditional(self) -> ConditionalMixture:
        return ConditionalMixture(self.weights_, self.means_, self.covariances_, self.n_features_)


def _rows_and_targets(features: Any, y: Any, caller: str) -> tuple[FloatArray, Targets]:
    """Return features and targets of the same rows; of shards, a sample of those with a target."""
    if not isinstance(features, Shards):
        if y is None:
            raise BadTypeError("y", caller, "the targets", "None", "a number a row")
        array = as_feature_matrix(features, caller)
        return array, Targets.of(y, len(array), "y", caller)
    if y is not None:
        fix = f"{caller}().fit(shards), with targets among the shards' columns"
        raise BadTypeError("features", caller, "arrays beside targets", "targets", fix)
    batch = sample_rows(features, MOST_ROWS)
    if batch.features is None or not isinstance(batch.labels, Targets):
        got = "no features" if batch.features is None else "no targets"
        fix = "`features=` and the target's column among the columns of the shards"
        raise BadTypeError("features", caller, "shards with features and targets", got, fix)
    if np.unique(batch.weight).size > 1:
        rule, fix = "shards whose rows weigh the same", "a fit without weights"
        raise BadValueError("features", caller, rule, "weights that differ", fix)
    return batch.features, batch.labels


def _require_enough(rows: FloatArray, n_components: int, caller: str) -> None:
    """Raise unless there are rows enough for the components."""
    if not len(rows):
        raise EmptyStateError(caller)
    if len(rows) < max(2, n_components):
        rule = f"{max(2, n_components)} rows or more for {n_components} components"
        raise BadValueError("features", caller, rule, f"{len(rows)}", "fewer components")


def _mixture_of(
    rows: FloatArray, n_components: int, seed: int, caller: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights, means and covariances of a mixture; columns are fitted at one scale."""
    with np.errstate(over="ignore", invalid="ignore"):
        middle, scale = require_summable(np.stack([rows.mean(axis=0), rows.std(axis=0)]), caller)
    scale = np.where(scale > CONSTANT * np.abs(middle), scale, 1.0)
    mixture = GaussianMixture(
        n_components, max_iter=MOST_ROUNDS, reg_covar=LEAST_VARIANCE, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        mixture.fit((rows - middle) / scale)
    if not mixture.converged_:
        text = f"{caller}: the mixture still moved after {MOST_ROUNDS:,} rounds."
        warnings.warn(text, DubitoWarning, stacklevel=3)
    covariances = mixture.covariances_ * scale * scale[:, np.newaxis]
    return mixture.weights_, middle + mixture.means_ * scale, covariances
