"""The regression policy: calibrator, interval, costs and reviews, in one object and one file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple, cast, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, RandomState, as_fraction, as_number, draw_seed
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
    evaluation_batch,
    evaluation_flags,
    sample_folds,
)
from dubito.decide.policy.gate import OODGate, feature_matrix, feature_names_of, resolved_gate
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
from dubito.formatting import join_words, percent, plain, short_percent
from dubito.measure.regression import require_targets, values_of
from dubito.measure.state import warn_of_missing
from dubito.outputs import Normal, Quantiles, Samples
from dubito.outputs.regression import BaseMixture
from dubito.serialization.fields import Entry, boolean, integer, list_of, number, optional, text
from dubito.serialization.objects import clone, estimator, record_of, stores_fields

CALLER = "RegressionPolicy.fit"
MAX_WIDTH = 1e300
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

    _batch_columns = ("features",)

    provenance: Annotated[dict[str, Any], PROVENANCE]
    report: Annotated[RegressionPolicyReport, record_of(RegressionPolicyReport)]
    costs: Annotated[ErrorCosts, record_of(ErrorCosts)]
    review_cost: Annotated[float | None, optional(number(0, HIGHEST_COST))]
    max_width: Annotated[float | None, optional(number(0, MAX_WIDTH))]
    max_relative_width: Annotated[float | None, optional(number(0, MAX_WIDTH))]
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
            feature_names=as_feature_names(feature_names, features, next(shards.batches()), CALLER),
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
        with cached(shards) as quick:
            rows = quick.convert(_converted)
            first = next(rows.batches())
            config = _Config.checked(first, costs, draw_seed(random_state, CALLER), **settings)
            counts = rows.sum(lambda batch: np.array([batch.n_missing, len(batch)]))
            n_used = int(counts[1] - counts[0])
            warn_of_missing(int(counts[0]), int(counts[1]), CALLER, stacklevel=3)
            with warnings.catch_warnings(action="ignore", category=MissingLabelsWarning):
                fitted, gate, evidence = _fit_parts(rows, config, evaluate_on)
            provenance = provenance_of(rows, fitted.calibrator, config.seed)
            if config.calibrator == "auto" and _is_compared(costs, first.outputs, n_used):
                provenance["calibrator"] += "; chosen by the cost of held-out decisions"
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
        known = self._predictive(outputs, "RegressionPolicy.calibrated")
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
        known, matrix = self._known(outputs, "RegressionPolicy.decide", features)
        is_ood = None if self.ood is None else self.ood.predict(known, matrix)
        rule, fitted = self.rule, _Fitted(self.calibrator, self.interval)

        def decided(rows: slice) -> RegressionDecisions:
            some = None if is_ood is None else is_ood[rows]
            return fitted.decide(rule, known.take(rows), some)

        return RegressionDecisions.by_block(decided, known.n_rows, known.n_entries)

    def evidence_on(self, batch: Batch, evaluation: str) -> ValueEvidence:
        # The OOD gate is left out where rows have no features.
        known = self._predictive(batch.outputs, "RegressionPolicy.evidence_on")
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
        known, matrix = self._known(outputs, "RegressionPolicy.explain", features)
        rows = self._slice_of(row, known.n_rows, "RegressionPolicy.explain")
        return _explanation(self, known.take(rows), None if matrix is None else matrix[rows])

    def _predictive(self, outputs: Any, caller: str) -> Regression:
        """Return outputs of the kind and levels of the fit."""
        return self.interval._checked_outputs(_as_one_target(outputs, caller), caller)

    def _known(
        self, outputs: Any, caller: str, features: Any
    ) -> tuple[Regression, FloatArray | None]:
        """Return outputs, and features where the gate needs them, that fit the policy."""
        known = self._predictive(outputs, caller)
        return known, feature_matrix(self.ood, features, self.feature_names, known.n_rows, caller)

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> RegressionPolicy:
        calibrator, interval, ood = values["calibrator"], values["interval"], values["ood"]
        kind = interval.kind_
        if kind not in ("Normal", "Samples", "Quantiles"):
            rule = "must be fitted on one of Normal, Samples, Quantiles"
            raise entry.at("interval").error(rule, kind)
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

    @property
    def rule_lines(self) -> list[str]:
        level = self.costs.fractile
        what = "the value of lowest expected cost"
        kind = "uncalibrated" if self.calibrator is None else "calibrated"
        if level is not None and self.costs.values is None and self.costs.of_errors(0.0) == 0:
            what = f"the {kind} {short_percent(round(level, 6))} quantile"
        elif self.costs.square is not None and self.costs.values is None:
            what = f"the {kind} mean"
        decision = f"Decision: {what} (costs: {self.costs})."
        if self.review_cost is None:
            return [decision, "Nothing is reviewed."]
        price = plain(self.review_cost)
        parts = [f"whose expected cost is at least {price}"]
        name = f"whose {short_percent(self.interval.level)} prediction interval is wider than"
        if self.max_width is not None:
            parts.append(f"{name} {plain(self.max_width)}")
        if self.max_relative_width is not None:
            parts.append(f"{name} {short_percent(self.max_relative_width)} of the prediction")
        if self.ood is not None:
            parts.append(f"that are outliers by {self.ood.name} (alpha {self.ood.alpha:g})")
        return [decision, f"Review, at a cost of {price}: rows {', or '.join(parts)}."]


class _Fitted(NamedTuple):
    """What is learned from rows, besides the OOD gate."""

    calibrator: BaseRegressionCalibrator | None
    interval: ConformalRegressor

    @classmethod
    def of(cls, shards: Shards, config: _Config) -> _Fitted:
        """Fit the calibrator and the interval."""
        calibrator: Any = config.calibrator
        calibrator = None if calibrator is None else clone(calibrator).fit(shards)
        return cls(calibrator, clone(config.interval).fit(_without(shards, "groups")))

    def decide(self, rule: ValueRule, outputs: Any, is_ood: Any) -> RegressionDecisions:
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
        ood: Any = None,
        **limits: Any,
    ) -> _Config:
        """Return checked settings; `limits` are those of reviews, by name."""
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
        for name, value in limits.items():
            if value is not None:
                fix = f"Use {name}=1.0"
                limits[name] = as_number(value, name, CALLER, 0, fix=fix, is_open=True)
        gate = resolved_gate(ood, first.features, CALLER)
        names = [] if gate is None else [one for one in gate.scores if isinstance(one, str)]
        if names:
            rule, fix = "must score features", "Use OODGate(MahalanobisDistance())"
            raise BadValueError("ood", CALLER, rule, repr(names[0]), fix)
        given = [name for name, value in limits.items() if value is not None]
        given += [] if gate is None else ["an OOD gate"]
        if given and limits.get("review_cost") is None:
            rule = f"must be given with {given[0]}"
            fix = "Pass review_cost=..., the cost of a review"
            raise BadValueError("review_cost", CALLER, rule, "None", fix)
        require_targets(first, CALLER, "y")
        is_scaled = calibrator is None or isinstance(calibrator, VarianceScaling)
        if is_scaled and _is_beyond(costs, first.outputs):
            low, high = cast(Quantiles, first.outputs).levels[[0, -1]].tolist()
            rule = f"must have their best value, the quantile at {costs.fractile:g}, between the "
            fix = "Use calibrator='auto', or pass Quantiles with a wider range of levels"
            rule += f"levels {low:g} and {high:g}"
            raise BadValueError("costs", CALLER, rule, f"{costs}", fix)
        return cls(ValueRule(costs, **limits), calibrator, interval, gate, seed)


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


def _converted(batch: Batch) -> Batch:
    """Return the same rows with the outputs that decisions are made on."""
    return replace(batch, outputs=_as_one_target(batch.outputs, CALLER))


def _without(shards: Shards, column: str) -> Shards:
    """Return the same rows without a column."""
    changes: dict[str, Any] = {column: None}
    return shards.convert(lambda batch: replace(batch, **changes))


def _fit_parts(
    shards: Shards, config: _Config, evaluate_on: Any
) -> tuple[_Fitted, OODGate | None, ValueEvidence]:
    """Fit on all rows, and decide rows that were held out: those of each fold, or others."""
    others = evaluation_batch(evaluate_on, config.seed, CALLER)
    batch, folds = sample_folds(shards, config.seed, CALLER)
    if isinstance(config.calibrator, str):  # chosen once: other folds could have other levels
        config = config._replace(calibrator=_chosen(batch, config))
    fitted = _Fitted.of(shards, config)
    gate, is_ood = None, np.zeros(len(batch), np.bool_)
    if config.ood is not None:
        # Targets are no classes, which a score could tell apart.
        unlabeled = _without(shards, "labels"), replace(batch, labels=None)
        gate, scores = config.ood.cross_fit(*unlabeled, folds)
        is_ood[folds.order] = gate.held_out_flags(scores[folds.order], folds.fold_of)

    def decided(train: IntArray, test: IntArray) -> RegressionDecisions:
        own = _Fitted.of(ArrayShards(rows_to_fit(batch, train)), config)
        return own.decide(config.rule, batch.outputs.take(test), is_ood[test])

    if others is not None:
        evidence = _evidence_on(others, fitted, gate, config)
    else:  # each row is decided by what the other folds learned
        decisions = RegressionDecisions.joined(folds.map(decided), folds.order.size)
        level = float(fitted.interval.level)
        evidence = ValueEvidence(batch.take(folds.order), decisions, level, folds.evaluation)
    return fitted, gate, replace(evidence, warnings=_review_warnings(evidence, config.rule))


def _evidence_on(
    batch: Batch, fitted: _Fitted, gate: OODGate | None, config: _Config
) -> ValueEvidence:
    """Decide the rows of an evaluation set by what all training rows taught."""
    known = _as_one_target(batch.outputs, CALLER)
    try:
        known = fitted.interval._checked_outputs(known, CALLER)
    except (BadTypeError, BadValueError) as error:
        raise error.moved(argument="evaluate_on") from error
    batch = replace(batch, outputs=known)
    require_targets(batch, CALLER, "evaluate_on")
    decisions = fitted.decide(config.rule, known, evaluation_flags(gate, known, batch, CALLER))
    return ValueEvidence(batch, decisions, float(fitted.interval.level), EVALUATION_SET)


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
        outputs, none = cast(Regression, rows.outputs), np.zeros(len(rows))
        if calibrator is not None:
            outputs = clone(calibrator).fit(ArrayShards(batch.take(train))).transform(outputs)
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
