"""The policy: everything that turns model outputs into actions, in one object and one file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, RandomState, as_fraction, freeze, restored
from dubito.calibrate.calibrator import BaseCalibrator, frame_columns, require_columns
from dubito.calibrate.confidence import ConfidenceCalibrator
from dubito.data.batch import Batch
from dubito.data.cache import cached
from dubito.data.labels import require_no_labels
from dubito.data.shards import Shards, make_shards
from dubito.decide.actions import ActionInterval, action_intervals
from dubito.decide.costs import CostMatrix, class_order
from dubito.decide.policy.decide import CalibrationCurve, DecisionRule, Decisions, has_curve
from dubito.decide.policy.document import CLASS_PROVENANCE, BaseBatchPolicy, provenance_of
from dubito.decide.policy.explanation import explain_row, threshold_lines
from dubito.decide.policy.fit import PolicyConfig, as_decidable, as_feature_names, fit_parts
from dubito.decide.policy.gate import OODGate, RiskBound, feature_matrix, feature_names_of
from dubito.decide.policy.report import CurrentRule, Evidence, PolicyReport
from dubito.decide.priors import adjust_prior
from dubito.decide.row_costs import RowCosts, column_medians
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.kernels.blocks import kept_threads
from dubito.measure.state import warn_of_missing
from dubito.outputs import ClassName, Logits, Probabilities, TopLabel, require_classes
from dubito.serialization.array_fields import distribution
from dubito.serialization.fields import Entry, list_of, optional, text
from dubito.serialization.objects import estimator, record_of, stores_fields


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class Policy(BaseBatchPolicy):
    """A calibrator, class priors, an OOD gate, a risk bound and costs: outputs in, actions out.

    Made by `Policy.fit` or `Policy.load`. Deciding is calibrating, adapting to the class prior of
    deployment, and taking the action of lowest expected cost; the OOD gate and the risk bound may
    reject a row instead.

    Attributes
    ----------
    costs : CostMatrix
        The cost of each action in each class.
    calibrator : BaseCalibrator
        Fitted.
    train_prior, deploy_prior : array of float
        Class frequencies of the training rows, and of deployment (None where they are the same).
    ood : OODGate or None
        Fitted.
    risk : RiskBound or None
        Fitted.
    feature_names : tuple of str or None
        The features of the OOD gate, if they had names in the fit.
    report : PolicyReport
        Costs, risk and coverage on rows that the policy did not learn from.
    provenance : dict
        The version of dubito, the time, a fingerprint of the rows, the random seed, the medians of
        the columns that costs depend on, whether the costs themselves were given by row, and the
        columns of outputs in the file or data frame, if any.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import CostMatrix, Logits, Policy
    >>> rng = np.random.default_rng(0)
    >>> z = 4 * rng.normal(size=(300, 3))
    >>> y = (z / 4 + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> policy = Policy.fit(Logits(z), y, costs=CostMatrix.zero_one(3).with_reject(0.3))
    >>> policy.decide(Logits([[9.0, 0.0, 0.0], [1.0, 0.0, 0.0]])).action.tolist()
    [0, 3]
    """

    described = "the figures above and the risk bound"
    _batch_columns = ("features", "row_costs")

    provenance: Annotated[dict[str, Any], CLASS_PROVENANCE]
    report: Annotated[PolicyReport, record_of(PolicyReport)]
    costs: Annotated[CostMatrix, record_of(CostMatrix)]
    train_prior: Annotated[FloatArray, distribution(None, low=1e-300)]
    deploy_prior: Annotated[FloatArray | None, optional(distribution(None))]
    risk: Annotated[RiskBound | None, optional(estimator(RiskBound))]
    feature_names: Annotated[tuple[str, ...] | None, optional(list_of(text))]
    calibrator: Annotated[BaseCalibrator, estimator(BaseCalibrator)]
    ood: Annotated[OODGate | None, optional(estimator(OODGate))]

    @classmethod
    def fit(
        cls,
        outputs: Any,
        y: Any = None,
        *,
        costs: CostMatrix,
        calibrator: BaseCalibrator | Literal["auto"] = "auto",
        deploy_prior: Any = None,
        features: Any = None,
        ood: OODGate | None = None,
        risk: RiskBound | None = None,
        row_costs: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        evaluate_on: Literal["cross-fit"] | Batch | Shards = "cross-fit",
        feature_names: Sequence[str] | None = None,
        random_state: RandomState = 0,
        pos_label: ClassName | None = None,
        current: Any = "argmax",
        max_review_rate: float | None = None,
    ) -> Policy:
        """Fit on all rows, and report on held-out rows: cross-fitted, or an evaluation set.

        Parameters
        ----------
        outputs : array, Logits, Probabilities, Members or Shards
            Model outputs for rows that the model was not trained on. Shards hold the labels and
            every other column themselves.
        y : array, optional
            Labels: class names or column indices, or label probabilities.
        costs : CostMatrix
            The cost of each action in each class.
        calibrator : BaseCalibrator or "auto", default "auto"
            "auto" is `AutoCalibrator()`.
        deploy_prior : array or dict, optional
            Class frequencies where the policy will work, if other than among these rows.
        features : array or data frame, optional
            Features of the rows, for the OOD gate.
        ood : OODGate, optional
            Rejects out-of-distribution inputs. With `features`, `OODGate()` if None.
        risk : RiskBound, optional
            Bounds the fraction of wrong decisions, or the mean cost, of rows that are not
            rejected.
        row_costs : dict, data frame or array, optional
            The columns that the costs depend on, by name; one number per row if they depend on
            one; or the costs themselves, rows x actions x classes.
        sample_weight, groups : array, optional
            Weights of the rows, and groups that no fold may divide.
        evaluate_on : "cross-fit", Batch or Shards, default "cross-fit"
            The rows to report on: folds of these rows, or others.
        feature_names : sequence of str, optional
            Names of the features; by default the columns of a data frame.
        random_state : int, RandomState or None, default 0
            Determines the folds and the bootstrap.
        pos_label : str or int, optional
            The positive class of two, whose thresholds the policy states; by default the second.
        current : "argmax", float or array, default "argmax"
            What is done today, which the report compares the policy with: the action for the most
            probable class, a threshold on the uncalibrated probability of the positive class, or
            the name of the action that each row got.
        max_review_rate : float, optional
            The fraction of rows that can be reviewed. A warning, and a note in the report, say if
            more are rejected.

        Returns
        -------
        Policy
        """
        taken = None if isinstance(current, str) or np.ndim(current) == 0 else current
        require_no_labels(y, outputs, "y", "Policy.fit")
        if isinstance(outputs, TopLabel):
            y = outputs.correct
        shards = make_shards(
            outputs, y, features=features, row_costs=row_costs, sample_weight=sample_weight,
            groups=groups, current_actions=taken, caller="Policy.fit", convert=as_decidable,
        )  # fmt: skip
        batch = None if isinstance(outputs, Shards) else shards.in_memory
        if batch is not None:
            warn_of_missing(batch.n_missing, len(batch), "Policy.fit", stacklevel=3)
        return cls.fit_shards(
            shards, costs=costs, calibrator=calibrator, deploy_prior=deploy_prior, ood=ood,
            risk=risk, random_state=random_state, current=current, pos_label=pos_label,
            max_review_rate=max_review_rate, evaluate_on=evaluate_on,
            feature_names=as_feature_names(
                feature_names, features, next(shards.batches()), "Policy.fit"
            ),
            output_columns=frame_columns(outputs),
        )[0]  # fmt: skip

    @classmethod
    def fit_shards(
        cls,
        shards: Shards,
        *,
        evaluate_on: Any = "cross-fit",
        feature_names: tuple[str, ...] | None = None,
        output_columns: tuple[str, ...] | None = None,
        pos_label: ClassName | None = None,
        **settings: Any,
    ) -> tuple[Policy, Evidence]:
        """Fit as `fit` does, and return also the rows that were held out, with their decisions.

        Parameters
        ----------
        shards : Shards
            Rows with outputs and labels, and whatever else the policy needs.
        evaluate_on : "cross-fit", Batch or Shards, default "cross-fit"
            The rows to report on: folds of these rows, or others.
        feature_names : tuple of str, optional
            Names of the features.
        output_columns : tuple of str, optional
            The columns of a data frame of outputs, which data frames to decide must then have.
        pos_label : str or int, optional
            The positive class of two.
        **settings : any
            The other arguments of `fit`: `costs`, `calibrator`, `deploy_prior`, `ood`, `risk`,
            `random_state`, `current` and `max_review_rate`.

        Returns
        -------
        tuple of Policy and Evidence
            The policy, and the held-out rows that its report rests on.
        """
        config = PolicyConfig.checked(shards, pos_label=pos_label, **settings)
        with cached(shards) as quick:
            parts, evidence = fit_parts(quick, config, evaluate_on)
        for sentence in evidence.warnings:
            warnings.warn(f"Policy.fit: {sentence}", DubitoWarning, stacklevel=3)
        provenance = provenance_of(shards, parts["calibrator"], config.seed)
        if pos_label is not None:
            provenance["positive"] = str(pos_label)
        given = evidence.batch.row_costs
        if medians := column_medians(given, config.costs.columns):
            provenance["medians"] = medians
        if given is not None and given.ndim == 3:
            provenance["row_costs"] = "rows x actions x classes"
        if output_columns is not None:
            provenance["output_columns"] = [*output_columns]
        policy = cls(
            costs=config.costs,
            train_prior=config.train_prior,
            deploy_prior=config.deploy_prior,
            feature_names=feature_names,
            provenance=provenance,
            **parts,
        )
        return policy, evidence

    @property
    def classes(self) -> tuple[ClassName, ...]:
        """The names of the classes, or their column indices if they have none."""
        return self.costs.classes or tuple(range(self.costs.n_classes))

    @property
    def action_names(self) -> tuple[str, ...]:
        return self.costs.actions

    @property
    def has_reviews(self) -> bool:
        return self.costs.reject is not None

    def predict_proba(self, outputs: Any) -> FloatArray:
        """Return calibrated probabilities, under the prior of deployment if there is one.

        Parameters
        ----------
        outputs : array, Logits, Probabilities or Members
            Model outputs, with the classes of the fit.

        Returns
        -------
        array of float, rows x classes
            A tensor for tensors.
        """
        self._require_columns(outputs, "Policy.predict_proba")
        known = self.calibrator._as_outputs(outputs, "Policy.predict_proba")
        is_same = self.deploy_prior is None
        p = self.calibrator._predict_proba(known) if is_same else self.calibrated(known).array
        result: FloatArray = restored(p, outputs)
        return result

    def decide(self, outputs: Any, features: Any = None, row_costs: Any = None) -> Decisions:
        """Return the action of each row, with the reason and the calibrated probabilities.

        Parameters
        ----------
        outputs : array, Logits, Probabilities or Members
            Model outputs, with the classes of the fit.
        features : array or data frame, optional
            Needed where the OOD gate looks at features.
        row_costs : dict, data frame or array, optional
            As for `fit`.

        Returns
        -------
        Decisions
        """
        known, matrix = self._known(outputs, features, "Policy.decide")
        by_row = self._row_costs(row_costs, known.n_rows, "Policy.decide")
        is_ood = None if self.ood is None else self.ood.predict(known, matrix)
        rule = self.rule

        def decided(rows: slice) -> Decisions:
            some = None if is_ood is None else is_ood[rows]
            return rule.decide(self.calibrated(known.take(rows)), some, by_row.take(rows))

        with kept_threads():
            return Decisions.by_block(decided, known.n_rows, known.n_classes)

    def explain(
        self, outputs: Any, features: Any = None, row_costs: Any = None, *, row: int = 0
    ) -> str:
        """Explain in a few sentences what is decided for one row, and why.

        Parameters
        ----------
        row : int, default 0
            The row to explain.
        outputs : array, Logits, Probabilities or Members
            Model outputs; a plain array is probabilities.
        features : array or data frame, optional
            Features of the rows, if the policy has an OOD gate that needs them.
        row_costs : dict, data frame or array, optional
            The columns that the costs depend on, if they do.

        Returns
        -------
        str

        Examples
        --------
        >>> from dubito import CostMatrix, Policy
        >>> from dubito.calibrate import IdentityCalibrator
        >>> costs = CostMatrix.zero_one(2).with_reject(0.3)
        >>> rows, labels = [[0.9, 0.1]] * 10, [0] * 9 + [1]
        >>> policy = Policy.fit(rows, labels, costs=costs, calibrator=IdentityCalibrator())
        >>> print(policy.explain([[0.6, 0.4]]).splitlines()[0])
        Action: reject, because rejecting costs less than any other action.
        """
        known, matrix = self._known(outputs, features, "Policy.explain")
        rows = self._slice_of(row, known.n_rows, "Policy.explain")
        by_row = self._row_costs(row_costs, known.n_rows, "Policy.explain")
        one, part = known.take(rows), None if matrix is None else matrix[rows]
        return explain_row(self, one, part, by_row.take(rows))

    def evidence_on(self, batch: Batch, evaluation: str) -> Evidence:
        row_costs = RowCosts.of(batch.row_costs, self.costs, len(batch), "Policy.evidence_on")
        return Evidence(
            batch=batch,
            uncalibrated=self.calibrator._uncalibrated(batch),
            decisions=self.decide(batch.outputs, batch.features, row_costs),
            unbound=None,
            row_costs=row_costs,
            weight=batch.labeled_weight,
            evaluation=evaluation,
            current=CurrentRule.of("argmax", batch, self.pos_column),
            pos_column=self.pos_column,
        )

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> Policy:
        costs, calibrator, ood = values["costs"], values["calibrator"], values["ood"]
        n_classes = costs.n_classes
        if not costs.deciding:
            raise entry.at("costs").error("must have an action that does not reject", "none")
        if costs.reject is None and (ood is not None or values["risk"] is not None):
            raise entry.at("costs").error("must have a reject action", "none")
        if calibrator.n_classes_ != n_classes:
            got = f"{calibrator.n_classes_}"
            raise entry.at("calibrator").error(f"must have {n_classes} classes", got)
        names = calibrator.classes_, costs.classes
        if None not in names and names[0] != names[1]:
            rule = f"must have the classes {repr(costs.classes)[:60]}"
            raise entry.at("calibrator").error(rule, repr(calibrator.classes_)[:60])
        for name in ("train_prior", "deploy_prior"):
            prior = values[name]
            if prior is not None and prior.size != n_classes:
                rule = f"must have {n_classes} probabilities, one per class"
                raise entry.at(name).error(rule, f"{prior.size}")
            values[name] = None if prior is None else freeze(prior.astype(np.float64))
        values["feature_names"] = feature_names_of(values["feature_names"], ood, entry)
        return cls(**values)

    def __repr__(self) -> str:
        costs, ood, risk = self.costs, self.ood, self.risk
        parts = [f"{costs.n_actions} actions x {costs.n_classes} classes"]
        parts.append(type(self.calibrator).__name__)
        parts += [] if self.deploy_prior is None else ["deployment prior"]
        parts += [] if ood is None else [f"OOD gate {ood.name} alpha={ood.alpha:g}"]
        if risk is not None:
            is_cost = risk.max_risk is None
            limit = f"max_cost={risk.max_cost:g}" if is_cost else f"max_risk={risk.max_risk:g}"
            parts.append(f"risk bound {limit}")
        return f"Policy({', '.join(parts)})"

    @property
    def rule_lines(self) -> list[str]:
        return threshold_lines(self)

    def calibrated(self, outputs: Logits | Probabilities) -> Logits | Probabilities:
        """Return calibrated outputs, under the prior of deployment if there is one.

        Parameters
        ----------
        outputs : Logits or Probabilities
            Model outputs over the classes of the fit.

        Returns
        -------
        Logits or Probabilities
            Calibrated outputs.
        """
        calibrated = self.calibrator.apply(outputs)
        if self.deploy_prior is None:
            return calibrated
        return adjust_prior(calibrated, self.train_prior, self.deploy_prior)

    @property
    def pos_column(self) -> int:
        """The column of the positive class of two: the second one, unless the fit named another."""
        names = [str(name) for name in self.classes]
        stated = self.provenance.get("positive")
        return names.index(stated) if stated in names else 1

    @property
    def _has_row_costs(self) -> bool:
        """Whether costs differ from row to row."""
        return bool(self.costs.columns) or "row_costs" in self.provenance

    def _row_costs(self, row_costs: Any, n_rows: int, caller: str) -> RowCosts:
        """Return the costs of rows, which must be given again if they were given to `fit`."""
        if row_costs is None and "row_costs" in self.provenance:
            rule = "must hold the costs of the rows, as in `fit`: rows x actions x classes"
            fix = "Pass row_costs=array, or fit with expressions of columns in the costs"
            raise BadTypeError("row_costs", caller, rule, "None", fix)
        return RowCosts.of(row_costs, self.costs, n_rows, caller)

    @property
    def thresholds(self) -> tuple[ActionInterval, ...]:
        """From which calibrated probability of the positive class on each action is optimal.

        Empty unless there are two classes and costs are the same for all rows: those of a row are
        ``action_intervals(policy.costs.at({"amount": 50}), policy.pos_column)``. The OOD gate and
        the risk bound may reject further rows.
        """
        is_stated = self.costs.n_classes == 2 and not self._has_row_costs
        return action_intervals(self.costs, self.pos_column) if is_stated else ()

    def thresholds_between(self, first: ClassName, second: ClassName) -> tuple[ActionInterval, ...]:
        """Return from which probability of a class on each action is optimal, against another.

        All other classes have probability 0: what happens on the edge between two classes.

        Parameters
        ----------
        first, second : str or int
            Two classes. Probabilities are those of the second one; the first has the rest.

        Returns
        -------
        tuple of ActionInterval
            Empty if costs differ by row, or some action asks someone who may err.
        """
        for name in (first, second):
            if name not in self.classes:
                fix = f"Pass one of {', '.join(map(repr, self.classes[:5]))}"
                rule = "must be a class of the policy"
                raise BadValueError("class", "Policy.thresholds_between", rule, repr(name), fix)
        if self._has_row_costs or self.costs.reviews:
            return ()
        pair = self.costs.array[:, [self.classes.index(first), self.classes.index(second)]]
        return action_intervals(
            CostMatrix(pair, self.costs.actions, (first, second), reject=self.costs.reject_name)
        )

    def uncalibrated_probability(self, probability: float) -> float | None:
        """Return the model's own probability of the positive class that is calibrated to another.

        Parameters
        ----------
        probability : float
            A calibrated probability of the positive of two classes.

        Returns
        -------
        float or None
            None unless calibrated probabilities reach it, and rise there only.
        """
        wanted = as_fraction(probability, "probability", "Policy.uncalibrated_probability")
        if not has_curve(self.calibrator):
            return None
        curve = CalibrationCurve.of(self.calibrated, self.costs.classes, self.pos_column)
        return curve.uncalibrated_probability(wanted)

    @property
    def rule(self) -> DecisionRule:
        """What turns calibrated probabilities into actions."""
        frequencies = self.train_prior if self.deploy_prior is None else self.deploy_prior
        if self.risk is None:
            return DecisionRule(self.costs, frequencies)
        bounds_cost = self.risk.max_cost is not None
        return DecisionRule(self.costs, frequencies, self.risk.threshold_, bounds_cost)

    def _require_columns(self, outputs: Any, caller: str) -> None:
        """Raise unless a data frame has the columns of the fit; scores are put in order by name."""
        if not isinstance(self.calibrator, ConfidenceCalibrator):
            require_columns(outputs, self.provenance.get("output_columns"), caller)

    def _known(
        self, outputs: Any, features: Any, caller: str
    ) -> tuple[Logits | Probabilities, FloatArray | None]:
        """Return outputs, and features where the gate needs them, that fit the policy."""
        self._require_columns(outputs, caller)
        known = self.calibrator._as_outputs(outputs, caller)
        mine, theirs = self.costs.classes, known.classes
        if mine and theirs and class_order(mine, theirs) == [*range(len(mine))]:
            mine = theirs
        require_classes(known, self.costs.n_classes, mine, caller)
        return known, feature_matrix(self.ood, features, self.feature_names, known.n_rows, caller)
