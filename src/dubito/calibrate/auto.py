"""The default calibrator: cross-validates the candidates that suit the data and stacks them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    draw_seed,
    freeze,
    require_bool,
    require_random_state,
)
from dubito.calibrate.binary import BetaCalibration, PlattScaling
from dubito.calibrate.calibrator import (
    FLOOR,
    BaseCalibrator,
    LabeledRows,
    RowBlock,
    drop_unlabeled,
    labeled_shards,
    log_probabilities,
    require_same_classes,
)
from dubito.calibrate.cross_validation import (
    CalibrationEvidence,
    Fold,
    fit_quietly,
    is_number,
    make_folds,
    standard_error,
    weighted_mean,
)
from dubito.calibrate.forest import ForestCalibration
from dubito.calibrate.isotonic import IsotonicCalibration
from dubito.calibrate.matrix import StructuredMatrixScaling, VectorScaling
from dubito.calibrate.one_vs_rest import OneVsRest
from dubito.calibrate.temperature import (
    EnsembleTemperatureScaling,
    TemperatureScaling,
    fit_mixture_weights,
)
from dubito.data.batch import Batch
from dubito.data.shards import Shards, sample_rows
from dubito.errors import BadValueError, EmptyStateError
from dubito.formatting import percent
from dubito.kernels.columns import add_softmax, write_probabilities
from dubito.outputs import Logits, Probabilities, unchecked
from dubito.serialization.array_fields import array, distribution
from dubito.serialization.fields import (
    Entry,
    Omittable,
    boolean,
    declare,
    integer,
    list_of,
    number,
    optional,
    record,
    text,
)
from dubito.serialization.objects import estimator, record_of

MIN_ROWS = 10  # with fewer, nothing is calibrated: a selection would be chance
FEW_ROWS = 100  # with fewer, only the simplest candidates, and no mixture
MANY_ROWS = 1000  # flexible candidates need this many
MAX_SPLINE_CLASSES = 100  # above, five numbers per pair of classes are too many
MAX_LOCAL_CLASSES = 30  # above, rows are too far apart for forests and radial basis functions
MAX_MATRIX_CLASSES = 250  # above, a number per pair of classes takes too long

MIN_CANDIDATES = 2  # whatever the time budget: unchanged, and temperature scaling
N_STANDARD_ERRORS = 3.0  # fits on folds have fewer rows, which favors simple candidates
MIN_WEIGHT = 0.003  # candidates with less weight in the mixture are dropped
PRIOR_WEIGHT = 1.0  # pseudo-rows that pull the weights of the mixture towards equal ones
N_PARTS = 5  # of the rows, to evaluate the mixture on, where folds share rows


@final
class IdentityCalibrator(BaseCalibrator):
    """Return probabilities unchanged: the baseline that every calibrator must beat.

    Examples
    --------
    >>> IdentityCalibrator().fit([[0.7, 0.3]], [0]).predict_proba([[0.7, 0.3]]).round(3).tolist()
    [[0.7, 0.3]]
    """

    def _learn(self, shards: Shards) -> None:
        """There is nothing to learn."""

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return log_probabilities(outputs)

    def _add_probabilities(self, block: RowBlock, weight: float, mixed: FloatArray) -> None:
        add_softmax(block.log_proba, 1.0, weight, mixed)

    def _describe(self) -> str:
        return "probabilities are unchanged"


class _BaseMixture(BaseCalibrator):
    """The weighted mean of what several calibrators return."""

    calibrators_: list[BaseCalibrator]
    weights_: FloatArray

    def _numbers_per_row(self) -> int:
        return max(one._numbers_per_row() for one in self.calibrators_)

    def apply(self, outputs: Any) -> Logits | Probabilities:
        result = freeze(self.predict_proba(outputs))
        return unchecked(Probabilities, {"array": result, "classes": self.classes_})

    def _add_probabilities(self, block: RowBlock, weight: float, mixed: FloatArray) -> None:
        uniform = getattr(self, "uniform_weight_", 0.0)
        mixed += weight * uniform / self.n_classes_
        for part, calibrator in zip(self.weights_, self.calibrators_, strict=True):
            calibrator._add_probabilities(block, float(weight * (1 - uniform) * part), mixed)

    def _mixed(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return the probabilities of a block, classes x rows."""
        mixed = np.zeros(outputs.array.shape[::-1])
        self._add_probabilities(RowBlock(outputs), 1.0, mixed)
        return mixed

    def _fill_probabilities(self, outputs: Logits | Probabilities, result: FloatArray) -> None:
        write_probabilities(freeze(self._mixed(outputs)), FLOOR, result)

    def _fill_classes(self, outputs: Logits | Probabilities, result: IntArray) -> None:
        np.argmax(self._mixed(outputs), axis=0, out=result)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return np.log(np.maximum(self._mixed(outputs), FLOOR)).T

    def _describe(self) -> str:
        order = np.argsort(-np.asarray(self.weights_), kind="stable")
        parts = [f"{percent(self.weights_[k], 0)} {_name(self.calibrators_[k])}" for k in order[:3]]
        more = f" and {len(order) - 3} more" if len(order) > 3 else ""
        return f"a mixture of {', '.join(parts)}{more}"


@final
class _FixedMixture(_BaseMixture):
    """A mixture whose parts and weights were selected on other rows."""

    def __init__(self, calibrators: Sequence[BaseCalibrator], weights: FloatArray) -> None:
        self.calibrators = calibrators
        self.weights = weights

    def _learn(self, shards: Shards) -> None:
        self.calibrators_ = [clone(one).fit(shards) for one in self.calibrators]
        self.weights_ = self.weights


def _name(calibrator: BaseCalibrator) -> str:
    """Return the constructor call of a calibrator, on one line."""
    return " ".join(repr(calibrator).split())


def _suitable_calibrators(
    n_classes: int, n_rows: int, parametric_only: bool = False
) -> Iterator[BaseCalibrator]:
    """Yield the candidates for data of this size, those that are most often useful first."""
    has_many = n_rows >= MANY_ROWS
    is_binary = n_classes == 2
    yield IdentityCalibrator()
    yield TemperatureScaling()
    if n_rows < FEW_ROWS:
        return
    # What depends on the offset of a row of logits did no better on held-out rows.
    yield PlattScaling() if is_binary else VectorScaling(regularization=1.0, input="log_proba")
    if n_classes <= MAX_SPLINE_CLASSES:
        yield StructuredMatrixScaling(regularization=3.0, basis="spline")
    if has_many and not parametric_only:
        yield IsotonicCalibration() if is_binary else OneVsRest(IsotonicCalibration())
    if has_many:
        yield EnsembleTemperatureScaling()
    if is_binary:
        yield BetaCalibration()
    elif n_classes <= MAX_MATRIX_CLASSES:
        yield StructuredMatrixScaling(regularization=3.0)
        if has_many:
            yield OneVsRest(BetaCalibration())
            yield StructuredMatrixScaling(regularization=0.3)
            yield StructuredMatrixScaling(regularization=0.03)
    if has_many and n_classes <= MAX_LOCAL_CLASSES:
        if not parametric_only:
            yield ForestCalibration()
        yield StructuredMatrixScaling(regularization=0.3, basis="rbf")
    if has_many and n_classes <= MAX_SPLINE_CLASSES:
        yield StructuredMatrixScaling(regularization=0.3, basis="spline")
        yield StructuredMatrixScaling(regularization=0.03, basis="spline")


class Candidate(NamedTuple):
    """An unfitted calibrator, the likelihood of each held-out label, and the time its fits took."""

    calibrator: BaseCalibrator
    likelihoods: FloatArray
    seconds: float


class HeldOutLabels(NamedTuple):
    """The weight, row and fold of each held-out label; a soft label has several entries."""

    weights: FloatArray
    rows: IntArray
    folds: IntArray

    @property
    def n_rows(self) -> int:
        """The number of different rows."""
        return int(np.unique(self.rows).size)

    def mean(self, values: FloatArray) -> float:
        """Return the weighted mean of one value per label."""
        return weighted_mean(values, self.weights)

    def standard_error(self, values: FloatArray) -> float:
        """Return the standard error of that mean."""
        return standard_error(values, self.weights, self.rows)


def _cross_validated_likelihoods(
    calibrators: Iterable[BaseCalibrator],
    batch: Batch,
    folds: Sequence[Fold],
    time_budget: float | None = None,
) -> tuple[list[Candidate], HeldOutLabels]:
    """Fit each calibrator to all folds while there is time, and evaluate held-out labels."""
    end = np.inf if time_budget is None else time.perf_counter() + time_budget
    candidates: list[Candidate] = []
    for calibrator in calibrators:
        start = time.perf_counter()
        if start > end and len(candidates) >= MIN_CANDIDATES:
            break
        parts = []
        for fold, (train, test) in enumerate(folds):
            fitted = fit_quietly(clone(calibrator), batch.take(train))
            rows = LabeledRows.of(batch.take(test))
            found, weights, positions = rows.label_likelihoods([fitted.predict_proba(rows.outputs)])
            parts.append((found[:, 0], weights, test[positions], np.full(weights.size, fold)))
        likelihoods, *columns = (np.concatenate(part) for part in zip(*parts, strict=True))
        seconds = time.perf_counter() - start
        candidates.append(Candidate(calibrator, likelihoods, seconds))
        labels = HeldOutLabels(*columns)
    return candidates, labels


def _disjoint_parts(labels: HeldOutLabels) -> IntArray:
    """Return the part of each label: its fold, or parts of the rows where folds share rows."""
    rows, position = np.unique(labels.rows, return_inverse=True)
    n_pairs = len(np.unique(np.column_stack([labels.rows, labels.folds]), axis=0))
    are_folds_disjoint = np.unique(labels.folds).size > 1 and n_pairs == rows.size
    return labels.folds if are_folds_disjoint else position % N_PARTS


def _stacked_likelihoods(likelihoods: FloatArray, labels: HeldOutLabels) -> FloatArray:
    """Return the likelihood of each label under a mixture whose weights it did not influence."""
    parts = _disjoint_parts(labels)
    result = np.empty(len(likelihoods))
    for part in np.unique(parts):
        is_seen = parts != part
        weights = fit_mixture_weights(likelihoods[is_seen], labels.weights[is_seen], PRIOR_WEIGHT)
        result[~is_seen] = likelihoods[~is_seen] @ weights
    return result


class Selection(NamedTuple):
    """The calibrators to fit on all rows and their weights, with the reason and the figures."""

    calibrators: list[BaseCalibrator]
    weights: FloatArray
    chosen: str
    reason: str
    leaderboard: list[dict[str, Any]]
    evidence: CalibrationEvidence


def _select_calibrators(
    candidates: Sequence[Candidate], labels: HeldOutLabels, n_folds: int
) -> Selection:
    """Return the mixture of candidates, or the single one that beats it clearly.

    The first candidate leaves probabilities unchanged: a mixture that does worse is not taken.
    """
    likelihoods = np.maximum(np.stack([one.likelihoods for one in candidates], axis=1), FLOOR)
    stacked = _stacked_likelihoods(likelihoods, labels)
    losses = [-np.log(column) for column in (*likelihoods.T, stacked)]
    means = [labels.mean(loss) for loss in losses]
    best = int(np.argmin(means[:-1]))
    gain = losses[best] - losses[-1]
    is_mixture_close = labels.mean(gain) + N_STANDARD_ERRORS * labels.standard_error(gain) >= 0
    is_mixed = False
    if labels.n_rows < FEW_ROWS:
        reason = f"fewer than {FEW_ROWS} rows are too few to weigh a mixture"
    elif not is_mixture_close:
        reason = "it beats the mixture by more than three standard errors"
    elif means[-1] > means[0]:
        reason = "the mixture is worse than no calibration"
    else:
        is_mixed = True
        reason = "no single candidate beats the mixture by more than three standard errors"
    weights = np.asarray(np.eye(len(candidates))[best])
    if is_mixed:
        weights = fit_mixture_weights(likelihoods, labels.weights, PRIOR_WEIGHT)
        weights[weights < MIN_WEIGHT] = 0
        weights = weights / weights.sum()
    names = [_name(one.calibrator) for one in candidates]
    seconds = [one.seconds for one in candidates]
    columns = (
        [*names, "mixture"],
        losses,
        means,
        [*weights.tolist(), None],
        [*seconds, sum(seconds)],
    )
    leaderboard = [
        {
            "name": name,
            "log_loss": mean,
            "standard_error": labels.standard_error(loss),
            "weight": weight,
            "seconds": time_taken,
        }
        for name, loss, mean, weight, time_taken in zip(*columns, strict=True)
    ]
    chosen = -1 if is_mixed else best
    used = np.flatnonzero(weights).tolist()
    return Selection(
        calibrators=[clone(candidates[k].calibrator) for k in used],
        weights=weights[used],
        chosen=columns[0][chosen],
        reason=reason,
        leaderboard=sorted(leaderboard, key=lambda line: float(line["log_loss"])),
        evidence=CalibrationEvidence(
            log_loss_before=means[0],
            log_loss_after=means[chosen],
            standard_error=labels.standard_error(losses[chosen] - losses[0]),
            n_rows=labels.n_rows,
            n_folds=n_folds,
        ),
    )


def _select_nothing(batch: Batch) -> Selection:
    """Return the identity, for too few rows to select anything."""
    rows = LabeledRows.of(batch)
    likelihoods, weights, _ = rows.label_likelihoods([np.exp(log_probabilities(rows.outputs))])
    loss = weighted_mean(-np.log(np.maximum(likelihoods[:, 0], FLOOR)), weights)
    unchanged = IdentityCalibrator()
    return Selection(
        calibrators=[unchanged],
        weights=np.ones(1),
        chosen=_name(unchanged),
        reason=f"{len(batch)} rows are too few to select a calibrator",
        leaderboard=[],
        evidence=CalibrationEvidence(loss, loss, 0.0, len(batch), 0),
    )


_LEADERBOARD_LINE = record(
    name=text,
    log_loss=number(),
    standard_error=number(0),
    weight=optional(number(0, 1)),
    seconds=number(0),
)


def _cv_field(value: Any, entry: Entry) -> Any:
    """Check for a number of folds, or the rows of each fold."""
    rows = array(None, low=0, is_whole=True)
    is_list = isinstance(value, list | tuple | np.ndarray)
    return (list_of(list_of(rows, 2)) if is_list else optional(integer(2)))(value, entry)


@final
class AutoCalibrator(_BaseMixture):
    """Cross-validate the calibrators that suit the data, and stack them.

    Start here. The weights of the mixture maximize the likelihood of held-out labels. A single
    calibrator is taken alone where it beats the mixture by three standard errors, on rows neither
    was fitted to. Unchanged probabilities are among the candidates, so that the cross-validated
    log loss never increases.

    Parameters
    ----------
    cv : int, scikit-learn splitter or list of splits
        Number of folds (fewer where there are fewer groups), or how to split.
    time_budget : float or None
        After this many seconds no further candidate is tried.
    max_samples : int
        Of more rows, a random sample of this size is used to select; the selected calibrators are
        fitted on all rows.
    random_state : int, RandomState or None
        Seed of the folds and the sample.
    parametric_only : bool
        Leave out isotonic regression and forests, so that the result can be appended to a
        network.

    Attributes
    ----------
    chosen_ : str
        "mixture", or the name of the calibrator taken alone.
    reason_ : str
        Why it was chosen.
    leaderboard_ : list of dict
        Name, log loss, its standard error, weight in the result and fitting time of each
        candidate and of the mixture, lowest log loss first.
    evidence_ : CalibrationEvidence
        Cross-validated log loss before and after calibration.
    calibrators_ : list of BaseCalibrator
        The fitted parts of the result.
    weights_ : array
        The weight of each part.

    References
    ----------
    Wolpert, "Stacked generalization", Neural Networks, 1992.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 300)
    >>> logits = Logits(4 * (np.eye(3)[y] + rng.normal(size=(300, 3))))
    >>> auto = AutoCalibrator().fit(logits, y)
    >>> auto.chosen_
    'mixture'
    >>> print(auto.evidence_)
    log loss from 1.681 to 0.885, cross-fitted on 300 rows
    """

    chosen_: str
    reason_: str
    leaderboard_: list[dict[str, Any]]
    evidence_: CalibrationEvidence

    param_fields = declare(cv=Omittable(_cv_field), parametric_only=Omittable(boolean))
    fitted_fields = declare(
        chosen_=text,
        reason_=text,
        leaderboard_=list_of(_LEADERBOARD_LINE),
        evidence_=record_of(CalibrationEvidence),
        calibrators_=list_of(estimator(BaseCalibrator)),
        weights_=distribution("calibrators_"),
    )

    def __init__(
        self,
        cv: Any = 5,
        time_budget: float | None = None,
        max_samples: int = 20_000,
        random_state: RandomState = 0,
        parametric_only: bool = False,
    ):
        self.cv = cv
        self.time_budget = time_budget
        self.max_samples = max_samples
        self.random_state = random_state
        self.parametric_only = parametric_only

    def fit(
        self, outputs: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Select calibrators by cross-validation, and fit them on all rows.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members, array of probabilities, or Shards
            Model outputs on rows that the model was not trained on. Shards hold labels, weights
            and groups themselves.
        y : array of shape (n_rows,) or (n_rows, n_classes), optional
            Labels, or label probabilities.
        sample_weight : array of shape (n_rows,), optional
            Frequency weights.
        groups : array of shape (n_rows,), optional
            Rows of one group stay in one fold.

        Returns
        -------
        AutoCalibrator
            The fitted calibrator itself.
        """
        return super().fit(labeled_shards(outputs, y, sample_weight, type(self).__name__, groups))

    def _unfitted_copy(self) -> BaseCalibrator:
        if not self.__sklearn_is_fitted__():
            return super()._unfitted_copy()
        return _FixedMixture([clone(one) for one in self.calibrators_], self.weights_)

    def _learn(self, shards: Shards) -> None:
        seed = draw_seed(self.random_state, type(self).__name__)
        batch = sample_rows(shards, self.max_samples, seed)
        labeled = drop_unlabeled(batch)
        if len(labeled) == 0:
            raise EmptyStateError("A calibrator")
        if len(labeled) < MIN_ROWS:
            found = _select_nothing(labeled)
        else:
            self._require_splits_of_all_rows(shards, batch)
            folds = make_folds(batch, self.cv, seed)
            tried = _suitable_calibrators(self.n_classes_, len(labeled), self.parametric_only)
            likelihoods = _cross_validated_likelihoods(tried, batch, folds, self.time_budget)
            found = _select_calibrators(*likelihoods, n_folds=len(folds))
        self.chosen_, self.reason_ = found.chosen, found.reason
        self.leaderboard_, self.evidence_ = found.leaderboard, found.evidence
        self.calibrators_ = [one.fit(shards) for one in found.calibrators]
        self.weights_ = found.weights

    def _require_splits_of_all_rows(self, shards: Shards, batch: Batch) -> None:
        """Raise where `cv` lists rows, and `batch` is only a sample of them."""
        is_listed = not (is_number(self.cv) or hasattr(self.cv, "split"))
        if is_listed and len(batch) == self.max_samples and shards.sum(len) > len(batch):
            rule = (
                "must be a number of folds or a splitter for more than "
                f"{self.max_samples:,} rows (`max_samples`)"
            )
            raise BadValueError("cv", type(self).__name__, rule, repr(self.cv), "Pass cv=5")

    def _check_params(self) -> None:
        name = type(self).__name__
        as_count(self.max_samples, "max_samples", name, MIN_ROWS, example=20_000)
        is_number_of_seconds = isinstance(self.time_budget, int | float | np.number)
        if self.time_budget is not None and not (is_number_of_seconds and self.time_budget >= 0):
            rule, fix = "must be None or a non-negative number of seconds", "Pass time_budget=30"
            raise BadValueError("time_budget", name, rule, repr(self.time_budget), fix)
        require_random_state(self.random_state, name)
        require_bool(self.parametric_only, "parametric_only", name)

    def _check_fitted(self, entry: Entry) -> None:
        for k, one in enumerate(self.calibrators_):
            require_same_classes(self, one, entry.at(f"calibrators_[{k}]"))

    def _describe(self) -> str:
        if len(self.calibrators_) == 1:
            return f"{self.chosen_} ({self.calibrators_[0]._describe()})"
        return super()._describe()
