"""The policy for several labels per row: calibrator, costs or F-beta, in one object and file."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from itertools import compress
from typing import Annotated, Any, Literal, NamedTuple, final

import numpy as np
from scipy.special import expit

from dubito.arrays import FloatArray, IntArray, RandomState, draw_seed, freeze
from dubito.calibrate.cross_validation import rows_to_fit
from dubito.calibrate.multilabel import MultiLabelCalibrator
from dubito.data.argument_order import convert_in_order
from dubito.data.batch import Batch
from dubito.data.cache import cached
from dubito.data.labels import LabelMatrix, UncertainPolicy, as_label_matrix, make_label_matrix
from dubito.data.shards import Shards, load_rows, make_shards
from dubito.decide.multilabel.label_costs import FBeta, LabelCosts
from dubito.decide.multilabel.label_decisions import (
    ACTIONS,
    ROW_ACTIONS,
    LabelEvidence,
    LabelRule,
    MultiLabelDecisions,
    MultiLabelPolicyReport,
)
from dubito.decide.policy.decide import MAX_LOG_ODDS, N_LOG_ODDS, CalibrationCurve
from dubito.decide.policy.document import PROVENANCE, BaseBatchPolicy, provenance_of
from dubito.decide.policy.fit import EVALUATION_SET, evaluation_batch, sample_folds
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.formatting import (
    ABSENT,
    HTMLTable,
    align_table,
    join_words,
    percent,
    printable,
    quantity,
)
from dubito.kernels.blocks import kept_threads
from dubito.outputs import ClassName, MultiLabel, as_multilabel, in_fitted_order
from dubito.serialization.array_fields import array
from dubito.serialization.fields import Entry, optional
from dubito.serialization.objects import clone, estimator, record_of, stores_fields

CALLER = "MultiLabelPolicy.fit"
MAX_SHOWN = 20  # labels whose thresholds are printed
NONE = percent(0)
WIDTH, MIN_NAME = 78, 12  # of a line in text, and of the name of a label in it
N_NAMED = 5  # labels in a warning


class LabelThresholds(NamedTuple):
    """From which probability on a label is reviewed, and predicted.

    Attributes
    ----------
    label : str or number
        The name of the label.
    review, positive : float or None
        Calibrated; None where it is never reviewed alone, or no threshold decides.
    uncalibrated_review, uncalibrated_positive : float or None
        The probabilities of the model itself that are calibrated to these, None unless there is
        exactly one, whatever the other labels are.
    """

    label: ClassName
    review: float | None
    positive: float | None
    uncalibrated_review: float | None
    uncalibrated_positive: float | None


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class MultiLabelPolicy(BaseBatchPolicy):
    """A calibrator of several labels per row and costs or F-beta: outputs in, decisions out.

    Made by `MultiLabelPolicy.fit` or `MultiLabelPolicy.load`. Each label is decided, or reviewed by
    a person, at the lowest expected cost. A row is reviewed as a whole where that costs less than
    all of its labels together, single reviews included.

    Attributes
    ----------
    costs : LabelCosts
        One per label. With `f_beta`, each error costs 1.
    f_beta : FBeta or None
        What decisions maximize instead of minimizing costs.
    f_thresholds : array or None
        The thresholds of F-beta by label, None without `f_beta` or for the average over rows.
    calibrator : MultiLabelCalibrator
        Fitted.
    report : MultiLabelPolicyReport
        Costs and reviews on rows that the policy did not learn from.
    provenance : dict
        The version of dubito, the time, a fingerprint of the rows, the random seed, and the columns
        of outputs in the file, if any.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import LabelCosts, MultiLabel, MultiLabelPolicy
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=(300, 2))
    >>> y = rng.random((300, 2)) < 1 / (1 + np.exp(-odds))
    >>> costs = LabelCosts(false_negative=5, review=0.4)
    >>> outputs = MultiLabel.from_logits(3 * odds, ["cough", "fever"])
    >>> policy = MultiLabelPolicy.fit(outputs, y, costs=costs)
    >>> decisions = policy.decide(MultiLabel([[0.01, 0.9], [0.0001, 0.5]], ["cough", "fever"]))
    >>> [[decisions.actions[k] for k in row] for row in decisions.action]
    [['review', 'positive'], ['negative', 'review']]
    """

    provenance: Annotated[dict[str, Any], PROVENANCE]
    report: Annotated[MultiLabelPolicyReport, record_of(MultiLabelPolicyReport)]
    costs: Annotated[LabelCosts, record_of(LabelCosts)]
    f_beta: Annotated[FBeta | None, optional(record_of(FBeta))]
    f_thresholds: Annotated[FloatArray | None, optional(array(None, low=0, high=1))]
    calibrator: Annotated[MultiLabelCalibrator, estimator(MultiLabelCalibrator)]

    @classmethod
    def fit(
        cls,
        outputs: Any,
        y: Any = None,
        *,
        costs: LabelCosts | None = None,
        f_beta: FBeta | None = None,
        calibrator: MultiLabelCalibrator | Literal["auto"] = "auto",
        uncertain: UncertainPolicy | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        evaluate_on: Literal["cross-fit"] | Batch | Shards = "cross-fit",
        random_state: RandomState = 0,
    ) -> MultiLabelPolicy:
        """Fit on all rows, and report on held-out rows: cross-fitted, or an evaluation set.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers, array of shape (n_rows, n_labels), Batch or Shards
            Probabilities of labels on rows that the model was not trained on. A batch or shards
            hold labels, weights and groups themselves.
        y : array of shape (n_rows, n_labels), optional
            0 and 1, or probabilities; NaN or None where a label is unknown, -1 where it is
            uncertain.
        costs : LabelCosts, optional
            The costs of errors and reviews; by default each error costs 1.
        f_beta : FBeta, optional
            Maximize this score instead.
        calibrator : MultiLabelCalibrator or "auto", default "auto"
            "auto" is `MultiLabelCalibrator()`.
        uncertain : {"ignore", "zeros", "ones", "soft", "multi-class"} or float, optional
            How uncertain labels are treated, as in `LabelMatrix.of`; None raises an error.
        sample_weight, groups : array, optional
            Weights of the rows, and groups that no fold may divide.
        evaluate_on : "cross-fit", Batch or Shards, default "cross-fit"
            The rows to report on: folds of these rows, or others with the same labels.
        random_state : int, RandomState or None, default 0
            Determines the folds and the bootstrap.

        Returns
        -------
        MultiLabelPolicy
        """
        if y is not None and not isinstance(y, LabelMatrix):
            known = convert_in_order(y, outputs, as_multilabel, CALLER, "y")
            y = make_label_matrix(y, known, "y", CALLER, uncertain=uncertain)
        elif uncertain is not None:
            rule, fix = "must be None without an array y", "Pass Columns(uncertain=...) to a file"
            raise BadValueError("uncertain", CALLER, rule, repr(uncertain), fix)
        shards = make_shards(
            outputs, y, sample_weight=sample_weight, groups=groups, caller=CALLER,
            convert=as_multilabel,
        )  # fmt: skip
        return cls.fit_shards(
            shards, costs=costs, f_beta=f_beta, calibrator=calibrator, evaluate_on=evaluate_on,
            random_state=random_state,
        )[0]  # fmt: skip

    @classmethod
    def fit_shards(
        cls,
        shards: Shards,
        *,
        costs: LabelCosts | None = None,
        f_beta: FBeta | None = None,
        calibrator: MultiLabelCalibrator | Literal["auto"] = "auto",
        evaluate_on: Literal["cross-fit"] | Batch | Shards = "cross-fit",
        random_state: RandomState = 0,
    ) -> tuple[MultiLabelPolicy, LabelEvidence]:
        """Fit as `fit` does, and return also the rows that were held out, with their decisions.

        Parameters
        ----------
        shards : Shards
            Rows with `MultiLabel` outputs and labels.
        costs : LabelCosts, optional
            The costs of false positives, false negatives and reviews.
        f_beta : FBeta, optional
            The score to maximize instead of a cost.
        calibrator : MultiLabelCalibrator or "auto", default "auto"
            "auto" is `MultiLabelCalibrator()`.
        evaluate_on : "cross-fit", Batch or Shards, default "cross-fit"
            The rows to report on: folds of these rows, or others.
        random_state : int, RandomState or None, default 0
            Determines the folds and the bootstrap.

        Returns
        -------
        tuple of MultiLabelPolicy and LabelEvidence
            The policy, and the held-out rows that its report rests on.
        """
        first = next(shards.batches())
        names = as_multilabel(first.outputs, CALLER).names
        as_label_matrix(first.labels, CALLER)
        table = _checked_costs(costs, f_beta).for_labels(names, CALLER)
        seed = draw_seed(random_state, CALLER)
        others = evaluation_batch(evaluate_on, seed, CALLER)
        with cached(shards) as quick:
            fitted = _fresh_calibrator(calibrator).fit(quick)
            rule = LabelRule(table, f_beta, None, names)
            if f_beta is not None:
                rows = load_rows(quick)
                rule = rule.with_thresholds(fitted._predict_proba(rows.outputs), rows.weight)
            if others is None:
                evidence = _cross_fitted(quick, fitted, rule, seed)
            else:
                evidence = _evidence_on(others, fitted, rule, "evaluate_on", CALLER)
            odd = (*table.warnings(names), *_decision_warnings(rule, evidence.decisions))
            evidence = replace(evidence, warnings=odd)
            provenance = provenance_of(quick, fitted.summary(), seed)
        for sentence in evidence.warnings:
            warnings.warn(f"{CALLER}: {sentence}", DubitoWarning, stacklevel=3)
        policy = cls(
            costs=table,
            f_beta=f_beta,
            f_thresholds=rule.thresholds,
            calibrator=fitted,
            report=MultiLabelPolicyReport.of(evidence, rule, seed),
            provenance=provenance,
        )
        return policy, evidence

    @property
    def label_names(self) -> tuple[ClassName, ...]:
        """The names of the labels, or their column indices if they have none."""
        return self.calibrator.label_names_ or tuple(range(self.calibrator.n_labels_))

    @property
    def rule(self) -> LabelRule:
        """What turns calibrated probabilities into decisions."""
        return LabelRule(self.costs, self.f_beta, self.f_thresholds, self.label_names)

    @property
    def action_names(self) -> tuple[str, ...]:
        has = (True, self.costs.review is not None, self.costs.review_row is not None)
        return tuple(compress(ROW_ACTIONS, has))

    @property
    def has_reviews(self) -> bool:
        return len(self.action_names) > 1

    def predict_proba(self, outputs: Any) -> FloatArray:
        """Return calibrated probabilities.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers or array of shape (n_rows, n_labels)
            Probabilities of the labels of the fit, by name if both have names.

        Returns
        -------
        array of float, rows x labels
        """
        return self.calibrator.predict_proba(outputs)

    def decide(self, outputs: Any) -> MultiLabelDecisions:
        """Return what is decided for each label of each row, and what is reviewed.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers or array of shape (n_rows, n_labels)
            Probabilities of the labels of the fit, by name if both have names.

        Returns
        -------
        MultiLabelDecisions
        """
        caller, rule, fitted = "MultiLabelPolicy.decide", self.rule, self.calibrator
        known = as_multilabel(outputs, caller)
        known = in_fitted_order(known, fitted.n_labels_, fitted.label_names_, caller)

        def decided(rows: slice) -> MultiLabelDecisions:
            return rule.decide(fitted._predict_proba(known.take(rows)))

        with kept_threads():
            return MultiLabelDecisions.by_block(decided, known.n_rows, known.n_labels)

    def explain(self, outputs: Any, *, row: int = 0) -> str:
        """Explain what is decided for each label of one row, and why.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers or array of shape (n_rows, n_labels)
            Probabilities of the labels of the fit, by name if both have names.
        row : int, default 0
            The row to explain.

        Returns
        -------
        str
        """
        known = as_multilabel(outputs, "MultiLabelPolicy.explain")
        one = known.take(self._slice_of(row, known.n_rows, "MultiLabelPolicy.explain"))
        return _explanation(self, one, self.decide(one))

    def evidence_on(self, batch: Batch, evaluation: str) -> LabelEvidence:
        caller = "MultiLabelPolicy.evidence_on"
        found = _evidence_on(batch, self.calibrator, self.rule, "outputs", caller)
        return replace(found, evaluation=evaluation)

    @property
    def thresholds(self) -> tuple[LabelThresholds, ...]:
        """From which probability on each label is reviewed and predicted.

        Reviews of whole rows come on top.
        """
        costs = self.costs.arrays
        fp, fn = costs.false_positive, costs.false_negative
        review, positive = costs.review / fn, 1 - costs.review / fp
        is_reviewed = review < positive
        ends: FloatArray = np.where(is_reviewed, positive, fp / (fp + fn))
        if self.f_beta is not None:
            ends = ends * np.nan if self.f_thresholds is None else self.f_thresholds
        curves = self._curves()
        result = []
        for k, name in enumerate(self.label_names):
            pair = (review[k] if is_reviewed[k] else np.nan, ends[k])
            found = [None if np.isnan(one) else float(one) for one in pair]
            uncalibrated = [
                curves[k].uncalibrated_probability(one) if curves and one is not None else None
                for one in found
            ]
            result.append(LabelThresholds(name, *found, *uncalibrated))
        return tuple(result)

    def _curves(self) -> list[CalibrationCurve]:
        """Return the map of each label, none if it depends on other labels."""
        if hasattr(self.calibrator, "other_weights_"):
            return []
        odds = np.linspace(-MAX_LOG_ODDS, MAX_LOG_ODDS, N_LOG_ODDS)
        grid = np.repeat(odds[:, np.newaxis], self.calibrator.n_labels_, axis=1)
        calibrated = self.calibrator._over_blocks(MultiLabel.from_logits(grid), "transform")
        return [CalibrationCurve(odds, expit(one)) for one in calibrated.T]

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> MultiLabelPolicy:
        costs, calibrator = values["costs"], values["calibrator"]
        n_labels = calibrator.n_labels_
        for name in ("false_positive", "false_negative", "review"):
            found = getattr(costs, name)
            is_given = found is not None or name != "review"
            if is_given and not (isinstance(found, tuple) and len(found) == n_labels):
                place = entry.at("costs").at(name)
                raise place.error(f"a list of {n_labels}, one per label", "other costs")
        f_beta, thresholds = values["f_beta"], values["f_thresholds"]
        has_thresholds = f_beta is not None and f_beta.average != "samples"
        size = None if thresholds is None else thresholds.size
        if size != (n_labels if has_thresholds else None):
            rule = f"{n_labels} thresholds for a macro or micro average, and None otherwise"
            raise entry.at("f_thresholds").error(rule, f"{size}")
        if f_beta is not None and (costs.review, costs.review_row) != (None, None):
            raise entry.at("costs").error("must have no reviews with F-beta", "some")
        if thresholds is not None:
            values["f_thresholds"] = freeze(thresholds.astype(np.float64))
        return cls(**values)

    def __repr__(self) -> str:
        aim = "costs" if self.f_beta is None else f"{self.f_beta}"
        return f"MultiLabelPolicy({quantity(len(self.label_names), 'label')}, {aim})"

    @property
    def rule_lines(self) -> list[str]:
        title, table, more = self._threshold_parts()
        columns = [*zip(table.head, *table.rows, strict=True)]
        room = max(WIDTH - sum(2 + max(map(len, one)) for one in columns[1:]), MIN_NAME)
        rows = [(_shortened(printable(name), room), *others) for name, *others in table.rows]
        lines = [*align_table([table.head, *rows]), *([more] if more else [])]
        return [title, *(f"  {line}" for line in lines)]

    def _rule_parts(self) -> list[str | HTMLTable]:
        return [*self._threshold_parts()]

    def _threshold_parts(self) -> tuple[str, HTMLTable, str]:
        """Return a title, the thresholds and figures of the first labels, and how many follow."""
        cost = "cost" if self.f_beta is None else "errors"
        heads = ("label", "review from", "positive from", "recall", "precision", "reviewed", cost)
        rows = [
            (
                str(one.label),
                _threshold(one.review, one.uncalibrated_review),
                _threshold(one.positive, one.uncalibrated_positive),
                *self.report.outcomes(str(one.label)),
            )
            for one in self.thresholds
        ]
        # A column in which nothing is known of any label is left out.
        columns = zip(heads, *rows, strict=True)
        shown = [one for one in columns if one[0] in (cost, "label") or {*one[1:]} - {ABSENT, NONE}]
        head, *rows = zip(*shown, strict=True)
        more = f"and {len(rows) - MAX_SHOWN} more labels" if len(rows) > MAX_SHOWN else ""
        return self._threshold_title(), HTMLTable(head, rows[:MAX_SHOWN]), more

    def _threshold_title(self) -> str:
        """Return what the thresholds are."""
        if self.f_beta is not None and self.f_thresholds is None:
            return f"The labels of each row are those of highest expected {self.f_beta}."
        if self.f_beta is not None:
            return f"Thresholds of highest expected {self.f_beta}, by calibrated probability:"
        has_uncalibrated = any(
            one.uncalibrated_positive is not None for one in self.thresholds[:MAX_SHOWN]
        )
        uncalibrated = " (uncalibrated in parentheses)" if has_uncalibrated else ""
        return f"Thresholds by calibrated probability{uncalibrated}, and what is decided:"


def _explanation(
    policy: MultiLabelPolicy, outputs: MultiLabel, decisions: MultiLabelDecisions
) -> str:
    """Return a line on one row, and one on each of its labels."""
    costs, p = policy.costs.arrays, decisions.probabilities[0].astype(np.float64)
    expected = decisions.expected_cost[0]
    action = ROW_ACTIONS[decisions.row_action[0]]
    first = f"Action: {action}, at an expected cost of {expected:.4g}."
    if decisions.review_row[0]:
        value = decisions.review_value[0]
        first = f"Action: {action}, which saves {value:.4g} over deciding all of its labels."
    elif policy.f_beta is not None:
        first = f"Action: {action}, for the highest expected {policy.f_beta}."
    lines = [first]
    for k, name in enumerate(policy.label_names):
        pairs = {"negative": costs.false_negative[k] * p[k]}
        pairs["positive"] = costs.false_positive[k] * (1 - p[k])
        pairs |= {"review": costs.review[k]} if np.isfinite(costs.review[k]) else {}
        shown = ", ".join(f"{one} {cost:.4g}" for one, cost in pairs.items())
        lines.append(
            f"{name}: {ACTIONS[decisions.action[0, k]]}. The model predicts "
            f"{percent(outputs.array[0, k], 2)}; calibrated, {percent(p[k], 2)}. Expected costs: "
            f"{shown}."
        )
    return "\n".join(lines)


def _threshold(calibrated: float | None, uncalibrated: float | None) -> str:
    """Return a threshold on the calibrated probability, and on that of the model."""
    if calibrated is None:
        return ABSENT
    return f"{calibrated:.3g}" + ("" if uncalibrated is None else f" ({uncalibrated:.3g})")


def _shortened(name: str, width: int) -> str:
    """Return a name that is cut in its middle if it is long.

    >>> _shortened("pleural effusion, left side", 16)
    'pleural…eft side'
    """
    if len(name) <= width:
        return name
    head = (width - 1) // 2
    return f"{name[:head]}\N{HORIZONTAL ELLIPSIS}{name[head + 1 - width :]}"


def _checked_costs(costs: Any, f_beta: Any) -> LabelCosts:
    """Return the costs; those of F-beta are 1 for each error."""
    for argument, value, kind in (("costs", costs, LabelCosts), ("f_beta", f_beta, FBeta)):
        if value is not None and not isinstance(value, kind):
            fix = f"Pass {kind.__name__}(...)"
            got = type(value).__name__
            raise BadTypeError(argument, CALLER, f"must be None or a {kind.__name__}", got, fix)
    if costs is not None and f_beta is not None:
        rule, fix = "must be None with costs", "Pass one of them"
        raise BadValueError("f_beta", CALLER, rule, f"{f_beta}", fix)
    return LabelCosts() if costs is None else costs


def _fresh_calibrator(calibrator: Any) -> MultiLabelCalibrator:
    """Return an unfitted copy."""
    if isinstance(calibrator, str) and calibrator == "auto":
        return MultiLabelCalibrator()
    if not isinstance(calibrator, MultiLabelCalibrator):
        rule, fix = "must be 'auto' or a MultiLabelCalibrator", "Use MultiLabelCalibrator('platt')"
        raise BadTypeError("calibrator", CALLER, rule, repr(calibrator)[:60], fix)
    return clone(calibrator)


def _cross_fitted(
    shards: Shards, calibrator: MultiLabelCalibrator, rule: LabelRule, seed: int
) -> LabelEvidence:
    """Decide each row by what the other folds learned."""
    batch, folds = sample_folds(shards, seed, CALLER)

    def decided(train: IntArray, test: IntArray) -> MultiLabelDecisions:
        rows = rows_to_fit(batch, train)
        fitted, own = clone(calibrator).fit(rows), rule
        if rule.f_beta is not None:
            own = rule.with_thresholds(fitted._predict_proba(rows.outputs), rows.weight)
        return own.decide(fitted._predict_proba(batch.outputs.take(test)))

    decisions = MultiLabelDecisions.joined(folds.map(decided), len(batch))
    return LabelEvidence(batch.take(folds.order), decisions, folds.evaluation)


def _evidence_on(
    batch: Batch, calibrator: MultiLabelCalibrator, rule: LabelRule, argument: str, caller: str
) -> LabelEvidence:
    """Decide labeled rows by what the rows of the fit taught."""
    given = as_multilabel(batch.outputs, caller)
    try:
        known = in_fitted_order(given, calibrator.n_labels_, calibrator.label_names_, caller)
    except BadValueError as error:
        raise error.moved(argument=argument) from error
    labels = as_label_matrix(batch.labels, caller)
    if known is not given:  # the labels move with their outputs
        labels = LabelMatrix(labels.values[:, [given.names.index(one) for one in known.names]])
    batch = replace(batch, outputs=known, labels=labels)
    return LabelEvidence(batch, rule.decide(calibrator._predict_proba(known)), EVALUATION_SET)


def _decision_warnings(rule: LabelRule, decisions: MultiLabelDecisions) -> list[str]:
    """Return a sentence if all rows are decided alike: reviewed, or a label predicted."""
    if decisions.review_row.all():
        price = f"{rule.costs.review_row:g}"
        return [f"All rows are reviewed as a whole: {price} is less than any decision costs."]
    if rule.f_beta is None:
        return []
    always = [str(rule.names[k]) for k in np.flatnonzero(decisions.fallback.all(axis=0)).tolist()]
    if not always:
        return []
    which = join_words(always, N_NAMED)
    return [f"{rule.f_beta} is highest with {which} predicted in all rows: too little is known."]
