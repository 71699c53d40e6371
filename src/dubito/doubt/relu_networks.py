"""What a ReLU network does away from its training data: activation patterns and rays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import logsumexp

from dubito.arrays import ArrayResult, FloatArray, IntArray, as_finite, as_floats, as_numbers
from dubito.doubt.activations import as_bias
from dubito.doubt.features import as_feature_matrix
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import row_blocks, run_in_order


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
    limit = _confidence(np.where(is_fastest, offset, -np.inf))
    return RayConfidence(confidence, limit, slope)


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
