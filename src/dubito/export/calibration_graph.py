"""What fitted calibrators compute, as graphs of array operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from math import log
from operator import add
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    ConfidenceCalibrator,
    EnsembleTemperatureScaling,
    ForestCalibration,
    HistogramBinning,
    IdentityCalibrator,
    IsotonicCalibration,
    MultiLabelCalibrator,
    OneVsRest,
    PlattScaling,
    TemperatureScaling,
)
from dubito.calibrate.affine import MIN_LOG_PROBA, MIN_RBF_LOG_PROBA, SPLINE_KNOTS, Basis
from dubito.calibrate.binary import ROUNDING, BaseBinaryCalibrator
from dubito.calibrate.calibrator import FLOOR
from dubito.calibrate.confidence import HINGES, SHARPNESS, ScoreModel
from dubito.calibrate.matrix import BaseAffineScaling
from dubito.calibrate.multilabel import MAX_OTHER
from dubito.errors import BadTypeError, BadValueError, TooLargeError
from dubito.export.graph import TINY, Graph, Value

MAX_LOG_ODDS = log((1 - FLOOR) / FLOOR)
MAX_TABLE = 1 << 24  # probabilities in the leaves of a forest: 128 MB
STEPPED = (IsotonicCalibration, HistogramBinning)  # curves of probabilities, others of log odds
REMEDIES = {  # for what is no policy or calibrator of classes
    "RegressionPolicy": "Decide with RegressionPolicy.decide, or over HTTP with `dubito serve`",
    "Cascade": "Fit a Policy with costs.with_model(...), whose decision to call a larger model "
    "can be exported",
    "CalibratedClassifier": "Pass its calibrator_",
    "CostSensitiveClassifier": "Fit a Policy with its costs on held-out outputs of the model, or "
    "pass model_.calibrator_",
    "ConformalClassifier": "Export the calibrator, or a Policy with costs.with_reject(...): the "
    "threshold of a set is no cost",
}


@final
class Rows:
    """Model outputs in a graph: what several calibrators need of them is computed once."""

    def __init__(self, graph: Graph, outputs: Value, n_classes: int, *, is_logits: bool) -> None:
        self.graph = graph
        self.outputs = outputs
        self.n_classes = n_classes
        self.is_logits = is_logits

    @cached_property
    def log_proba(self) -> Value:
        """Log probabilities."""
        x = self.outputs if self.is_logits else self.outputs.maximum(FLOOR).log()
        return x.log_softmax().named("log_proba")

    @cached_property
    def log_odds(self) -> Value:
        """Log odds of each class against the rest, without the cancellation of 1 - p."""
        x = self.log_proba
        if self.n_classes == 2:
            second = x.columns([1]) - x.columns([0])
            odds = self.graph.concat([-second, second])
        else:
            p = x.exp().named("p")
            total = p.sum().named("total")
            rest = (x < x.max()).where(p, 0.0).sum()
            others = (total * 0.5 < p).where(rest, total - p)
            odds = (p / others.maximum(total * FLOOR)).maximum(FLOOR).log()
        return odds.clip(-MAX_LOG_ODDS, MAX_LOG_ODDS).named("log_odds")


@final
@dataclass(frozen=True, eq=False)
class Posterior:
    """Calibrated outputs as they are computed: scores before the softmax, or probabilities."""

    value: Value
    is_logits: bool

    @cached_property
    def proba(self) -> Value:
        """Probabilities that sum to 1."""
        p = self.value.softmax() if self.is_logits else self.value / self.value.sum()
        return p.named("p")

    @property
    def log_proba(self) -> Value:
        """Log probabilities."""
        x = self.value if self.is_logits else self.value.maximum(TINY).log()
        return x.log_softmax()

    @property
    def floored(self) -> Value:
        """Probabilities as `predict_proba` returns them."""
        return self.proba.maximum(FLOOR) if self.is_logits else self.value


def posterior_of(calibrator: BaseCalibrator, rows: Rows) -> Posterior:
    """Return what a calibrator makes of rows, as `BaseCalibrator.apply` does."""
    if isinstance(calibrator, AutoCalibrator):
        mixed = _mixture(calibrator, rows)
        return Posterior((mixed / mixed.sum()).maximum(FLOOR), is_logits=False)
    return Posterior(_scores(calibrator, rows), is_logits=True)


def _probabilities(calibrator: Any, rows: Rows) -> Value:
    """Return the probabilities of a part of a mixture."""
    if isinstance(calibrator, AutoCalibrator):
        return _mixture(calibrator, rows)
    if isinstance(calibrator, ForestCalibration):
        return _forest(calibrator, rows)
    if isinstance(calibrator, OneVsRest):
        combined = _one_vs_rest(calibrator, rows)
        return combined / combined.sum()
    if isinstance(calibrator, EnsembleTemperatureScaling):
        scaled, unchanged, uniform = map(float, calibrator.weights_)
        tempered = (rows.log_proba * (1 / calibrator.temperature_)).softmax()
        return tempered * scaled + rows.log_proba.exp() * unchanged + uniform / rows.n_classes
    return _scores(calibrator, rows).softmax()


def _scores(calibrator: Any, rows: Rows) -> Value:
    """Return log probabilities up to a constant per row."""
    match calibrator:
        case IdentityCalibrator():
            return rows.log_proba
        case TemperatureScaling():
            return rows.log_proba * (1 / calibrator.temperature_)
        case BaseAffineScaling():
            return _affine(calibrator, rows)
        case EnsembleTemperatureScaling() | ForestCalibration():
            return _probabilities(calibrator, rows).maximum(TINY).log()
        case OneVsRest():
            return _one_vs_rest(calibrator, rows).log()
        case BaseBinaryCalibrator():
            odds = rows.log_odds.columns([1])
            if isinstance(calibrator, STEPPED):
                p = _curve_values([calibrator], odds)
                odds = p.maximum(FLOOR).log() - (1.0 - p).maximum(FLOOR).log()
            else:
                odds = _curve_odds([calibrator], odds)
            return rows.graph.concat([odds * 0.0, odds])
        case ConfidenceCalibrator():
            return _confidence(calibrator, rows.outputs)
    raise unsupported(calibrator)


def _mixture(calibrator: AutoCalibrator, rows: Rows) -> Value:
    """Return the weighted mean of several calibrators and of equal probabilities."""
    uniform = calibrator.uniform_weight_
    pairs = zip(calibrator.weights_, calibrator.calibrators_, strict=True)
    parts = [_probabilities(one, rows) * float((1 - uniform) * part) for part, one in pairs]
    return reduce(add, parts) + uniform / rows.n_classes


def _affine(calibrator: BaseAffineScaling, rows: Rows) -> Value:
    """Return a matrix, or its diagonal, times features of logits or log probabilities."""
    basis: Basis = calibrator._features()
    if basis.is_logits:
        if not rows.is_logits:
            rule, fix = "needs logits", "Export with outputs='logits', or fit input='log_proba'"
            name = type(calibrator).__name__
            raise BadTypeError("", f"{name} fitted on logits", rule, "probabilities", fix)
        x = rows.outputs * basis.beta
    else:
        x = (rows.log_proba * basis.beta).log_softmax().maximum(MIN_LOG_PROBA).named("x")
    weight = calibrator.weight_
    if weight.ndim == 1:
        return x * weight + calibrator.bias_
    parts = [x]
    if basis.kind != "linear":
        parts += [x.exp(), *((x - knot).maximum(0.0) for knot in SPLINE_KNOTS)]
    if basis.centers is not None:
        near = x.maximum(MIN_RBF_LOG_PROBA)
        squares = squared_distances(near, basis.centers)
        parts.append((squares * (-0.5 / basis.width**2)).exp())
    return rows.graph.concat(parts) @ weight.T + calibrator.bias_


def squared_distances(x: Value, points: FloatArray) -> Value:
    """Return the squared distance of each row to each of some points."""
    points = np.asarray(points, np.float64)
    squares: FloatArray = np.einsum("ij,ij->i", points, points)
    return ((x * x).sum() + squares - x @ (2 * points.T)).maximum(0.0)


def _one_vs_rest(calibrator: OneVsRest, rows: Rows) -> Value:
    """Return the probability of each class by its own calibrator; they need not sum to 1."""
    parts = calibrator.calibrators_
    if isinstance(parts[0], STEPPED):
        separate = _curve_values(parts, rows.log_odds)
    else:
        separate = _curve_odds(parts, rows.log_odds).sigmoid()
    is_empty = separate.named("separate").sum() <= rows.n_classes * FLOOR * (1 + 1e-6)
    return is_empty.where(rows.log_proba.exp().maximum(TINY), separate.maximum(FLOOR))


def _curve_odds(parts: Sequence[Any], odds: Value) -> Value:
    """Return log odds by Platt scaling or beta calibration, one of them per column."""
    if isinstance(parts[0], PlattScaling):
        slopes = np.array([one.slope_ for one in parts])
        return odds * slopes + np.array([one.intercept_ for one in parts])
    if not isinstance(parts[0], BetaCalibration):
        raise unsupported(parts[0])
    a, b, c = map(np.asarray, zip(*(one.coefficients_ for one in parts), strict=True))
    softness = (1.0 + (-odds.abs()).exp()).log()
    log_p, log_rest = odds.minimum(0.0) - softness, (-odds).minimum(0.0) - softness
    return log_p * a - log_rest * b + c


def _curve_values(parts: Sequence[Any], odds: Value) -> Value:
    """Return probabilities by isotonic curves or histograms, one of them per column."""
    if isinstance(parts[0], HistogramBinning):
        return _histogram_values(parts, odds)
    graph = odds.graph
    knots = [one.knots_ for one in parts]
    x, y = _padded(knots), _padded([one.values_ for one in parts])
    rises = np.diff(y, axis=1, append=y[:, -1:])
    widths = np.diff(x, axis=1, append=x[:, -1:])
    slopes = np.divide(rises, widths, out=np.zeros_like(rises), where=widths > 0)
    inside = odds.clip(x[:, 0], x[:, -1])
    found = graph.count_below(_padded(knots, np.inf), inside, or_equal=True)
    at = found + (np.arange(len(parts)) * x.shape[1] - 1)
    low, high = graph.take(y.ravel(), at), graph.take((y + rises).ravel(), at)
    line = low + (inside - graph.take(x.ravel(), at)) * graph.take(slopes.ravel(), at)
    return line.maximum(low).minimum(high)


def _histogram_values(parts: Sequence[HistogramBinning], odds: Value) -> Value:
    is_left = parts[0].is_left_closed_
    p = (-odds if is_left else odds).sigmoid() * (1 - ROUNDING)
    edges = [(1 - one.edges_[::-1] if is_left else one.edges_)[1:-1] for one in parts]
    values = _padded([one.values_[::-1] if is_left else one.values_ for one in parts])
    table = _padded(edges, np.inf)
    offsets = np.arange(len(parts)) * values.shape[1]
    return odds.graph.take(values.ravel(), odds.graph.count_below(table, p) + offsets)


def _padded(lists: Sequence[FloatArray], last: float | None = None) -> FloatArray:
    """Return lists of numbers as rows of a table, ended by a number or the last of each."""
    width = max(one.size for one in lists)
    ends = [last if last is not None else one[-1] for one in lists]
    pairs = zip(lists, ends, strict=True)
    return np.stack([np.append(one, np.full(width - one.size, end)) for one, end in pairs])


def _forest(calibrator: ForestCalibration, rows: Rows) -> Value:
    """Return the mean over trees of what their leaves give, walking down all trees at once."""
    graph, n_classes, n_trees = rows.graph, rows.n_classes, calibrator.roots_.size
    n_leaves = int((calibrator.column_ < 0).sum())
    if n_leaves * (n_classes + 1) > MAX_TABLE:
        got = f"{n_leaves:,} leaves x {n_classes} classes"
        rule, fix = "is too large to export", "Fit AutoCalibrator(parametric_only=True) instead"
        raise TooLargeError("", "ForestCalibration", rule, got, fix)
    prior = _scores(calibrator.prior_, rows).softmax().named("prior")
    x = rows.log_proba.maximum(MIN_LOG_PROBA).named("x")
    numbers = graph.concat([x, x.exp()]).rounded().named("numbers")
    is_leaf = calibrator.column_ < 0
    column = np.maximum(calibrator.column_, 0)
    child = np.where(is_leaf, np.arange(is_leaf.size), calibrator._children())
    threshold = np.full(is_leaf.size, np.inf)
    threshold[~is_leaf] = calibrator.threshold_.astype(np.float32)
    roots = calibrator.roots_
    goes_right = numbers.columns(column[roots]) > threshold[roots]
    at = goes_right.as_int() + child[roots]
    for _ in range(_depth(child, roots) - 1):
        split = numbers.pick(graph.take(column, at))
        at = graph.take(child, at) + (split > graph.take(threshold, at)).as_int()
    leaves = graph.take(np.cumsum(is_leaf) - 1, at).named("leaves")
    votes = graph.take_sum(_leaf_table(calibrator) / n_trees, leaves).named("votes")
    return votes.columns(range(n_classes)) + votes.columns([n_classes]) * prior


def _depth(child: IntArray, roots: IntArray) -> int:
    """Return the number of steps after which every row has arrived at a leaf."""
    nodes, depth = roots, 0
    while (nodes := nodes[child[nodes] != nodes]).size:
        nodes, depth = np.concatenate([child[nodes], child[nodes] + 1]), depth + 1
    return depth


def _leaf_table(calibrator: ForestCalibration) -> FloatArray:
    """Return what each leaf gives to each class, and to the prior in the last column."""
    is_leaf, n_classes = calibrator.column_ < 0, calibrator.n_classes_
    nodes = np.repeat(np.arange(is_leaf.size), calibrator.n_labels_)
    is_used = is_leaf[nodes]
    leaves = (np.cumsum(is_leaf) - 1)[nodes[is_used]]
    table = np.zeros((int(is_leaf.sum()), n_classes + 1))
    np.add.at(table, (leaves, calibrator.labels_[is_used]), calibrator.weights_[is_used])
    table[:, -1] = float(calibrator.prior_weight)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def _confidence(calibrator: ConfidenceCalibrator, scores: Value) -> Value:
    """Return the log probabilities of wrong and of correct, from scores of any range."""
    if calibrator.groups_ or calibrator.has_missing_.any():
        rule = "cannot export a ConfidenceCalibrator with groups or missing scores"
        got = f"{len(calibrator.groups_)} groups" if calibrator.groups_ else "missing scores"
        fix = "Fit it without groups, on rows with all scores"
        raise BadValueError("", "dubito.export", rule, got, fix)
    graph, is_probability = scores.graph, calibrator.is_probability_
    odds = scores.maximum(TINY).log() - (1.0 - scores).maximum(TINY).log()
    kinds = is_probability.astype(np.float64)
    values = (odds * kinds + scores * (1.0 - kinds)).clip(calibrator.low_, calibrator.high_)
    total = sum(one.weight for one in calibrator.models_)
    parts = []
    for one in calibrator.models_:
        offset = None
        if one.has_offset and calibrator.offset_column_ is not None:
            offset = values.columns([calibrator.offset_column_])
        log_odds = _model_log_odds(one, values, is_probability, offset)
        parts.append(graph.concat([-log_odds, log_odds]).sigmoid() * (one.weight / total))
    return reduce(add, parts).maximum(TINY).log()


def _model_log_odds(
    model: ScoreModel, values: Value, is_probability: BoolArray, offset: Value | None
) -> Value:
    """Return the log odds of one model, shrunk by how little is known about them."""
    x = (values - model.center) / model.scale
    if model.is_compressed and not is_probability.all():
        size = x.abs()
        compressed = (size + (size * size + 1.0).sqrt()).log()
        tails = (~is_probability).astype(np.float64)
        x = (x < 0.0).where(-compressed, compressed) * tails + x * (1.0 - tails)
    # Bends are score by score in the coefficients, hinge by hinge here.
    n_scores = model.center.size
    steps = [(x - hinge) * SHARPNESS for hinge in HINGES]
    bends = [
        (step.maximum(0.0) + (1.0 + (-step.abs()).exp()).log() - np.logaddexp(0, -SHARPNESS * h))
        * (1 / SHARPNESS)
        for step, h in zip(steps, HINGES, strict=True)
    ]
    hinges = np.arange(1 + n_scores, 1 + n_scores * (1 + HINGES.size))
    order = [*range(1 + n_scores), *hinges.reshape(n_scores, HINGES.size).T.ravel()]
    features = x.graph.concat([x.columns([0]) * 0.0 + 1.0, x, *bends]).named("features")
    mean = features @ model.mean[order][:, np.newaxis]
    if offset is not None:
        mean = mean + offset
    covariance = model.covariance[np.ix_(order, order)]
    variance = ((features @ covariance) * features).sum().maximum(0.0)
    return mean / (1.0 + variance * (np.pi / 8)).sqrt()


def label_probabilities(
    calibrator: MultiLabelCalibrator, outputs: Value, *, is_logits: bool
) -> Value:
    """Return the calibrated probabilities of several labels per row."""
    odds = outputs
    if not is_logits:
        odds = outputs.maximum(TINY).log() - (1.0 - outputs).maximum(TINY).log()
    limit = float(calibrator.limit_)
    odds = odds.clip(-limit, limit).named("log_odds")
    by_feature = np.asarray(calibrator.coefficients_, np.float64).T
    size = odds.abs()
    curves = (size + (1.0 + (-size).exp()).log() * 2.0, odds.sigmoid() * 2.0 - 1.0)
    result: Value = odds * by_feature[0] + by_feature[1]
    for curve, weights in zip(curves, by_feature[2:], strict=True):
        if weights.any():
            result = result + curve * weights
    if hasattr(calibrator, "other_weights_"):
        weights = np.asarray(calibrator.other_weights_)
        result = result + odds.clip(-MAX_OTHER, MAX_OTHER) @ weights.T
    return result.sigmoid().maximum(FLOOR)


def unsupported(value: Any) -> BadTypeError:
    """Return the error for what cannot be exported."""
    rule, got = "supports policies and calibrators of classes or labels", type(value).__name__
    fix = "Fit a Policy, a MultiLabelPolicy, or a calibrator such as AutoCalibrator()"
    return BadTypeError("", "dubito.export", rule, got, REMEDIES.get(got, fix))
