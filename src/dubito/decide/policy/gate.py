"""Reasons to reject a row besides its costs: a gate for OOD inputs and a bound on the risk."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_fraction,
    column_names_of,
    require_rows,
)
from dubito.data.batch import Batch
from dubito.data.expressions import HIGHEST_COST
from dubito.data.shards import ArrayShards, Shards
from dubito.decide.costs import CostMatrix, as_cost
from dubito.decide.policy.decide import cost_range
from dubito.doubt import (
    ConformalOutlierDetector,
    MahalanobisDistance,
    energy,
    entropy,
    generalized_entropy,
    least_confidence,
    margin_uncertainty,
)
from dubito.doubt.features import BaseOODScore, as_feature_matrix
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, MissingLabelsWarning
from dubito.serialization.fields import (
    Check,
    Entry,
    Omittable,
    any_of,
    declare,
    fitted,
    list_of,
    number,
    one_of,
    optional,
    schema_of,
    states,
    text,
)
from dubito.serialization.objects import Serializable, clone, estimator

OUTPUT_SCORES: dict[str, Callable[[Any], FloatArray]] = {
    "energy": energy,
    "entropy": entropy,
    "generalized_entropy": generalized_entropy,
    "least_confidence": least_confidence,
    "margin_uncertainty": margin_uncertainty,
}

Score = BaseOODScore | str  # of features, or the name of a score of the outputs
Fold = tuple[Any, Any]


def _checked_score(is_fitted: bool) -> Callable[[Any, Entry], Score]:
    """Check for the name of a score of outputs, or for a score of features."""
    by_name, of_features = one_of(*OUTPUT_SCORES), estimator(BaseOODScore, is_fitted=is_fitted)

    @states(lambda: any_of(schema_of(by_name), schema_of(of_features)))
    def check(value: Any, entry: Entry) -> Score:
        score: Score = (by_name if isinstance(value, str) else of_features)(value, entry)
        return score

    return check


def _one_or_several(one: Check) -> Check:
    """Check for a value, or for a list of them."""
    several = list_of(one)
    accepted = states(lambda: any_of(schema_of(one), schema_of(several)))
    return accepted(
        lambda value, entry: (several if isinstance(value, list) else one)(value, entry)
    )


@final
class OODGate(Serializable):
    """Reject out-of-distribution inputs, whatever their class probabilities.

    Pass one to `Policy.fit(..., ood=OODGate(...))`, which fits it. A row is rejected where its
    score is so high that fewer than a fraction `alpha` of known rows reach it. Several scores
    detect different kinds of outliers: the smallest of their conformal p-values, times their
    number (Bonferroni), must be below `alpha`, so that the false alarm rate stays at most `alpha`
    however the scores depend on each other.

    Parameters
    ----------
    score : BaseOODScore, str, callable or list of them, optional
        What measures how unusual a row is: an estimator of `dubito.doubt` on features, or one of
        "energy", "entropy", "generalized_entropy", "least_confidence" and "margin_uncertainty" on
        the outputs. Without one, `MahalanobisDistance()`. With `NearestNeighborDistance`, the file
        of a policy holds the features of its reference rows.
    alpha : float, default 0.01
        The fraction of in-distribution rows that may be rejected as outliers.

    Attributes
    ----------
    score_ : BaseOODScore, str or list of them
        The fitted scores.
    detector_ : ConformalOutlierDetector or list of them
        Calibrated on scores of held-out rows, one for each score.

    Examples
    --------
    >>> from dubito.decide import OODGate
    >>> from dubito.doubt import MahalanobisDistance
    >>> OODGate("energy", alpha=0.05)
    OODGate(alpha=0.05, score='energy')
    >>> OODGate(["energy", MahalanobisDistance(normalize=True)])
    OODGate(score=['energy', MahalanobisDistance(normalize=True)])
    """

    score_: Score | list[Score] = fitted(_one_or_several(_checked_score(is_fitted=True)))
    detector_: ConformalOutlierDetector | list[ConformalOutlierDetector] = fitted(
        _one_or_several(estimator(ConformalOutlierDetector))
    )

    param_fields = declare(
        score=Omittable(optional(_one_or_several(_checked_score(is_fitted=False)))),
        alpha=Omittable(number(0, 1)),
    )

    def __init__(self, score: Any = None, alpha: float = 0.01) -> None:
        self.score = score
        self.alpha = alpha

    def resolved(self, has_features: bool, caller: str = "Policy.fit") -> OODGate:
        """Return an unfitted copy, with the scores chosen by name or by default.

        Parameters
        ----------
        has_features : bool
            Whether the rows have features.
        caller : str, optional
            The public function that was called, for error messages.

        Returns
        -------
        OODGate
            With estimators or names of scores; by default with `MahalanobisDistance()`.
        """
        self._check_params()
        given = MahalanobisDistance() if self.score is None else self.score
        scores = [_as_score(one) for one in _each(given)]
        if not scores:
            rule, fix = "must name at least one score", "Use OODGate(['energy', 'entropy'])"
            raise BadValueError("score", "OODGate", rule, "an empty list", fix)
        if not has_features and any(not isinstance(one, str) for one in scores):
            rule = "must be given with this OOD score"
            fix = "Pass features=..., or use OODGate('entropy')"
            raise BadTypeError("features", caller, rule, "None", fix)
        used = scores if isinstance(given, list | tuple) else scores[0]
        gate: OODGate = clone(OODGate(used, float(self.alpha)))
        return gate

    def cross_fit(
        self, shards: Shards, batch: Batch, folds: Sequence[Fold]
    ) -> tuple[OODGate, FloatArray]:
        """Return the fitted gate, and the out-of-fold scores of the rows of `batch`.

        Scores are fitted on all rows, detectors on scores of rows that their fit did not see.

        Parameters
        ----------
        shards : Shards
            All rows, which the scores of the fitted gate learn from.
        batch : Batch
            The rows in memory that are scored out of fold.
        folds : sequence of pairs of arrays
            Indices of training and test rows of `batch`.

        Returns
        -------
        tuple of OODGate and array of shape (n_rows, n_scores)
            The fitted gate, and the out-of-fold scores; NaN in rows of no fold.
        """
        given = _each(self.score)
        scores = np.full((len(batch), len(given)), np.nan)
        for train, test in folds:
            with warnings.catch_warnings(action="ignore", category=DubitoWarning):
                others = [_fitted(one, ArrayShards(batch.take(train))) for one in given]
            rows = batch.take(test)
            scores[test] = _score_matrix(others, rows.outputs, rows.features)
        gate = OODGate(self.score, self.alpha)
        detectors = self.fit_detectors(scores[~np.isnan(scores).any(axis=1)])
        # The calibrator's fit warned about the same rows.
        with warnings.catch_warnings(action="ignore", category=MissingLabelsWarning):
            fitted = [_fitted(one, shards) for one in given]
        is_list = isinstance(self.score, list | tuple)
        gate.score_ = fitted if is_list else fitted[0]
        gate.detector_ = detectors if is_list else detectors[0]
        return gate, scores

    def fit_detectors(self, scores: FloatArray) -> list[ConformalOutlierDetector]:
        """Return one detector per column of scores, which share `alpha`.

        Parameters
        ----------
        scores : array of shape (n_rows, n_scores)
            Scores of in-distribution rows that the scores were not fitted on.

        Returns
        -------
        list of ConformalOutlierDetector
            Each at `alpha` divided by the number of scores (Bonferroni).
        """
        alpha = self.alpha / scores.shape[1]
        return [ConformalOutlierDetector(alpha).fit(column) for column in scores.T]

    def held_out_flags(self, scores: FloatArray, fold_of: IntArray) -> BoolArray:
        """Return which rows are outliers by detectors of the scores of all other folds.

        Parameters
        ----------
        scores : array of shape (n_rows, n_scores)
            Out-of-fold scores.
        fold_of : array of int of shape (n_rows,)
            The fold of each row.

        Returns
        -------
        array of bool of shape (n_rows,)
            Which rows are flagged.
        """
        result = np.zeros(fold_of.size, np.bool_)
        for fold in np.unique(fold_of):
            is_here = fold_of == fold
            # The detector of all rows already warned.
            with warnings.catch_warnings(action="ignore", category=DubitoWarning):
                detectors = self.fit_detectors(scores[~is_here])
            result[is_here] = _combined_p_values(detectors, scores[is_here]) < self.alpha
        return result

    @property
    def scores(self) -> list[Score]:
        """The scores: fitted, or those that would be."""
        return _each(self.score_ if self.__sklearn_is_fitted__() else self.score)

    @property
    def n_required(self) -> int:
        """The number of rows from which detectors can flag an outlier."""
        return int(np.ceil(len(self.scores) / self.alpha))

    @property
    def needs_features(self) -> bool:
        """Whether a score is computed from features rather than outputs."""
        return self.n_features is not None

    @property
    def name(self) -> str:
        """The names of the scores."""
        names = [one if isinstance(one, str) else type(one).__name__ for one in self.scores]
        return " + ".join(names)

    @property
    def n_features(self) -> int | None:
        """The number of features per row, None for scores of outputs."""
        return next((one.n_features_ for one in self.scores if not isinstance(one, str)), None)

    def ood_scores(self, outputs: Any, features: Any) -> FloatArray:
        """Return the OOD scores of each row, one column per score; higher is more unusual.

        Parameters
        ----------
        outputs : Logits, Probabilities or Members
            Outputs of the rows.
        features : array of shape (n_rows, n_features) or None
            Their features, if the gate needs any.

        Returns
        -------
        array of shape (n_rows, n_scores)
            One column per score.
        """
        return _score_matrix(self.scores, outputs, features)

    def p_value(self, outputs: Any, features: Any) -> FloatArray:
        """Return the p-value of each row: the smallest of its scores, times their number.

        Parameters
        ----------
        outputs : Logits, Probabilities or Members
            Outputs of the rows.
        features : array of shape (n_rows, n_features) or None
            Their features, if the gate needs any.

        Returns
        -------
        array of shape (n_rows,)
            Conformal p-values: of in-distribution rows, at most a fraction a is below a.
        """
        return _combined_p_values(_each(self.detector_), self.ood_scores(outputs, features))

    def predict(self, outputs: Any, features: Any) -> BoolArray:
        """Return which rows are out-of-distribution.

        Parameters
        ----------
        outputs : Logits, Probabilities or Members
            Outputs of the rows.
        features : array of shape (n_rows, n_features) or None
            Their features, if the gate needs any.

        Returns
        -------
        array of bool of shape (n_rows,)
            True where the p-value is below `alpha`.
        """
        return np.asarray(self.p_value(outputs, features) < self.alpha)

    def _check_fitted(self, entry: Entry) -> None:
        scores, detectors = _each(self.score_), _each(self.detector_)
        if not scores or len(scores) != len(detectors):
            got = f"{len(detectors)} for {len(scores)}"
            raise entry.at("detector_").error("one detector for each score", got)
        widths = {one.n_features_ for one in scores if not isinstance(one, str)}
        if len(widths) > 1:
            got = f"{sorted(widths)} features"
            raise entry.at("score_").error("scores of the same features", got)

    def _check_params(self) -> None:
        as_fraction(self.alpha, "alpha", "OODGate", is_open=True)


@final
class RiskBound(Serializable):
    """Bound the fraction of wrong decisions, or the mean cost, of rows that are not rejected.

    Pass one to `Policy.fit(..., risk=RiskBound(...))`, which finds the threshold. A decision is
    wrong where another action would have cost less. Where rejecting fewer rows would be cheaper,
    the bound wins.

    Parameters
    ----------
    max_risk : float, optional
        The largest fraction of decided rows that may be wrong.
    delta : float, default 0.05
        The probability, over samples of calibration rows, that the bound fails.
    max_cost : float, optional
        The largest mean cost per decided row, instead of `max_risk`. The costs must be constant,
        so that the cost matrix bounds them.

    Attributes
    ----------
    threshold_ : float
        Rows are rejected where the probability that their action is right is at most this. With
        `max_cost` it is the expected cost of the action on a scale from the highest cost, 0, to
        the lowest, 1.
    summary_ : str
        One sentence on the threshold.

    References
    ----------
    Geifman and El-Yaniv, "Selective classification for deep neural networks", 2017. Waudby-Smith
    and Ramdas, "Estimating means of bounded random variables by betting", 2023, for costs.

    Examples
    --------
    >>> from dubito.decide import RiskBound
    >>> RiskBound(0.05), RiskBound(max_cost=1.5)
    (RiskBound(max_risk=0.05), RiskBound(max_cost=1.5))
    """

    threshold_: float = fitted(number(0, 1))
    summary_: str = fitted(text)

    param_fields = declare(
        max_risk=Omittable(optional(number(0, 1))),
        delta=number(0, 1),
        max_cost=Omittable(optional(number(-HIGHEST_COST, HIGHEST_COST))),
    )

    def __init__(
        self, max_risk: float | None = None, delta: float = 0.05, max_cost: float | None = None
    ) -> None:
        self.max_risk = max_risk
        self.delta = delta
        self.max_cost = max_cost

    def with_threshold(self, threshold: float, summary: str) -> RiskBound:
        """Return a fitted copy.

        Parameters
        ----------
        threshold : float
            Rows are rejected where the probability that their action is right is at most this;
            with `max_cost`, see `threshold_`.
        summary : str
            What is guaranteed, in a sentence.

        Returns
        -------
        RiskBound
            The same bound with `threshold_` and `summary_`.
        """
        bound: RiskBound = clone(self)
        bound.threshold_, bound.summary_ = threshold, summary
        return bound

    def require_bounded(self, costs: CostMatrix) -> None:
        """Raise where costs cannot be bounded, or none is as low as the bound.

        Parameters
        ----------
        costs : CostMatrix
            The costs of the policy.
        """
        if self.max_cost is None:
            return
        asked = [one.name for one in costs.reviews if one.needs_posterior]
        if costs.columns or asked:
            rule, fix = "needs costs that are the same for all rows", "Use RiskBound(max_risk=0.05)"
            got = f"{costs.expressions[0]}" if costs.columns else f"{asked[0]!r} with Bayes"
            raise BadValueError("risk", "Policy.fit", f"with max_cost {rule}", got, fix)
        low, _ = cost_range(costs)
        if self.max_cost < low:
            rule, fix = f"must be at least {low:g}, the lowest cost", "Use a higher max_cost"
            raise BadValueError("max_cost", "RiskBound", rule, f"{self.max_cost:g}", fix)

    def _check_params(self) -> None:
        as_fraction(self.delta, "delta", "RiskBound", is_open=True)
        if (self.max_risk is None) == (self.max_cost is None):
            got = "neither" if self.max_risk is None else "both"
            rule, fix = "must be given, or else `max_cost`", "Use RiskBound(0.05)"
            raise BadValueError("max_risk", "RiskBound", rule, got, fix)
        if self.max_risk is not None:
            as_fraction(self.max_risk, "max_risk", "RiskBound")
        else:
            as_cost(self.max_cost, "max_cost", "RiskBound")


def feature_matrix(
    gate: OODGate | None, features: Any, names: tuple[str, ...] | None, n_rows: int, caller: str
) -> FloatArray | None:
    """Return the features of rows with the columns of the fit, None where no gate needs them."""
    if gate is None or not gate.needs_features:
        return None
    if features is None:
        rule, fix = "must be given for the OOD gate", "Pass the features of the rows"
        raise BadTypeError("features", caller, rule, "None", fix)
    found = column_names_of(features)
    if None not in (found, names) and found != names:
        rule, fix = f"must have the columns {names}", "Order the columns as during fit"
        raise BadValueError("features", caller, rule, f"{found}", fix)
    array = as_feature_matrix(features, caller)
    require_rows(array, n_rows, "features", caller)
    if array.shape[1] != gate.n_features:
        rule, fix = f"must have {gate.n_features} columns", "Pass the features of the fit"
        raise BadValueError("features", caller, rule, f"{array.shape[1]}", fix)
    return array


def feature_names_of(names: Any, gate: OODGate | None, entry: Entry) -> tuple[str, ...] | None:
    """Return the names of features in a document, if they are as many as those of the gate."""
    if names is None:
        return None
    n_features = None if gate is None else gate.n_features
    if n_features not in (None, len(names)):
        rule = f"must have {n_features} names, one per feature"
        raise entry.at("feature_names").error(rule, f"{len(names)}")
    return tuple(names)


def resolved_gate(gate: Any, features: FloatArray | None, caller: str) -> OODGate | None:
    """Return the unfitted gate of a fit: by default one where there are features."""
    if gate is None and features is None:
        return None
    if gate is not None and not isinstance(gate, OODGate):
        rule, fix = "must be None or OODGate(...)", "Use ood=OODGate(score, alpha=0.01)"
        raise BadTypeError("ood", caller, rule, repr(gate)[:60], fix)
    return (gate or OODGate()).resolved(features is not None, caller)


def _as_score(score: Any) -> Score:
    """Return a score of features, or the name of a score of outputs."""
    if isinstance(score, BaseOODScore):
        return score
    if callable(score):
        score = next((name for name, known in OUTPUT_SCORES.items() if known is score), score)
    rule = f"must be an OOD score of dubito.doubt, or one of {', '.join(OUTPUT_SCORES)}"
    if not isinstance(score, str):
        fix = "Use OODGate(MahalanobisDistance()) and pass features"
        raise BadTypeError("score", "OODGate", rule, type(score).__name__, fix)
    if score not in OUTPUT_SCORES:
        fix = "Use OODGate('energy') with Logits"
        raise BadValueError("score", "OODGate", rule, repr(score), fix)
    return score


def _fitted(score: Score, shards: Shards) -> Score:
    """Return a score fitted to rows; a score of outputs needs no fit."""
    return score if isinstance(score, str) else clone(score).fit(shards)


def _score_matrix(scores: Sequence[Score], outputs: Any, features: Any) -> FloatArray:
    """Return OOD scores of each row, one column per score."""
    columns = [
        OUTPUT_SCORES[one](outputs) if isinstance(one, str) else one.score(features)
        for one in scores
    ]
    return np.column_stack(columns)


def _combined_p_values(
    detectors: Sequence[ConformalOutlierDetector], scores: FloatArray
) -> FloatArray:
    """Return the smallest p-value of each row times the number of detectors, at most 1."""
    pairs = zip(detectors, scores.T, strict=True)
    smallest = np.min([one.p_value(column) for one, column in pairs], axis=0)
    return np.asarray(np.minimum(len(detectors) * smallest, 1.0))


def _each(value: Any) -> list[Any]:
    """Return the entries of a list, or a single value as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]
