"""OOD scores from features and the last linear layer: ReAct, SCALE, fDBD, virtual logit."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy.special import logsumexp

from dubito.arrays import FloatArray, as_count, as_fraction, require_everywhere
from dubito.doubt.activations import as_bias, as_weights
from dubito.doubt.conformal.predictor import CalibrationScores
from dubito.doubt.features import BaseOODScore, FeatureRows, FeatureShards
from dubito.doubt.gaussians import require_summable
from dubito.errors import BadTypeError, BadValueError
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    MAX_FLOAT,
    Entry,
    Omittable,
    declare,
    fitted,
    integer,
    number,
    optional,
)

LAYER = ("weights", "bias")  # the parameters that hold the last layer
POSITIVE, USE_REACT = "must not be negative, as after a ReLU", "Use ReAct(weights, bias)"


class BaseLastLayerScore(BaseOODScore):
    """A score of the inputs of a network's last layer, and of the layer itself.

    A subclass sets what it learns besides the layer in `_learn_rows`. Labels are ignored.
    """

    param_fields = declare(
        weights=Omittable(optional(array(None, None, low=-MAX_FLOAT, high=MAX_FLOAT))),
        bias=Omittable(optional(array(None, low=-MAX_FLOAT, high=MAX_FLOAT))),
    )
    weight_: FloatArray = fitted(array(None, "n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))
    bias_: FloatArray = fitted(array("weight_", low=-MAX_FLOAT, high=MAX_FLOAT))

    uses_labels = False

    weights: Any
    bias: Any

    def __repr__(self) -> str:
        params = {k: v for k, v in self.get_params(deep=False).items() if k not in LAYER}
        shape = None if self.weights is None else np.shape(self.weights)
        others = "".join(f", {name}={value!r}" for name, value in params.items())
        return f"{type(self).__name__}(weights of shape {shape}{others})"

    def logits(self, features: FloatArray) -> FloatArray:
        """Return the outputs of the layer for checked features.

        Parameters
        ----------
        features : array of shape (n_rows, n_features)
            Inputs of the layer.

        Returns
        -------
        array of shape (n_rows, n_classes)
            `features @ weight.T + bias`.
        """
        return np.asarray(features @ self.weight_.T + self.bias_)

    def _check_fitted(self, entry: Entry) -> None:
        if self.weights is not None:
            self._last_layer()

    def _learn(self, rows: FeatureShards) -> None:
        self.weight_, self.bias_ = self._last_layer()
        self._learn_rows(rows)

    @abstractmethod
    def _learn_rows(self, rows: FeatureShards) -> None:
        """Set the learned attributes besides the layer."""

    def _n_entries(self) -> int:
        return max(self.n_features_, len(self.weight_))

    def _last_layer(self) -> tuple[FloatArray, FloatArray]:
        """Return weights and bias in float64, or raise if they do not fit the features."""
        name = type(self).__name__
        if self.weights is None:
            rule, fix = "must be those of the last layer", f"Use {name}(weights, bias)"
            raise BadTypeError("weights", name, rule, "None", fix)
        weights = as_weights(self.weights, self.n_features_, name)
        return weights.astype(np.float64), as_bias(self.bias, len(weights), name)


@final
class ReAct(BaseLastLayerScore):
    """Energy after features are clipped from above: rectified activations.

    OOD inputs often have a few very large activations, which make the network confident. The
    score is -logsumexp(W min(z, c) + b), where `c` is a quantile of all activations of the
    training rows.

    Parameters
    ----------
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer.
    bias : array-like of shape (n_classes,), optional
        Its bias; 0 by default.
    quantile : float, default=0.9
        The fraction of activations that are not clipped.

    Attributes
    ----------
    weight_, bias_ : ndarray
        The last layer, in float64.
    limit_ : float
        The activation `c` at which features are clipped: the smallest that at least the fraction
        `quantile` of all activations do not exceed. (Published code interpolates between that
        and the next smaller one, as `np.percentile` does.) Beyond 1,000,000 distinct activations
        it is rounded up by rank.

    References
    ----------
    Sun et al., "ReAct: out-of-distribution detection with rectified activations", 2021.

    Examples
    --------
    >>> from dubito.doubt import ReAct
    >>> train = [[2.0, 0.0], [0.0, 2.0], [1.0, 0.0], [0.0, 1.0]]
    >>> score = ReAct([[1.0, 0.0], [0.0, 1.0]], quantile=0.75).fit(train)
    >>> score.limit_, score.score([[1.0, 0.0], [9.0, 0.0]]).round(4).tolist()
    (1.0, [-1.3133, -1.3133])
    """

    limit_: float = fitted(number(-MAX_FLOAT, MAX_FLOAT))

    def __init__(self, weights: Any = None, bias: Any = None, quantile: float = 0.9) -> None:
        self.weights = weights
        self.bias = bias
        self.quantile = quantile

    def _check_params(self) -> None:
        fix = "Use quantile=0.9"
        as_fraction(self.quantile, "quantile", type(self).__name__, is_open=True, fix=fix)

    def _learn_rows(self, rows: FeatureShards) -> None:
        def activations(block: FeatureRows) -> CalibrationScores:
            values = block.features.astype(np.float64).ravel()
            return CalibrationScores.of(values, np.repeat(block.weight, block.n_columns))

        ranked = rows.sum(activations).ranked
        # Ranks are whole numbers without weights: rounding must not move one past the quantile.
        needed = self.quantile * ranked.weight.sum() * (1 - 1e-12)
        self.limit_ = float(ranked.score[np.argmax(np.cumsum(ranked.weight) >= needed)])

    def _score_rows(self, features: FloatArray) -> FloatArray:
        clipped = np.minimum(features.astype(np.float64), self.limit_)
        return -np.asarray(logsumexp(self.logits(clipped), axis=1))


@final
class SCALE(BaseLastLayerScore):
    """Energy after the features of each row are scaled by how few activations dominate it.

    The score is -logsumexp(W z exp(r) + b). In each row, r is the sum of all activations divided
    by the sum of the largest ones. Nothing but the layer is learned from the training rows.
    Activations must not be negative, as after a ReLU, neither in `fit` nor in `score`.

    Parameters
    ----------
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer.
    bias : array-like of shape (n_classes,), optional
        Its bias; 0 by default.
    quantile : float, default=0.85
        The largest activations of a row are those above this quantile of them.

    Attributes
    ----------
    weight_, bias_ : ndarray
        The last layer, in float64.
    n_largest_ : int
        How many activations of a row are its largest ones.

    References
    ----------
    Xu et al., "Scaling for training-time and post-hoc out-of-distribution detection
    enhancement", 2024.

    Examples
    --------
    >>> from dubito.doubt import SCALE
    >>> score = SCALE([[1.0, 0.0], [0.0, 1.0]], quantile=0.5).fit([[2.0, 0.0], [0.0, 2.0]])
    >>> score.score([[2.0, 0.0], [1.0, 1.0]]).round(4).tolist()
    [-5.4409, -8.0822]
    """

    n_largest_: int = fitted(integer(1))

    def __init__(self, weights: Any = None, bias: Any = None, quantile: float = 0.85) -> None:
        self.weights = weights
        self.bias = bias
        self.quantile = quantile

    def _check_params(self) -> None:
        fix = "Use quantile=0.85"
        as_fraction(self.quantile, "quantile", type(self).__name__, is_open=True, fix=fix)

    def _check_fitted(self, entry: Entry) -> None:
        super()._check_fitted(entry)
        if self.n_largest_ > self.n_features_:
            raise entry.at("n_largest_").error("at most n_features_", f"{self.n_largest_}")

    def _learn_rows(self, rows: FeatureShards) -> None:
        n_negative = rows.sum(lambda block: np.count_nonzero(block.features < 0))
        if n_negative:
            got = f"{n_negative:,} negative activations"
            raise BadValueError("features", type(self).__name__, POSITIVE, got, USE_REACT)
        self.n_largest_ = max(1, self.n_features_ - round(self.n_features_ * self.quantile))

    def _checked_features(self, features: Any, method: str) -> FloatArray:
        array = super()._checked_features(features, method)
        caller = f"{type(self).__name__}.{method}"
        require_everywhere(array >= 0, array, "features", caller, POSITIVE, USE_REACT)
        return array

    def _score_rows(self, features: FloatArray) -> FloatArray:
        wide, n_largest = features.astype(np.float64), self.n_largest_
        largest = np.partition(wide, -n_largest, axis=1)[:, -n_largest:].sum(axis=1)
        # A row without a positive activation has logits that no scale changes.
        ratio = np.divide(wide.sum(axis=1), largest, out=np.ones(len(wide)), where=largest > 0)
        return -np.asarray(logsumexp(self.logits(wide * np.exp(ratio)[:, np.newaxis]), axis=1))


@final
class DecisionBoundaryDistance(BaseLastLayerScore):
    """How near features are to all decision boundaries, relative to their spread (fDBD).

    The score is -mean over the other classes c of |(w_p - w_c) z + b_p - b_c| / |w_p - w_c|,
    divided by |z - mean|, where p is the predicted class: the mean distance to the boundaries, as
    a fraction of the distance to the mean of the training features. OOD features lie nearer to
    the boundaries.

    Parameters
    ----------
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer, of at least 2 classes, no two with the same weights.
    bias : array-like of shape (n_classes,), optional
        Its bias; 0 by default.

    Attributes
    ----------
    weight_, bias_ : ndarray
        The last layer, in float64.
    mean_ : ndarray of shape (n_features,)
        The mean of the training features.

    References
    ----------
    Liu and Qin, "Fast decision boundary based out-of-distribution detector", 2024.

    Examples
    --------
    >>> from dubito.doubt import DecisionBoundaryDistance
    >>> train = [[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [0.0, -2.0]]
    >>> score = DecisionBoundaryDistance([[1.0, 0.0], [-1.0, 0.0]]).fit(train)
    >>> score.score([[2.0, 0.0], [1.0, 1.0]]).round(4).tolist()
    [-1.0, -0.7071]
    """

    mean_: FloatArray = fitted(array("n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))

    def __init__(self, weights: Any = None, bias: Any = None) -> None:
        self.weights = weights
        self.bias = bias

    def _check_fitted(self, entry: Entry) -> None:
        super()._check_fitted(entry)
        self._require_boundaries()

    def _learn_rows(self, rows: FeatureShards) -> None:
        self._require_boundaries()
        sums = rows.sum(lambda block: block.weight @ block.features.astype(np.float64))
        self.mean_ = require_summable(sums, type(self).__name__) / rows.weights.sum()

    def _score_rows(self, features: FloatArray) -> FloatArray:
        logits = self.logits(features)
        top = logits.argmax(axis=1)
        margins = np.take_along_axis(logits, top[:, np.newaxis], axis=1) - logits
        distances = np.einsum("ij,ij->i", margins, self._inverse_distances[top])
        spread = np.linalg.norm(features - self.mean_, axis=1)
        # Features at the mean are as typical as can be, also on a boundary.
        typical = np.full(len(features), -np.inf)
        np.divide(-distances, (logits.shape[1] - 1) * spread, out=typical, where=spread > 0)
        return typical

    @cached_property
    def _inverse_distances(self) -> FloatArray:
        """1 / |w_p - w_c| of each pair of classes, 0 of a class and itself."""
        with np.errstate(divide="ignore", over="ignore"):
            distances = np.linalg.norm(self.weight_[:, np.newaxis] - self.weight_, axis=2)
            np.fill_diagonal(distances, np.inf)
            return np.asarray(1 / distances)

    def _require_boundaries(self) -> None:
        """Raise unless there is a boundary between any two classes."""
        name = type(self).__name__
        if len(self.weight_) < 2:
            rule, fix = "must have at least 2 classes", "Pass one row per class"
            raise BadValueError("weights", name, rule, f"{len(self.weight_)}", fix)
        if not np.isfinite(self._inverse_distances).all():
            rule = "must differ between any two classes"
            fix = "Use VirtualLogitMatching(weights, bias)"
            raise BadValueError("weights", name, rule, "classes with the same weights", fix)


NAME = "VirtualLogitMatching"
NEGLIGIBLE = 1e-10  # a residual below this fraction of the features is a rounding error


@final
class VirtualLogitMatching(BaseLastLayerScore):
    """Log odds of a virtual out-of-distribution class (ViM).

    Its logit is the norm of the features outside the principal subspace of the training
    features, scaled to match the model's logits. Use it for the last linear layer of a network:
    it combines what features and logits show. Labels are ignored.

    Parameters
    ----------
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer.
    bias : array-like of shape (n_classes,), optional
        Its bias; 0 by default.
    n_dimensions : int, optional
        The dimension of the principal subspace. By default half of the features, 512 from 768
        features up and 1000 from 2048 up, as in the paper.

    Attributes
    ----------
    weight_, bias_ : ndarray
        The last layer, in float64.
    origin_ : ndarray of shape (n_features,)
        The point with the smallest norm whose logits are 0 (up to least squares).
    residual_ : ndarray of shape (n_features, n_features - n_dimensions)
        An orthonormal basis of the complement of the principal subspace.
    alpha_ : float
        The scale that matches the virtual logit to the largest logit.

    References
    ----------
    Wang et al., "ViM: out-of-distribution with virtual-logit matching", 2022.

    Examples
    --------
    >>> from dubito.doubt import VirtualLogitMatching
    >>> train = [[2.0, 0.0, 0.1], [0.0, 2.0, -0.1], [2.0, 0.0, -0.1], [0.0, 2.0, 0.1]]
    >>> score = VirtualLogitMatching([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], n_dimensions=2).fit(train)
    >>> score.score([[2.0, 0.0, 0.1], [2.0, 0.0, 0.5]]).round(2).tolist()
    [-0.13, 7.87]
    """

    origin_: FloatArray = fitted(array("n_features_", low=-MAX_FLOAT, high=MAX_FLOAT))
    residual_: FloatArray = fitted(array("n_features_", None, low=-MAX_FLOAT, high=MAX_FLOAT))
    alpha_: float = fitted(number(0, MAX_FLOAT))

    def __init__(self, weights: Any = None, bias: Any = None, n_dimensions: int | None = None):
        self.weights = weights
        self.bias = bias
        self.n_dimensions = n_dimensions

    def _check_fitted(self, entry: Entry) -> None:
        self._subspace_dimension()
        super()._check_fitted(entry)

    def _learn_rows(self, rows: FeatureShards) -> None:
        n_dimensions = self._subspace_dimension()
        self.origin_ = -np.linalg.pinv(self.weight_) @ self.bias_
        second_moment = require_summable(rows.sum(self._second_moment), NAME)
        _, directions = np.linalg.eigh(second_moment)  # the largest eigenvalue last
        self.residual_ = np.ascontiguousarray(directions[:, : len(directions) - n_dimensions])
        max_logit, residual_norm, norm = rows.sum(self._sums) / rows.weights.sum()
        if not residual_norm > NEGLIGIBLE * norm:
            rule = f"must vary outside the principal subspace of {n_dimensions} dimensions"
            fix = "Lower n_dimensions, or use more rows"
            raise BadValueError("features", NAME, rule, "no residual", fix)
        if not max_logit > 0:
            rule = "must give a positive largest logit on average"
            fix = "Pass the layer's own weights and bias"
            raise BadValueError("weights", NAME, rule, f"{max_logit:.6g}", fix)
        self.alpha_ = float(max_logit / residual_norm)

    def _score_rows(self, features: FloatArray) -> FloatArray:
        virtual = self.alpha_ * self._residual_norms(features)
        return np.asarray(virtual - logsumexp(self.logits(features), axis=1))

    def _residual_norms(self, features: FloatArray) -> FloatArray:
        """Return the norm of each row's component outside the principal subspace."""
        return np.asarray(np.linalg.norm((features - self.origin_) @ self.residual_, axis=1))

    def _second_moment(self, rows: FeatureRows) -> FloatArray:
        scaled = (rows.features - self.origin_) * np.sqrt(rows.weight)[:, np.newaxis]
        return np.asarray(scaled.T @ scaled)

    def _sums(self, rows: FeatureRows) -> FloatArray:
        """Return weighted sums of the largest logits, of residual norms, and of norms."""
        max_logits = self.logits(rows.features).max(axis=1)
        norms = np.linalg.norm(rows.features - self.origin_, axis=1)
        return np.stack([max_logits, self._residual_norms(rows.features), norms]) @ rows.weight

    def _subspace_dimension(self) -> int:
        """Return the dimension of the principal subspace, below the number of features."""
        n_features, given = self.n_features_, self.n_dimensions
        if given is None:
            return 1000 if n_features >= 2048 else 512 if n_features >= 768 else n_features // 2
        return as_count(given, "n_dimensions", NAME, 0, n_features - 1, example=n_features // 2)
