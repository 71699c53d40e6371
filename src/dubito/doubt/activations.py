"""Activations: feature norms, angles to class weights, patterns and rays of ReLU networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from scipy.special import expit, logsumexp, softmax

from dubito.arrays import (
    ArrayResult,
    FloatArray,
    IntArray,
    as_finite,
    as_floats,
    as_numbers,
    require_choice,
)
from dubito.doubt.features import MAX_SCORE, as_feature_matrix, unit_rows_and_norms
from dubito.doubt.scores import least_confidence
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.outputs import Logits, unchecked


def feature_norm(features: Any) -> FloatArray:
    """Return the norm |z| of each row of features.

    Networks tend to give in-distribution inputs features of larger norm. As an uncertainty score
    use `negative_feature_norm`.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features)
        The inputs of the last layer.

    Returns
    -------
    ndarray of shape (n_rows,)
        Euclidean norms, in float64.

    Examples
    --------
    >>> from dubito.doubt import feature_norm
    >>> feature_norm([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [5.0, 0.0]
    """
    return norms(as_feature_matrix(features, "feature_norm"))


def negative_feature_norm(features: Any) -> FloatArray:
    """Return the uncertainty score -|z|: OOD features often have a smaller norm.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features)
        The inputs of the last layer.

    Returns
    -------
    ndarray of shape (n_rows,)
        Scores; larger means more uncertain.

    Examples
    --------
    >>> from dubito.doubt import negative_feature_norm
    >>> negative_feature_norm([[3.0, 4.0]]).tolist()
    [-5.0]
    """
    return -norms(as_feature_matrix(features, "negative_feature_norm"))


def familiarity(features: Any, weights: Any) -> FloatArray:
    """Return each row's largest cosine similarity to the weights of a class.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features)
        The inputs of the last layer.
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer, as PyTorch stores them.

    Returns
    -------
    ndarray of shape (n_rows,)
        Cosines from -1 to 1; 0 for features that are all 0.

    References
    ----------
    Pearce et al., "Understanding softmax confidence and uncertainty", 2021.

    Examples
    --------
    >>> from dubito.doubt import familiarity
    >>> familiarity([[2.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [-1.0, 0.0]]).round(4).tolist()
    [1.0, 0.7071]
    """
    return max_cosines(*as_layer(features, weights, 1, "familiarity"))


def unfamiliarity(features: Any, weights: Any) -> FloatArray:
    """Return the uncertainty score 1 - familiarity: OOD features align with no class weights.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features)
        The inputs of the last layer.
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer.

    Returns
    -------
    ndarray of shape (n_rows,)
        Scores from 0 to 2; larger means more uncertain.

    Examples
    --------
    >>> from dubito.doubt import unfamiliarity
    >>> unfamiliarity([[2.0, 0.0], [0.0, 3.0]], [[1.0, 0.0], [-1.0, 0.0]]).tolist()
    [0.0, 1.0]
    """
    return 1 - max_cosines(*as_layer(features, weights, 1, "unfamiliarity"))


def mental_model(
    features: Any, weights: Any, form: Literal["published", "simplex"] = "published"
) -> FloatArray:
    """Return -(largest probability) of a softmax that depends on norm and familiarity only.

    The scores saturate at -1 for large norms; compare `negative_feature_norm` there.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features)
        The inputs of the last layer.
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer, of at least 2 classes.
    form : {"published", "simplex"}, default="published"
        The formula as printed in the paper, or the exact one for weights that form a regular
        simplex of unit length. They agree at familiarity 1 only.

    Returns
    -------
    ndarray of shape (n_rows,)
        Scores from -1 to 0; larger means more uncertain.

    References
    ----------
    Pearce et al., "Understanding softmax confidence and uncertainty", 2021.

    Examples
    --------
    >>> from dubito.doubt import mental_model
    >>> mental_model([[2.0, 0.0]], [[1.0, 0.0], [-1.0, 0.0]]).round(4).tolist()
    [-0.982]
    """
    require_choice(form, ("published", "simplex"), "form", "mental_model")
    z, w = as_layer(features, weights, 2, "mental_model")
    cosines, n_others = max_cosines(z, w), len(w) - 1
    slope = 1 / n_others + cosines if form == "published" else cosines * (n_others + 1) / n_others
    with np.errstate(over="ignore"):
        margin = norms(z) * slope
    return -np.asarray(expit(margin - np.log(n_others)))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SoftmaxDecomposition(ArrayResult):
    """The effect of feature norms and of angles on the softmax uncertainty of each row.

    Attributes
    ----------
    norm : ndarray of shape (n_rows,)
        Feature norms.
    familiarity : ndarray of shape (n_rows,)
        The largest cosine to the weights of a class.
    uncertainty : ndarray of shape (n_rows,)
        1 - the largest probability (1 - MSP).
    uncertainty_by_angle : ndarray of shape (n_rows,)
        The same if all rows had the mean norm, so that only their angles differ.
    uncertainty_by_norm : ndarray of shape (n_rows,)
        The same if all rows had the mean angles, so that only their norms differ.
    class_norms : ndarray of shape (n_classes,)
        The norm of each class's weights.
    cosines : ndarray of shape (n_rows, n_classes)
        The cosine of each row to the weights of each class.
    probabilities : ndarray of shape (n_rows, n_classes)
        The softmax of these parts, of norm * class_norms * cosines + bias.
    """

    norm: FloatArray
    familiarity: FloatArray
    uncertainty: FloatArray
    uncertainty_by_angle: FloatArray
    uncertainty_by_norm: FloatArray
    class_norms: FloatArray
    cosines: FloatArray
    probabilities: FloatArray


def softmax_decomposition(features: Any, weights: Any, bias: Any = None) -> SoftmaxDecomposition:
    """Return softmax uncertainty due to angles alone, and due to feature norms alone.

    The mean norm and the mean angles are taken over the given rows: pass in-distribution and OOD
    rows together. Mean angles are those of the closest class of each row, of the second closest,
    and so on, each with the bias of its class.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features)
        The inputs of the last layer.
    weights : array-like of shape (n_classes, n_features)
        The weights of the last layer, of at least 2 classes.
    bias : array-like of shape (n_classes,), optional
        Its bias; 0 by default.

    Returns
    -------
    SoftmaxDecomposition
        Norms, cosines and uncertainties per row, and the softmax that they give.

    References
    ----------
    Pearce et al., "Understanding softmax confidence and uncertainty", 2021.

    Examples
    --------
    >>> from dubito.doubt import softmax_decomposition
    >>> parts = softmax_decomposition([[2.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [0.0, 0.5]])
    >>> (parts.uncertainty_by_angle - parts.uncertainty).round(4).tolist()
    [0.0, 0.0]
    """
    caller = "softmax_decomposition"
    z, w = as_layer(features, weights, 2, caller)
    b = as_bias(bias, len(w), caller)
    if not len(z):
        raise BadValueError("features", caller, "must have at least 1 row", "0", "Pass more rows")
    norm, lengths = norms(z), norms(w)
    mean_norm = _finite_sum(norm / len(z))
    uncertainty, by_angle, by_norm = np.empty((3, len(z)))
    every, probabilities = np.empty((2, len(z), len(w)))
    mean_slopes: FloatArray = np.zeros(len(w))
    mean_biases: FloatArray = np.zeros(len(w))
    for rows, cosines in _cosine_blocks(z, w):
        slopes = lengths * cosines  # logits are norm x |w| cos + bias
        order = np.argsort(-slopes, axis=1, kind="stable")
        ranked = np.take_along_axis(slopes, order, axis=1)
        mean_slopes = _finite_sum(np.vstack([mean_slopes, ranked / len(z)]))
        mean_biases = _finite_sum(np.vstack([mean_biases, b[order] / len(z)]))
        every[rows] = cosines
        logits = _logits(norm[rows, np.newaxis], slopes, b)
        with np.errstate(over="ignore"):
            probabilities[rows] = softmax(logits, axis=1)
        uncertainty[rows] = _uncertainty(logits)
        by_angle[rows] = _uncertainty(_logits(mean_norm, slopes, b))
    for rows in row_blocks(len(z), len(w)):
        by_norm[rows] = _uncertainty(_logits(norm[rows, np.newaxis], mean_slopes, mean_biases))
    parts = (norm, every.max(axis=1), uncertainty, by_angle, by_norm)
    return SoftmaxDecomposition(*parts, lengths, every, probabilities)


def as_layer(
    features: Any, weights: Any, min_classes: int, caller: str, argument: str = "features"
) -> tuple[FloatArray, FloatArray]:
    """Return features and the weights of the layer they are the inputs of."""
    z = as_feature_matrix(features, caller, argument)
    return z, as_weights(weights, z.shape[1], caller, min_classes)


def as_weights(weights: Any, n_features: int, caller: str, min_classes: int = 0) -> FloatArray:
    """Return the weights of a last layer, of shape (n_classes, n_features)."""
    w = as_numbers(weights, "weights", caller, shape="classes x features", dimensions=(2,))
    if w.shape[1] != n_features:
        is_transposed = w.shape[0] == n_features
        fix = "Pass weights.T" if is_transposed else "Pass the features that the layer takes"
        rule = f"must have shape (n_classes, {n_features}), like the features"
        raise BadValueError("weights", caller, rule, f"shape {w.shape}", fix)
    if len(w) < min_classes:
        rule = f"must have at least {min_classes} classes"
        raise BadValueError("weights", caller, rule, f"{len(w)}", "Pass one row per class")
    return w


def as_bias(bias: Any, n_classes: int, caller: str, argument: str = "bias") -> FloatArray:
    """Return the bias of a last layer as float64, 0 if it has none."""
    if bias is None:
        return np.zeros(n_classes)
    array = as_finite(as_floats(bias, argument, caller), argument, caller)
    if array.shape != (n_classes,):
        rule, fix = f"must have shape ({n_classes},)", "Pass the bias of the same layer"
        raise BadValueError(argument, caller, rule, f"shape {array.shape}", fix)
    return array.astype(np.float64)


def norms(rows: FloatArray) -> FloatArray:
    """Return the norm of each row."""
    result = np.empty(len(rows))
    for block in row_blocks(*rows.shape):
        result[block] = unit_rows_and_norms(rows[block])[1]
    return result


def max_cosines(z: FloatArray, w: FloatArray) -> FloatArray:
    """Return each row's largest cosine to a row of weights."""
    largest = np.empty(len(z))
    for rows, cosines in _cosine_blocks(z, w):
        largest[rows] = cosines.max(axis=1)
    return largest


def _cosine_blocks(z: FloatArray, w: FloatArray) -> Iterator[tuple[slice, FloatArray]]:
    """Yield ranges of rows and their cosines to all rows of weights."""
    directions = unit_rows_and_norms(w)[0].T
    for rows in row_blocks(len(z), sum(w.shape)):
        yield rows, np.clip(unit_rows_and_norms(z[rows])[0] @ directions, -1.0, 1.0)


def _finite_sum(rows: FloatArray) -> FloatArray:
    """Return the sum over rows, clipped to finite numbers."""
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(rows.sum(axis=0), -MAX_SCORE, MAX_SCORE))


def _logits(norm: FloatArray, slopes: FloatArray, bias: FloatArray) -> FloatArray:
    """Return the logits norm x slopes + bias, clipped to finite numbers."""
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(norm * slopes + bias, -MAX_SCORE, MAX_SCORE))


def _uncertainty(logits: FloatArray) -> FloatArray:
    """Return 1 - the largest probability."""
    return least_confidence(unchecked(Logits, {"array": logits, "classes": None}))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ActivationPatterns(ArrayResult):
    """How the active units of some rows compare with those of the training rows.

    Attributes
    ----------
    n_shared : ndarray of int of shape (n_rows,)
        The number of training rows with exactly the same active units.
    distance : ndarray of int of shape (n_rows,)
        The number of units in which the nearest pattern of a training row differs (Hamming
        distance): larger means further from the training data.
    """

    n_shared: IntArray
    distance: IntArray


def activation_patterns(activations: Any, reference: Any) -> ActivationPatterns:
    """Return how many training rows share the active units of each row, and how far others are.

    A ReLU network is linear where its active units (those above 0) are the same. Rows whose
    pattern no training row has are mapped by a linear function that was never fitted there.

    Parameters
    ----------
    activations : array-like of shape (n_rows, n_units)
        Outputs of the ReLUs for new rows; units of several layers side by side.
    reference : array-like of shape (n_reference, n_units)
        The same for training rows.

    Returns
    -------
    ActivationPatterns
        Counts and distances per row.

    References
    ----------
    Pearce et al., "Understanding softmax confidence and uncertainty", 2021. Hanin and Rolnick,
    "Deep ReLU networks have surprisingly few activation patterns", 2019.

    Examples
    --------
    >>> from dubito.doubt import activation_patterns
    >>> train = [[0.5, 0.0, 1.0], [2.0, 0.0, 0.1], [0.0, 0.0, 3.0]]
    >>> found = activation_patterns([[9.0, 0.0, 9.0], [1.0, 1.0, 0.0]], train)
    >>> found.n_shared.tolist(), found.distance.tolist()
    ([2, 0], [0, 2])
    """
    caller = "activation_patterns"
    new = as_feature_matrix(activations, caller, "activations") > 0
    known = as_feature_matrix(reference, caller, "reference") > 0
    if not len(known):
        fix = "Pass the activations of training rows"
        raise BadValueError("reference", caller, "must have at least 1 row", "0", fix)
    if known.shape[1] != new.shape[1]:
        rule, fix = f"must have {new.shape[1]} units, like `activations`", "Pass the same layers"
        raise BadValueError("reference", caller, rule, f"{known.shape[1]}", fix)
    # With entries of 1 and -1, a product counts the units that agree less those that differ.
    signs = np.where(known, np.float32(1), np.float32(-1)).T
    n_shared, distance = np.empty((2, len(new)), dtype=np.int64)

    def compare(rows: slice) -> None:
        agreement = np.where(new[rows], np.float32(1), np.float32(-1)) @ signs
        differing = (new.shape[1] - agreement) / 2
        n_shared[rows] = np.count_nonzero(differing == 0, axis=1)
        distance[rows] = differing.min(axis=1)

    run_in_order(compare, row_blocks(len(new), max(signs.shape)))
    return ActivationPatterns(n_shared, distance)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RayConfidence(ArrayResult):
    """The softmax confidence of a ReLU network along rays away from a point.

    Attributes
    ----------
    confidence : ndarray of shape (n_rays, n_factors)
        The largest probability at origin + factor * direction.
    limit : ndarray of shape (n_rays,)
        What the confidence tends to: 1 if the logit of one class grows fastest; less if several
        grow equally fast, up to rounding.
    slopes : ndarray of shape (n_rays, n_classes)
        How fast each logit grows in the end, per unit of the factor. By homogeneity, these are
        the logits of the same network without biases, for the direction as its input.
    """

    confidence: FloatArray
    limit: FloatArray
    slopes: FloatArray


def ray_confidence(
    layers: Sequence[tuple[Any, Any]], origin: Any, directions: Any, factors: Any
) -> RayConfidence:
    """Return the confidence along rays away from the data, and the limit that it tends to.

    Without biases a ReLU network is homogeneous, f(a x) = a f(x) for a > 0: far enough along a ray
    biases no longer matter and logits grow in proportion to the distance, so that the softmax
    becomes certain, whatever was learned.

    Parameters
    ----------
    layers : sequence of (weights, bias)
        The linear layers, with a ReLU between any two of them; weights of shape (n_outputs,
        n_inputs) as PyTorch stores them. A bias may be None.
    origin : array-like of shape (n_inputs,)
        Where rays start, for example the mean of the training inputs.
    directions : array-like of shape (n_rays, n_inputs)
        The inputs at factor 1, less the origin.
    factors : array-like of shape (n_factors,)
        How far along the rays to compute the confidence.

    Returns
    -------
    RayConfidence
        Confidences, limits and slopes.

    References
    ----------
    Hein et al., "Why ReLU networks yield high-confidence predictions far away from the training
    data and how to mitigate the problem", 2019. Pearce et al., "Understanding softmax confidence
    and uncertainty", 2021.

    Examples
    --------
    >>> from dubito.doubt import ray_confidence
    >>> layers = [([[1.0], [-1.0]], [0.0, 0.0]), ([[1.0, 0.0], [0.0, 1.0]], [0.0, 1.0])]
    >>> found = ray_confidence(layers, [0.0], [[1.0]], [0.0, 1.0, 10.0])
    >>> found.confidence.round(4).tolist(), found.limit.tolist(), found.slopes.tolist()
    ([[0.7311, 0.5, 0.9999]], [1.0], [[1.0, 0.0]])
    """
    caller = "ray_confidence"
    start = as_numbers(origin, "origin", caller).astype(np.float64)
    away = as_feature_matrix(directions, caller, "directions").astype(np.float64)
    if away.shape[1] != start.size:
        rule, fix = f"must have {start.size} columns, like `origin`", "Pass inputs of one network"
        raise BadValueError("directions", caller, rule, f"{away.shape[1]}", fix)
    steps = as_numbers(factors, "factors", caller).astype(np.float64)
    checked = _as_layers(layers, start.size, caller)
    points = (start + steps[:, np.newaxis, np.newaxis] * away).reshape(-1, start.size)
    for number, (weights, bias) in enumerate(checked):
        points = (np.maximum(points, 0) if number else points) @ weights.T + bias
    confidence = _confidence(points).reshape(steps.size, len(away)).T
    # In the end a unit is offset + factor * slope: it is active if it grows, or stays above 0.
    # Slopes carry a bound of their rounding error: whether they are 0 or equal is up to that.
    offset, slope, error = np.broadcast_to(start, away.shape), away, np.zeros_like(away)
    for number, (weights, bias) in enumerate(checked):
        is_flat = np.abs(slope) <= error
        is_active = np.where(is_flat, offset > 0, slope > 0) | (number == 0)
        offset = np.where(is_active, offset, 0) @ weights.T + bias
        growing = is_active & ~is_flat
        slope, error = np.where(growing, slope, 0), np.where(growing, error, 0)
        rounding = (weights.shape[1] + 1) * np.finfo(np.float64).eps
        error = (error + rounding * np.abs(slope)) @ np.abs(weights).T
        slope = slope @ weights.T
    fastest = slope.argmax(axis=1)[:, np.newaxis]
    lead = np.take_along_axis(slope, fastest, axis=1) - slope
    is_fastest = lead <= error + np.take_along_axis(error, fastest, axis=1)
    return RayConfidence(confidence, _confidence(np.where(is_fastest, offset, -np.inf)), slope)


def _as_layers(
    layers: Sequence[tuple[Any, Any]], n_inputs: int, caller: str
) -> list[tuple[FloatArray, FloatArray]]:
    """Return weights and biases in float64, each layer fitting the one before."""
    checked: list[tuple[FloatArray, FloatArray]] = []
    fix = "Pass [(weights, bias), ...], one pair per linear layer"
    if not isinstance(layers, list | tuple):
        rule = "must be a list of (weights, bias)"
        raise BadTypeError("layers", caller, rule, type(layers).__name__, fix)
    for number, layer in enumerate(layers):
        place = f"layers[{number}]"
        if not (isinstance(layer, list | tuple) and len(layer) == 2):
            got = type(layer).__name__
            raise BadTypeError(place, caller, "must be a pair (weights, bias)", got, fix)
        w = as_finite(as_floats(layer[0], place, caller), place, caller).astype(np.float64)
        if w.ndim != 2 or w.shape[1] != n_inputs or not len(w):
            source = f"the outputs of layers[{number - 1}]" if number else "`origin`"
            rule = f"must have weights of shape (n_outputs, {n_inputs}), like {source}"
            is_transposed = w.ndim == 2 and len(w) == n_inputs
            remedy = "Pass weights.T" if is_transposed else "Pass consecutive layers"
            raise BadValueError(place, caller, rule, f"shape {w.shape}", remedy)
        checked.append((w, as_bias(layer[1], len(w), caller, f"{place}[1]")))
        n_inputs = len(w)
    if not checked:
        raise BadValueError("layers", caller, "must have at least 1 layer", "0", fix)
    return checked


def _confidence(logits: FloatArray) -> FloatArray:
    """Return the largest probability of each row."""
    return np.asarray(np.exp(logits.max(axis=1) - logsumexp(logits, axis=1)))
