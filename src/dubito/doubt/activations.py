"""Uncertainty scores from the last layer: feature norms and how features align with class weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from scipy.special import expit

from dubito.arrays import FloatArray, as_finite, as_floats, require_dimensions
from dubito.doubt.scores import least_confidence
from dubito.errors import BadValueError
from dubito.kernels.blocks import row_blocks
from dubito.outputs import Logits, unchecked

LARGEST = float(np.finfo(np.float64).max)  # norms beyond count as this: infinity times 0 is no norm


@final
@dataclass(frozen=True, slots=True, eq=False)
class SoftmaxDecomposition:
    """What norms and angles each do to the softmax: least confidences, one number a row.

    `uncertainty` is 1 - the largest probability as it is. In `uncertainty_by_angle` all rows have the
    mean norm and only their angles differ; in `uncertainty_by_norm` all have the mean angles and only their norms.
    """

    norm: FloatArray
    familiarity: FloatArray
    uncertainty: FloatArray
    uncertainty_by_angle: FloatArray
    uncertainty_by_norm: FloatArray


def feature_norm(features: Any) -> FloatArray:
    """Return the length |z| of each row of features (rows x features).

    Known data tends to excite a network more than strangers do; `negative_feature_norm` is the doubt.

    >>> feature_norm([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [5.0, 0.0]
    """
    return norms_of(as_features(features, "features", "feature_norm"))


def familiarity(features: Any, weights: Any) -> FloatArray:
    """Return the largest cosine of each row of features to the weights of a class; 0 without any.

    `weights` are those of the last layer, classes x features, as PyTorch keeps them. Pearce et al.,
    "Understanding softmax confidence and uncertainty", 2021.

    >>> familiarity([[2.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [-1.0, 0.0]]).round(4).tolist()
    [1.0, 0.7071]
    """
    return familiarity_of(*as_layer(features, weights, 1, "familiarity"))


def negative_feature_norm(features: Any) -> FloatArray:
    """Return the doubt -|z|: strangers often excite the last layer less than known data.

    >>> negative_feature_norm([[3.0, 4.0]]).tolist()
    [-5.0]
    """
    return -norms_of(as_features(features, "features", "negative_feature_norm"))


def unfamiliarity(features: Any, weights: Any) -> FloatArray:
    """Return the doubt 1 - familiarity, from 0 to 2: strangers point at no class's weights.

    >>> unfamiliarity([[2.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [-1.0, 0.0]]).tolist()
    [0.0, 1.0]
    """
    return 1 - familiarity_of(*as_layer(features, weights, 1, "unfamiliarity"))


def mental_model(
    features: Any, weights: Any, form: Literal["published", "simplex"] = "published"
) -> FloatArray:
    """Return the doubt -(largest probability) of a softmax that only knows norm and familiarity.

    "simplex" is what a layer whose weights form a regular simplex of unit length really says;
    "published" is as printed, and equal at familiarity 1 only. Both reach -1 where norms are large:
    compare `negative_feature_norm` there. Pearce et al., "Understanding softmax ...", 2021.

    >>> mental_model([[2.0, 0.0]], [[1.0, 0.0], [-1.0, 0.0]]).round(4).tolist()
    [-0.982]
    """
    if form not in ("published", "simplex"):
        rule, fix = "'published' or 'simplex'", "form='published'"
        raise BadValueError("form", "mental_model", rule, repr(form), fix)
    z, w = as_layer(features, weights, 2, "mental_model")
    c, n_others = familiarity_of(z, w), len(w) - 1
    pull = 1 / n_others + c if form == "published" else c * (n_others + 1) / n_others
    with np.errstate(over="ignore"):
        lead = norms_of(z) * pull
    return -np.asarray(expit(lead - np.log(n_others)))


def softmax_decomposition(features: Any, weights: Any, bias: Any = None) -> SoftmaxDecomposition:
    """Return the softmax's doubt as it is, by the angles alone, and by the norms alone.

    The mean angles are those of the largest |w| cos of each row, of the second, and so on, each
    with the bias of its class. They, like the mean norm, are means over the rows given: give known
    rows and strangers together. Pearce et al., "Understanding softmax ...", 2021.

    >>> parts = softmax_decomposition([[2.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 0.5]])
    >>> (parts.uncertainty_by_angle - parts.uncertainty).round(4).tolist()
    [0.0, 0.0]
    """
    caller = "softmax_decomposition"
    z, w = as_layer(features, weights, 2, caller)
    b = _as_bias(bias, len(w), caller)
    if not len(z):
        raise BadValueError("features", caller, "1 row or more", "none", "at least one row")
    norm, lengths = norms_of(z), norms_of(w)
    mean_norm = _total_of(norm / len(z))
    c, doubt, by_angle, by_norm = np.empty((4, len(z)))
    pulls: FloatArray = np.zeros(len(w))
    biases: FloatArray = np.zeros(len(w))
    for rows, cosines in _cosine_blocks(z, w):
        pull = lengths * cosines
        logits = _logits_of(norm[rows, np.newaxis], pull, b)
        order = np.argsort(-pull, axis=1, kind="stable")
        in_order = np.take_along_axis(pull, order, axis=1)
        pulls = _total_of(np.vstack([pulls, in_order / len(z)]))
        biases = _total_of(np.vstack([biases, b[order] / len(z)]))
        c[rows] = cosines.max(axis=1)
        doubt[rows] = _doubt_of(logits)
        by_angle[rows] = _doubt_of(_logits_of(mean_norm, pull, b))
    for rows in row_blocks(len(z), len(w)):
        by_norm[rows] = _doubt_of(_logits_of(norm[rows, np.newaxis], pulls, biases))
    return SoftmaxDecomposition(norm, c, doubt, by_angle, by_norm)


def as_features(features: Any, argument: str, caller: str) -> FloatArray:
    """Return rows x features, all finite."""
    array = as_finite(as_floats(features, argument, caller), argument, caller)
    require_dimensions(array, (2,), argument, caller, "rows x features")
    return array


def as_layer(
    features: Any, weights: Any, least: int, caller: str, argument: str = "features"
) -> tuple[FloatArray, FloatArray]:
    """Return features and the weights of the layer they go into, at least so many classes."""
    z = as_features(features, argument, caller)
    w = as_finite(as_floats(weights, "weights", caller), "weights", caller)
    require_dimensions(w, (2,), "weights", caller, "classes x features")
    if w.shape[1] != z.shape[1]:
        is_turned = w.shape[0] == z.shape[1]
        fix = "`weights.T`" if is_turned else "the features that go into the layer of these weights"
        rule = f"classes x {z.shape[1]} features, like the features"
        raise BadValueError("weights", caller, rule, f"shape {w.shape}", fix)
    if len(w) < least:
        rule, fix = f"of {least} classes or more", "one row of weights a class"
        raise BadValueError("weights", caller, rule, f"{len(w)}", fix)
    return z, w


def _as_bias(bias: Any, n_classes: int, caller: str) -> FloatArray:
    """Return one number a class, 0 where there is no bias."""
    if bias is None:
        return np.zeros(n_classes)
    array = as_finite(as_floats(bias, "bias", caller), "bias", caller)
    if array.shape != (n_classes,):
        rule, fix = f"{n_classes} numbers, one a class", "the bias of the layer of these weights"
        raise BadValueError("bias", caller, rule, f"shape {array.shape}", fix)
    return array.astype(np.float64)


def _units_of(rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return rows in float64 at length 1 (0 for those of length 0), and their lengths."""
    wide = rows.astype(np.float64)
    # Scaled by the largest entry first, so that no square overflows or vanishes.
    scale = np.abs(wide).max(axis=1, initial=0.0)
    wide /= np.where(scale > 0, scale, 1.0)[:, np.newaxis]
    length = np.sqrt(np.einsum("ij,ij->i", wide, wide))
    wide /= np.where(scale > 0, length, 1.0)[:, np.newaxis]
    with np.errstate(over="ignore"):
        return wide, np.minimum(scale * length, LARGEST)


def norms_of(rows: FloatArray) -> FloatArray:
    """Return the length of each row."""
    norms = np.empty(len(rows))
    for block in row_blocks(*rows.shape):
        norms[block] = _units_of(rows[block])[1]
    return norms


def _cosine_blocks(z: FloatArray, w: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Yield ranges of rows and their cosines to all weights, rows x classes."""
    directions = _units_of(w)[0].T
    for rows in row_blocks(len(z), sum(w.shape)):
        yield rows, np.clip(_units_of(z[rows])[0] @ directions, -1.0, 1.0)


def familiarity_of(z: FloatArray, w: FloatArray) -> FloatArray:
    """Return the largest cosine of each row."""
    largest = np.empty(len(z))
    for rows, cosines in _cosine_blocks(z, w):
        largest[rows] = cosines.max(axis=1)
    return largest


def _total_of(rows: FloatArray) -> FloatArray:
    """Return the sum over rows, kept finite."""
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(rows.sum(axis=0), -LARGEST, LARGEST))


def _logits_of(norm: FloatArray, pull: FloatArray, bias: FloatArray) -> FloatArray:
    """Return norm x |w| cos + bias, kept finite."""
    with np.errstate(over="ignore"):
        return np.clip(norm * pull + bias, -LARGEST, LARGEST)


def _doubt_of(logits: FloatArray) -> FloatArray:
    """Return the least confidence of rows of logits."""
    return least_confidence(unchecked(Logits, {"array": logits, "classes": None}))
