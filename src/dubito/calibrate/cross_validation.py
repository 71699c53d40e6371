"""Cross-validation of calibrators: held-out outputs, evidence, and scores decomposed by them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    final,
)
from warnings import catch_warnings

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    draw_seed,
    freeze,
    require_choice,
    require_everywhere,
)
from dubito.calibrate.calibrator import (
    FLOOR,
    BaseCalibrator,
    LabeledRows,
    as_class_outputs,
    correct_answers,
    drop_unlabeled,
    log_probabilities,
    not_a_calibrator,
)
from dubito.calibrate.temperature import TemperatureScaling
from dubito.data.argument_order import convert_in_order
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BadValueError, DubitoWarning
from dubito.formatting import (
    HTMLTable,
    decimal,
    html_view,
    level_percent,
    percent,
    quantity,
    sentence,
)
from dubito.kernels.blocks import map_in_order
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.proper_scores import ProperScoresState
from dubito.measure.regression_audit import RegressionAudit
from dubito.measure.state import json_fields, labeled_batch, require_weight
from dubito.outputs import Logits, Probabilities, Scores, TopLabel, unchecked
from dubito.serialization.fields import Omittable, integer, number, optional
from dubito.serialization.objects import Record, clone, stores_fields

CALLER = "cross_validate_calibrator"
N_FOLDS, MAX_SAMPLES = 5, 20_000  # of more rows, a random sample is cross-fitted
N_BINS = 15  # of the expected calibration error
COVERAGE_LEVEL = 0.9  # of the prediction interval whose coverage is reported

Fold = tuple[IntArray, IntArray]  # rows to fit on, rows held out
Result = TypeVar("Result")
FoundEvidence = TypeVar("FoundEvidence", covariant=True)


@final
class Folds(list[Fold]):
    """The rows to fit on and the rows held out, for each fold."""

    @property
    def order(self) -> IntArray:
        """The rows in the order of the folds that hold them out."""
        return np.concatenate([test for _, test in self])

    @property
    def fold_of(self) -> IntArray:
        """The number of the fold of each row, in that order."""
        return np.repeat(np.arange(len(self)), [test.size for _, test in self])

    @property
    def evaluation(self) -> str:
        """A phrase that says how results were held out."""
        return f"cross-fitted in {len(self)} folds"

    def map(self, held_out: Callable[[IntArray, IntArray], Result]) -> list[Result]:
        """Return a result of each fold, from the rows to fit on and those held out."""
        with _quiet_fits():
            return [held_out(train, test) for train, test in self]


def _quiet_fits() -> catch_warnings[None]:
    """Return a context without warnings, which the fit on all rows gives."""
    return catch_warnings(action="ignore", category=DubitoWarning)


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class CalibrationEvidence(Record):
    """Metrics of class probabilities before calibration, and after it on held-out rows.

    Made by `cross_validate_calibrator`, and by `AutoCalibrator.fit` as `evidence_`. `print` gives
    one line.

    Attributes
    ----------
    log_loss_before, log_loss_after : float
        Log loss, probabilities floored at 1e-12.
    standard_error : float
        Standard error of the change in log loss, paired by row.
    n_rows : int
        Rows that were held out at least once.
    n_folds : int
        Number of folds; 0 if there was nothing to fit.
    brier_before, brier_after : float or None
        Brier score; None for `AutoCalibrator.evidence_`, which is made from likelihoods alone.
    ece_before, ece_after : float or None
        Expected calibration error of the top label over 15 equal-width bins; None likewise. Of
        answers it is that of P(correct), as is the Brier score; None before calibration if no score
        is declared to be a probability.
    n_zero : int
        Rows whose label has the probability 0 before calibration: without the floor, the log loss
        before calibration is infinite.
    """

    has_header: ClassVar[bool] = False

    log_loss_before: Annotated[float, number()]
    log_loss_after: Annotated[float, number()]
    standard_error: Annotated[float, number(0)]
    n_rows: Annotated[int, integer()]
    n_folds: Annotated[int, integer()]
    brier_before: Annotated[float | None, optional(number(0))] = None
    brier_after: Annotated[float | None, optional(number(0))] = None
    ece_before: Annotated[float | None, optional(number(0))] = None
    ece_after: Annotated[float | None, optional(number(0))] = None
    n_zero: Annotated[int, Omittable(integer())] = 0

    def __str__(self) -> str:
        start = f"{self.log_loss_before:.3f}"
        if self.n_zero:
            start = f"infinite ({quantity(self.n_zero)} with probability 0)"
        metrics = [f"log loss from {start} to {self.log_loss_after:.3f}"]
        if self.brier_before is not None:
            metrics.append(f"Brier score from {self.brier_before:.3f} to {self.brier_after:.3f}")
        if self.ece_after is not None:
            start = "" if self.ece_before is None else f"from {self.ece_before:.3f} to "
            metrics.append(f"ECE ({N_BINS} uniform bins) {start}{self.ece_after:.3f}")
        how = "cross-fitted on" if self.n_folds else "on"
        return f"{', '.join(metrics)}, {how} {self.n_rows:,} rows"

    @property
    def is_better(self) -> bool:
        """Whether log loss and Brier score on held-out rows are lower after calibration."""
        is_less = self.log_loss_after < self.log_loss_before
        if self.brier_before is None or self.brier_after is None:
            return is_less
        return is_less and self.brier_after < self.brier_before

    def _repr_html_(self) -> str:
        ece = f"ECE ({N_BINS} uniform bins)"
        pairs = {
            "log loss": (np.inf if self.n_zero else self.log_loss_before, self.log_loss_after),
            "Brier score": (self.brier_before, self.brier_after),
            ece: (self.ece_before, self.ece_after),
        }
        rows = [
            (name, *("-" if one is None else decimal(one) for one in pair))
            for name, pair in pairs.items()
            if pair[1] is not None
        ]
        table = HTMLTable(("held-out rows", "uncalibrated", "calibrated"), rows)
        return html_view(sentence(f"{self}"), table)


class HeldOutLabels(NamedTuple):
    """The weight and the row of each held-out label; a soft label has several entries."""

    weights: FloatArray
    rows: IntArray

    @property
    def n_rows(self) -> int:
        """The number of different rows."""
        return int(np.unique(self.rows).size)

    def first(self, n_labels: int) -> HeldOutLabels:
        """Return the labels of the first folds."""
        return HeldOutLabels(self.weights[:n_labels], self.rows[:n_labels])

    def mean(self, values: FloatArray) -> float:
        """Return the weighted mean of one value per label, never -0."""
        return float(self.weights @ values / self.weights.sum()) + 0.0

    def standard_error(self, values: FloatArray) -> float:
        """Return the standard error of that mean; labels of one row vary together."""
        deviation = self.weights / self.weights.sum() * (values - self.mean(values))
        return float(np.sqrt(np.sum(np.bincount(self.rows, deviation) ** 2)))

    def loss_figures(self, losses: FloatArray) -> dict[str, float]:
        """Return the log loss and its standard error, as a leaderboard shows them."""
        return {"log_loss": self.mean(losses), "standard_error": self.standard_error(losses)}

    def evidence(
        self,
        before: FloatArray,
        after: FloatArray,
        n_folds: int,
        n_zero: int = 0,
        **scores: float | None,
    ) -> CalibrationEvidence:
        """Return the mean log losses before and after calibration, beside other scores."""
        return CalibrationEvidence(
            log_loss_before=self.mean(before),
            log_loss_after=self.mean(after),
            standard_error=self.standard_error(after - before),
            n_rows=self.n_rows,
            n_folds=n_folds,
            n_zero=n_zero,
            **scores,
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class RegressionEvidence:
    """Audits of predictive distributions before calibration, and after it on held-out rows.

    Made by `cross_validate_calibrator` for calibrators of regressions. `print` gives one line.

    Attributes
    ----------
    before, after : RegressionAudit
        Coverage, CRPS and the other metrics of a regression audit.
    n_rows : int
        Rows that were held out.
    n_folds : int
        Number of folds.
    """

    before: RegressionAudit
    after: RegressionAudit
    n_rows: int
    n_folds: int

    @property
    def relative_crps(self) -> float:
        """The CRPS after calibration in relation to that before."""
        before, after = self._crps
        return after / max(before, 1e-300)

    @property
    def _crps(self) -> list[float]:
        return [one.continuous_ranked_probability_score for one in (self.before, self.after)]

    def to_dict(self) -> dict[str, Any]:
        """Return both audits and the numbers of rows and folds as JSON values.

        Returns
        -------
        dict
            All fields by name.
        """
        return json_fields(self)

    def __str__(self) -> str:
        before, after = self._crps
        text = f"{self.before.crps_title} from {before:.4g} to {after:.4g}"
        if self.before.levels.size:
            k = int(np.argmin(np.abs(self.before.levels - COVERAGE_LEVEL)))
            level = level_percent(self.before.levels[k])
            coverage = f"from {self.before.coverage[k]:.2f} to {self.after.coverage[k]:.2f}"
            text = f"coverage of {level} intervals {coverage}, {text}"
        return f"{text}, cross-fitted on {self.n_rows:,} rows"

    def _repr_html_(self) -> str:
        levels = zip(self.before.levels, self.before.coverage, self.after.coverage, strict=True)
        rows = [(f"{level_percent(level)} intervals", percent(before), percent(after))
                for level, before, after in levels]  # fmt: skip
        table = HTMLTable(("coverage", "uncalibrated", "calibrated"), rows)
        return html_view(sentence(f"{self}"), *([table] if rows else []))


class _CrossValidated(Protocol[FoundEvidence]):
    """A calibrator that can be evaluated on rows it was not fitted on."""

    def _labeled_shards(
        self, outputs: Any, y: Any, sample_weight: Any, groups: Any, caller: str
    ) -> Shards:
        """Return labeled rows as shards, or raise."""

    def _evidence(self, batch: Batch, folds: Folds) -> FoundEvidence:
        """Return what fits on all folds but one achieve on that one."""


def cross_validate_calibrator(
    calibrator: _CrossValidated[FoundEvidence],
    outputs: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    cv: Any = 5,
    random_state: RandomState = 0,
    max_samples: int = MAX_SAMPLES,
) -> FoundEvidence:
    """Return what a calibrator achieves on rows that it was not fitted on.

    Clones of the calibrator are fitted without one fold each and evaluated on that fold. Whether
    `calibrator` itself is fitted makes no difference: an `AutoCalibrator` selects anew in each
    fold.

    Parameters
    ----------
    calibrator : BaseCalibrator, MultiLabelCalibrator, VarianceScaling or QuantileRecalibration
        The calibrator to evaluate.
    outputs : Logits, Probabilities, Members, MultiLabel, array, Normal, Samples, Quantiles, Shards
        Model outputs, as in `calibrator.fit`. Shards hold labels and weights themselves.
    y : array, optional
        Labels or targets.
    sample_weight : array of shape (n_rows,), optional
        Frequency weights.
    groups : array of shape (n_rows,), optional
        Rows of one group stay in one fold.
    cv : int, scikit-learn splitter or list of splits
        Number of folds (at most one per row or group), or how to split.
    random_state : int, RandomState or None
        Seed of the folds, and of the sample where there are more than `max_samples` rows.
    max_samples : int
        With more rows, a random sample of this size is cross-validated.

    Returns
    -------
    CalibrationEvidence or RegressionEvidence
        Metrics before and after calibration.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import Logits
    >>> from dubito.calibrate import cross_validate_calibrator
    >>> from dubito.calibrate import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(300, 3))
    >>> y = (logits + rng.gumbel(size=(300, 3))).argmax(axis=1)
    >>> evidence = cross_validate_calibrator(TemperatureScaling(), Logits(4 * logits), y)
    >>> evidence.log_loss_after < evidence.log_loss_before
    True
    >>> str(evidence).split(", ")[::3]
    ['log loss from 1.455 to 0.878', 'cross-fitted on 300 rows']
    """
    if isinstance(calibrator, type) or not hasattr(calibrator, "_evidence"):
        rule, fix = "must be a calibrator of dubito", "Pass TemperatureScaling()"
        raise not_a_calibrator(calibrator, CALLER, rule, fix)
    seed, argument = draw_seed(random_state, CALLER), getattr(calibrator, "_label_argument", "y")
    rows = calibrator._labeled_shards(outputs, y, sample_weight, groups, CALLER)
    return calibrator._evidence(*draw_folds(rows, cv, seed, argument, CALLER, max_samples))


def draw_folds(
    shards: Shards, cv: Any, seed: int, argument: str, caller: str, max_samples: int = MAX_SAMPLES
) -> tuple[Batch, Folds]:
    """Return labeled rows, of many a random sample, and folds: at most as many as rows."""
    batch = drop_unlabeled(sample_rows(shards, max_samples, seed, is_labeled=True))
    _require_two_rows(batch, argument, caller)
    return batch, make_folds(batch, min(cv, len(batch)) if is_fold_count(cv) else cv, seed, caller)


def _require_two_rows(batch: Batch, argument: str, caller: str) -> None:
    """Raise unless there are labeled rows to fit on and to evaluate."""
    if len(batch) < 2:
        fix = "Pass more rows: at least one to fit on and one to evaluate"
        raise BadValueError(argument, caller, "must label at least 2 rows", f"{len(batch)}", fix)


def classification_evidence(
    calibrator: BaseCalibrator, batch: Batch, folds: Folds
) -> CalibrationEvidence:
    """Return the metrics of a calibrator of classes."""
    logits = held_out_logits(clone(calibrator), batch, folds)
    order = folds.order
    held_out = batch.take(order)
    calibrated = np.concatenate([part.array for part in logits])
    is_answers = isinstance(held_out.outputs, Scores | TopLabel)
    has_before = getattr(held_out.outputs, "confidence_column", 0) is not None
    held_out = replace(held_out, outputs=calibrator._uncalibrated(held_out))
    rows = LabeledRows.of(held_out)
    outputs = rows.outputs, Logits(calibrated, logits[0].classes)
    likelihoods, weights, entry_rows = rows.label_likelihoods(
        [np.exp(log_probabilities(one)) for one in outputs]
    )
    before, after = -np.log(np.maximum(likelihoods, FLOOR)).T
    is_zero = np.zeros(len(weights), np.bool_)
    if isinstance(rows.outputs, Probabilities):  # without the floor
        is_zero = rows.label_likelihoods([rows.outputs.array])[0][:, 0] == 0
    batches = [replace(held_out, outputs=one) for one in outputs]
    scores = [ProperScoresState.of(one).score("brier_score") for one in batches]
    if is_answers:  # of P(correct): half of the sum over both classes
        scores = [one / 2 for one in scores]
        batches = [answers_of(held_out, np.exp(log_probabilities(one))[:, 1]) for one in outputs]
    errors = [ReliabilityState.of(one).expected() for one in batches]
    return HeldOutLabels(weights, order[entry_rows]).evidence(
        before,
        after,
        len(folds),
        n_zero=int(np.unique(entry_rows[is_zero]).size),
        brier_before=scores[0],
        brier_after=scores[1],
        ece_before=errors[0] if has_before else None,
        ece_after=errors[1],
    )


def answers_of(batch: Batch, p_correct: FloatArray) -> Batch:
    """Return labeled rows of two classes, wrong and correct, as answers with their P(correct)."""
    fields = {"confidence": freeze(p_correct.copy()), "correct": freeze(correct_answers(batch))}
    return replace(batch, outputs=unchecked(TopLabel, fields), labels=None)


def label_losses(y: FloatArray, p: FloatArray) -> FloatArray:
    """Return the log loss of each label, its probability floored."""
    positive, negative = np.maximum(p, FLOOR), np.maximum(1 - p, FLOOR)
    return np.asarray(-xlogy(y, positive) - xlogy(1 - y, negative))


def held_out_logits(
    calibrator: BaseCalibrator, batch: Batch, folds: Sequence[Fold]
) -> list[Logits]:
    """Return, for each fold, its outputs calibrated by a fit on the other rows.

    A fitted `AutoCalibrator` keeps its selection, whose parts are fitted again.
    """

    def held_out(fold: Fold) -> Logits:
        fresh = calibrator._fold_copy(batch.outputs)
        fitted = fresh.fit(ArrayShards(rows_to_fit(batch, fold[0])))
        return fitted._transform(batch.outputs.take(fold[1]))

    # Folds run in threads, except for a selection, which has threads of its own.
    is_selection = type(calibrator._unfitted_copy()).fit is not BaseCalibrator.fit
    with _quiet_fits():
        return list((map if is_selection else map_in_order)(held_out, folds))


def make_folds(batch: Batch, cv: Any, seed: int = 0, caller: str = "AutoCalibrator") -> Folds:
    """Return the rows to fit on and those held out, for each fold, unlabeled rows left out.

    A number makes that many random folds, of whole groups if there are any (and no more folds than
    groups). Anything else is scikit-learn's `cv`, and sees all rows. Numbered folds are not
    stratified: class frequencies that all folds share would favor calibrators that fit them.
    """
    rows = np.arange(len(batch))
    is_used = batch.labeled_weight > 0
    if is_fold_count(cv) and not 2 <= cv <= is_used.sum():
        rule = f"must be a number of folds from 2 to {is_used.sum():,}, the number of rows"
        raise BadValueError("cv", caller, rule, repr(cv), "Pass cv=5")
    if is_fold_count(cv) and batch.groups is None:
        order = np.random.default_rng(seed).permutation(rows[is_used])
        parts = [np.sort(part) for part in np.array_split(order, cv)]
        return Folds((np.setdiff1d(order, part), part) for part in parts)
    from sklearn.model_selection import GroupKFold, check_cv  # slow to import

    if is_fold_count(cv) and batch.groups is not None:
        n_folds = count_group_folds(batch.groups[is_used], cv, caller)
        cv = GroupKFold(n_folds, shuffle=True, random_state=seed)
    try:
        splits = list(check_cv(cv).split(rows, _most_probable_labels(batch), batch.groups))
        found = [(rows[train], rows[test]) for train, test in splits]
    except (TypeError, ValueError, IndexError) as error:
        rule = "must be a number of folds, or a scikit-learn splitter that suits the rows"
        raise BadValueError("cv", caller, rule, f"{cv!r} ({error})", "Pass cv=5") from error
    return Folds((train[is_used[train]], test[is_used[test]]) for train, test in found)


def rows_to_fit(batch: Batch, rows: IntArray) -> Batch:
    """Return the rows of a fold to fit on, whose only group cannot be divided: it is left out."""
    taken = batch.take(rows)
    if taken.groups is not None and len(set(taken.groups.tolist())) < 2:
        return replace(taken, groups=None)
    return taken


def count_group_folds(groups: NDArray[Any], n_folds: int, caller: str) -> int:
    """Return how many folds of whole groups there can be, at most `n_folds`."""
    is_known = np.array([one is not None and one == one for one in groups.tolist()], dtype=bool)
    rule, fix = "must have a value for each row", "Give rows without a group one of their own"
    require_everywhere(is_known, groups, "groups", caller, rule, fix)
    n_groups = len(set(groups.tolist()))
    if n_groups < 2:
        rule, fix = "must have at least 2 different values", "Leave `groups` out"
        raise BadValueError("groups", caller, rule, "1", fix)
    return min(n_folds, n_groups)


def is_fold_count(cv: Any) -> bool:
    """Return whether `cv` is a number of folds."""
    return isinstance(cv, int | np.integer) and not isinstance(cv, bool)


def _most_probable_labels(batch: Batch) -> IntArray | None:
    """Return the class of each row, the most probable one of soft labels; None for targets."""
    labels = batch.labels
    if not isinstance(labels, Labels):
        return None
    soft = labels.probabilities
    return labels.codes if soft is None else np.asarray(soft.argmax(axis=1))


@final
@dataclass(frozen=True, slots=True)
class LossDecomposition:
    """A proper score as calibration loss plus refinement loss; `print` gives one line.

    Attributes
    ----------
    score : float
        The score of the uncalibrated outputs.
    calibration : float
        What recalibration removes; 0 where it only adds noise.
    refinement : float
        What remains.
    recalibrated : float
        The score after recalibration, which may be above `score`.
    name : str
        "log_loss" or "brier_score".
    n_rows, n_folds : int
        Number of rows and of folds.
    """

    score: float
    calibration: float
    refinement: float
    recalibrated: float
    name: str
    n_rows: int
    n_folds: int

    def __str__(self) -> str:
        return (
            f"{self.name} {self.score:.4g} = calibration {self.calibration:.4g} + refinement "
            f"{self.refinement:.4g} ({self.n_rows:,} rows, {self.n_folds} folds)"
        )


def decompose_loss(
    y_true: Any,
    outputs: Any,
    *,
    score: Literal["log_loss", "brier_score"] = "log_loss",
    calibrator: BaseCalibrator | None = None,
    cv: int = 5,
    random_state: RandomState = 0,
    sample_weight: Any = None,
) -> LossDecomposition:
    """Return how much of a proper score recalibration removes, and how much remains.

    Compare models by `refinement`, as calibration can be corrected afterwards.

    Parameters
    ----------
    y_true : array of shape (n_rows,) or (n_rows, n_classes)
        Labels, or label probabilities.
    outputs : Logits, Probabilities, Members or array of probabilities
        Model outputs.
    score : {"log_loss", "brier_score"}
        The proper score. An infinite log loss has an infinite calibration loss.
    calibrator : BaseCalibrator, optional
        What recalibrates held-out rows; `TemperatureScaling()` by default.
    cv : int
        Number of folds, at most one per row.
    random_state : int, RandomState or None
        Seed of the folds.
    sample_weight : array of shape (n_rows,), optional
        Frequency weights.

    Returns
    -------
    LossDecomposition
        The score, its calibration loss and its refinement loss.

    References
    ----------
    Berta, Holzmueller, Jordan and Bach, "Rethinking early stopping: refine, then calibrate", 2025.

    Examples
    --------
    >>> from dubito.calibrate import decompose_loss
    >>> y, p = [0, 0, 0, 1] * 10 + [1, 1, 1, 0] * 10, [0.01] * 40 + [0.99] * 40
    >>> found = decompose_loss(y, p)
    >>> round(found.score, 2), round(found.calibration, 2), round(found.refinement, 2)
    (1.16, 0.56, 0.6)
    """
    caller = "decompose_loss"
    require_choice(score, ("log_loss", "brier_score"), "score", caller)
    model = TemperatureScaling() if calibrator is None else calibrator
    if not isinstance(model, BaseCalibrator):
        rule, fix = "must be a calibrator of classes", "Pass calibrator=TemperatureScaling()"
        raise not_a_calibrator(model, caller, rule, fix)
    n_folds = as_count(cv, "cv", caller, least=2, example=5)
    wrapped = convert_in_order(y_true, outputs, as_class_outputs, caller)
    batch = drop_unlabeled(labeled_batch(y_true, wrapped, sample_weight, caller))
    require_weight(len(batch), caller)
    _require_two_rows(batch, "y_true", caller)
    folds = make_folds(batch, min(n_folds, len(batch)), draw_seed(random_state, caller), caller)
    logits = held_out_logits(clone(model), batch, folds)
    states = (
        ProperScoresState.of(replace(batch.take(test), outputs=part))
        for (_, test), part in zip(folds, logits, strict=True)
    )
    before = ProperScoresState.of(batch).score(score)
    after = reduce(add, states).score(score)
    calibration, refinement = max(0.0, before - after), min(before, after)
    return LossDecomposition(before, calibration, refinement, after, score, len(batch), len(folds))
