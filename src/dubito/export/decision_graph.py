"""What fitted policies compute, as graphs: calibration, priors, OOD gates, costs, risk bound."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from os import PathLike
from typing import Any

import numpy as np

from dubito.arrays import FloatArray, require_choice
from dubito.calibrate import BaseCalibrator, ConfidenceCalibrator, MultiLabelCalibrator
from dubito.data.expressions import FUNCTIONS, HIGHEST_COST, Expression
from dubito.decide import MultiLabelPolicy, Policy
from dubito.decide.actions import MARGIN
from dubito.decide.answerers import Answerer
from dubito.decide.multilabel.label_costs import TIE as LABEL_TIE
from dubito.decide.multilabel.label_decisions import ACTIONS, ROW_ACTIONS
from dubito.decide.policy.decide import (
    LOWEST_COST,
    OUT_OF_DISTRIBUTION,
    REASONS,
    REJECT_COSTS_LESS,
    RISK_BOUND,
    cost_range,
)
from dubito.decide.policy.gate import OODGate
from dubito.decide.priors import log_prior
from dubito.decide.realized import SAME
from dubito.decide.reject import uncertainty_limit
from dubito.decide.row_costs import RowCosts
from dubito.doubt import (
    SCALE,
    ClassConditionalDensity,
    DecisionBoundaryDistance,
    MahalanobisDistance,
    NearestNeighborDistance,
    ReAct,
    VirtualLogitMatching,
)
from dubito.doubt.gaussians import PerClassGaussians, SharedGaussians
from dubito.errors import BadTypeError, BadValueError, TooLargeError, UnfittedError
from dubito.export.calibration_graph import (
    MAX_TABLE,
    Rows,
    label_probabilities,
    posterior_of,
    squared_distances,
    unsupported,
)
from dubito.export.graph import FARTHEST, TINY, Graph, Value
from dubito.kernels.expected_cost import TIE

OUTPUTS = ("logits", "probabilities")
RESERVED = {  # names of inputs and outputs, which no column may have
    *OUTPUTS, "scores", "features", "row_costs", "calibrated_probabilities", "action", "row_action",
    "expected_cost", "reason",
}  # fmt: skip
OPERATORS: dict[str, Callable[[Value, Value], Value]] = {  # of expressions
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "min": Value.minimum, "max": Value.maximum,
}  # fmt: skip
N_GENERALIZED = 100  # most probable classes that the generalized entropy sums over
GAMMA = 0.1  # its exponent
MAX_ANSWERS = 1024  # answers x actions, where what is decided after an answer differs by row
NUDGE = 1e-12  # relative: a row of the calibration set at the threshold of a gate is no outlier


def describe(
    exported: Any,
    outputs: str | None = None,
    *,
    by_row: bool | None = None,
    is_guarded: bool = True,
) -> Graph:
    """Return what a fitted policy or calibrator computes from logits or probabilities.

    The default is what a policy was fitted on; for calibrators, which do not know, logits. With
    `by_row`, the costs of a policy are given as rows x actions x classes; by default as in the fit.
    If `is_guarded`, rows with NaN or infinite numbers are rejected, where some action rejects; a
    runtime that refuses such rows itself needs no guard.
    """
    if isinstance(exported, type):
        rule, fix = "needs a fitted object", f"Fit it: {exported.__name__}.fit(...)"
        raise BadTypeError("", "dubito.export", rule, f"the class {exported.__name__}", fix)
    if isinstance(exported, str | PathLike):
        rule, fix = "needs a policy rather than its file", f"Pass load_policy({str(exported)!r})"
        raise BadTypeError("", "dubito.export", rule, repr(str(exported)), fix)
    if outputs is None:
        stated = getattr(exported, "provenance", {}).get("outputs")
        outputs = stated if stated in OUTPUTS else "logits"
    require_choice(outputs, OUTPUTS, "outputs", "dubito.export")
    if isinstance(exported, Policy):
        is_given = "row_costs" in exported.provenance if by_row is None else by_row
        return _policy_graph(exported, outputs, is_given, is_guarded)
    if isinstance(exported, MultiLabelPolicy | MultiLabelCalibrator):
        return _label_graph(exported, outputs, is_guarded)
    if not isinstance(exported, BaseCalibrator):
        raise unsupported(exported)
    if not exported.__sklearn_is_fitted__():
        raise UnfittedError(type(exported).__name__, "export")
    graph, n_classes = Graph(), exported.n_classes_
    graph.title = type(exported).__name__
    graph.metadata["classes"] = [str(one) for one in exported.classes_ or range(n_classes)]
    rows = _rows_of(exported, graph, outputs)
    graph.comment(f"Calibration: {exported.summary()}.")
    posterior = posterior_of(exported, rows)
    graph.output("calibrated_probabilities", posterior.floored)
    graph.log_proba = posterior.log_proba
    return graph


def _rows_of(calibrator: BaseCalibrator, graph: Graph, outputs: str) -> Rows:
    """Return what a calibrator takes as the first input of a graph."""
    n_classes = calibrator.n_classes_
    if not isinstance(calibrator, ConfidenceCalibrator):
        given = graph.input(outputs, "matrix", n_classes)
        return Rows(graph, given, n_classes, is_logits=outputs == "logits")
    if calibrator.names_ is not None:
        graph.metadata["scores"] = [*calibrator.names_]
    given = graph.input("scores", "matrix", calibrator.n_scores_)
    return Rows(graph, given, n_classes, is_logits=False)


def _policy_graph(policy: Policy, outputs: str, is_given: bool, is_guarded: bool) -> Graph:
    graph = Graph()
    graph.title = repr(policy)
    graph.metadata = {
        "classes": [str(name) for name in policy.classes],
        "actions": [*policy.costs.actions],
        "reasons": [*REASONS],
    }
    rows = _rows_of(policy.calibrator, graph, outputs)
    gate = policy.ood
    features = None
    if gate is not None and gate.n_features is not None:
        features = graph.input("features", "matrix", gate.n_features)
        if policy.feature_names is not None:
            graph.metadata["features"] = [*policy.feature_names]
    graph.comment(f"Calibration: {policy.provenance['calibrator']}.")
    posterior = posterior_of(policy.calibrator, rows)
    if policy.deploy_prior is not None:
        graph.comment("The class frequencies of deployment instead of those of training.")
        shift = log_prior(policy.deploy_prior) - np.log(policy.train_prior)
        p = (posterior.log_proba + np.maximum(shift, -FARTHEST)).softmax().named("p")
        graph.output("calibrated_probabilities", p)
    else:
        p = posterior.proba
        graph.output("calibrated_probabilities", posterior.floored.named("calibrated"))
    graph.comment("The expected cost of each action, above that of the best one in each class.")
    terms = _CostTerms(policy, graph, p, is_given)
    above = terms.above.named("above")
    lowest = above.min().named("lowest")
    action = (above <= lowest * (1 + TIE)).as_float().argmax().named("cheapest_action")
    if policy.costs.reject is None:
        reason, expected = action * np.int64(LOWEST_COST), terms.total(above.pick(action))
    else:
        is_ood = partial(_is_ood, gate, rows, features, is_guarded)
        action, expected, reason = _with_rejects(terms, lowest, action, is_ood)
    for name, value in (("action", action), ("expected_cost", expected), ("reason", reason)):
        graph.output(name, value.named(name), is_row=True)
    return graph


def _with_rejects(
    terms: _CostTerms, lowest: Value, action: Value, is_ood: Callable[[Value], Value | None]
) -> tuple[Value, Value, Value]:
    """Return action, expected cost and reason, where rows are rejected: by cost, risk or gate."""
    policy, above = terms.policy, terms.above
    reject = policy.costs.reject
    assert reject is not None
    of_reject = above.columns([reject]).named("above_of_reject")
    bests = []
    for a in reversed(policy.costs.rejecting):  # the first of them wins a tie
        bests.append((above.columns([a]) <= lowest + MARGIN).named("is_rejected"))
        action = bests[-1].where(np.int64(a), action).named("cheapest_action")
    is_rejected = reduce(operator.or_, reversed(bests))
    reason = is_rejected.where(np.int64(REJECT_COSTS_LESS), np.int64(LOWEST_COST))
    expected = terms.total(above.pick(action)).named("expected_cost")
    rejected_cost = terms.total(of_reject).named("rejected_cost")
    flags = []
    if policy.risk is not None:
        terms.graph.comment(f"Risk bound: {policy.risk.summary_}")
        loss = is_rejected.where(-1.0, terms.expected_loss(action, expected)).named("loss")
        flags.append((loss >= uncertainty_limit(policy.risk.threshold_)).named("is_risky"))
        reason = flags[-1].where(np.int64(RISK_BOUND), reason)
    if (is_outlier := is_ood(above)) is not None:
        reason = is_outlier.where(np.int64(OUT_OF_DISTRIBUTION), reason)
        flags.append(is_outlier)
    for flag in flags:
        action = flag.where(np.int64(reject), action)
        expected = flag.where(rejected_cost, expected)
    return action, expected, reason


def _has_non_finite(*numbers: Value) -> Value:
    """Return which rows have NaN or infinite numbers: 0 times these is not 0, nor is a sum."""
    zeros = [(one * 0.0).sum() for one in numbers]
    return ~reduce(operator.add, zeros).equals(0.0)


class _CostTerms:
    """Expected costs in a graph, of costs that are the same for all rows or not.

    The cost of asking someone is its price, and what is decided after each answer.
    """

    def __init__(self, policy: Policy, graph: Graph, p: Value, is_given: bool) -> None:
        self.policy, self.graph, self.p = policy, graph, p
        costs = policy.costs
        reviews = () if is_given else costs.reviews
        reviewers = {costs.actions.index(one.name): one for one in reviews}
        priced = [a for a in range(costs.n_actions) if a not in reviewers]
        self.base: Value | None
        self.cells: list[Value] | None = None  # costs of each action by row, rows x classes
        if not costs.columns and not is_given:
            # With what is decided after final answers, which does not depend on the row.
            table = RowCosts.of(None, costs, 1, "dubito.export").base
            cheapest = table[priced].min(axis=0)
            by_posterior = [a for a, one in reviewers.items() if one.needs_posterior]
            shift = np.where(np.isin(np.arange(len(table)), by_posterior)[:, None], 0.0, cheapest)
            self.above = p @ (table - shift).T
            self.base = p @ cheapest[:, np.newaxis] if cheapest.any() else None
            decided = table[list(costs.deciding)] - cheapest
            columns = {
                a: self._after_answers(reviewers[a], decided, cheapest) for a in by_posterior
            }
        else:
            self.cells = [*(self._given_cells() if is_given else self._column_cells())]
            lowest = self._cheapest(priced)
            parts = [cell if a in reviewers else cell - lowest for a, cell in enumerate(self.cells)]
            self.above = graph.concat([(p * part).sum() for part in parts])
            self.base = (p * lowest).sum().named("base")
            columns = {a: self._after_varying(one, lowest) for a, one in reviewers.items()}
        if columns:
            each = [self.above.columns([a]) for a in range(costs.n_actions)]
            for a, cost in columns.items():
                each[a] = each[a] + cost
            self.above = graph.concat(each)

    def total(self, above: Value) -> Value:
        """Return the whole cost of an action, from that above the best one in each class."""
        return above if self.base is None else above + self.base

    def _after_answers(
        self, reviewer: Answerer, decided: FloatArray, cheapest: FloatArray
    ) -> Value:
        """Return the cost after an answer that is combined by Bayes, over that of the best."""
        likelihoods = reviewer.likelihoods
        if decided.shape == (1, 2):  # to answer: theirs, or the model's
            [kept] = decided + cheapest
            each = np.stack([kept, reviewer.costs_of_own_answer(kept)]) - cheapest
            return (self.p @ each.T).min().named("after_answer")
        if likelihoods.size * len(decided) > MAX_TABLE:
            raise self._too_many(reviewer, MAX_TABLE)
        costs: list[Value] = [(self.p @ (one * decided).T).min() for one in likelihoods.T]
        return reduce(Value.__add__, costs).named("after_answer")

    def _after_varying(self, reviewer: Answerer, lowest: Value) -> Value:
        """Return the cost after an answer where costs differ from row to row."""
        assert self.cells is not None
        decided = [self.cells[a] for a in self.policy.costs.deciding]
        if reviewer.n_classes * len(decided) > MAX_ANSWERS:
            raise self._too_many(reviewer, MAX_ANSWERS)
        if len(decided) == 1 and reviewer.n_classes == 2:
            [kept] = decided
            low, high = kept.min(), -(-kept).min()
            own = low + (high - low) * (1.0 - np.diag(reviewer.likelihoods))
            ways = [kept, own] if reviewer.needs_posterior else [own]
            each = self.graph.concat([(self.p * (one - lowest)).sum() for one in ways])
            return each.min().named("after_answer")
        weighted = [self.p * (cell - lowest) for cell in decided]
        costs = []
        for k, one in enumerate(reviewer.likelihoods.T):
            each = self.graph.concat([(part * one).sum() for part in weighted])
            if reviewer.needs_posterior:
                costs.append(each.min())
            else:  # the best action if the answer is true
                own = self.graph.concat([cell.columns([k]) for cell in decided])
                costs.append(each.pick((-own).argmax()))
        return reduce(Value.__add__, costs).named("after_answer")

    def _too_many(self, reviewer: Answerer, most: int) -> TooLargeError:
        n_actions = len(self.policy.costs.deciding)
        got = f"{reviewer.n_classes} classes x {n_actions} actions"
        rule = f"{reviewer.name!r} has more answers and actions than can be exported ({most:,})"
        fix = "Use combine='replace' with costs that are the same for all rows"
        return TooLargeError("", "dubito.export", rule, got, fix)

    def _given_cells(self) -> Iterator[Value]:
        """Yield the costs of each action, rows x classes, given by row."""
        n_actions, n_classes = self.policy.costs.array.shape
        given = self.graph.input("row_costs", "cube", n_actions, n_classes)
        for a in range(n_actions):
            yield given.columns(range(a * n_classes, (a + 1) * n_classes))

    def _column_cells(self) -> Iterator[Value]:
        """Yield the costs of each action, rows x classes, from columns."""
        costs, graph = self.policy.costs, self.graph
        n_actions, n_classes = costs.array.shape
        for name in costs.columns:
            if name in RESERVED or name.startswith("dubito_"):
                rule = f"cannot export costs that depend on a column called {name!r}"
                got = "the name of an input or output of exported policies"
                fix = "Rename the column, and fit with costs that use the new name"
                raise BadValueError("", "dubito.export", rule, got, fix)
        columns = {name: graph.input(name, "column") for name in costs.columns}
        values = [_expression(one, columns, graph) for one in costs.expressions]
        for a in range(n_actions):
            base = costs.array[a].copy()
            own = costs.entries[costs.entries[:, 0] == a]
            base[own[:, 1]] = 0.0
            cell = self.p * 0.0 + base
            for number in np.unique(own[:, 2]).tolist():
                mask = np.zeros(n_classes)
                mask[own[own[:, 2] == number, 1]] = 1.0
                cell = cell + values[number] * mask
            yield cell.named(f"cost_{a}")

    def _cheapest(self, actions: Sequence[int]) -> Value:
        """Return the lowest cost of some actions in each class, by row."""
        assert self.cells is not None
        return reduce(Value.minimum, [self.cells[a] for a in actions]).named("cheapest")

    def expected_loss(self, action: Value, expected: Value) -> Value:
        """Return the loss from 0 to 1 that the risk bound limits."""
        costs, risk = self.policy.costs, self.policy.risk
        assert risk is not None
        if risk.max_cost is not None:
            low, high = cost_range(costs)
            return ((expected - low) * (1 / ((high - low) or 1.0))).clip(0.0, 1.0)
        others = costs.deciding
        is_single = len(others) == 1  # wrong where it costs more than in its best class
        if self.cells is None:
            cheapest = costs.array[list(others)].min(axis=None if is_single else 0)
            is_wrong = (costs.array > cheapest + SAME * np.abs(cheapest)).astype(np.float64)
            return (self.p * self.graph.take_sum(is_wrong, action)).sum()
        best = self._cheapest(others)
        best = best.min() if is_single else best
        limit = best + best.abs() * SAME
        wrong = [(self.p * (cell > limit).as_float()).sum() for cell in self.cells]
        return self.graph.concat(wrong).pick(action)


def _expression(expression: Expression, columns: dict[str, Value], graph: Graph) -> Value:
    """Return an expression of columns as operations."""
    stack: list[Value] = []
    rule = f"`row_costs` must give a finite cost by `{expression}`"
    for kind, one in expression.steps:
        if kind == "number":
            stack.append(graph.constant(float(one)))
        elif kind == "column":
            stack.append(columns[one])
        elif kind == "negative":
            stack.append(-stack.pop())
        else:
            operands = stack[-one:]
            del stack[-one:]
            if kind in FUNCTIONS:  # which would hide that an operand is infinite
                graph.limits |= {x.number: (rule, np.inf) for x in operands if x.inputs}
            value = operands[0]
            for other in operands[1:]:
                value = OPERATORS[kind](value, other)
                if kind == "/":
                    graph.limits[value.number] = (rule, np.inf)
            stack.append(value)
    graph.limits[stack[0].number] = (rule, HIGHEST_COST)
    return stack[0]


def _is_ood(
    gate: OODGate | None, rows: Rows, features: Value | None, is_guarded: bool, above: Value
) -> Value | None:
    """Return which rows a gate rejects, if `is_guarded` also those with NaN or infinite numbers.

    None if nothing can flag a row.
    """
    is_ood = None if gate is None else _is_flagged(gate, rows, features, is_guarded)
    if not is_guarded:
        return is_ood
    rows.graph.comment("Rows with NaN or infinite numbers are rejected as well.")
    is_unusable = _has_non_finite(*rows.graph.inputs.values(), above)
    return is_unusable if is_ood is None else is_ood | is_unusable


def _is_flagged(
    gate: OODGate, rows: Rows, features: Value | None, is_guarded: bool
) -> Value | None:
    """Return which rows a gate rejects; None if its detectors can flag no row.

    If `is_guarded`, also those whose score overflows.
    """
    detectors = gate.detector_ if isinstance(gate.detector_, list) else [gate.detector_]
    rows.graph.comment(f"OOD gate: {gate.name} above what {gate.alpha:g} of known rows reach.")
    flags = []
    for score, detector in zip(gate.scores, detectors, strict=True):
        # The p-value falls with the score: a threshold decides.
        candidates = np.append(detector.scores_, np.finfo(np.float64).max)
        is_flagged = len(detectors) * detector.p_value(candidates) < gate.alpha
        if not is_flagged.any():
            continue
        threshold = float(candidates[max(int(np.argmax(is_flagged)) - 1, 0)])
        if isinstance(score, str):
            value = _output_score(score, rows)
        else:
            assert features is not None
            value = _feature_score(score, features)
        score_of_row, limit = value.named("ood_score"), threshold + NUDGE * abs(threshold)
        flags.append(~(score_of_row <= limit) if is_guarded else score_of_row > limit)
    return reduce(operator.or_, flags).named("is_ood") if flags else None


def _output_score(name: str, rows: Rows) -> Value:
    """Return a score of the outputs; the top class is left out of sums, so that none cancels."""
    x = rows.outputs if rows.is_logits else rows.outputs.maximum(TINY).log()
    if name == "energy":
        if not rows.is_logits:
            rule, fix = "needs logits", "Export with outputs='logits'"
            raise BadTypeError("", "An OOD gate on the energy", rule, "probabilities", fix)
        return -x.log_sum_exp()
    top = x.max()
    is_top = x.argmax().equals(np.arange(rows.n_classes)).named("is_top")
    gaps = (x - top).maximum(-1000.0).named("gaps")
    masses = is_top.where(0.0, gaps.exp()).named("masses")
    rest = masses.sum().named("rest")
    total = (rest + 1.0).named("total")
    if name == "least_confidence":
        return rest / total
    if name == "entropy":
        return total.log() - (masses * gaps).sum() / total
    if name == "margin_uncertainty":
        return (rest + masses.max()) / total
    # The generalized entropy, in logarithms.
    others = is_top.where(-FARTHEST, gaps)
    if rows.n_classes > N_GENERALIZED:
        others = others.top_k(N_GENERALIZED - 1)
    log_p = others - total.log()
    of_others = ((log_p + (1.0 - log_p.exp()).maximum(TINY).log()) * GAMMA).exp().sum()
    return of_others + ((rest.maximum(TINY).log() - total.log() * 2.0) * GAMMA).exp()


def _feature_score(score: Any, features: Value) -> Value:
    """Return a score of features."""
    match score:
        case MahalanobisDistance():
            return _mahalanobis(score, features)
        case ClassConditionalDensity():
            return _density(score, features)
        case NearestNeighborDistance():
            return _neighbor_distance(score, features)
        case VirtualLogitMatching():
            outside = (features - score.origin_) @ score.residual_
            return outside.norm() * score.alpha_ - _layer(score, features).log_sum_exp()
        case ReAct():
            return -_layer(score, features.minimum(score.limit_)).log_sum_exp()
        case SCALE():
            largest = features.top_k(score.n_largest_).sum()
            ratio = (largest > 0.0).where(features.sum() / largest.maximum(TINY), 1.0)
            return -_layer(score, features * ratio.exp()).log_sum_exp()
        case DecisionBoundaryDistance():
            return _boundary_distance(score, features)
    rule, got = "supports the scores of dubito.doubt", type(score).__name__
    fix = "Fit the policy with OODGate(MahalanobisDistance())"
    raise BadTypeError("", "dubito.export", rule, got, fix)


def _layer(score: Any, features: Value) -> Value:
    """Return the outputs of the last layer."""
    return features @ np.asarray(score.weight_.T) + np.asarray(score.bias_)


def _unit_rows(x: Value) -> Value:
    """Return rows scaled to unit length; rows of zeros are unchanged."""
    scale = x.abs().max()
    scaled = x / (scale > 0.0).where(scale, 1.0)
    return scaled / (scale > 0.0).where(scaled.norm(), 1.0)


def _mahalanobis(score: MahalanobisDistance, features: Value) -> Value:
    """Return squared distances, from the difference to the nearest mean itself."""
    x = _unit_rows(features) if score.is_normalized_ else features
    classes: SharedGaussians = score._classes
    white, means = _whitened(classes, x).named("white"), classes.white_means
    if len(means) > 1:
        squares = np.einsum("ij,ij->i", means, means)
        nearest = (white @ (2 * means.T) - squares).argmax()
        difference = white - x.graph.take_sum(means, nearest)
    else:
        difference = white - means[0]
    distances = (difference * difference).sum()
    if score._all is None:
        return distances
    whole = _whitened(score._all, x)
    return distances - (whole * whole).sum()


def _whitened(gaussians: SharedGaussians, x: Value) -> Value:
    return (x - gaussians.center) @ gaussians.whitening.matrix


def _density(score: ClassConditionalDensity, features: Value) -> Value:
    """Return minus the log density."""
    gaussians: Any = score._gaussians
    if isinstance(gaussians, SharedGaussians):
        distances = squared_distances(_whitened(gaussians, features), gaussians.white_means)
    else:
        if isinstance(gaussians, PerClassGaussians):
            pairs = zip(gaussians.means, gaussians.whitenings, strict=True)
            scaled = [(features - mean) @ one.matrix for mean, one in pairs]
        else:
            pairs = zip(gaussians.means, np.sqrt(gaussians.covariance), strict=True)
            scaled = [(features - mean) / std for mean, std in pairs]
        lengths = features.graph.concat([one.norm() for one in scaled])
        distances = lengths * lengths
    constant = gaussians.log_determinants() + score.n_features_ * np.log(2 * np.pi)
    joint: Value = distances * -0.5 + (np.log(score.priors_) - 0.5 * constant)
    return -joint.log_sum_exp()


def _neighbor_distance(score: NearestNeighborDistance, features: Value) -> Value:
    """Return the distance to the k-th nearest reference row."""
    reference = score.reference_.astype(np.float64)
    center = reference.mean(axis=0)
    x = (_unit_rows(features) if score.is_normalized_ else features) - center
    nearest = (-squared_distances(x, reference - center)).top_k(score.n_neighbors_)
    return (-nearest.columns([score.n_neighbors_ - 1])).sqrt()


def _boundary_distance(score: DecisionBoundaryDistance, features: Value) -> Value:
    """Return how near features are to all decision boundaries, relative to their spread."""
    logits = _layer(score, features).named("layer")
    top, graph = logits.argmax(), features.graph
    inverse: FloatArray = score._inverse_distances
    distances = ((logits.max() - logits) * graph.take_sum(inverse, top)).sum()
    spread = (features - score.mean_).norm()
    n_others = len(score.weight_) - 1
    typical = -distances / (spread * float(n_others)).maximum(TINY)
    return (spread > 0.0).where(typical, -FARTHEST)


def _label_graph(
    exported: MultiLabelPolicy | MultiLabelCalibrator, outputs: str, is_guarded: bool
) -> Graph:
    graph = Graph()
    policy = exported if isinstance(exported, MultiLabelPolicy) else None
    calibrator = exported.calibrator if isinstance(exported, MultiLabelPolicy) else exported
    if not calibrator.__sklearn_is_fitted__():
        raise UnfittedError(type(calibrator).__name__, "export")
    names = calibrator.label_names_ or tuple(range(calibrator.n_labels_))
    given = graph.input(outputs, "matrix", calibrator.n_labels_)
    graph.title = type(exported).__name__ if policy is None else repr(policy)
    graph.metadata["labels"] = [str(name) for name in names]
    graph.comment(f"Calibration: {calibrator.summary()}.")
    p = label_probabilities(calibrator, given, is_logits=outputs == "logits")
    graph.output("calibrated_probabilities", p.named("calibrated"))
    if policy is not None:
        graph.metadata |= {"actions": [*ACTIONS], "row_actions": [*ROW_ACTIONS]}
        _decide_labels(policy, graph, p, given if is_guarded else None)
    return graph


def _decide_labels(policy: MultiLabelPolicy, graph: Graph, p: Value, guarded: Value | None) -> None:
    """Add the decisions on several labels per row, as `LabelRule.decide` takes them.

    If outputs are `guarded`, labels and rows with numbers that are not finite are reviewed if they
    can be.
    """
    costs = policy.costs.arrays
    if policy.f_beta is not None and policy.f_thresholds is None:
        rule = "cannot search the best set of labels of each row"
        fix = "Fit the policy with FBeta(average='macro') or 'micro', which have thresholds"
        raise BadValueError("", "dubito.export", rule, f"{policy.f_beta}", fix)
    graph.comment("The expected cost of predicting each label, or not.")
    of_positive = (1.0 - p) * costs.false_positive
    of_negative = p * costs.false_negative
    if policy.f_thresholds is None:
        is_positive = of_positive <= of_negative
    else:
        is_positive = p >= policy.f_thresholds
    action = is_positive.named("is_positive").as_int()
    cost = is_positive.where(of_positive, of_negative)
    is_any = None
    if np.isfinite(costs.review).any():
        graph.comment("A label is reviewed where that costs less.")
        margin = LABEL_TIE * np.maximum(costs.false_positive, costs.false_negative)
        review = np.minimum(costs.review, FARTHEST)
        is_reviewed = cost + margin >= review
        if guarded is not None:
            is_unusable = _has_non_finite(guarded).as_float()
            is_reviewed = is_reviewed | (is_unusable * np.isfinite(costs.review) > 0.5)
        is_reviewed = is_reviewed.named("is_reviewed")
        cost = is_reviewed.where(review, cost)
        action = is_reviewed.where(np.int64(ACTIONS.index("review")), action)
        is_any = is_reviewed.as_float().max() > 0.5
    total = cost.sum().named("total")
    row_action = total.as_int() * np.int64(0) if is_any is None else is_any.as_int()
    if np.isfinite(costs.review_row):
        graph.comment("A row is reviewed as a whole where that costs less than all of its labels.")
        is_row = total * (1 - LABEL_TIE) > costs.review_row
        if guarded is not None:
            is_row = is_row | _has_non_finite(guarded)
        is_row = is_row.named("is_row")
        action = is_row.where(np.int64(ACTIONS.index("review")), action)
        row_action = is_row.where(np.int64(ROW_ACTIONS.index("review row")), row_action)
        total = is_row.where(costs.review_row, total)
    graph.output("action", action.named("action"))
    graph.output("row_action", row_action.named("row_action"), is_row=True)
    graph.output("expected_cost", total.named("expected_cost"), is_row=True)
