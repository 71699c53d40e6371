"""The policy: everything that turns model outputs into actions, in one object and one file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dubito.arrays import FloatArray
from dubito.decide.actions import expected_costs
from dubito.decide.policy.decide import shares_of, wrong_chances
from dubito.decide.policy.gate import OODGate
from dubito.decide.reject import accepted_below
from dubito.outputs import Logits, Probabilities

if TYPE_CHECKING:
    pass
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from os import PathLike
from typing import Literal, final

from dubito import __version__
from dubito.arrays import as_seed, as_share, require_rows
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.inputs import as_class_outputs, labeled_outputs
from dubito.data.batch import Batch
from dubito.data.cache import cached
from dubito.data.shards import ArrayShards, Shards, as_shards, fingerprint
from dubito.data.sink import EncodedLabels, Sink
from dubito.decide.actions import as_amounts
from dubito.decide.costs import CostMatrix, as_costs
from dubito.decide.policy.checks import FORMAT, KIND, checked_parts
from dubito.decide.policy.decide import REASONS, Decisions, Rules
from dubito.decide.policy.file import open_document, read_document, write_document
from dubito.decide.policy.fit import (
    PolicyConfig,
    PriorShift,
    RiskBound,
    as_feature_names,
    as_score_or_none,
    column_names,
    evaluation_shards,
    fit_parts,
    fresh_calibrator,
    require_plain_labels,
    require_reject,
    train_prior,
)
from dubito.decide.policy.report import PolicyReport
from dubito.decide.priors import as_prior
from dubito.doubt.features import as_feature_matrix
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
from dubito.measure.state import warn_of_missing
from dubito.outputs import ClassName

MOST_ACTIONS = 5  # whose costs are told
WHY = (  # one for each of REASONS
    "it costs least",
    "asking costs less",
    "no other is sure enough for the risk bound",
    "it is a strange input",
)


def _explanation(
    policy: Policy, outputs: Logits | Probabilities, features: Any, amounts: FloatArray | None
) -> str:
    """Return some lines on one row: the action, probabilities, costs, and what else spoke."""
    decisions = policy.decide(outputs, features, amounts)
    action = policy.costs.actions[decisions.action[0]]
    why = WHY[decisions.reason[0]]
    lines = [f"Action: {action}, as {why}.", _probability_line(policy, outputs)]
    honest = policy.honest(outputs)
    costs = expected_costs(honest, policy.costs, amounts)[0]
    lines.append(_cost_line(policy, costs))
    if policy.bound is not None:
        lines.append(_bound_line(policy, honest, costs, amounts))
    if policy.gate is not None:
        lines.append(_gate_line(policy.gate, outputs, features))
    return "\n".join(lines)


def _probability_line(policy: Policy, outputs: Logits | Probabilities) -> str:
    """Say what the model says, and what that is worth."""
    names = policy.classes
    raw = shares_of(outputs, slice(None))[0]
    calibrated = policy.calibrator.predict_proba(outputs)[0]
    said, meant = int(raw.argmax()), int(calibrated.argmax())
    line = f"The model says {names[said]!r} at {raw[said]:.1%}; "
    line += f"calibrated it is {names[meant]!r} at {calibrated[meant]:.1%}"
    if policy.deploy_prior is None:
        return f"{line}."
    shifted = policy.predict_proba(outputs)[0]
    found = int(shifted.argmax())
    return f"{line}, and {names[found]!r} at {shifted[found]:.1%} with the classes of deployment."


def _cost_line(policy: Policy, costs: FloatArray) -> str:
    """Say what each action is expected to cost, the cheapest first."""
    order = np.argsort(costs, kind="stable")[:MOST_ACTIONS]
    told = ", ".join(f"{policy.costs.actions[number]} {costs[number]:.4g}" for number in order)
    more = costs.size - order.size
    return f"Expected costs: {told}{f' and {more} more' if more else ''}."


def _bound_line(
    policy: Policy,
    honest: Logits | Probabilities,
    costs: FloatArray,
    amounts: FloatArray | None,
) -> str:
    """Say how likely the best action is wrong, and how likely it may be."""
    assert policy.bound is not None
    others = costs.copy()
    others[policy.costs.reject] = np.inf
    action = np.array([others.argmin()])
    sizes = np.empty(0) if amounts is None else amounts
    wrong = wrong_chances(shares_of(honest, slice(None)), action, policy.costs, sizes)[0]
    limit = max(0.0, accepted_below(policy.bound.threshold))
    allowed = f"below {limit:.2%} it may be taken" if limit < 1 - 1e-6 else "it may be taken"
    return (
        f"The best action without asking is wrong with a chance of {wrong:.2%}; {allowed}, so that "
        f"at most {policy.bound.max_risk:.2%} of decided rows are wrong."
    )


def _gate_line(gate: OODGate, outputs: Logits | Probabilities, features: Any) -> str:
    """Say how strange the row is beside known ones."""
    doubt = gate.doubt(outputs, features)
    p_value = gate.region.p_value(doubt)[0]
    is_strange = gate.region.predict(doubt)[0]
    return (
        f"Its doubt ({gate.name}) of {doubt[0]:.4g} is reached by {p_value:.2%} of known rows; "
        f"{'strange, as that is' if is_strange else 'it would be strange'} below "
        f"{gate.region.alpha:.2%}."
    )


BLOCK_ENTRIES = 1 << 19  # 2 MB of float32: what memory is bounded by while deciding


@final
@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A calibrator, class priors, a gate for strange inputs, and costs: outputs in, actions out.

    Made by `Policy.fit` or `Policy.load`. `report` says what it does to rows it did not learn from.

    >>> rng = np.random.default_rng(0)
    >>> z = 4 * rng.normal(size=(300, 3))
    >>> y = (z / 4 + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> policy = Policy.fit(Logits(z), y, costs=CostMatrix.zero_one(3).with_reject(0.3))
    >>> policy.decide(Logits([[9.0, 0.0, 0.0], [1.0, 0.0, 0.0]])).action.tolist()
    [0, 3]
    """

    costs: CostMatrix
    calibrator: BaseCalibrator
    train_prior: FloatArray
    deploy_prior: FloatArray | None
    gate: OODGate | None
    bound: RiskBound | None
    feature_names: tuple[str, ...] | None
    report: PolicyReport
    provenance: dict[str, Any]

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
        doubt: Any = None,
        epsilon: float = 0.01,
        max_risk: float | None = None,
        delta: float = 0.05,
        amounts: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        evaluation: Literal["cross-fit"] | Batch | Shards = "cross-fit",
        feature_names: Sequence[str] | None = None,
        seed: int = 0,
    ) -> Policy:
        """Fit on all rows, and report on rows that were held out: folds, or an evaluation set.

        `outputs` are arrays beside labels, or shards that hold both. With `features`, rows that are
        stranger than all but a share `epsilon` of known ones are handed over, by `doubt`: a score
        of `dubito.doubt` (`MahalanobisDistance()` if None); one of outputs, such as "energy", needs
        no features. `max_risk` bounds the share of wrong ones among rows that are decided, with a
        chance of 1 - `delta`; where rejecting less would be cheaper, the bound wins.
        """
        caller = "Policy.fit"
        shards = as_shards(
            outputs, y, features=features, amounts=amounts, sample_weight=sample_weight,
            groups=groups, caller=caller, convert=as_class_outputs,
        )  # fmt: skip
        if not isinstance(outputs, Shards) and isinstance(shards, ArrayShards):
            warn_of_missing(shards.batch.n_missing, len(shards.batch), caller, stacklevel=3)
        first = next(shards.batches())
        known = labeled_outputs(first, caller)
        table = as_costs(costs, "costs", caller).for_classes(known.classes, known.n_classes)
        train = train_prior(shards)
        deploy = None
        if deploy_prior is not None:
            deploy = as_prior(deploy_prior, known, "deploy_prior", caller)
        as_amounts(first.amounts, table, len(first), caller)
        score = as_score_or_none(doubt, first.features is not None)
        require_reject(table, score is not None, max_risk is not None)
        if max_risk is not None:
            require_plain_labels(first, caller)
        wishes = PolicyConfig(
            costs=table,
            calibrator=fresh_calibrator(calibrator),
            prior=None if deploy is None else PriorShift(train, deploy),
            score=score,
            epsilon=as_share(epsilon, "epsilon", caller, is_open=True),
            max_risk=None if max_risk is None else as_share(max_risk, "max_risk", caller),
            delta=as_share(delta, "delta", caller, is_open=True),
            seed=as_seed(seed, caller),
        )
        with cached(shards) as quick:
            parts = fit_parts(quick, train, wishes, evaluation_shards(evaluation))
        return cls(
            costs=table,
            calibrator=parts.calibrator,
            train_prior=train,
            deploy_prior=deploy,
            gate=parts.gate,
            bound=parts.bound,
            feature_names=as_feature_names(feature_names, features, first),
            report=parts.report,
            provenance=_provenance_of(shards, parts.calibrator, wishes.seed),
        )

    @property
    def classes(self) -> tuple[ClassName, ...]:
        """What the classes are called: by their column numbers if by no other name."""
        return self.costs.classes or tuple(range(self.costs.n_classes))

    def predict_proba(self, outputs: Any) -> FloatArray:
        """Return honest probabilities, under the prior of deployment where there is one."""
        known = as_class_outputs(outputs, "Policy.predict_proba")
        if self.deploy_prior is None:
            return self.calibrator.predict_proba(known)
        return self.honest(known).array

    def decide(self, outputs: Any, features: Any = None, amounts: Any = None) -> Decisions:
        """Return the action of each row, and why; memory is bounded by blocks of rows."""
        known, strange_features = self._known(outputs, features, "Policy.decide")
        sizes = as_amounts(amounts, self.costs, known.n_rows, "Policy.decide")
        blocks = row_blocks(known.n_rows, known.n_classes, BLOCK_ENTRIES) or [slice(0, 0)]
        is_strange = None if self.gate is None else self.gate.contains(known, strange_features)
        rules = self.rules

        def decided(rows: slice) -> Decisions:
            honest = self.honest(known.take(rows))
            some = None if is_strange is None else is_strange[rows]
            return rules.decide(honest, some, sizes[rows] if sizes.size else None)

        with kept_threads():
            return Decisions.joined(map_in_order(decided, blocks), known.n_rows)

    def explain(
        self, outputs: Any, features: Any = None, amounts: Any = None, *, row: int = 0
    ) -> str:
        """Say in words what is done with one row, and why.

        >>> from dubito.calibrate import IdentityCalibrator
        >>> costs = CostMatrix.zero_one(2).with_reject(0.3)
        >>> policy = Policy.fit([[0.9, 0.1]] * 9, [0] * 9, costs=costs, calibrator=IdentityCalibrator())
        >>> print(policy.explain([[0.6, 0.4]]).splitlines()[0])
        Action: reject, as asking costs less.
        """
        known, some = self._known(outputs, features, "Policy.explain")
        is_whole = isinstance(row, int | np.integer) and not isinstance(row, bool)
        if not (is_whole and 0 <= row < known.n_rows):
            rule, fix = f"a row from 0 to {known.n_rows - 1}", "row=0"
            raise BadValueError("row", "Policy.explain", rule, f"{row}", fix)
        rows = slice(row, row + 1)
        sizes = as_amounts(amounts, self.costs, known.n_rows, "Policy.explain")
        one, part = known.take(rows), None if some is None else some[rows]
        return _explanation(self, one, part, sizes[rows] if sizes.size else None)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the policy as one JSON file, whole or not at all."""
        write_document(self.to_dict(), path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Policy:
        """Return the policy that a file holds; nothing in it is executed, all of it is checked."""
        return cls.from_dict(read_document(path))

    @classmethod
    def seal(cls, path: str | PathLike[str]) -> None:
        """Check a file that was edited by hand, and seal it again, so that it loads.

        The policy will say that its figures are older than the edit. A file whose seal is whole
        stays as it is.
        """
        document, is_sealed = open_document(path)
        cls.from_dict(document)
        if not is_sealed:
            document["provenance"] = {**document["provenance"], "edited": _now()}
            write_document(document, path)

    def to_dict(self) -> dict[str, Any]:
        """Return the policy as plain numbers, lists and names, ready for JSON."""
        bound = self.bound
        if self.gate is not None:
            self.gate.require_storable()
        return {
            "kind": KIND,
            "format": FORMAT,
            "provenance": self.provenance,
            "report": self.report.to_dict(),
            "costs": self.costs.to_dict(),
            "train_prior": self.train_prior.tolist(),
            "deploy_prior": None if self.deploy_prior is None else self.deploy_prior.tolist(),
            "bound": None if bound is None else asdict(bound),
            "feature_names": None if self.feature_names is None else list(self.feature_names),
            "calibrator": self.calibrator.to_dict(),
            "gate": None if self.gate is None else self.gate.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Any) -> Policy:
        """Return the policy that `to_dict` gave; all of it is checked."""
        return cls(**checked_parts(values))

    def __str__(self) -> str:
        lines = [f"Calibrator: {self.provenance['calibrator']}.", str(self.report)]
        if "edited" in self.provenance:
            lines.append(
                f"Edited by hand on {self.provenance['edited']}: all figures above, and the risk "
                "bound, are of the policy as it was fitted."
            )
        return "\n".join(lines)

    def honest(self, outputs: Logits | Probabilities) -> Logits | Probabilities:
        """Return calibrated outputs, under the prior of deployment where there is one."""
        calibrated = self.calibrator.transform(outputs)
        if self.deploy_prior is None:
            return calibrated
        return PriorShift(self.train_prior, self.deploy_prior).applied(calibrated)

    @property
    def rules(self) -> Rules:
        """What turns honest probabilities into actions."""
        frequencies = self.train_prior if self.deploy_prior is None else self.deploy_prior
        return Rules(self.costs, frequencies, None if self.bound is None else self.bound.threshold)

    def _known(
        self, outputs: Any, features: Any, caller: str
    ) -> tuple[Logits | Probabilities, FloatArray | None]:
        """Return outputs, and features where the gate needs them, that fit the policy."""
        known = as_class_outputs(outputs, caller)
        if known.n_classes != self.costs.n_classes:
            rule, fix = f"over {self.costs.n_classes} classes, as in the fit", "the same columns"
            raise BadValueError("outputs", caller, rule, f"{known.n_classes} columns", fix)
        if None not in (known.classes, self.costs.classes):
            mine, theirs = map(str, self.classes), map(str, known.classes or ())
            if list(mine) != list(theirs):
                rule, fix = f"over the classes {self.classes}", "the columns in the fit's order"
                raise BadValueError("outputs", caller, rule, f"{known.classes}", fix)
        if self.gate is None or not self.gate.needs_features:
            return known, None
        if features is None:
            rule, fix = "given, as the policy looks for strange inputs", "the features of the rows"
            raise BadTypeError("features", caller, rule, "None", fix)
        names = column_names(features)
        if None not in (names, self.feature_names) and names != self.feature_names:
            rule, fix = f"the columns {self.feature_names}", "the columns of the fit, in order"
            raise BadValueError("features", caller, rule, f"{names}", fix)
        array = as_feature_matrix(features, caller)
        require_rows(array, known.n_rows, "features", caller)
        if array.shape[1] != self.gate.n_features:
            rule, fix = f"of {self.gate.n_features} columns, as in the fit", "the same features"
            raise BadValueError("features", caller, rule, f"{array.shape[1]}", fix)
        return known, array


def _provenance_of(shards: Shards, calibrator: BaseCalibrator, seed: int) -> dict[str, Any]:
    """Return by what a policy was made, when, and of which rows."""
    return {
        "dubito": __version__,
        "created": _now(),
        "fingerprint": fingerprint(shards),
        "n_rows": int(shards.sum(len)),
        "calibrator": calibrator.summary(),
        "seed": seed,
    }


def _now() -> str:
    """Return the time, in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_decisions(
    policy: Policy,
    shards: Shards,
    sink: Sink,
    *,
    source: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Write what a policy decides for each row of shards, in order; return how many there are.

    Rows are named by their ids, or by their numbers in the file, which `source` may name.
    """
    return shards.write(
        lambda batch: decision_columns(policy, batch, source), sink, on_progress=on_progress
    )


def decision_columns(policy: Policy, batch: Batch, source: str | None = None) -> dict[str, Any]:
    """Return what a policy decides for each row of a batch, as columns for a sink."""
    found = policy.decide(batch.outputs, batch.features, batch.amounts)
    numbers = batch.first_row + np.arange(len(batch))
    named = {} if source is None else {"file": source}
    return {
        **named,
        "id": numbers if batch.ids is None else batch.ids,
        "action": EncodedLabels(found.action, found.actions),
        "class": EncodedLabels(found.class_, tuple(str(name) for name in found.classes)),
        "probability": found.probability,
        "expected_cost": found.expected_cost,
        "reason": EncodedLabels(found.reason, REASONS),
        "worth": found.worth,
    }
