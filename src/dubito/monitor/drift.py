"""Drift between two periods of one model: in confidence, classes, inputs or accuracy."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from functools import cached_property
from textwrap import wrap
from typing import Any, TypeGuard, final

import numpy as np
from scipy.special import ndtri
from scipy.stats import wasserstein_distance

from dubito.arrays import FloatArray, IntArray, as_fraction, draw_seed
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.data.shards import as_shards, load_rows
from dubito.decide import PriorEstimate, estimate_prior
from dubito.decide.priors import log_posteriors, probabilities_of
from dubito.doubt import ConformalOutlierDetector, MahalanobisDistance, uncertainty_scores
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.measure.intervals import Interval, as_n_resamples, interval_of, over_resamples
from dubito.measure.state import warn_of_missing
from dubito.monitor.metrics import N_BINS, TITLES, holm, plain
from dubito.monitor.shifts import (
    N_PERMUTATIONS,
    DistributionShift,
    class_shift,
    distribution_shift,
    mean_shift,
    mean_with_error,
    ood_shift,
)
from dubito.outputs import (
    BaseClassOutputs,
    ClassName,
    Logits,
    Members,
    Probabilities,
    TopLabel,
)

CALLER = "detect_drift"
ALPHA = 0.05  # false positive rate of OOD inputs
MIN_ROWS = 20  # with fewer in a period, nothing is called significant
MAX_CLASSES = 50  # with more, class priors can hardly be identified
MAX_CLASSES_SHOWN = 10
WIDTH = 80  # of printed lines


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
        also "accuracy", "over-confidence", "log loss", "labels" and the ECE, which is not tested.
    wasserstein : float
        The Wasserstein distance of the confidences.
    expected_accuracy : float
        The mean confidence of the current period: its accuracy, if calibrated.
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
    >>> drift = detect_drift([[0.9, 0.1], [0.2, 0.8]] * 100, [[0.6, 0.4], [0.4, 0.6]] * 100)
    >>> drift.has_drifted, drift.shifted
    (True, ('confidence',))
    """

    n_reference: int
    n_current: int
    level: float
    shifts: dict[str, DistributionShift]
    wasserstein: float
    expected_accuracy: float
    thresholded_accuracy: Interval | None
    prior: PriorEstimate | None
    reference_prior: FloatArray | None
    classes: tuple[ClassName, ...] | None

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
        return _verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        values["shifts"] = {
            name: {f.name: plain(getattr(shift, f.name)) for f in fields(shift)}
            for name, shift in self.shifts.items()
        }
        if self.prior is not None:
            names = ("prior", "low", "high", "is_identified", "method")
            values["prior"] = {name: plain(getattr(self.prior, name)) for name in names}
        return {**values, "shifted": list(self.shifted), "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join(_lines(self))


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
        Outputs of one model on both periods; a plain array holds probabilities. Of shards, 100,000
        rows are sampled. Rows are taken as independent.
    y_reference, y_current : array-like of shape (n_rows,), optional
        Labels. Those of the reference improve the estimated priors and accuracy; those of both
        periods allow tests of accuracy and calibration.
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
    >>> before, after = [[0.9, 0.1], [0.2, 0.8]] * 100, [[0.6, 0.4], [0.4, 0.6]] * 100
    >>> detect_drift(before, after).shifted
    ('confidence',)
    """
    level = as_fraction(level, "level", CALLER, is_open=True)
    seed = draw_seed(random_state, CALLER)
    n_draws = as_n_resamples(n_resamples, CALLER)
    features = reference_features, current_features
    labels = y_reference, y_current
    before, after = _both_periods(reference, current, labels, features, seed)
    shifts = {
        **_output_shifts(before, after, level),
        **_feature_shifts(before, after, seed),
        **_labeled_shifts(before, after, level, seed, n_draws, n_permutations),
    }
    prior, reference_prior = _priors(before, after, level, seed, n_draws)
    a, b = before.batch.rows, after.batch.rows
    return Drift(
        n_reference=len(before),
        n_current=len(after),
        level=level,
        shifts=_with_significance(shifts, level, min(len(before), len(after))),
        wasserstein=float(wasserstein_distance(a.confidence, b.confidence)),
        expected_accuracy=float(b.confidence.mean()),
        thresholded_accuracy=_thresholded_accuracy(before, after, level),
        prior=prior,
        reference_prior=reference_prior,
        classes=None if after.outputs is None else after.outputs.classes,
    )


@final
@dataclass(frozen=True, eq=False)
class Period:
    """The rows of one period; ensemble members are averaged."""

    batch: Batch

    def __len__(self) -> int:
        return len(self.batch)

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
        is_hard = isinstance(labels, Labels) and labels.probabilities is None
        return labels.codes if isinstance(labels, Labels) and is_hard else None

    @property
    def mean_probability(self) -> FloatArray:
        """The mean probability of each class."""
        assert self.outputs is not None
        probabilities = probabilities_of(log_posteriors(self.outputs), np.float64)
        return np.asarray(probabilities.mean(axis=0))


def _both_periods(
    reference: Any, current: Any, y: tuple[Any, Any], features: tuple[Any, Any], seed: int
) -> tuple[Period, Period]:
    """Return both periods, with outputs of one kind."""
    before = _as_period(reference, y[0], features[0], seed, "reference")
    after = _as_period(current, y[1], features[1], seed + 1, "current")
    kinds = type(before.batch.outputs), type(after.batch.outputs)
    if kinds[0] is not kinds[1] or before.n_classes != after.n_classes:
        rule = f"must be {kinds[0].__name__} over {before.n_classes} classes, like `reference`"
        got = f"{kinds[1].__name__} over {after.n_classes}"
        raise BadValueError("current", CALLER, rule, got, "Pass outputs of one model")
    if (before.batch.features is None) != (after.batch.features is None):
        missing = "current" if after.batch.features is None else "reference"
        fix = f"Pass `{missing}_features` too, or leave both out"
        raise BadValueError(f"{missing}_features", CALLER, "is needed too", "None", fix)
    return before, after


def _as_period(outputs: Any, y: Any, features: Any, seed: int, argument: str) -> Period:
    """Return the rows of one period, and warn about missing labels."""
    shards = as_shards(
        outputs, y, features=features,
        caller=CALLER, argument=argument, label_argument=f"y_{argument}",
    )  # fmt: skip
    batch = load_rows(shards, seed=seed)
    if not isinstance(batch.outputs, BaseClassOutputs | TopLabel):
        kinds = "Logits, Probabilities, Members, TopLabel or an array of probabilities"
        got, fix = type(batch.outputs).__name__, "Pass outputs of a classifier"
        raise BadTypeError(argument, CALLER, f"must be {kinds}", got, fix)
    if not len(batch):
        fix = "Pass rows of both periods"
        raise BadValueError(argument, CALLER, "must have at least 1 row", "0", fix)
    if (batch.weight != 1).any():
        fix = "Read the file without a weight column"
        raise BadValueError(argument, CALLER, "cannot have weights", "weights", fix)
    warn_of_missing(batch.n_missing, len(batch), CALLER, stacklevel=5)
    return Period(batch)


def _output_shifts(before: Period, after: Period, level: float) -> dict[str, DistributionShift]:
    """Return the shifts of the outputs, which need no labels."""
    a, b = before.batch.rows, after.batch.rows
    shifts = {"confidence": distribution_shift(a.confidence, b.confidence, level)}
    if before.outputs is None or after.outputs is None:
        return shifts
    assert a.predicted is not None
    assert b.predicted is not None
    shifts["predicted classes"] = class_shift(a.predicted, b.predicted, before.n_classes)
    first, second = uncertainty_scores(before.outputs), uncertainty_scores(after.outputs)
    if before.n_classes > 2:  # with two classes, entropy is a function of confidence
        shifts["entropy"] = distribution_shift(first.entropy, second.entropy, level)
    if first.energy is not None and second.energy is not None:
        shifts["energy"] = distribution_shift(first.energy, second.energy, level)
    return shifts


def _feature_shifts(before: Period, after: Period, seed: int) -> dict[str, DistributionShift]:
    """Return whether more inputs are OOD than among held-out reference rows."""
    known, new = before.batch.features, after.batch.features
    if known is None or new is None or len(known) < 2 * MIN_ROWS:
        return {}
    order = np.random.default_rng(seed).permutation(len(known))
    fitted, held = order[: len(order) // 2], order[len(order) // 2 :]
    codes = before.codes
    if codes is not None and (codes[fitted] >= 0).any():
        fitted = fitted[codes[fitted] >= 0]
        distance = MahalanobisDistance().fit(known[fitted], codes[fitted])
    else:
        distance = MahalanobisDistance().fit(known[fitted])
    detector = ConformalOutlierDetector(ALPHA).fit(distance.score(known[held]))
    n_ood = int(detector.predict(distance.score(new)).sum())
    return {"OOD inputs": ood_shift(held.size, len(new), n_ood, ALPHA)}


def _labeled_shifts(
    before: Period,
    after: Period,
    level: float,
    seed: int,
    n_resamples: int,
    n_permutations: int,
) -> dict[str, DistributionShift]:
    """Return the shifts of accuracy, calibration and labels, if both periods have labels."""
    first, second = before.labeled, after.labeled
    if first is None or second is None or min(len(first), len(second)) < MIN_ROWS:
        return {}
    a, b = first.rows, second.rows
    gaps = [rows.confidence - rows.correct for rows in (a, b)]
    settings = level, seed, n_permutations
    shifts = {
        "accuracy": mean_shift(a.correct, b.correct, *settings),
        "over-confidence": mean_shift(gaps[0], gaps[1], *settings),
    }
    if _is_finite(a.log_loss) and _is_finite(b.log_loss):
        shifts["log loss"] = mean_shift(a.log_loss, b.log_loss, *settings)
    if before.codes is not None and after.codes is not None:
        codes = before.codes[before.codes >= 0], after.codes[after.codes >= 0]
        shifts["labels"] = class_shift(*codes, before.n_classes)
    shifts[TITLES["expected_calibration_error"]] = _ece_shift(
        first, second, level, seed, n_resamples
    )
    return shifts


def _is_finite(losses: FloatArray | None) -> TypeGuard[FloatArray]:
    """Return whether losses are known and finite."""
    return losses is not None and bool(np.isfinite(losses).all())


def _ece_shift(
    first: Batch, second: Batch, level: float, seed: int, n_resamples: int
) -> DistributionShift:
    """Return the ECE of both periods; not tested, as it depends on the number of rows."""
    edges = uniform_edges(N_BINS)

    def error(batch: Batch) -> float:
        return ReliabilityState.of(batch, edges).expected()

    # Different seeds: both periods are resampled independently.
    old = np.array(list(over_resamples(first, error, 2 * seed, n_resamples)))
    new = np.array(list(over_resamples(second, error, 2 * seed + 1, n_resamples)))
    before, after = error(first), error(second)
    return DistributionShift(
        None, None, before, after, interval_of(after - before, new - old, level, CALLER)
    )


def _with_significance(
    shifts: dict[str, DistributionShift], level: float, n_rows: int
) -> dict[str, DistributionShift]:
    """Return shifts with adjusted p-values."""
    tested = [name for name, shift in shifts.items() if shift.p_value is not None]
    raw = [shifts[name].p_value or 0.0 for name in tested]
    adjusted = holm(raw) if n_rows >= MIN_ROWS else np.ones(len(raw))
    found = dict(zip(tested, adjusted.tolist(), strict=True))
    return {
        name: replace(shift, p_value=found[name], has_shifted=found[name] < 1 - level)
        if name in found
        else shift
        for name, shift in shifts.items()
    }


def _priors(
    before: Period, after: Period, level: float, seed: int, n_resamples: int
) -> tuple[PriorEstimate | None, FloatArray | None]:
    """Return the estimated current priors, and those of the reference.

    From the confusion matrix if all classes have labels in the reference, else by maximum
    likelihood.
    """
    if before.outputs is None or after.outputs is None or before.n_classes > MAX_CLASSES:
        return None, None
    codes = np.array([], dtype=np.int64) if before.codes is None else before.codes
    labeled = np.flatnonzero(codes >= 0)
    counts = np.bincount(codes[labeled], minlength=before.n_classes)
    settings: dict[str, Any] = {"level": level, "random_state": seed, "n_resamples": n_resamples}
    if counts.all():
        seen = before.outputs.take(labeled)
        names = np.asarray(names_of(seen), dtype=object)
        settings |= {"method": "bbse", "validation": (names[codes[labeled]], seen)}
        prior = counts / counts.sum()
    else:
        prior = np.maximum(before.mean_probability, 1e-12)
        prior /= prior.sum()
        settings["train_prior"] = prior
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # `is_identified` has the same information
        return estimate_prior(after.outputs, **settings), prior


def _thresholded_accuracy(before: Period, after: Period, level: float) -> Interval | None:
    """Return the accuracy expected from confidence, if the reference has labels."""
    if before.labeled is None:
        return None
    rows, confidence = before.labeled.rows, after.batch.rows.confidence
    n_correct = round(float(rows.correct.sum()))
    ranked = np.sort(rows.confidence)[::-1]
    threshold = ranked[n_correct] if n_correct < ranked.size else -np.inf
    value, error = mean_with_error((confidence > threshold).astype(np.float64))
    errors = error, mean_with_error(rows.correct)[1]
    reach = float(ndtri((1 + level) / 2) * np.hypot(*errors))
    return Interval(value, max(value - reach, 0.0), min(value + reach, 1.0))


def _verdict(found: Drift) -> str:
    """Return the significant shifts, and what to do about them."""
    n_rows = f"{found.n_reference:,} and {found.n_current:,} rows"
    if min(found.n_reference, found.n_current) < MIN_ROWS:
        return f"Too few rows to detect drift ({n_rows})."
    if not found.shifted:
        return f"No sign of drift between {n_rows}."
    parts = (_input_text, _prior_text, _confidence_text, _accuracy_text)
    return " ".join(filter(None, (part(found) for part in parts)))


def _input_text(found: Drift) -> str:
    """Return whether inputs are out of distribution."""
    if "OOD inputs" not in found.shifted:
        return ""
    shift = found.shifts["OOD inputs"]
    return (
        f"Inputs are out of distribution: {shift.current:.1%} are beyond the distance that "
        f"{shift.reference:.0%} of reference rows exceed. Inspect them first."
    )


def _prior_text(found: Drift) -> str:
    """Return whether the class priors shifted."""
    if "labels" in found.shifts:
        has_shifted = "labels" in found.shifted
        source = f"according to the labels (distance {found.shifts['labels'].distance:.3f})"
    else:
        has_shifted = "predicted classes" in found.shifted
        source = f"according to the predictions{_largest_change(found)}"
    if not has_shifted:
        if "predicted classes" not in found.shifted:
            return ""
        return "The predicted classes shifted, but the labels did not: retrain the model."
    text = f"The class priors shifted, {source}: use adjust_prior"
    if "OOD inputs" in found.shifted:
        text += ", if the inputs of each class are still the same"
    return f"{text}."


def _largest_change(found: Drift) -> str:
    """Return the class whose estimated prior changed most, if any is identified."""
    if found.prior is None or found.reference_prior is None:
        return ""
    change = np.abs(found.prior.prior - found.reference_prior) * found.prior.is_identified
    k = int(change.argmax())
    if not change[k]:
        return ""
    low, high = found.prior.low[k], found.prior.high[k]
    name = found.classes[k] if found.classes else k
    return (
        f" (class {name} from {found.reference_prior[k]:.1%} to about {found.prior.prior[k]:.1%}, "
        f"{low:.1%} to {high:.1%})"
    )


def _confidence_text(found: Drift) -> str:
    """Return whether confidence shifted, and whether another shift explains it."""
    names = [name for name in ("confidence", "entropy", "energy") if name in found.shifted]
    if not names:
        return ""
    shift = found.shifts["confidence"]
    means = f"mean {shift.reference:.1%}, now {shift.current:.1%}"
    if names == ["energy"]:
        return (
            f"The energy of the logits shifted, but the confidence did not ({means}): inspect the "
            "inputs."
        )
    if "over-confidence" in found.shifted:
        return f"Confidence shifted ({means})."
    if "over-confidence" in found.shifts:
        return (
            f"Confidence shifted ({means}); no significant change in calibration on the labeled "
            "rows."
        )
    has_ood = "OOD inputs" in found.shifted
    if has_ood or "labels" in found.shifted or "predicted classes" in found.shifted:
        cause = "the OOD inputs" if has_ood else "the new priors"
        return f"Confidence shifted too ({means}), perhaps due to {cause}: test again afterwards."
    alone = ", but not the predicted classes" if "predicted classes" in found.shifts else ""
    return f"Confidence shifted ({means}){alone}: label some current rows and check calibration."


def _accuracy_text(found: Drift) -> str:
    """Return whether accuracy or calibration shifted."""
    sentences = []
    if "accuracy" in found.shifted:
        shift = found.shifts["accuracy"]
        assert shift.difference is not None
        verb = "fell" if shift.difference.value < 0 else "rose"
        sentences.append(f"Accuracy {verb} from {shift.reference:.1%} to {shift.current:.1%}.")
        if found.shifted == ("accuracy",):
            sentences.append(
                "The outputs did not shift: the meaning of the labels may have changed. Retrain."
            )
    elif "log loss" in found.shifted:
        shift = found.shifts["log loss"]
        sentences.append(f"Log loss went from {shift.reference:.3g} to {shift.current:.3g}.")
    if "over-confidence" in found.shifted:
        shift = found.shifts["over-confidence"]
        sentences.append(
            f"Confidence - accuracy went from {shift.reference:+.1%} to {shift.current:+.1%}: "
            "recalibrate on current rows."
        )
    return " ".join(sentences)


def _lines(found: Drift) -> list[str]:
    """Return the result as lines of 80 columns."""
    tested = [shift for shift in found.shifts.values() if shift.p_value is not None]
    note = (
        f"{found.n_reference:,} reference rows, {found.n_current:,} current rows. Significant "
        f"shifts (*) are adjusted for {len(tested)} tests (Holm): family-wise error rate "
        f"{1 - found.level:.0%}. Distances (dist.) are Kolmogorov-Smirnov, of classes total "
        "variation."
    )
    change = f"change ({found.level:.0%})"
    head = f"  {'':<21} {'reference':>9} {'current':>8}  {change:<20} {'dist.':>5} {'p':>7}"
    lines = [*wrap(found.verdict, WIDTH), "", *wrap(note, WIDTH), "", head]
    lines += [_shift_line(name, shift) for name, shift in found.shifts.items()]
    return [*lines, "", *_accuracy_lines(found), *_prior_lines(found)]


def _shift_line(name: str, shift: DistributionShift) -> str:
    """Return one shift as a line."""
    before = "" if shift.reference is None else f"{shift.reference:.3g}"
    now = "" if shift.current is None else f"{shift.current:.3g}"
    one = shift.difference
    difference = "" if one is None else f"{one.low:+.2g} to {one.high:+.2g}"
    distance = "" if shift.distance is None else f"{shift.distance:.3f}"
    p_value = "" if shift.p_value is None else f"{shift.p_value:.4f}"
    p_value = "<0.0001" if p_value == "0.0000" else p_value
    mark = " *" if shift.has_shifted else ""
    line = f"  {name:<22} {before:>8} {now:>8}  {difference:<20} {distance:>5} {p_value:>7}{mark}"
    return line.rstrip()


def _accuracy_lines(found: Drift) -> list[str]:
    """Return the accuracy expected without current labels."""
    lines = [f"  estimated accuracy (mean confidence)                {found.expected_accuracy:.1%}"]
    one = found.thresholded_accuracy
    if one is not None:
        name = "  estimated accuracy (average thresholded confidence)"
        lines.append(f"{name} {one.value:.1%} ({one.low:.1%} to {one.high:.1%})")
    return lines


def _prior_lines(found: Drift) -> list[str]:
    """Return the priors of both periods, the largest change first."""
    if found.prior is None or found.reference_prior is None:
        return []
    prior, before = found.prior, found.reference_prior
    names = found.classes or range(before.size)
    order = np.argsort(-np.abs(prior.prior - before), kind="stable")[:MAX_CLASSES_SHOWN]
    method = f"(estimated by {prior.method.upper()})"
    lines = ["", f"  {'class':<21} {'reference':>9} {'current':>8}  {method}"]
    for k in order:
        between = f"{prior.low[k]:.1%} to {prior.high[k]:.1%}"
        between = between if prior.is_identified[k] else "not identified"
        name = str(list(names)[k])[:22]
        lines.append(f"  {name:<22} {before[k]:>8.1%} {prior.prior[k]:>8.1%}  {between}")
    return lines
