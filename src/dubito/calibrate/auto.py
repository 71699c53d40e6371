"""The default calibrator: cross-validates the candidates that suit the data and stacks them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    draw_seed,
    freeze,
    require_bool,
    require_everywhere,
    require_random_state,
    require_rows,
)
from dubito.calibrate.calibrator import (
    FLOOR,
    BaseCalibrator,
    ColumnBlock,
    drop_unlabeled,
    frame_columns,
    labeled_shards,
    require_same_classes,
)
from dubito.calibrate.cross_validation import CalibrationEvidence, is_fold_count, make_folds
from dubito.calibrate.selection import (
    MAX_SPLINE_CLASSES,
    MIN_ROWS,
    constructor_call,
    select_calibrators,
    select_nothing,
)
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BadValueError, SingleClassWarning
from dubito.formatting import join_words, percent
from dubito.kernels.blocks import map_in_order
from dubito.kernels.columns import write_probabilities
from dubito.measure.state import require_weight
from dubito.outputs import Logits, Probabilities, unchecked
from dubito.serialization.array_fields import array, distribution
from dubito.serialization.fields import (
    Entry,
    Omittable,
    boolean,
    declare,
    fitted,
    integer,
    list_of,
    number,
    optional,
    record,
    text,
)
from dubito.serialization.objects import clone, estimator, record_of

N_FITTED = 10  # times `max_samples` rows are fitted: more hardly change any calibrator
MIN_SHOWN_WEIGHT = 0.0005  # lower weights of equal probabilities go unmentioned


class _BaseMixture(BaseCalibrator):
    """The weighted mean of what several calibrators return, and of equal probabilities."""

    calibrators_: list[BaseCalibrator]
    weights_: FloatArray
    uniform_weight_: float

    def _numbers_per_row(self) -> int:
        return self.n_classes_ + max(one._numbers_per_row() for one in self.calibrators_)

    def apply(self, outputs: Any) -> Logits | Probabilities:
        result = freeze(self._predict_proba(outputs))
        return unchecked(Probabilities, {"array": result, "classes": self.classes_})

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        uniform = self.uniform_weight_
        mixed += weight * uniform / self.n_classes_
        for part, calibrator in zip(self.weights_, self.calibrators_, strict=True):
            calibrator._add_probabilities(block, float(weight * (1 - uniform) * part), mixed)

    def _mixed(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return the probabilities of a block, classes x rows."""
        mixed = np.zeros(outputs.array.shape[::-1])
        self._add_probabilities(ColumnBlock(outputs), 1.0, mixed)
        return mixed

    def _fill_probabilities(self, outputs: Logits | Probabilities, result: FloatArray) -> None:
        write_probabilities(self._mixed(outputs), FLOOR, result)

    def _fill_classes(self, outputs: Logits | Probabilities, result: IntArray) -> None:
        np.argmax(self._mixed(outputs), axis=0, out=result)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return np.log(np.maximum(self._mixed(outputs), FLOOR)).T

    def _describe(self) -> str:
        weights = (1 - self.uniform_weight_) * np.asarray(self.weights_)
        parts = [
            f"{percent(weights[k], 0)} {constructor_call(self.calibrators_[k])}"
            for k in np.argsort(-weights, kind="stable")
        ]
        if self.uniform_weight_ >= MIN_SHOWN_WEIGHT:
            parts.append(f"{percent(self.uniform_weight_)} uniform probabilities")
        return f"a mixture of {join_words(parts)}"


@final
class _FixedMixture(_BaseMixture):
    """A mixture whose parts and weights were selected on other rows."""

    def __init__(
        self, calibrators: Sequence[BaseCalibrator], weights: FloatArray, uniform_weight: float
    ) -> None:
        self.calibrators = calibrators
        self.weights = weights
        self.uniform_weight = uniform_weight

    def _learn(self, shards: Shards) -> None:
        self.calibrators_ = _fitted_parts([clone(one) for one in self.calibrators], shards)
        self.weights_, self.uniform_weight_ = self.weights, self.uniform_weight


def _fitted_parts(parts: Sequence[BaseCalibrator], shards: Shards) -> list[BaseCalibrator]:
    """Return fitted parts of a mixture, using threads; of a single class, the mixture warns."""
    with warnings.catch_warnings(action="ignore", category=SingleClassWarning):
        return list(map_in_order(lambda one: one.fit(shards), parts))


def _in_order(shards: Shards, times: Any, groups: Any, caller: str) -> Batch:
    """Return the rows from the first to the last; those of equal times stay as they were."""
    values = np.asarray(times)
    if groups is not None:
        rule, fix = "must be given without `groups`", "Leave one of them out"
        raise BadValueError("times", caller, rule, "both", fix)
    batch = shards.in_memory
    if batch is None:
        rule, fix = "must be given with arrays", "Sort rows by time and pass cv=TimeSeriesSplit(5)"
        raise BadValueError("times", caller, rule, "Shards", fix)
    require_rows(values, len(batch), "times", caller)
    is_known = values == values  # neither NaN nor NaT
    rule, fix = "must have a value for each row", "Leave rows out whose time is unknown"
    require_everywhere(is_known, values, "times", caller, rule, fix)
    return batch.take(np.argsort(values, kind="stable"))


_LEADERBOARD_LINE = record(
    name=text,
    log_loss=number(),
    standard_error=number(0),
    weight=optional(number(0, 1)),
    seconds=number(0),
    dropped=boolean,
)


def _cv_field(value: Any, entry: Entry) -> Any:
    """Check for a number of folds, or the rows of each fold."""
    rows = array(None, low=0, is_whole=True)
    is_list = isinstance(value, list | tuple | np.ndarray)
    return (list_of(list_of(rows, 2)) if is_list else optional(integer(2)))(value, entry)


@final
class AutoCalibrator(_BaseMixture):
    """Cross-validate the calibrators that suit the data, and take the best one or mix a few.

    Start here. The mixture of all candidates is reduced to those of largest weight, and further as
    long as that raises the held-out log loss by no more than noise: in the end to the simplest
    candidate that is as good as the best. Unchanged probabilities are among the candidates, so that
    the cross-validated log loss never increases.

    Parameters
    ----------
    cv : int, scikit-learn splitter or list of splits
        Number of folds (fewer where there are fewer groups), or how to split.
    max_parts : int or None
        At most this many calibrators are mixed. 1 gives a single calibrator, which is easiest to
        explain; None mixes all candidates.
    time_budget : float or None
        After this many seconds no further candidate is tried.
    max_samples : int
        With more rows, a random sample of this size is used to select; the selected calibrators are
        fitted on a sample ten times as large, or on all rows if there are more than 100 classes.
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
        Cross-validated log loss before and after calibration. Brier score and ECE are None, as
        candidates keep only the held-out probability of each true label, not of all classes: use
        `cross_validate_calibrator`, which also holds the selection itself out.
    calibrators_ : list of BaseCalibrator
        The fitted parts of the result.
    weights_ : array
        The weight of each part; they sum to 1.
    uniform_weight_ : float
        The weight of equal probabilities beside the parts. It is fitted like the others, bounds
        the loss of labels that no part thought possible, and is 0 for a single calibrator.
    n_fitted_ : int
        Number of rows that the parts were fitted on, where these are a sample.

    References
    ----------
    Caruana et al., "Ensemble selection from libraries of models", ICML 2004.
    Wolpert, "Stacked generalization", Neural Networks, 1992.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import AutoCalibrator, Logits
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 300)
    >>> logits = Logits(4 * (np.eye(3)[y] + rng.normal(size=(300, 3))))
    >>> auto = AutoCalibrator().fit(logits, y)
    >>> auto.chosen_
    'TemperatureScaling()'
    >>> print(auto.evidence_)
    log loss from 1.681 to 0.879, cross-fitted on 300 rows
    """

    param_fields = declare(
        cv=Omittable(_cv_field),
        max_parts=Omittable(optional(integer(1))),
        parametric_only=Omittable(boolean),
    )
    chosen_: str = fitted(text)
    reason_: str = fitted(text)
    leaderboard_: list[dict[str, Any]] = fitted(list_of(_LEADERBOARD_LINE))
    evidence_: CalibrationEvidence = fitted(record_of(CalibrationEvidence))
    calibrators_: list[BaseCalibrator] = fitted(list_of(estimator(BaseCalibrator), least=1))
    weights_: FloatArray = fitted(distribution("calibrators_"))
    uniform_weight_: float = fitted(number(0, 1))
    n_fitted_: int = fitted(Omittable(integer(1)))

    def __init__(
        self,
        cv: Any = 5,
        max_parts: int | None = 3,
        time_budget: float | None = None,
        max_samples: int = 20_000,
        random_state: RandomState = 0,
        parametric_only: bool = False,
    ):
        self.cv = cv
        self.max_parts = max_parts
        self.time_budget = time_budget
        self.max_samples = max_samples
        self.random_state = random_state
        self.parametric_only = parametric_only

    def fit(
        self,
        outputs: Any,
        y: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        times: Any = None,
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
        times : array of shape (n_rows,), optional
            When each row was observed: numbers or dates. Calibrators are then judged on rows that
            are later than those they were fitted on, as they will be used. Shards in the order of
            time need ``cv=TimeSeriesSplit(5)`` of scikit-learn instead.

        Returns
        -------
        AutoCalibrator
            The fitted calibrator itself.
        """
        name = type(self).__name__
        shards, cv = labeled_shards(outputs, y, sample_weight, name, groups), self.cv
        if times is not None:
            from sklearn.model_selection import TimeSeriesSplit

            shards = ArrayShards(_in_order(shards, times, groups, name))
            self.cv = TimeSeriesSplit(cv) if is_fold_count(cv) else cv
        try:
            super().fit(shards)
        finally:
            self.cv = cv
        self._columns = frame_columns(outputs)
        return self

    def _unfitted_copy(self) -> BaseCalibrator:
        if not self.__sklearn_is_fitted__():
            return super()._unfitted_copy()
        return _FixedMixture(self.calibrators_, self.weights_, self.uniform_weight_)

    def _learn(self, shards: Shards) -> None:
        seed = draw_seed(self.random_state, type(self).__name__)
        batch = sample_rows(shards, self.max_samples, seed)
        labeled = drop_unlabeled(batch)
        require_weight(len(labeled), "A calibrator")
        if len(labeled) < MIN_ROWS:
            found = select_nothing(labeled)
        else:
            self._require_splits_of_all_rows(shards, batch)
            settings = (self.max_parts, self.time_budget, self.parametric_only)
            found = select_calibrators(batch, make_folds(batch, self.cv, seed), *settings)
        self.chosen_, self.reason_ = found.chosen, found.reason
        self.leaderboard_, self.evidence_ = found.leaderboard, found.evidence
        rows, n_fitted = shards, N_FITTED * self.max_samples
        if self.n_classes_ <= MAX_SPLINE_CLASSES:  # above, candidates are sums over a stream
            rows = ArrayShards(sample_rows(shards, n_fitted, seed))
            if len(rows.batch) == n_fitted:
                self.n_fitted_ = n_fitted
        self.calibrators_ = _fitted_parts(found.calibrators, rows)
        self.weights_, self.uniform_weight_ = found.weights, found.uniform_weight

    def _require_splits_of_all_rows(self, shards: Shards, batch: Batch) -> None:
        """Raise where `cv` lists rows, and `batch` is only a sample of them."""
        is_listed = not (is_fold_count(self.cv) or hasattr(self.cv, "split"))
        if is_listed and len(batch) == self.max_samples and shards.sum(len) > len(batch):
            rule = (
                "must be a number of folds or a splitter for more than "
                f"{self.max_samples:,} rows (`max_samples`)"
            )
            raise BadValueError("cv", type(self).__name__, rule, repr(self.cv), "Pass cv=5")

    def _check_params(self) -> None:
        name = type(self).__name__
        if self.max_parts is not None:
            as_count(self.max_parts, "max_parts", name, example=3)
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
        what = super()._describe()
        if len(self.calibrators_) == 1:
            what = f"{self.chosen_} ({self.calibrators_[0]._describe()})"
        sample = f"; fitted on {self.n_fitted_:,} rows" if hasattr(self, "n_fitted_") else ""
        return f"{what}, because {self.reason_}{sample}"
