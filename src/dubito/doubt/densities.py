"""Class-conditional densities of features: a generative classifier and an OOD score."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
from scipy.special import logsumexp

from dubito.arrays import FloatArray, RandomState, as_count, draw_seed, require_choice
from dubito.doubt.features import BaseOODScore, FeatureShards
from dubito.doubt.gaussians import (
    BaseGaussians,
    DiagonalGaussians,
    PerClassGaussians,
    SharedGaussians,
    as_shrinkage,
    require_covariance,
)
from dubito.doubt.moments import FittedGaussians, fit_diagonal, fit_per_class, fit_shared
from dubito.outputs import Probabilities, unchecked
from dubito.serialization.array_fields import array, distribution
from dubito.serialization.fields import MOST, Entry, declare, one_of

# By covariance: the fit, the densities, and the sizes of the covariance before the last.
KINDS: dict[str, tuple[Callable[..., FittedGaussians], type[BaseGaussians], tuple[str, ...]]] = {
    "shared": (fit_shared, SharedGaussians, ("n_features_",)),
    "per_class": (fit_per_class, PerClassGaussians, ("classes_", "n_features_")),
    "diagonal": (fit_diagonal, DiagonalGaussians, ("classes_",)),
}
TINY = float(np.finfo(np.float64).tiny)  # smallest prior or variance, so that its log is finite


def _covariance_check(value: Any, entry: Entry) -> FloatArray:
    """Check covariances read from a file, whose shape depends on `kind_`."""
    kind = entry.beside["kind_"]
    low = TINY if kind == "diagonal" else -MOST
    check = array(*KINDS[kind][2], "n_features_", low=low, high=MOST)
    covariance: FloatArray = check(value, entry)
    if kind != "diagonal":
        for matrix in covariance.reshape(-1, *covariance.shape[-2:]):
            require_covariance(matrix, entry)
    return covariance


def _shrinkage_check(value: Any, entry: Entry) -> FloatArray:
    """Check the shrinkage of each class, or the single one of a shared covariance."""
    size = 1 if entry.beside["kind_"] == "shared" else "classes_"
    shrinkage: FloatArray = array(size, low=0, high=1)(value, entry)
    return shrinkage


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
    >>> features = [[0.0, 0.1], [0.2, 0.0], [0.1, 0.2], [3.0, 3.1], [3.2, 2.9], [3.1, 3.0]]
    >>> density = ClassConditionalDensity().fit(features, ["a", "a", "a", "b", "b", "b"])
    >>> density.posteriors([[0.1, 0.1]]).array.round(3).tolist()
    [[1.0, 0.0]]
    """

    priors_: FloatArray
    means_: FloatArray
    covariance_: FloatArray
    shrinkage_: FloatArray
    kind_: str

    fitted_fields = declare(
        kind_=one_of(*KINDS),
        priors_=distribution("classes_", low=TINY),
        means_=array("classes_", "n_features_", low=-MOST, high=MOST),
        covariance_=_covariance_check,
        shrinkage_=_shrinkage_check,
    )

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
        return self._map(self._log_likelihoods, features, "log_likelihoods")

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
        posteriors = self._map(self._posteriors, features, "posteriors")
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
        self._require_fitted("sample")
        caller = f"{type(self).__name__}.sample"
        n_rows = as_count(n_samples, "n_samples", caller, example=100)
        random = np.random.default_rng(draw_seed(random_state, caller))
        codes = random.choice(self.priors_.size, n_rows, p=self.priors_)
        noise = random.standard_normal((n_rows, self.n_features_))
        classes = (0,) if self.classes_ is None else self.classes_
        is_mixed = len({type(name) for name in classes}) > 1
        names = np.array(classes, dtype=object if is_mixed else None)
        return self._gaussians.from_noise(codes, noise), names[codes]

    def _check_params(self) -> None:
        name = type(self).__name__
        require_choice(self.covariance, tuple(KINDS), "covariance", name)
        as_shrinkage(self.shrinkage, name)

    def _learn(self, rows: FeatureShards) -> None:
        name = type(self).__name__
        fitted = KINDS[self.covariance][0](rows, as_shrinkage(self.shrinkage, name), name)
        self.means_, self.covariance_, self.shrinkage_ = fitted
        self.priors_ = rows.weights / rows.weights.sum()
        self.kind_ = self.covariance

    def _score_rows(self, features: FloatArray) -> FloatArray:
        return -self._log_density(features)

    @cached_property
    def _gaussians(self) -> BaseGaussians:
        return KINDS[self.kind_][1](self.means_, self.covariance_)

    def _log_likelihoods(self, features: FloatArray) -> FloatArray:
        return self._gaussians.log_likelihoods(features)

    def _joint(self, features: FloatArray) -> FloatArray:
        """Return log p(x, class)."""
        return self._log_likelihoods(features) + np.log(self.priors_)

    def _log_density(self, features: FloatArray) -> FloatArray:
        return np.asarray(logsumexp(self._joint(features), axis=1))

    def _posteriors(self, features: FloatArray) -> FloatArray:
        joint = self._joint(features)
        weights = np.exp(joint - joint.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
