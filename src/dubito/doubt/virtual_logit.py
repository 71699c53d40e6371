"""Virtual-logit matching: an extra class for features outside the principal subspace."""

from __future__ import annotations

from typing import Any, final

import numpy as np
from scipy.special import logsumexp

from dubito.arrays import FloatArray, as_count
from dubito.doubt.features import FeatureRows, FeatureShards
from dubito.doubt.last_layer import BaseLastLayerScore
from dubito.doubt.moments import require_summable
from dubito.errors import BadValueError
from dubito.serialization.array_fields import array
from dubito.serialization.fields import MOST, Entry, declare, number

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
    >>> train = [[2.0, 0.0, 0.1], [0.0, 2.0, -0.1], [2.0, 0.0, -0.1], [0.0, 2.0, 0.1]]
    >>> score = VirtualLogitMatching([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], n_dimensions=2).fit(train)
    >>> score.score([[2.0, 0.0, 0.1], [2.0, 0.0, 0.5]]).round(2).tolist()
    [-0.13, 7.87]
    """

    origin_: FloatArray
    residual_: FloatArray
    alpha_: float

    fitted_fields = declare(
        origin_=array("n_features_", low=-MOST, high=MOST),
        residual_=array("n_features_", None, low=-MOST, high=MOST),
        alpha_=number(0, MOST),
    )

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
