"""Drift between two periods of one model: in outputs, inputs, accuracy or calibration."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import FloatArray, IntArray, as_count, as_fraction, draw_seed
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.data.shards import load_rows, make_shards
from dubito.decide import PriorEstimate, estimate_prior
from dubito.decide.priors import log_posteriors, probabilities_of
from dubito.doubt import ConformalOutlierDetector, MahalanobisDistance, uncertainty_scores
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.formatting import level_percent, quantity
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.measure.intervals import Interval, as_n_resamples, interval_of, over_resamples
from dubito.measure.regression import (
    central_interval,
    crps_of_rows,
    crps_title,
    has_median,
    moment_matched,
    pit_of_rows,
    point_of_rows,
    require_targets,
    values_of,
)
from dubito.measure.regression_audit import interval_levels
from dubito.measure.state import json_fields, warn_of_missing
from dubito.monitor.metrics import (
    MIN_ROWS,
    N_BINS,
    N_PERMUTATIONS,
    TITLES,
    DistributionShift,
    adjusted,
    class_shift,
    describe_outputs,
    distribution_shift,
    mean_shift,
    mean_with_error,
    ood_shift,
)
from dubito.monitor.verdicts import drift_html, drift_lines, drift_verdict
from dubito.outputs import (
    BaseClassOutputs,
    ClassName,
    Logits,
    Members,
    MultiLabel,
    Normal,
    Probabilities,
    Quantiles,
    Samples,
    TopLabel,
)

CALLER = "detect_drift"
ALPHA = 0.05  # false positive rate of OOD inputs
INTERVAL = 0.9  # the central interval of a regression whose width and coverage are tested
MAX_CLASSES = 50  # with more, class priors can hardly be identified


@final
@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """The result of `detect_drift`; `print(drift)` shows it as text.

    Attributes
    ----------
    n_reference, n_current : int
        Rows of both periods.
    level : float
        All tests together raise a false alarm with probability at most 1 - `level` (Holm).
    shifts : dict of DistributionShift
        By name: "confidence", "predicted classes", "entropy", "energy", "OOD inputs"; with labels
        also "accuracy", "gap" (mean confidence - accuracy), "log loss", "labels" and the ECE, which
        is not tested.
        For regression: "prediction", "interval width", "OOD inputs"; with targets also "target",
        "bias" (target - prediction), "absolute error", "CRPS", "coverage" and "PIT".
    wasserstein : float
        The Wasserstein distance of the confidences, or of the predictions of a regression.
    expected_accuracy : float or None
        The mean confidence of the current period: its accuracy, if calibrated. None for a
        regression.
    thresholded_accuracy : Interval or None
        The fraction of current rows above the confidence that as many reference rows exceed as are
        correct.
    prior : PriorEstimate or None
        Current class priors, estimated without current labels.
    reference_prior : ndarray or None
        Class priors of the reference.
    classes : tuple or None
        The names of the classes.

    Examples
    --------
    >>> from dubito.monitor import detect_drift
    >>> drift = detect_drift([[0.9, 0.1], [0.2, 0.8]] * 100, [[0.6, 0.4], [0.4, 0.6]] * 100)
    >>> drift.has_drifted, drift.shifted
    (True, ('confidence',))
    """

    n_reference: int
    n_current: int
    level: float
    shifts: dict[str, DistributionShift]
    wasserstein: float
    expected_accuracy: float | None = None
    thresholded_accuracy: Interval | None = None
    prior: PriorEstimate | None = None
    reference_prior: FloatArray | None = None
    classes: tuple[ClassName, ...] | None = None

    @property
    def shifted(self) -> tuple[str, ...]:
        """The names of the significant shifts."""
        return tuple(name for name, shift in self.shifts.items() if shift.has_shifted)

    @property
    def has_drifted(self) -> bool:
        """Whether any shift is significant."""
        return bool(self.shifted)

    @property
    def verdict(self) -> str:
        """The significant shifts and what to do about them, in sentences."""
        return drift_verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values.

        Returns
        -------
        dict
            The tests, the names of what shifted, and the verdict.
        """
        values = json_fields(self)
        if self.prior is not None:
            names = ("prior", "low", "high", "is_identified", "method")
            values["prior"] = {name: values["prior"][name] for name in names}
        return {**values, "shifted": list(self.shifted), "verdict": self.verdict}

    def __repr__(self) -> str:
        shifted = ", ".join(self.shifted) or "none"
        rows = quantity(self.n_reference, "reference row"), quantity(self.n_current, "current row")
        return f"Drift({', '.join(rows)}, shifted: {shifted})"

    def __str__(self) -> str:
        return "\n".join(drift_lines(self))

    def _repr_html_(self) -> str:
        return drift_html(self)


def detect_drift(
    reference: Any,
    current: Any,
    *,
    y_reference: Any = None,
    y_current: Any = None,
    reference_features: Any = None,
    current_features: Any = None,
    level: float = 0.95,
    random_state: Any = 0,
    n_resamples: int = 200,
    n_permutations: int = N_PERMUTATIONS,
) -> Drift:
    """Test whether the outputs of a model differ between two periods, with or without labels.

    Parameters
    ----------
    reference, current : outputs, array-like or Shards
        Outputs of one model on both periods; a plain array holds probabilities. From shards,
        100,000 rows are sampled. Rows are taken as independent.
    y_reference, y_current : array-like of shape (n_rows,), optional
        Labels or targets. Those of the reference improve the estimated priors and accuracy; those
        of both periods allow tests of accuracy, bias and calibration.
    reference_features, current_features : array-like of shape (n_rows, n_features), optional
        Features, to detect OOD inputs by the Mahalanobis distance, fitted on half of the reference.
    level : float, default 0.95
        The level of intervals and of all tests together.
    random_state : None, int or RandomState, default 0
        For sampling, splits, permutations and the bootstrap.
    n_resamples : int, default 200
        The number of bootstrap resamples.
    n_permutations : int, default 1999
        The number of permutations in tests of means with few rows.

    Returns
    -------
    Drift

    References
    ----------
    Garg et al., "Leveraging unlabeled data to predict out-of-distribution performance", 2022, for
    the thresholded accuracy.

    Examples
    --------
    >>> from dubito.monitor import detect_drift
    >>> before, after = [[0.9, 0.1], [0.2, 0.8]] * 100, [[0.6, 0.4], [0.4, 0.6]] * 100
    >>> detect_drift(before, after).shifted
    ('confidence',)
    """
    level = as_fraction(level, "level", CALLER, is_open=True)
    seed = draw_seed(random_state, CALLER)
    n_draws = as_n_resamples(n_resamples, CALLER)
    before = _as_period(reference, y_reference, reference_features, seed, "reference")
    after = _as_period(current, y_current, current_features, seed + 1, "current")
    _require_same_kind(before, after)
    n_permuted = as_count(n_permutations, "n_permutations", CALLER)
    found = _Detection(before, after, level, seed, n_draws, n_permuted)
    return found.of_regression() if before.is_regression else found.of_classifier()


@final
@dataclass(frozen=True, eq=False)
class Period:
    """The rows of one period; ensemble members are averaged."""

    batch: Batch

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def is_regression(self) -> bool:
        """Whether the outputs are those of a regression."""
        return isinstance(self.batch.outputs, Normal | Samples | Quantiles)

    @property
    def outputs(self) -> Logits | Probabilities | None:
        """Outputs over all classes; None for top labels."""
        outputs = self.batch.outputs
        if isinstance(outputs, Members):
            return outputs.mean
        return outputs if isinstance(outputs, Logits | Probabilities) else None

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 for top labels."""
        outputs = self.batch.outputs
        return outputs.n_classes if isinstance(outputs, BaseClassOutputs) else 0

    @cached_property
    def labeled(self) -> Batch | None:
        """The labeled rows, None if there are none."""
        batch = self.batch
        if batch.labels is None:
            return batch if isinstance(batch.outputs, TopLabel) else None
        known = np.flatnonzero(~batch.labels.is_missing)
        return batch.take(known) if known.size else None

    @property
    def codes(self) -> IntArray | None:
        """The column of each label, -1 where it is missing; None without hard labels."""
        labels = self.batch.labels
        if not isinstance(labels, Labels) or labels.probabilities is not None:
            return None
        return labels.codes


def _require_same_kind(before: Period, after: Period) -> None:
    """Raise unless both periods have outputs of one kind, and both have features or none."""
    a, b = before.batch.outputs, after.batch.outputs
    if type(a) is not type(b) or before.n_classes != after.n_classes:
        rule = f"must hold {describe_outputs(a)}, like `reference`"
        fix = "Pass outputs of one model"
        raise BadValueError("current", CALLER, rule, describe_outputs(b), fix)
    if before.is_regression:
        shapes = [point_of_rows(period.batch.outputs).ndim for period in (before, after)]
        if shapes != [1, 1]:
            rule, got = "must be of one target", "several targets per row"
            raise BadValueError("reference", CALLER, rule, got, "Test one target at a time")
        if _central_level(before) != _central_level(after):
            rule, fix = "must have the levels of `reference`", "Pass the same quantiles or draws"
            raise BadValueError("current", CALLER, rule, "others", fix)
    if (before.batch.features is None) != (after.batch.features is None):
        missing = "current" if after.batch.features is None else "reference"
        fix = f"Pass `{missing}_features` too, or leave both out"
        raise BadValueError(f"{missing}_features", CALLER, "is needed too", "None", fix)


def _as_period(outputs: Any, y: Any, features: Any, seed: int, argument: str) -> Period:
    """Return the rows of one period, and warn about missing labels."""
    shards = make_shards(
        outputs, y, features=features,
        caller=CALLER, argument=argument, label_argument=f"y_{argument}",
    )  # fmt: skip
    batch = moment_matched(load_rows(shards, seed=seed))
    if not isinstance(batch.outputs, BaseClassOutputs | TopLabel | Normal | Samples | Quantiles):
        rule = "must be outputs of a classifier or of a regression"
        got, fix = type(batch.outputs).__name__, "Pass e.g. Logits(array) or Normal(mean, std)"
        if isinstance(batch.outputs, MultiLabel):
            fix = "Test one label at a time"
        raise BadTypeError(argument, CALLER, rule, got, fix)
    if not len(batch):
        fix = "Pass rows of both periods"
        raise BadValueError(argument, CALLER, "must have at least 1 row", "0", fix)
    if (batch.weight != 1).any():
        fix = "Read the file without a weight column"
        raise BadValueError(argument, CALLER, "cannot have weights", "weights", fix)
    if batch.n_missing < len(batch):  # no labels at all are none
        warn_of_missing(batch.n_missing, len(batch), CALLER, stacklevel=4)
    return Period(batch)


def _central_level(period: Period) -> float | None:
    """Return the level of the central interval nearest to 90 %, None without any."""
    levels = interval_levels(period.batch.outputs)
    return min(levels, key=lambda level: abs(level - INTERVAL), default=None)


def _target_rows(batch: Batch, central: float | None) -> dict[str, FloatArray]:
    """Return what is known of each row with a target, by name."""
    require_targets(batch, CALLER)
    outputs, y = batch.outputs, values_of(batch)
    rows = {"target": y}
    if has_median(outputs):
        error = y - point_of_rows(outputs)
        rows |= {"bias": error, "absolute error": np.abs(error)}
    rows[crps_title(outputs)] = crps_of_rows(outputs, y)
    if central is not None:
        low, high = central_interval(outputs, central, CALLER)
        name = f"coverage ({level_percent(central)})"
        rows[name] = ((low <= y) & (y <= high)).astype(np.float64)
    return {**rows, "PIT": pit_of_rows(outputs, y)}


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Detection:
    """Two periods, and the settings of their tests."""

    before: Period
    after: Period
    level: float
    seed: int
    n_resamples: int
    n_permutations: int

    def of_classifier(self) -> Drift:
        """Return the drift of outputs, inputs, accuracy, calibration and priors."""
        shifts = self._output_shifts() | self._feature_shifts() | self._labeled_shifts()
        confidences = [one.batch.rows.confidence for one in self.both]
        prior, reference_prior = self._priors()
        return self._drift(
            shifts,
            confidences,
            expected_accuracy=float(confidences[1].mean()),
            thresholded_accuracy=self._thresholded_accuracy(),
            prior=prior,
            reference_prior=reference_prior,
            classes=None if self.after.outputs is None else self.after.outputs.classes,
        )

    def of_regression(self) -> Drift:
        """Return the drift of predictions and inputs, and with targets of errors and intervals."""
        points = [np.asarray(point_of_rows(one.batch.outputs), np.float64) for one in self.both]
        shifts = {"prediction": self._distribution_shift(*points)}
        central = _central_level(self.before)
        if central is not None:
            ends = [central_interval(one.batch.outputs, central, CALLER) for one in self.both]
            widths = [np.asarray(high - low, np.float64) for low, high in ends]
            shifts["interval width"] = self._distribution_shift(*widths)
        shifts |= self._feature_shifts()
        if labeled := self.labeled:
            first, second = (_target_rows(one, central) for one in labeled)
            for name in first:
                is_mean = name not in ("target", "PIT")
                test = self._mean_shift if is_mean else self._distribution_shift
                shifts[name] = test(first[name], second[name])
        return self._drift(shifts, points)

    def _drift(
        self, shifts: dict[str, DistributionShift], values: Sequence[FloatArray], **others: Any
    ) -> Drift:
        """Return the result, with p-values adjusted for all tests."""
        sizes = len(self.before), len(self.after)
        tested = {name: one.p_value for name, one in shifts.items() if one.p_value is not None}
        p_values = adjusted(list(tested.values()), min(sizes))
        for name, p_value in zip(tested, p_values, strict=True):
            has_shifted = p_value < 1 - self.level
            shifts[name] = replace(shifts[name], p_value=p_value, has_shifted=has_shifted)
        distance = float(scipy.stats.wasserstein_distance(*values))
        return Drift(*sizes, self.level, shifts, distance, **others)

    @property
    def both(self) -> tuple[Period, Period]:
        """The reference and the current period."""
        return self.before, self.after

    @property
    def labeled(self) -> list[Batch]:
        """The labeled rows of both periods, nothing if one of them has too few."""
        found = [one.labeled for one in self.both if one.labeled is not None]
        return found if len(found) == 2 and min(map(len, found)) >= MIN_ROWS else []

    def _distribution_shift(self, reference: Any, current: Any) -> DistributionShift:
        return distribution_shift(reference, current, self.level)

    def _mean_shift(self, reference: Any, current: Any) -> DistributionShift:
        return mean_shift(reference, current, self.level, self.seed, self.n_permutations)

    def _output_shifts(self) -> dict[str, DistributionShift]:
        """Return the shifts of the outputs of a classifier, which need no labels."""
        a, b = (one.batch.rows for one in self.both)
        shifts = {"confidence": self._distribution_shift(a.confidence, b.confidence)}
        outputs, n_classes = [one.outputs for one in self.both], self.before.n_classes
        if outputs[0] is None or outputs[1] is None:
            return shifts
        assert a.predicted is not None
        assert b.predicted is not None
        shifts["predicted classes"] = class_shift(a.predicted, b.predicted, n_classes)
        first, second = uncertainty_scores(outputs[0]), uncertainty_scores(outputs[1])
        if n_classes > 2:  # with two classes, entropy is a function of confidence
            shifts["entropy"] = self._distribution_shift(first.entropy, second.entropy)
        if first.energy is not None and second.energy is not None:
            shifts["energy"] = self._distribution_shift(first.energy, second.energy)
        return shifts

    def _feature_shifts(self) -> dict[str, DistributionShift]:
        """Return whether more inputs are OOD than among held-out reference rows."""
        known, new = (one.batch.features for one in self.both)
        if known is None or new is None or len(known) < 2 * MIN_ROWS:
            return {}
        order = np.random.default_rng(self.seed).permutation(len(known))
        fitted, held = order[: len(order) // 2], order[len(order) // 2 :]
        codes = self.before.codes
        if codes is not None and (codes[fitted] >= 0).any():
            fitted = fitted[codes[fitted] >= 0]
            distance = MahalanobisDistance().fit(known[fitted], codes[fitted])
        else:
            distance = MahalanobisDistance().fit(known[fitted])
        detector = ConformalOutlierDetector(ALPHA).fit(distance.score(known[held]))
        n_ood = int(detector.predict(distance.score(new)).sum())
        return {"OOD inputs": ood_shift(held.size, len(new), n_ood, ALPHA)}

    def _labeled_shifts(self) -> dict[str, DistributionShift]:
        """Return the shifts of accuracy, calibration and labels, if both periods have labels."""
        if not (labeled := self.labeled):
            return {}
        a, b = (one.rows for one in labeled)
        shifts = {
            "accuracy": self._mean_shift(a.correct, b.correct),
            "gap": self._mean_shift(a.confidence - a.correct, b.confidence - b.correct),
        }
        losses = [one.log_loss for one in (a, b) if one.log_loss is not None]
        if len(losses) == 2 and np.isfinite(np.concatenate(losses)).all():
            shifts["log loss"] = self._mean_shift(*losses)
        codes = [one.codes[one.codes >= 0] for one in self.both if one.codes is not None]
        if len(codes) == 2:
            shifts["labels"] = class_shift(codes[0], codes[1], self.before.n_classes)
        return shifts | {TITLES["expected_calibration_error"]: self._ece_shift(labeled)}

    def _ece_shift(self, labeled: list[Batch]) -> DistributionShift:
        """Return the ECE of both periods; not tested, as it depends on the number of rows."""
        edges = uniform_edges(N_BINS)

        def error(batch: Batch) -> float:
            return ReliabilityState.of(batch, edges).expected()

        # Different seeds: both periods are resampled independently.
        old, new = (
            np.array(list(over_resamples(one, error, 2 * self.seed + k, self.n_resamples)))
            for k, one in enumerate(labeled)
        )
        before, after = map(error, labeled)
        difference = interval_of(after - before, new - old, self.level, CALLER)
        return DistributionShift(None, None, before, after, difference)

    def _priors(self) -> tuple[PriorEstimate | None, FloatArray | None]:
        """Return the estimated current priors, and those of the reference.

        From the confusion matrix if all classes have labels in the reference, else by maximum
        likelihood.
        """
        before, known, current = self.before, self.before.outputs, self.after.outputs
        if known is None or current is None or before.n_classes > MAX_CLASSES:
            return None, None
        codes = np.array([], dtype=np.int64) if before.codes is None else before.codes
        labeled = np.flatnonzero(codes >= 0)
        counts = np.bincount(codes[labeled], minlength=before.n_classes)
        settings: dict[str, Any] = {"level": self.level, "random_state": self.seed}
        if counts.all():
            seen = known.take(labeled)
            names = np.asarray(names_of(seen), dtype=object)
            prior = counts / counts.sum()
            settings |= {"method": "bbse", "validation": (names[codes[labeled]], seen)}
        else:
            mean = probabilities_of(log_posteriors(known), np.float64).mean(axis=0)
            prior = np.maximum(mean, 1e-12)
            prior /= prior.sum()
            settings["train_prior"] = prior
        # `is_identified` has the same information.
        with warnings.catch_warnings(action="ignore", category=DubitoWarning):
            return estimate_prior(current, n_resamples=self.n_resamples, **settings), prior

    def _thresholded_accuracy(self) -> Interval | None:
        """Return the accuracy expected from confidence, if the reference has labels."""
        if self.before.labeled is None:
            return None
        rows, confidence = self.before.labeled.rows, self.after.batch.rows.confidence
        n_correct = round(float(rows.correct.sum()))
        ranked = np.sort(rows.confidence)[::-1]
        threshold = ranked[n_correct] if n_correct < ranked.size else -np.inf
        value, error = mean_with_error((confidence > threshold).astype(np.float64))
        errors = error, mean_with_error(rows.correct)[1]
        reach = float(scipy.special.ndtri((1 + self.level) / 2) * np.hypot(*errors))
        return Interval(value, max(value - reach, 0.0), min(value + reach, 1.0))
