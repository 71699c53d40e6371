"""Densities of features, by class or jointly with a target: predictions and OOD scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, Self, final

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax, logsumexp, softmax

from dubito.arrays import (
    FloatArray,
    RandomState,
    as_count,
    draw_seed,
    require_choice,
    require_random_state,
)
from dubito.data.batch import Batch
from dubito.data.labels import Targets
from dubito.data.shards import Shards, make_shards, sample_rows
from dubito.doubt import gaussians
from dubito.doubt.features import (
    BaseFeatureScore,
    BaseOODScore,
    FeatureShards,
    as_feature_matrix,
    as_label_array,
    map_rows,
)
from dubito.doubt.gaussians import BaseGaussians, FittedGaussians, PerClassGaussians, Whitening
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, EmptyStateError
from dubito.measure.state import warn_of_missing
from dubito.outputs import Normal, NormalMixture, Probabilities, Samples, unchecked
from dubito.serialization.array_fields import array, distribution
from dubito.serialization.fields import (
    MAX_FLOAT,
    Entry,
    any_of,
    fitted,
    integer,
    one_of,
    optional,
    schema_of,
    states,
)

# By covariance: the fit, the densities, and the sizes of the covariance before the last.
KINDS: dict[str, tuple[Callable[..., FittedGaussians], type[BaseGaussians], tuple[str, ...]]] = {
    "shared": (gaussians.fit_shared, gaussians.SharedGaussians, ("n_features_",)),
    "per_class": (gaussians.fit_per_class, PerClassGaussians, ("classes_", "n_features_")),
    "diagonal": (gaussians.fit_diagonal, gaussians.DiagonalGaussians, ("classes_",)),
}
TINY = float(np.finfo(np.float64).tiny)  # smallest prior or variance, so that its log is finite


@states(
    lambda: any_of(
        *(schema_of(array(*(None,) * n, low=-MAX_FLOAT, high=MAX_FLOAT)) for n in (2, 3))
    )
)
def _covariance_check(value: Any, entry: Entry) -> FloatArray:
    """Check covariances read from a file, whose shape depends on `kind_`."""
    kind = entry.beside["kind_"]
    low = TINY if kind == "diagonal" else -MAX_FLOAT
    check = array(*KINDS[kind][2], "n_features_", low=low, high=MAX_FLOAT)
    covariance: FloatArray = check(value, entry)
    if kind != "diagonal":
        for matrix in covariance.reshape(-1, *covariance.shape[-2:]):
            gaussians.require_covariance(matrix, entry)
    return covariance


@states(lambda: schema_of(array(None, low=0, high=1)))
def _shrinkage_check(value: Any, entry: Entry) -> FloatArray:
    """Check the shrinkage of each class, or the single one of a shared covariance."""
    size = 1 if entry.beside["kind_"] == "shared" else "classes_"
    return np.asarray(array(size, low=0, high=1)(value, entry))


@final
class ClassConditionalDensity(BaseOODScore):
    """Normal densities of the features of each class; the OOD score is -log p(x).

    A generative classifier: linear discriminant analysis with a shared covariance, quadratic
    discriminant analysis with one per class, Gaussian naive Bayes with a diagonal one. Use it
    where features of a class form one cluster. Unlike the posterior of a discriminative model,
    its density is low far from the training data.

    Parameters
    ----------
    covariance : {"shared", "per_class", "diagonal"}, default="shared"
        One covariance for all classes, one per class, or independent features.
    shrinkage : float or "auto", default="auto"
        How far correlations are shrunk to 0, from 0 to 1; for "diagonal", how far variances are
        shrunk to those pooled over the classes. "auto" chooses it by the number of rows.

    Attributes
    ----------
    classes_ : tuple or None
        The classes that occurred in `y`, sorted.
    priors_ : ndarray of shape (n_classes,)
        The frequency of each class.
    means_ : ndarray of shape (n_classes, n_features)
        Class means.
    covariance_ : ndarray
        (n_features, n_features) if shared, (n_classes, n_features, n_features) per class,
        (n_classes, n_features) if diagonal.
    shrinkage_ : ndarray
        The shrinkage used, per class or a single entry.
    kind_ : str
        The value of `covariance` in the fit.

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 4.2.

    Examples
    --------
    >>> from dubito.doubt import ClassConditionalDensity
    >>> features = [[0.0, 0.1], [0.2, 0.0], [0.1, 0.2], [3.0, 3.1], [3.2, 2.9], [3.1, 3.0]]
    >>> density = ClassConditionalDensity().fit(features, ["a", "a", "a", "b", "b", "b"])
    >>> density.posteriors([[0.1, 0.1]]).array.round(3).tolist()
    [[1.0, 0.0]]
    """

    kind_: str = fitted(one_of(*KINDS))
    priors_: FloatArray = fitted(distribution("classes_", low=TINY))
    means_: FloatArray = fitted(array("classes_", "n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))
    covariance_: FloatArray = fitted(_covariance_check)
    shrinkage_: FloatArray = fitted(_shrinkage_check)

    def __init__(
        self,
        covariance: Literal["shared", "per_class", "diagonal"] = "shared",
        shrinkage: float | Literal["auto"] = "auto",
    ):
        self.covariance = covariance
        self.shrinkage = shrinkage

    def log_likelihoods(self, features: Any) -> FloatArray:
        """Return log p(x | class).

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Log likelihoods, in the order of `classes_`.
        """
        return self._map(lambda x: self._gaussians.log_likelihoods(x), features, "log_likelihoods")

    def log_density(self, features: Any) -> FloatArray:
        """Return log p(x).

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            Log densities of the mixture over classes.
        """
        return self._map(self._log_density, features, "log_density")

    def posteriors(self, features: Any) -> Probabilities:
        """Return p(class | x).

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows.

        Returns
        -------
        Probabilities
            Class probabilities, with columns named by `classes_`.
        """
        posteriors = self._map(lambda x: softmax(self._joint(x), axis=1), features, "posteriors")
        # Unchecked: a single column would be read as the positive class of two.
        return unchecked(Probabilities, {"array": posteriors, "classes": self.classes_})

    def sample(self, n_samples: int, random_state: RandomState = 0) -> tuple[FloatArray, Any]:
        """Draw new rows: first the class, then the features.

        Parameters
        ----------
        n_samples : int
            The number of rows.
        random_state : int, RandomState or None, default=0
            The seed.

        Returns
        -------
        features : ndarray of shape (n_samples, n_features)
            The features.
        labels : ndarray of shape (n_samples,)
            The classes, 0 if the fit had no labels.
        """
        caller = self._require_fitted("sample")
        n_rows = as_count(n_samples, "n_samples", caller, example=100)
        random = np.random.default_rng(draw_seed(random_state, caller))
        codes = random.choice(self.priors_.size, n_rows, p=self.priors_)
        noise = random.standard_normal((n_rows, self.n_features_))
        classes = (0,) if self.classes_ is None else self.classes_
        return self._gaussians.from_noise(codes, noise), as_label_array(classes)[codes]

    def _check_params(self) -> None:
        name = type(self).__name__
        require_choice(self.covariance, tuple(KINDS), "covariance", name)
        gaussians.as_shrinkage(self.shrinkage, name)

    def _learn(self, rows: FeatureShards) -> None:
        name = type(self).__name__
        fitted = KINDS[self.covariance][0](rows, gaussians.as_shrinkage(self.shrinkage, name), name)
        self.means_, self.covariance_, self.shrinkage_ = fitted
        self.priors_ = rows.weights / rows.weights.sum()
        self.kind_ = self.covariance

    def _score_rows(self, features: FloatArray) -> FloatArray:
        return -self._log_density(features)

    @cached_property
    def _gaussians(self) -> BaseGaussians:
        return KINDS[self.kind_][1](self.means_, self.covariance_)

    def _joint(self, features: FloatArray) -> FloatArray:
        """Return log p(x, class)."""
        return self._gaussians.log_likelihoods(features) + np.log(self.priors_)

    def _log_density(self, features: FloatArray) -> FloatArray:
        return np.asarray(logsumexp(self._joint(features), axis=1))


MAX_ROWS = 100_000  # that a mixture is fitted on; a random sample of shards with more
MAX_ITERATIONS = 1_000
MIN_WEIGHT = float(np.finfo(np.float64).tiny)  # of a component, so that its log is finite
CONSTANT = 1e-12  # a standard deviation below this fraction of the mean is a rounding error
MIN_VARIANCE = 1e-6  # of a component, as a fraction of the variance of the column


@final
class JointDensity(BaseFeatureScore):
    """Gaussian mixture over inputs and targets; the OOD score is -log p(x).

    A regression model that predicts p(y | x), itself a mixture. Use it where the noise depends on
    the inputs, or where the target has several branches: `predict_mixture` keeps them apart,
    while `predict` has only the mean and the standard deviation of the mixture.

    Parameters
    ----------
    n_components : int, default=5
        The number of normal distributions in the mixture.
    random_state : int, RandomState or None, default=0
        The seed of the initialization.

    Attributes
    ----------
    n_targets_ : int or None
        The number of targets; None if `y` had one dimension.
    weights_ : ndarray of shape (n_components,)
        The weights of the components.
    means_ : ndarray of shape (n_components, n_features + n_targets)
        Their means.
    covariances_ : ndarray of shape (n_components, n_features + n_targets, same)
        Their covariances.

    References
    ----------
    Ghahramani and Jordan, "Supervised learning from incomplete data via an EM approach", 1994.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import JointDensity
    >>> x = np.linspace(0, 1, 50)[:, np.newaxis]
    >>> density = JointDensity(n_components=1).fit(x, 3 * x[:, 0] + np.sin(40 * x[:, 0]) / 10)
    >>> density.predict([[0.5]]).mean.round(2).tolist()
    [1.5]
    >>> density.predict_mixture([[0.5]]).quantiles([0.5]).array.round(2).tolist()
    [[1.5]]
    """

    n_targets_: int | None = fitted(optional(integer(1)))
    weights_: FloatArray = fitted(distribution(None, low=MIN_WEIGHT))
    means_: FloatArray = fitted(array("weights_", None, low=-MAX_FLOAT, high=MAX_FLOAT))
    covariances_: FloatArray = fitted(array("weights_", None, None, low=-MAX_FLOAT, high=MAX_FLOAT))

    def __init__(self, n_components: int = 5, random_state: RandomState = 0):
        self.n_components = n_components
        self.random_state = random_state

    def _check_params(self) -> None:
        as_count(self.n_components, "n_components", type(self).__name__, example=5)
        require_random_state(self.random_state, type(self).__name__)

    def _check_fitted(self, entry: Entry) -> None:
        n_columns, n_parts = self.n_features_ + (self.n_targets_ or 1), self.weights_.size
        shapes = {"means_": (n_parts, n_columns), "covariances_": (n_parts, n_columns, n_columns)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                got = " x ".join(map(str, getattr(self, name).shape))
                raise entry.at(name).error(" x ".join(map(str, shape)), got)
        for k, covariance in enumerate(self.covariances_):
            gaussians.require_covariance(covariance, entry.at(f"covariances_[{k}]"))
        with np.errstate(all="ignore"):
            try:
                is_valid = self._conditional.is_finite()
            except np.linalg.LinAlgError:
                is_valid = False
        if not is_valid:
            rule = "such that some of the targets' variance is left given the features"
            raise entry.at("covariances_").error(rule, "none")

    def fit(self, features: Any, y: Any = None) -> Self:
        """Fit the mixture to inputs and targets.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features), Batch or Shards
            The inputs. Shards hold their targets, and at most 100,000 of their rows are used.
        y : array-like of shape (n_rows,) or (n_rows, n_targets), optional
            The targets. Rows where it is missing (NaN) are ignored with a warning.

        Returns
        -------
        JointDensity
            The fitted density.
        """
        name = type(self).__name__
        self._check_params()
        n_components, seed = int(self.n_components), draw_seed(self.random_state, name)
        rows, targets = _rows_and_targets(features, y, name)
        warn_of_missing(targets.n_missing, len(rows), name, stacklevel=3)
        both = np.column_stack([rows, targets.values]).astype(np.float64)[~targets.is_missing]
        if not len(both):
            raise EmptyStateError(name)
        least = max(2, n_components)
        if len(both) < least:
            rule = f"must have at least {least} rows for {n_components} components"
            raise BadValueError("features", name, rule, f"{len(both)}", "Lower n_components")
        mixture = _fitted_mixture(both, n_components, seed, name)
        self._forget()
        self.n_features_ = rows.shape[1]
        self.n_targets_ = None if targets.values.ndim == 1 else targets.values.shape[1]
        self.weights_, self.means_, self.covariances_ = mixture
        return self

    def log_density(self, features: Any, y: Any) -> FloatArray:
        """Return log p(y | x).

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Inputs.
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
            Targets, none of them missing.

        Returns
        -------
        ndarray of shape (n_rows,)
            Conditional log densities.
        """
        both, d = self._features_and_targets(features, y, "log_density"), self.n_features_

        def log_density(rows: FloatArray) -> FloatArray:
            return self._conditional.log_density(rows[:, :d], rows[:, d:])

        return map_rows(log_density, both, self._n_entries())

    def density(self, features: Any, y: Any) -> FloatArray:
        """Return p(y | x), the exponential of `log_density`.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Inputs.
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
            Targets, none of them missing.

        Returns
        -------
        ndarray of shape (n_rows,)
            Conditional densities.
        """
        return np.asarray(np.exp(self.log_density(features, y)))

    def predict(self, features: Any) -> Normal:
        """Return the normal distribution with the mean and variance of p(y | x).

        It is moment-matched: p(y | x) is a mixture, which may be skewed or have several modes.
        See `predict_mixture` for the mixture itself.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Inputs.

        Returns
        -------
        Normal
            Mean and standard deviation per row (and target).
        """
        return self._mixture(features, "predict").normal

    def predict_mixture(self, features: Any) -> NormalMixture:
        """Return p(y | x) itself, with its density, cdf, quantiles and samples.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Inputs.

        Returns
        -------
        NormalMixture
            A mixture per row; with several targets, one for each. `log_density` and `sample` are
            of the targets together.
        """
        return self._mixture(features, "predict_mixture")

    def sample(self, features: Any, n_samples: int = 100, random_state: RandomState = 0) -> Samples:
        """Draw from p(y | x).

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Inputs.
        n_samples : int, default=100
            The number of draws per row.
        random_state : int, RandomState or None, default=0
            The seed.

        Returns
        -------
        Samples
            Draws of shape (n_rows, n_samples), with a third axis for several targets.
        """
        checked = self._checked_features(features, "sample")
        caller = f"{type(self).__name__}.sample"
        n_draws = as_count(n_samples, "n_samples", caller, example=100)
        random = np.random.default_rng(draw_seed(random_state, caller))
        return Samples(self._without_target_axis(self._conditional.draw(checked, n_draws, random)))

    def _mixture(self, features: Any, method: str) -> NormalMixture:
        """Return p(y | x) of each target."""
        parts = self._map(lambda x: self._conditional.components(x), features, method)
        weights, means, stds = self._conditional.moments(parts)
        drop = self._without_target_axis
        return NormalMixture(drop(means), drop(stds), weights)

    def _score_rows(self, features: FloatArray) -> FloatArray:
        return np.asarray(-logsumexp(self._conditional.joint(features), axis=1))

    def _n_entries(self) -> int:
        return self.n_features_ + self.weights_.size * ((self.n_targets_ or 1) + 1)

    def _without_target_axis(self, values: FloatArray) -> FloatArray:
        """Return values without the last axis if `y` had one dimension."""
        return values[..., 0] if self.n_targets_ is None else values

    def _features_and_targets(self, features: Any, y: Any, method: str) -> FloatArray:
        """Return checked features and targets, side by side."""
        checked = self._checked_features(features, method)
        caller = f"{type(self).__name__}.{method}"
        targets = Targets.of(y, len(checked), "y", caller)
        n_targets = None if targets.values.ndim == 1 else targets.values.shape[1]
        if n_targets != self.n_targets_ or targets.n_missing:
            width = "one number" if self.n_targets_ is None else f"{self.n_targets_} targets"
            got = f"shape {targets.values.shape} with {targets.n_missing} rows missing"
            fix = "Pass targets as during fit, without missing ones"
            raise BadValueError("y", caller, f"must have {width} per row", got, fix)
        return np.column_stack([checked, targets.values]).astype(np.float64)

    @cached_property
    def _conditional(self) -> ConditionalMixture:
        return ConditionalMixture(self.weights_, self.means_, self.covariances_, self.n_features_)


@final
class ConditionalMixture:
    """p(y | x) of a Gaussian mixture over (x, y), with x in the first `n_inputs` columns.

    Given x, each component is normal about a linear function of x and has a weight that depends
    on x. Bishop, "Pattern recognition and machine learning", 2006, section 2.3.1.
    """

    def __init__(
        self, weights: FloatArray, means: FloatArray, covariances: FloatArray, n_inputs: int
    ) -> None:
        d = n_inputs
        self.log_weights = np.log(weights)
        self.inputs = PerClassGaussians(means[:, :d], covariances[:, :d, :d])
        self.target_means = means[:, d:]
        # Regression slopes (components x inputs x targets) and the residual covariances.
        self.slopes = np.stack([cho_solve(cho_factor(c[:d, :d]), c[:d, d:]) for c in covariances])
        explained = np.einsum("kij,kil->kjl", self.slopes, covariances[:, :d, d:])
        residual = covariances[:, d:, d:] - explained
        self.noise = [Whitening.of((matrix + matrix.T) / 2) for matrix in residual]

    def is_finite(self) -> bool:
        """Return whether no number overflowed."""
        parts = [self.slopes, *(noise.matrix for noise in self.noise)]
        return all(bool(np.isfinite(part).all()) for part in parts)

    def joint(self, x: FloatArray) -> FloatArray:
        """Return log p(x, component) of shape (n_rows, n_components)."""
        return np.asarray(self.inputs.log_likelihoods(x) + self.log_weights)

    def means(self, x: FloatArray) -> FloatArray:
        """Return E(y | x, component) of shape (n_rows, n_components, n_targets)."""
        parts = zip(self.target_means, self.inputs.means, self.slopes, strict=True)
        return np.stack([mean + (x - center) @ slopes for mean, center, slopes in parts], axis=1)

    def log_density(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Return log p(y | x) of each row."""
        residuals = y[:, np.newaxis] - self.means(x)
        constant = y.shape[1] * np.log(2 * np.pi)
        distances = [
            gaussians.squared_norms(residuals[:, k] @ one.matrix) + one.log_determinant
            for k, one in enumerate(self.noise)
        ]
        conditional = -0.5 * (np.stack(distances, axis=1) + constant)
        return np.asarray(logsumexp(log_softmax(self.joint(x), axis=1) + conditional, axis=1))

    def components(self, x: FloatArray) -> FloatArray:
        """Return p(component | x), then E(y | x, component), on the last axis."""
        weights = softmax(self.joint(x), axis=1)[:, :, np.newaxis]
        return np.concatenate([weights, self.means(x)], axis=2)

    def moments(self, components: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return weights, means and standard deviations, with the components on the first axis."""
        parts = np.moveaxis(components, 1, 0)
        weights, means = parts[..., 0], parts[..., 1:]
        stds = np.sqrt([gaussians.squared_norms(noise.factor) for noise in self.noise])
        return weights, means, np.broadcast_to(stds[:, np.newaxis], means.shape)

    def draw(self, x: FloatArray, n_draws: int, random: np.random.Generator) -> FloatArray:
        """Return draws of y given x, shape (n_rows, n_draws, n_targets)."""
        ends = np.cumsum(softmax(self.joint(x), axis=1), axis=1)[:, np.newaxis, :-1]
        chosen = (random.random((len(x), n_draws, 1)) > ends).sum(axis=2)
        noise = random.standard_normal((len(x), n_draws, self.target_means.shape[1]))
        factors = np.stack([one.factor for one in self.noise])
        center = self.means(x)[np.arange(len(x))[:, np.newaxis], chosen]
        return np.asarray(center + np.einsum("rdij,rdj->rdi", factors[chosen], noise))


def _rows_and_targets(features: Any, y: Any, caller: str) -> tuple[FloatArray, Targets]:
    """Return features and targets of the same rows; of large shards, a sample."""
    if not isinstance(features, Shards | Batch):
        if y is None:
            raise BadTypeError("y", caller, "must hold the targets", "None", "Pass y")
        matrix = as_feature_matrix(features, caller)
        return matrix, Targets.of(y, len(matrix), "y", caller)
    batch = sample_rows(make_shards(features, y, caller=caller, argument="features"), MAX_ROWS)
    if batch.features is None or not isinstance(batch.labels, Targets):
        got = "no features" if batch.features is None else "no targets"
        rule, fix = "must hold features and targets", "Use Columns(features=..., label=...)"
        raise BadTypeError("features", caller, rule, got, fix)
    if np.unique(batch.weight).size > 1:
        rule, fix = "must have equal weights", "Fit without weights"
        raise BadValueError("features", caller, rule, "weights that differ", fix)
    return batch.features, batch.labels


def _fitted_mixture(
    rows: FloatArray, n_components: int, seed: int, caller: str
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weights, means and covariances of a mixture, fitted to standardized columns."""
    from sklearn.exceptions import ConvergenceWarning  # slow to import
    from sklearn.mixture import GaussianMixture

    with np.errstate(over="ignore", invalid="ignore"):
        moments = np.stack([rows.mean(axis=0), rows.std(axis=0)])
        center, scale = gaussians.require_summable(moments, caller)
    scale = np.where(scale > CONSTANT * np.abs(center), scale, 1.0)
    mixture = GaussianMixture(
        n_components, max_iter=MAX_ITERATIONS, reg_covar=MIN_VARIANCE, random_state=seed
    )
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        mixture.fit((rows - center) / scale)
    if not mixture.converged_:
        text = f"{caller}: the mixture did not converge in {MAX_ITERATIONS:,} iterations."
        warnings.warn(text, DubitoWarning, stacklevel=3)
    covariances = mixture.covariances_ * scale * scale[:, np.newaxis]
    return mixture.weights_, center + mixture.means_ * scale, covariances
