"""A class more than the model has, for whatever lies where no known features do."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy.special import logsumexp

from dubito.arrays import FloatArray, as_finite, as_floats, require_dimensions
from dubito.doubt.features import BaseOODScore, FeatureRows, FeatureShards
from dubito.errors import BadTypeError, BadValueError
from dubito.serialization.arrays import array
from dubito.serialization.fields import MOST, Entry, Omittable, declare, number, optional

NAME = "VirtualLogitMatching"
NOTHING = 1e-10  # a residual so small against the features is what rounding leaves


@final
class VirtualLogitMatching(BaseOODScore):
    """The log odds of a virtual class, whose logit is what features have beyond their main space.

    `weights` (classes x features) and `bias` are those of the last layer. Known features lie mostly
    in `n_dimensions` directions about its origin; by default half of them, 512 from 768 features up
    and 1000 from 2048 up, as its authors took. Wang et al., "ViM: out-of-distribution with
    virtual-logit matching", 2022.

    >>> known = [[2.0, 0.0, 0.1], [0.0, 2.0, -0.1], [2.0, 0.0, -0.1], [0.0, 2.0, 0.1]]
    >>> doubt = VirtualLogitMatching([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], n_dimensions=2).fit(known)
    >>> doubt.score([[2.0, 0.0, 0.1], [2.0, 0.0, 0.5]]).round(2).tolist()
    [-0.13, 7.87]
    """

    weight_: FloatArray
    bias_: FloatArray
    origin_: FloatArray
    residual_: FloatArray  # features x directions that are not of the main space
    alpha_: float

    param_fields = declare(
        weights=Omittable(optional(array(None, None, low=-MOST, high=MOST))),
        bias=Omittable(optional(array(None, low=-MOST, high=MOST))),
    )
    fitted_fields = declare(
        weight_=array(None, "n_features_", low=-MOST, high=MOST),
        bias_=array("weight_", low=-MOST, high=MOST),
        origin_=array("n_features_", low=-MOST, high=MOST),
        residual_=array("n_features_", None, low=-MOST, high=MOST),
        alpha_=number(0, MOST),
    )

    uses_labels = False

    def __init__(self, weights: Any = None, bias: Any = None, n_dimensions: int | None = None):
        self.weights = weights
        self.bias = bias
        self.n_dimensions = n_dimensions

    def _check_fitted(self, entry: Entry) -> None:
        self._n_main()
        if self.weights is not None:
            self._layer()

    def _learn(self, shards: FeatureShards) -> None:
        self.weight_, self.bias_ = self._layer()
        n_dimensions = self._n_main()
        self.origin_ = -np.linalg.pinv(self.weight_) @ self.bias_
        second = shards.sum(self._second_moment)
        if not np.isfinite(second).all():
            rule, fix = (
                "small enough to be squared and summed",
                "dividing them by a scale of theirs",
            )
            raise BadValueError("features", NAME, rule, "sums beyond the largest float", fix)
        _, directions = np.linalg.eigh(second)  # the largest last
        self.residual_ = np.ascontiguousarray(directions[:, : len(directions) - n_dimensions])
        highest, beyond, size = shards.sum(self._sums) / shards.weights.sum()
        if not beyond > NOTHING * size:
            rule = f"of more than {n_dimensions} directions, the main space"
            fix = "a lower n_dimensions, or more rows"
            raise BadValueError("features", NAME, rule, "nothing beyond it", fix)
        if not highest > 0:
            rule = "such that a row's largest logit is above 0 on average"
            fix = "the layer's own weights and bias"
            raise BadValueError("weights", NAME, rule, f"{highest:.6g}", fix)
        self.alpha_ = float(highest / beyond)

    def _doubt(self, features: FloatArray) -> FloatArray:
        virtual = self.alpha_ * self._beyond(features)
        return np.asarray(virtual - logsumexp(self._logits(features), axis=1))

    def _n_entries(self) -> int:
        return max(self.n_features_, len(self.weight_))

    def _logits(self, features: FloatArray) -> FloatArray:
        return np.asarray(features @ self.weight_.T + self.bias_)

    def _beyond(self, features: FloatArray) -> FloatArray:
        """Return the length of what each row has beyond the main space."""
        return np.asarray(np.linalg.norm((features - self.origin_) @ self.residual_, axis=1))

    def _second_moment(self, rows: FeatureRows) -> FloatArray:
        scaled = (rows.features - self.origin_) * np.sqrt(rows.weight)[:, np.newaxis]
        return np.asarray(scaled.T @ scaled)

    def _sums(self, rows: FeatureRows) -> FloatArray:
        """Return sums of the largest logits, of lengths beyond the main space, and of lengths."""
        highest = self._logits(rows.features).max(axis=1)
        lengths = np.linalg.norm(rows.features - self.origin_, axis=1)
        return np.stack([highest, self._beyond(rows.features), lengths]) @ rows.weight

    def _layer(self) -> tuple[FloatArray, FloatArray]:
        """Return copies of weights and bias in float64, or raise where they do not fit."""
        if self.weights is None:
            rule, fix = "those of the model's last layer", "VirtualLogitMatching(weights, bias)"
            raise BadTypeError("weights", NAME, rule, "None", fix)
        weights = as_finite(as_floats(self.weights, "weights", NAME), "weights", NAME)
        require_dimensions(weights, (2,), "weights", NAME, "classes x features")
        if weights.shape[1] != self.n_features_:
            rule = f"classes x {self.n_features_} features, like the features"
            is_turned = weights.shape[0] == self.n_features_
            fix = "`weights.T`" if is_turned else "the features that the last layer takes"
            raise BadValueError("weights", NAME, rule, f"shape {weights.shape}", fix)
        if self.bias is None:
            return weights.astype(np.float64), np.zeros(len(weights))
        bias = as_finite(as_floats(self.bias, "bias", NAME), "bias", NAME)
        if bias.shape != (len(weights),):
            rule, fix = f"{len(weights)} numbers, one a class", "the bias of the same layer"
            raise BadValueError("bias", NAME, rule, f"shape {bias.shape}", fix)
        return weights.astype(np.float64), bias.astype(np.float64)

    def _n_main(self) -> int:
        """Return how many directions the main space has: at least one is left beyond it."""
        n_features, wish = self.n_features_, self.n_dimensions
        if wish is None:
            return 1000 if n_features >= 2048 else 512 if n_features >= 768 else n_features // 2
        is_whole = isinstance(wish, int | np.integer) and not isinstance(wish, bool)
        if not (is_whole and 0 <= wish < n_features):
            rule = f"a whole number from 0 to {n_features - 1}, below the number of features"
            fix = f"n_dimensions={n_features // 2}"
            raise BadValueError("n_dimensions", NAME, rule, repr(wish), fix)
        return int(wish)
