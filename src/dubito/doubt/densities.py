"""Class densities: how features are distributed in each class, and so how strange a row is."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal, final

import numpy as np
from scipy.special import logsumexp

from dubito.arrays import FloatArray, RandomState, draw_seed
from dubito.doubt.features import BaseOODScore, FeatureShards, over_blocks
from dubito.doubt.gaussians import (
    BaseGaussians,
    DiagonalGaussians,
    PerClassGaussians,
    SharedGaussians,
    as_shrinkage,
    require_covariance,
)
from dubito.doubt.moments import fit_diagonal, fit_per_class, fit_shared
from dubito.errors import BadValueError
from dubito.outputs import Probabilities, unchecked
from dubito.serialization.arrays import array, distribution
from dubito.serialization.fields import MOST, Entry, declare, one_of

FITS = {"shared": fit_shared, "per_class": fit_per_class, "diagonal": fit_diagonal}
KINDS: dict[str, type[BaseGaussians]] = {
    "shared": SharedGaussians,
    "per_class": PerClassGaussians,
    "diagonal": DiagonalGaussians,
}
LEAST = float(np.finfo(np.float64).tiny)  # of a share or a variance, so that its log is finite


def _covariance_of_kind(value: Any, entry: Entry) -> FloatArray:
    """Check for covariances as their kind has them."""
    sizes = {
        "diagonal": ("classes_",),
        "per_class": ("classes_", "n_features_"),
        "shared": ("n_features_",),
    }
    kind = entry.beside["kind_"]
    low = LEAST if kind == "diagonal" else -MOST
    check = array(*sizes[kind], "n_features_", low=low, high=MOST)
    found: FloatArray = check(value, entry)
    if kind != "diagonal":
        for one in found.reshape(-1, *found.shape[-2:]):
            require_covariance(one, entry)
    return found


def _shrinkage_of_kind(value: Any, entry: Entry) -> FloatArray:
    """Check for a share a class, or a single one where the covariance is shared."""
    size = 1 if entry.beside["kind_"] == "shared" else "classes_"
    found: FloatArray = array(size, low=0, high=1)(value, entry)
    return found


@final
class ClassConditionalDensity(BaseOODScore):
    """A normal distribution of features a class, as often as the class is; doubt is -log p(x).

    `covariance` is "shared" by all classes (linear discriminant), a class's "per_class" (quadratic), or
    "diagonal": features independent within a class. `shrinkage` is the share of correlations given up,
    of "diagonal" the share of variances taken from all classes; "auto" finds it from the number of
    rows. Bishop, "Pattern recognition and machine learning", 4.2.

    >>> features = [[0.0, 0.1], [0.2, 0.0], [0.1, 0.2], [3.0, 3.1], [3.2, 2.9], [3.1, 3.0]]
    >>> densities = ClassConditionalDensity().fit(features, ["a", "a", "a", "b", "b", "b"])
    >>> densities.posteriors([[0.1, 0.1]]).array.round(3).tolist()
    [[1.0, 0.0]]
    """

    priors_: FloatArray
    means_: FloatArray
    covariance_: FloatArray
    shrinkage_: FloatArray
    kind_: str  # of covariance

    fitted_fields = declare(
        kind_=one_of("shared", "per_class", "diagonal"),
        priors_=distribution("classes_", low=LEAST),
        means_=array("classes_", "n_features_", low=-MOST, high=MOST),
        covariance_=_covariance_of_kind,
        shrinkage_=_shrinkage_of_kind,
    )

    def __init__(
        self,
        covariance: Literal["shared", "per_class", "diagonal"] = "shared",
        shrinkage: float | Literal["auto"] = "auto",
    ):
        self.covariance = covariance
        self.shrinkage = shrinkage

    def log_likelihoods(self, features: Any) -> FloatArray:
        """Return log p(x | class), rows x classes."""
        known = self._known(features, "log_likelihoods")
        return over_blocks(self._gaussians.log_likelihoods, known, self._n_entries())

    def log_density(self, features: Any) -> FloatArray:
        """Return log p(x) of each row."""
        known = self._known(features, "log_density")
        return over_blocks(self._log_density, known, self._n_entries())

    def posteriors(self, features: Any) -> Probabilities:
        """Return p(class | x), columns named by the classes that were seen."""
        known = self._known(features, "posteriors")
        shares = over_blocks(self._posteriors, known, self._n_entries())
        # One column would be read as the positive class of two.
        return unchecked(Probabilities, {"array": shares, "classes": self.classes_})

    def sample(self, n_samples: int, random_state: RandomState = 0) -> tuple[FloatArray, Any]:
        """Return features of new rows, drawn class first, and their labels (0 without classes)."""
        self._require_fitted("sample")
        n_rows = as_count(n_samples, "n_samples", f"{type(self).__name__}.sample")
        random = np.random.default_rng(draw_seed(random_state, f"{type(self).__name__}.sample"))
        codes = random.choice(self.priors_.size, n_rows, p=self.priors_)
        noise = random.standard_normal((n_rows, self.n_features_))
        classes = (0,) if self.classes_ is None else self.classes_
        is_mixed = len({type(name) for name in classes}) > 1
        names = np.array(classes, dtype=object if is_mixed else None)
        return self._gaussians.spread(codes, noise), names[codes]

    def _check_params(self) -> None:
        name = type(self).__name__
        if self.covariance not in FITS:
            rule, fix = "'shared', 'per_class' or 'diagonal'", "covariance='shared'"
            raise BadValueError("covariance", name, rule, repr(self.covariance), fix)
        as_shrinkage(self.shrinkage, name)

    def _learn(self, shards: FeatureShards) -> None:
        name = type(self).__name__
        shrinkage = as_shrinkage(self.shrinkage, name)
        fitted = FITS[self.covariance](shards, shrinkage, name)
        self.priors_ = shards.weights / shards.weights.sum()
        self.means_, self.covariance_ = fitted.gaussians.means, fitted.gaussians.covariance
        self.kind_ = self.covariance
        self.shrinkage_ = fitted.shrinkage

    def _doubt(self, features: FloatArray) -> FloatArray:
        return -self._log_density(features)

    @cached_property
    def _gaussians(self) -> BaseGaussians:
        return KINDS[self.kind_](self.means_, self.covariance_)

    def _joint(self, features: FloatArray) -> FloatArray:
        """Return log p(x, class)."""
        return self._gaussians.log_likelihoods(features) + np.log(self.priors_)

    def _log_density(self, features: FloatArray) -> FloatArray:
        return np.asarray(logsumexp(self._joint(features), axis=1))

    def _posteriors(self, features: FloatArray) -> FloatArray:
        joint = self._joint(features)
        shares = np.exp(joint - joint.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def as_count(value: Any, argument: str, caller: str, example: int = 100) -> int:
    """Return how many are wanted: a whole number from 1 up."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not (is_whole and value >= 1):
        rule, fix = "a whole number from 1 up", f"{argument}={example}"
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return int(value)
