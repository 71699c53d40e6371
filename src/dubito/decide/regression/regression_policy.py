"""The regression policy: calibrator, interval, costs and reviews, in one object and one file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    as_fraction,
    as_number,
    draw_seed,
)
from dubito.calibrate.cross_validation import Folds, make_folds, rows_to_fit
from dubito.calibrate.quantile_recalibration import DRAW_LEVELS, QuantileRecalibration
from dubito.calibrate.regression import BaseRegressionCalibrator, VarianceScaling, as_predictive
from dubito.data.batch import Batch
from dubito.data.cache import cached
from dubito.data.expressions import HIGHEST_COST
from dubito.data.shards import ArrayShards, Shards, make_shards
from dubito.decide.actions import too_costly
from dubito.decide.policy.document import PROVENANCE, BaseBatchPolicy, provenance_of
from dubito.decide.policy.fit import (
    EVALUATION_SET,
    as_feature_names,
    evaluation_flags,
    evaluation_rows,
    evaluation_shards,
    sample_folds,
)
from dubito.decide.policy.gate import OODGate, feature_names_of, resolved_gate
from dubito.decide.regression.error_costs import ErrorCosts, Regression
from dubito.decide.regression.estimates import minimum_expected_loss, minkowski_estimate
from dubito.decide.regression.value_decisions import (
    ACTIONS,
    OUT_OF_DISTRIBUTION,
    REVIEW,
    TOO_WIDE,
    RegressionDecisions,
    RegressionPolicyReport,
    ValueEvidence,
    ValueRule,
)
from dubito.doubt import ConformalRegressor
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, MissingLabelsWarning
from dubito.formatting import html_view, join_words, percent, plain, short_percent
from dubito.measure.regression import require_targets, values_of
from dubito.measure.state import warn_of_missing
from dubito.outputs import Normal, Quantiles, Samples
from dubito.outputs.regression import BaseMixture
from dubito.serialization.fields import (
    Entry,
    boolean,
    integer,
    list_of,
    number,
    optional,
    record,
    text,
)
from dubito.serialization.objects import clone, estimator, record_of, stores_fields

CALLER = "RegressionPolicy.fit"
WIDEST = 1e300
LEVELS = (0.005, 0.01, *DRAW_LEVELS, 0.99, 0.995)
N_INNER_FOLDS = 3  # that calibrators are compared on
REASON_CLAUSES = (  # in the order of REASONS
    "its expected cost is lowest",
    "a review costs less than any value is expected to",
    "its prediction interval is too wide",
    "it is out-of-distribution",
)
FEW_ROWS = 200  # for quantile recalibration


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class RegressionPolicy(BaseBatchPolicy):
    """A calibrator, a prediction interval, costs and reviews: predictions in, values out.

    Made by `RegressionPolicy.fit` or `RegressionPolicy.load`. Deciding is calibrating the
    predictive distribution and taking the value of lowest expected cost. A row is reviewed by a
    person where that costs less, where its prediction interval is too wide, or where it is
    out-of-distribution.

    Attributes
    ----------
    costs : ErrorCosts
        The cost of deciding a value too low or too high.
    review_cost : float or None
        The cost of a review, which finds the truth; None without reviews.
    max_width, max_relative_width : float or None
        The widest interval that is decided without a review, absolute and in relation to the size
        of the calibrated mean (the median of quantiles).
    calibrator : BaseRegressionCalibrator or None
        Fitted; None for uncalibrated outputs.
    interval : ConformalRegressor
        Fitted on uncalibrated outputs, so that its guarantee holds.
    rearrange : bool
        Whether the fit was on `Quantiles(..., rearrange=True)`: crossing quantiles of new files
        and requests are then sorted, too.
    n_draws : int or None
        The number of draws of `Samples` in the fit, None for other outputs.
    ood : OODGate or None
        Fitted.
    feature_names : tuple of str or None
        The features of the OOD gate, if they had names in the fit.
    report : RegressionPolicyReport
        Costs, coverage and reviews on rows that the policy did not learn from.
    provenance : dict
        The version of dubito, the time, a fingerprint of the rows, the random seed, and the columns
        of outputs in the file, if any.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import RegressionPolicy
    >>> from dubito.calibrate import VarianceScaling
    >>> from dubito import ErrorCosts, Normal
    >>> rng = np.random.default_rng(0)
    >>> demand = rng.normal(100, 20, 400)
    >>> outputs = Normal(demand + rng.normal(0, 10, 400), np.full(400, 5.0))
    >>> costs = ErrorCosts.linear(under=9, over=1)
    >>> policy = RegressionPolicy.fit(outputs, demand, costs=costs, calibrator=VarianceScaling())
    >>> policy.decide(Normal([100.0], [5.0])).value.round().tolist()
    [113.0]
    """

    provenance: Annotated[dict[str, Any], record(**PROVENANCE)]
    report: Annotated[RegressionPolicyReport, record_of(RegressionPolicyReport)]
    costs: Annotated[ErrorCosts, record_of(ErrorCosts)]
    review_cost: Annotated[float | None, optional(number(0, HIGHEST_COST))]
    max_width: Annotated[float | None, optional(number(0, WIDEST))]
    max_relative_width: Annotated[float | None, optional(number(0, WIDEST))]
    rearrange: Annotated[bool, boolean]
    n_draws: Annotated[int | None, optional(integer(2))]
    feature_names: Annotated[tuple[str, ...] | None, optional(list_of(text))]
    calibrator: Annotated[
        BaseRegressionCalibrator | None, optional(estimator(BaseRegressionCalibrator))
    ]
    interval: Annotated[ConformalRegressor, estimator(ConformalRegressor)]
    ood: Annotated[OODGate | None, optional(estimator(OODGate))]

    @classmethod
    def fit(
        cls,
        outputs: Any,
        y: Any = None,
        *,
        costs: ErrorCosts,
        calibrator: BaseRegressionCalibrator | Literal["auto"] | None = "auto",
        interval: ConformalRegressor | float = 0.9,
        review_cost: float | None = None,
        max_width: float | None = None,
        max_relative_width: float | None = None,
        features: Any = None,
        ood: OODGate | None = None,
        sample_weight: Any = None,
        groups: Any = None,
        evaluate_on: Literal["cross-fit"] | Batch | Shards = "cross-fit",
        feature_names: Sequence[str] | None = None,
        random_state: RandomState = 0,
    ) -> RegressionPolicy:
        """Fit on all rows, and report on held-out rows: cross-fitted, or an evaluation set.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles, RegressionMembers, NormalMixture, Batch or Shards
            Predictive distributions of one target, on rows that the model was not trained on. Of
            members and mixtures the moment-matched normal distribution is taken. A batch or shards
            hold targets, weights, groups and features themselves.
        y : array of shape (n_rows,), optional
            Targets. Rows with a missing target are left out with a warning.
        costs : ErrorCosts
            The cost of an error of the decided value.
        calibrator : BaseRegressionCalibrator, "auto" or None, default "auto"
            "auto" is `VarianceScaling()`, or from 200 rows on `QuantileRecalibration(...)` where
            decisions and reviews cost less on held-out rows, and None where they cost less by more
            than one standard error. None leaves outputs uncalibrated.
        interval : ConformalRegressor or float, default 0.9
            The prediction interval, or its nominal coverage.
        review_cost : float, optional
            The cost of having a person find the truth. A row whose expected cost is at least this
            is reviewed. Without it nothing is reviewed.
        max_width, max_relative_width : float, optional
            Review rows whose interval is wider than this, absolute or in relation to the size of
            the calibrated mean (the median of quantiles). Both need `review_cost`.
        features : array or data frame, optional
            Features of the rows, for the OOD gate.
        ood : OODGate, optional
            Sends out-of-distribution inputs to a review. With `features`, `OODGate()` if None.
        sample_weight, groups : array, optional
            Weights of the rows, and groups that no fold may divide.
        evaluate_on : "cross-fit", Batch or Shards, default "cross-fit"
            The rows to report on: folds of these rows, or others, with outputs of the same kind,
            targets, and features if the policy has an OOD gate.
        feature_names : sequence of str, optional
            Names of the features; by default the columns of a data frame.
        random_state : int, RandomState or None, default 0
            Determines the folds and the bootstrap.

        Returns
        -------
        RegressionPolicy
        """
        shards = make_shards(
            outputs, y, features=features, sample_weight=sample_weight, groups=groups,
            caller=CALLER, convert=_as_one_target,
        )  # fmt: skip
        return cls.fit_shards(
            shards, costs=costs, calibrator=calibrator, interval=interval,
            review_cost=review_cost, max_width=max_width, max_relative_width=max_relative_width,
            ood=ood, evaluate_on=evaluate_on, random_state=random_state,
            feature_names=as_feature_names(feature_names, features, next(shards.batches())),
        )[0]  # fmt: skip

    @classmethod
    def fit_shards(
        cls,
        shards: Shards,
        *,
        costs: ErrorCosts,
        evaluate_on: Literal["cross-fit"] | Batch | Shards = "cross-fit",
        feature_names: tuple[str, ...] | None = None,
        random_state: RandomState = 0,
        **settings: Any,
    ) -> tuple[RegressionPolicy, ValueEvidence]:
        """Fit as `fit` does, and return also the rows that were held out, with their decisions.

        Parameters
        ----------
        shards : Shards
            Rows with predictive distributions and targets.
        costs : ErrorCosts
            The cost of deciding a value too low or too high.
        evaluate_on : "cross-fit", Batch or Shards, default "cross-fit"
            The rows to report on: folds of these rows, or others.
        feature_names : tuple of str, optional
            Names of the features.
        random_state : int, RandomState or None, default 0
            Determines the folds and the bootstrap.
        **settings : any
            The other arguments of `fit`: `calibrator`, `interval`, `review_cost`, `max_width`,
            `max_relative_width` and `ood`.

        Returns
        -------
        tuple of RegressionPolicy and ValueEvidence
            The policy, and the held-out rows that its report rests on.
        """
        others = evaluation_shards(evaluate_on, CALLER)
        with cached(shards) as quick:
            rows = _converted(quick)
            first = next(rows.batches())
            config = _Config.checked(first, costs, draw_seed(random_state, CALLER), **settings)
            counts = rows.sum(lambda batch: np.array([batch.n_missing, len(batch)]))
            n_used = int(counts[1] - counts[0])
            warn_of_missing(int(counts[0]), int(counts[1]), CALLER, stacklevel=3)
            with warnings.catch_warnings(action="ignore", category=MissingLabelsWarning):
                fitted, gate, evidence = _fit_parts(rows, config, others)
            name = "none" if fitted.calibrator is None else _description(fitted.calibrator)
            if config.calibrator == "auto" and _is_compared(costs, first.outputs, n_used):
                name += "; chosen by the cost of held-out decisions"
            provenance = provenance_of(rows, name, config.seed)
        report = RegressionPolicyReport.of(evidence, config.rule, config.seed)
        for sentence in (*report.notes, *report.better_baselines):
            warnings.warn(f"{CALLER}: {sentence}", DubitoWarning, stacklevel=3)
        policy = cls(
            costs=costs,
            review_cost=config.rule.review_cost,
            max_width=config.rule.max_width,
            max_relative_width=config.rule.max_relative_width,
            calibrator=fitted.calibrator,
            interval=fitted.interval,
            rearrange=getattr(first.outputs, "rearranged", None) is not None,
            n_draws=first.outputs.array.shape[1] if isinstance(first.outputs, Samples) else None,
            ood=gate,
            feature_names=feature_names,
            report=report,
            provenance=provenance,
        )
        return policy, evidence

    @property
    def rule(self) -> ValueRule:
        """What turns calibrated outputs and intervals into decisions."""
        limits = self.review_cost, self.max_width, self.max_relative_width
        return ValueRule(self.costs, *limits, self.report.constant_cost)

    @property
    def action_names(self) -> tuple[str, ...]:
        return ACTIONS[: 1 + self.has_reviews]

    @property
    def has_reviews(self) -> bool:
        return self.review_cost is not None

    @property
    def kind(self) -> str:
        """The kind of outputs: "Normal", "Samples" or "Quantiles"."""
        return self.interval.kind_

    @property
    def levels(self) -> tuple[float, ...] | None:
        """The levels of `Quantiles`, None for other outputs."""
        return self.interval.levels_

    @property
    def n_columns(self) -> int | None:
        """The number of quantiles or draws per row, None for `Normal`."""
        return self.n_draws if self.levels is None else len(self.levels)

    def calibrated(self, outputs: Any) -> Regression:
        """Return calibrated outputs.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles, RegressionMembers or NormalMixture
            Predictive distributions of the kind of the fit.

        Returns
        -------
        Normal, Samples or Quantiles
        """
        known = self._known(outputs, "RegressionPolicy.calibrated")
        return known if self.calibrator is None else self.calibrator.transform(known)

    def decide(self, outputs: Any, features: Any = None) -> RegressionDecisions:
        """Return the value of each row or that it is reviewed, with its interval and the reason.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles, RegressionMembers or NormalMixture
            Predictive distributions of the kind of the fit.
        features : array or data frame, optional
            Needed where the policy has an OOD gate.

        Returns
        -------
        RegressionDecisions
        """
        caller = "RegressionPolicy.decide"
        known = self._known(outputs, caller)
        matrix = self._matrix(features, known.n_rows, caller)
        is_ood = None if self.ood is None else self.ood.predict(known, matrix)
        rule, fitted = self.rule, _Fitted(self.calibrator, self.interval)

        def decided(rows: slice) -> RegressionDecisions:
            some = None if is_ood is None else is_ood[rows]
            return fitted.decide(rule, known.take(rows), some)

        return RegressionDecisions.by_block(decided, known.n_rows, known.n_entries)

    def decide_batch(self, batch: Batch) -> RegressionDecisions:
        return self.decide(batch.outputs, batch.features)

    def explain_batch(self, batch: Batch, row: int) -> str:
        return self.explain(batch.outputs, batch.features, row=row)

    def evidence_on(self, batch: Batch, evaluation: str) -> ValueEvidence:
        # The OOD gate is left out where rows have no features.
        known = self._known(batch.outputs, "RegressionPolicy.evidence_on")
        policy = self if batch.features is not None else replace(self, ood=None)
        decisions, level = policy.decide(known, batch.features), float(self.interval.level)
        return ValueEvidence(replace(batch, outputs=known), decisions, level, evaluation)

    def explain(self, outputs: Any, features: Any = None, *, row: int = 0) -> str:
        """Explain in a few sentences what is decided for one row, and why.

        Parameters
        ----------
        row : int, default 0
            The row to explain.
        outputs : Normal, Samples, Quantiles or RegressionMembers
            Predictive distributions.
        features : array or data frame, optional
            Features of the rows, if the policy has an OOD gate that needs them.

        Returns
        -------
        str
        """
        caller = "RegressionPolicy.explain"
        known = self._known(outputs, caller)
        as_count(row, "row", caller, 0, known.n_rows - 1)
        rows, matrix = slice(row, row + 1), self._matrix(features, known.n_rows, caller)
        return _explanation(self, known.take(rows), None if matrix is None else matrix[rows])

    def _known(self, outputs: Any, caller: str) -> Regression:
        """Return outputs of the kind and levels of the fit."""
        return self.interval._checked_outputs(_as_one_target(outputs, caller), caller)

    def _matrix(self, features: Any, n_rows: int, caller: str) -> FloatArray | None:
        """Return the features of rows where the gate needs them."""
        if self.ood is None:
            return None
        return self.ood.feature_matrix(features, self.feature_names, n_rows, caller)

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> RegressionPolicy:
        calibrator, interval, ood = values["calibrator"], values["interval"], values["ood"]
        kind, kinds = interval.kind_, ("Normal", "Samples", "Quantiles")
        if kind not in kinds:
            raise entry.at("interval").error(f"must be fitted on one of {', '.join(kinds)}", kind)
        if calibrator is not None and (calibrator.kind_, calibrator.n_targets_) != (kind, None):
            raise entry.at("calibrator").error(f"of {kind} of one target", "others")
        if (values["n_draws"] is not None) != (kind == "Samples"):
            raise entry.at("n_draws").error("given for Samples only", "otherwise")
        if values["rearrange"] and kind != "Quantiles":
            raise entry.at("rearrange").error("False unless of Quantiles", "True")
        try:
            interval.predict(_example(kind, interval.levels_, values["n_draws"]))
        except (BadTypeError, BadValueError) as error:
            got = f"one whose {error.argument} {error.rule}"
            raise entry.at("interval").error("must need nothing but outputs", got) from error
        if values["review_cost"] is None:
            for name in ("max_width", "max_relative_width", "ood"):
                if values[name] is not None:
                    raise entry.at("review_cost").error(f"given with {name}", "None")
        elif not values["review_cost"] > 0:
            raise entry.at("review_cost").error("above 0", "0")
        if ood is not None and any(isinstance(one, str) for one in ood.scores):
            raise entry.at("ood").error("scores of features", "a score of class probabilities")
        values["feature_names"] = feature_names_of(values["feature_names"], ood, entry)
        return cls(**values)

    def __repr__(self) -> str:
        review = "" if self.review_cost is None else f", review {self.review_cost:g}"
        return f"RegressionPolicy({self.kind}, {self.costs}{review})"

    def __str__(self) -> str:
        return "\n".join([*self.rule_lines, str(self.report), *self.origin_lines()])

    def _repr_html_(self) -> str:
        rule, end = "\n".join(self.rule_lines), "\n".join(self.origin_lines())
        return html_view(self.report.lines[0], rule, *self.report._html_parts(), end)

    @property
    def rule_lines(self) -> list[str]:
        """What is decided, and what is reviewed, in sentences."""
        level = self.costs.fractile
        what = "the value of lowest expected cost"
        kind = "uncalibrated" if self.calibrator is None else "calibrated"
        if level is not None and self.costs.values is None and self.costs.of_errors(0.0) == 0:
            what = f"the {kind} {short_percent(round(level, 6))} quantile"
        elif self.costs.square is not None and self.costs.values is None:
            what = f"the {kind} mean"
        lines = [f"Decision: {what} (costs: {self.costs})."]
        if self.review_cost is None:
            return [*lines, "Nothing is reviewed."]
        widths = []
        name = f"whose {short_percent(self.interval.level)} prediction interval is wider than"
        if self.max_width is not None:
            widths.append(f"{name} {plain(self.max_width)}")
        if self.max_relative_width is not None:
            widths.append(f"{name} {short_percent(self.max_relative_width)} of the prediction")
        parts = [f"whose expected cost is at least {plain(self.review_cost)}", *widths]
        if self.ood is not None:
            parts.append(f"that are outliers by {self.ood.name} (alpha {self.ood.alpha:g})")
        price, which = plain(self.review_cost), ", or ".join(parts)
        return [*lines, f"Review, at a cost of {price}: rows {which}."]


class _Fitted(NamedTuple):
    """What is learned from rows, besides the OOD gate."""

    calibrator: BaseRegressionCalibrator | None
    interval: ConformalRegressor

    def decide(
        self, rule: ValueRule, outputs: Regression, is_ood: BoolArray | None = None
    ) -> RegressionDecisions:
        """Decide rows by their uncalibrated outputs."""
        calibrated = outputs if self.calibrator is None else self.calibrator.transform(outputs)
        bounds = self.interval.predict(outputs)
        return rule.decide(calibrated, bounds.low, bounds.high, is_ood)


class _Config(NamedTuple):
    """The checked settings of a fit."""

    rule: ValueRule
    calibrator: BaseRegressionCalibrator | Literal["auto"] | None
    interval: ConformalRegressor
    ood: OODGate | None
    seed: int

    @classmethod
    def checked(
        cls,
        first: Batch,
        costs: Any,
        seed: int,
        *,
        calibrator: Any = "auto",
        interval: Any = 0.9,
        review_cost: Any = None,
        max_width: Any = None,
        max_relative_width: Any = None,
        ood: Any = None,
    ) -> _Config:
        """Return checked settings."""
        if not isinstance(costs, ErrorCosts):
            rule, fix = "must be ErrorCosts(...)", "Use ErrorCosts.linear(under=9, over=1)"
            raise BadTypeError("costs", CALLER, rule, type(costs).__name__, fix)
        is_auto = isinstance(calibrator, str) and calibrator == "auto"
        if not (is_auto or calibrator is None or isinstance(calibrator, BaseRegressionCalibrator)):
            rule = "must be 'auto', None or a calibrator of regressions"
            fix = "Use VarianceScaling() or QuantileRecalibration()"
            raise BadTypeError("calibrator", CALLER, rule, repr(calibrator)[:60], fix)
        if not isinstance(interval, ConformalRegressor):
            interval = ConformalRegressor(as_fraction(interval, "interval", CALLER, is_open=True))
        limits = {"review_cost": review_cost, "max_width": max_width}
        limits["max_relative_width"] = max_relative_width
        for name, value in limits.items():
            if value is not None:
                fix = f"Use {name}=1.0"
                limits[name] = as_number(value, name, CALLER, 0, fix=fix, is_open=True)
        gate = resolved_gate(ood, first.features, CALLER)
        names = [] if gate is None else [one for one in gate.scores if isinstance(one, str)]
        if names:
            rule, fix = "must score features", "Use OODGate(MahalanobisDistance())"
            raise BadValueError("ood", CALLER, rule, repr(names[0]), fix)
        rule_of = ValueRule(costs, **limits)
        _require_review_cost(rule_of, gate)
        require_targets(first, CALLER, "y")
        if calibrator is None or isinstance(calibrator, VarianceScaling):
            _require_fractile(costs, first.outputs)
        return cls(rule_of, calibrator, interval, gate, seed)


def _require_review_cost(rule: ValueRule, ood: OODGate | None) -> None:
    """Raise where rows may have to be reviewed and the cost of that is not given."""
    if rule.review_cost is not None:
        return
    names = ("max_width", "max_relative_width")
    given = [name for name in names if getattr(rule, name) is not None]
    given += [] if ood is None else ["an OOD gate"]
    if given:
        need, fix = f"must be given with {given[0]}", "Pass review_cost=..., the cost of a review"
        raise BadValueError("review_cost", CALLER, need, "None", fix)


def _require_fractile(costs: ErrorCosts, outputs: Any) -> None:
    """Raise where the best value lies beyond the outermost levels of quantiles."""
    if _is_beyond(costs, outputs):
        level = costs.fractile
        first, last = outputs.levels[[0, -1]].tolist()
        rule = f"must have their best value, the quantile at {level:g}, between the levels "
        fix = "Use calibrator='auto', or pass Quantiles with a wider range of levels"
        raise BadValueError("costs", CALLER, rule + f"{first:g} and {last:g}", f"{costs}", fix)


def _is_beyond(costs: ErrorCosts, outputs: Any) -> bool:
    """Whether the best value lies beyond the outermost levels of quantiles."""
    level = costs.fractile
    if level is None or not isinstance(outputs, Quantiles):
        return False
    first, last = outputs.levels[[0, -1]].tolist()
    return not first - 1e-9 <= level <= last + 1e-9


def _is_compared(costs: ErrorCosts, outputs: Any, n_rows: int) -> bool:
    """Whether "auto" compares calibrators: there are enough rows, and a choice."""
    return n_rows >= FEW_ROWS and not _is_beyond(costs, outputs)


def _as_one_target(outputs: Any, caller: str) -> Regression:
    """Return predictive distributions of one target, of mixtures the moment-matched normal."""
    if isinstance(outputs, BaseMixture):
        outputs = outputs.normal
    known = as_predictive(outputs, caller)
    shape = known.mean.shape if hasattr(known, "mean") else known.array.shape
    if len(shape) == len(known.axes):
        rule, fix = "must have one target", "Fit one RegressionPolicy per target"
        raise BadValueError("outputs", caller, rule, f"{shape[-1]} targets", fix)
    return known


def _example(kind: str, levels: Sequence[float] | None, n_draws: int | None) -> Regression:
    """Return one row of the outputs that a policy takes."""
    if kind == "Normal":
        return Normal([0.0], [1.0])
    if levels is None:
        return Samples(np.arange(float(n_draws or 2))[np.newaxis])
    return Quantiles(np.array(levels)[np.newaxis], levels)


def _converted(shards: Shards) -> Shards:
    """Return the same rows with the outputs that decisions are made on."""

    def converted(batch: Batch) -> Batch:
        outputs = _as_one_target(batch.outputs, CALLER)
        return batch if outputs is batch.outputs else replace(batch, outputs=outputs)

    if isinstance(shards, ArrayShards):
        return ArrayShards(converted(shards.batch))
    return shards.map(converted)


def _with(shards: Shards, **changes: Any) -> Shards:
    """Return the same rows with some columns replaced."""
    if isinstance(shards, ArrayShards):
        return ArrayShards(replace(shards.batch, **changes))
    return shards.map(lambda batch: replace(batch, **changes))


def _fit_parts(
    shards: Shards, config: _Config, evaluate_on: Shards | None
) -> tuple[_Fitted, OODGate | None, ValueEvidence]:
    """Fit on all rows, and decide rows that were held out: those of each fold, or others."""
    batch, folds = sample_folds(shards, config.seed, CALLER)
    fitted = _fitted(shards, batch, config)
    gate: OODGate | None = None
    scores: FloatArray = np.empty(0)
    if config.ood is not None:
        # Targets are no classes, which a score could tell apart.
        unlabeled = _with(shards, labels=None), replace(batch, labels=None)
        gate, scores = config.ood.cross_fit(*unlabeled, folds)
    if evaluate_on is None:
        evidence = _cross_fitted(batch, folds, fitted, gate, scores, config)
    else:
        evidence = _evidence_on(evaluate_on, fitted, gate, config)
    return fitted, gate, replace(evidence, warnings=_review_warnings(evidence, config.rule))


def _cross_fitted(
    batch: Batch,
    folds: Folds,
    fitted: _Fitted,
    gate: OODGate | None,
    scores: FloatArray,
    config: _Config,
) -> ValueEvidence:
    """Decide each row by what the other folds learned; `scores` are out of fold, for the gate."""
    # The calibrator is chosen once and fitted anew in each fold: others have other levels.
    chosen = config._replace(calibrator=fitted.calibrator)
    is_ood = np.zeros(len(batch), np.bool_)
    if gate is not None:
        is_ood[folds.order] = gate.held_out_flags(scores[folds.order], folds.fold_of)

    def decided(train: IntArray, test: IntArray) -> RegressionDecisions:
        rows = rows_to_fit(batch, train)
        own = _fitted(ArrayShards(rows), rows, chosen)
        outputs = _as_one_target(batch.outputs.take(test), CALLER)
        return own.decide(config.rule, outputs, is_ood[test])

    decisions = RegressionDecisions.joined(folds.map(decided), folds.order.size)
    level = float(fitted.interval.level)
    return ValueEvidence(batch.take(folds.order), decisions, level, folds.evaluation)


def _evidence_on(
    evaluate_on: Shards, fitted: _Fitted, gate: OODGate | None, config: _Config
) -> ValueEvidence:
    """Decide the rows of an evaluation set by what all training rows taught."""
    batch = evaluation_rows(evaluate_on, config.seed, CALLER)
    known = _as_one_target(batch.outputs, CALLER)
    try:
        known = fitted.interval._checked_outputs(known, CALLER)
    except (BadTypeError, BadValueError) as error:
        raise error.moved(argument="evaluate_on") from error
    batch = replace(batch, outputs=known)
    require_targets(batch, CALLER, "evaluate_on")
    is_ood = evaluation_flags(gate, known, batch, CALLER)
    decisions = fitted.decide(config.rule, known, is_ood)
    return ValueEvidence(batch, decisions, float(fitted.interval.level), EVALUATION_SET)


def _fitted(shards: Shards, batch: Batch, config: _Config) -> _Fitted:
    """Fit the calibrator, chosen on the rows of `batch` if it is not given, and the interval."""
    calibrator = config.calibrator
    if isinstance(calibrator, str):
        calibrator = _chosen(batch, config)
    fresh = None if calibrator is None else clone(calibrator).fit(shards)
    return _Fitted(fresh, clone(config.interval).fit(_with(shards, groups=None)))


def _chosen(batch: Batch, config: _Config) -> BaseRegressionCalibrator | None:
    """Return the calibrator whose decisions cost least on held-out rows, None for no calibrator."""
    costs = config.rule.costs
    level = costs.fractile
    quantiles = QuantileRecalibration(sorted({*LEVELS, *([] if level is None else [level])}))
    if not _is_compared(costs, batch.outputs, len(batch)):
        return quantiles if _is_beyond(costs, batch.outputs) else VarianceScaling()
    folds = make_folds(batch, N_INNER_FOLDS, config.seed, CALLER)
    candidates = [VarianceScaling(), quantiles, None]
    paid = [_held_out_costs(one, batch, folds, config.rule) for one in candidates]
    weight = batch.labeled_weight[folds.order]
    best = int(np.argmin([float(weight @ one) for one in paid[:-1]]))
    # Uncalibrated outputs misstate expected costs: they must save more than chance explains.
    saved = paid[best] - paid[-1]
    mean = float(np.average(saved, weights=weight))
    error = float(np.sqrt(np.average((saved - mean) ** 2, weights=weight) / weight.sum()))
    return None if mean > error else candidates[best]


def _held_out_costs(
    calibrator: BaseRegressionCalibrator | None,
    batch: Batch,
    folds: Folds,
    rule: ValueRule,
) -> FloatArray:
    """Return the cost of each row, fold by fold, decided after calibration by the other folds.

    Rows are reviewed by cost only: their intervals do not depend on the calibrator.
    """
    by_cost = ValueRule(rule.costs, rule.review_cost)

    def paid(train: IntArray, test: IntArray) -> FloatArray:
        rows = batch.take(test)
        outputs = _as_one_target(rows.outputs, CALLER)
        if calibrator is not None:
            fitted = clone(calibrator).fit(ArrayShards(batch.take(train)))
            outputs = fitted.transform(rows.outputs)
        none = np.zeros(len(rows))
        return by_cost.paid(by_cost.decide(outputs, none, none), values_of(rows))

    return np.concatenate(folds.map(paid))


def _review_warnings(evidence: ValueEvidence, rule: ValueRule) -> tuple[str, ...]:
    """Return a sentence if all rows are reviewed, or if none is ever worth it."""
    price, decisions = rule.review_cost, evidence.decisions
    if price is None:
        return ()
    if decisions.is_reviewed.all():
        return (f"All rows are reviewed, at a cost of {price:g}.",)
    has_others = rule.max_width is not None or rule.max_relative_width is not None
    if decisions.is_reviewed.any() or has_others:
        return ()
    highest = float(decisions.expected_cost.max())
    problem = f"Review is optimal for none of the {len(decisions):,} rows"
    return (too_costly(problem, price - highest, price),)


def _description(calibrator: BaseRegressionCalibrator) -> str:
    """Return the name and the parameters of a calibrator in words."""
    return f"{type(calibrator).__name__} ({calibrator.summary()})"


def _explanation(policy: RegressionPolicy, outputs: Regression, features: FloatArray | None) -> str:
    """Return a line on what is decided for one row, then lines on why."""
    found = policy.decide(outputs, features)
    reason, value = int(found.reason[0]), plain(float(found.value[0]))
    best = float(policy.costs.expected(found.calibrated, found.value)[0])
    if found.action[0] == REVIEW:
        lines = [f"Action: {ACTIONS[REVIEW]}, because {REASON_CLAUSES[reason]}."]
        lines.append(f"Without a review: {value}, at an expected cost of {plain(best)}.")
    else:
        lines = [f"Action: {value}, at an expected cost of {plain(best)}."]
    if policy.review_cost is not None:
        lines.append(f"A review costs {plain(policy.review_cost)}.")
    shown = []
    for one in (outputs, found.calibrated):
        mean, variance = minkowski_estimate(one, 2)[0], minimum_expected_loss(one, 2)[0]
        shown.append(f"{plain(float(mean))} with a standard deviation of {plain(variance**0.5)}")
    lines.append(f"The model predicts {shown[0]}; calibrated, {shown[1]}.")
    low, high = float(found.low[0]), float(found.high[0])
    width = f"{short_percent(policy.interval.level)} prediction interval: {plain(low)} to "
    lines.append(f"{width}{plain(high)}{_limit(policy, reason)}.")
    if policy.ood is not None:
        p = float(policy.ood.p_value(outputs, features)[0])
        is_ood = "out-of-distribution" if reason == OUT_OF_DISTRIBUTION else "in-distribution"
        lines.append(f"Its features are {is_ood}: p-value {p:.3g}, alpha {policy.ood.alpha:g}.")
    return "\n".join(lines)


def _limit(policy: RegressionPolicy, reason: int) -> str:
    """Return how wide an interval may be, in words."""
    parts = [] if policy.max_width is None else [plain(policy.max_width)]
    if policy.max_relative_width is not None:
        parts.append(f"{percent(policy.max_relative_width, 0)} of the prediction")
    is_wide = "too wide: " if reason == TOO_WIDE else ""
    return f" ({is_wide}the limit is {join_words(parts)})" if parts else ""
