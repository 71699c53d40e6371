"""Two periods of one model: drift of confidence, classes, uncertainty or inputs, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from textwrap import wrap
from typing import TYPE_CHECKING, Any, final

import numpy as np

from dubito.arrays import FloatArray, IntArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.data.shards import as_shards, load_rows
from dubito.decide.priors import log_posteriors, probabilities_of
from dubito.errors import BadTypeError, BadValueError
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseClassOutputs, Logits, Members, Probabilities, TopLabel

if TYPE_CHECKING:
    from dubito.monitor.shifts import DistributionShift
import warnings
from dataclasses import fields, replace
from typing import TypeGuard

from scipy.special import ndtri
from scipy.stats import wasserstein_distance

from dubito.arrays import as_share
from dubito.data.labels import names_of
from dubito.decide import PriorEstimate, estimate_prior
from dubito.doubt import ConformalOutlierDetector, MahalanobisDistance, uncertainty_scores
from dubito.errors import DubitoWarning
from dubito.measure.calibration_error import ReliabilityState, uniform_edges
from dubito.measure.intervals import Interval, as_n_resamples, interval_of, over_resamples
from dubito.monitor.metrics import N_BINS, TITLES, holm, plain
from dubito.monitor.shifts import (
    DistributionShift,
    distribution_shift,
    mean_shift,
    mean_with_error,
    share_shift,
    strange_shift,
)
from dubito.outputs import ClassName

CALLER = "drift"


@final
@dataclass(frozen=True, eq=False)
class Period:
    """Rows of one period, members by their mean."""

    batch: Batch

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def outputs(self) -> Logits | Probabilities | None:
        """All classes of all rows; None for top labels alone."""
        outputs = self.batch.outputs
        if isinstance(outputs, Members):
            return outputs.mean
        return outputs if isinstance(outputs, Logits | Probabilities) else None

    @property
    def n_classes(self) -> int:
        """How many classes there are; 0 for top labels alone."""
        outputs = self.batch.outputs
        return outputs.n_classes if isinstance(outputs, BaseClassOutputs) else 0

    @cached_property
    def labeled(self) -> Batch | None:
        """The rows whose truth is known, None if it is known of none."""
        batch = self.batch
        if batch.labels is None:
            return batch if isinstance(batch.outputs, TopLabel) else None
        known = np.flatnonzero(~batch.labels.is_missing)
        return batch.take(known) if known.size else None

    @property
    def codes(self) -> IntArray | None:
        """The column number of each label, -1 where it is missing; None without plain labels."""
        truth = self.batch.labels
        is_plain = isinstance(truth, Labels) and truth.probabilities is None
        return truth.codes if isinstance(truth, Labels) and is_plain else None

    @property
    def mean_probability(self) -> FloatArray:
        """How common the outputs themselves say that each class is."""
        assert self.outputs is not None
        shares = probabilities_of(log_posteriors(self.outputs), np.float64)
        return np.asarray(shares.mean(axis=0))


def _both_periods(
    reference: Any, current: Any, y: tuple[Any, Any], features: tuple[Any, Any], seed: int
) -> tuple[Period, Period]:
    """Return what is known of both periods, outputs of one model."""
    before = _period_of(reference, y[0], features[0], seed, "reference")
    after = _period_of(current, y[1], features[1], seed + 1, "current")
    kinds = type(before.batch.outputs), type(after.batch.outputs)
    if kinds[0] is not kinds[1] or before.n_classes != after.n_classes:
        rule = f"{kinds[0].__name__} of {before.n_classes} classes, like `reference`"
        got = f"{kinds[1].__name__} of {after.n_classes}"
        raise BadValueError("current", CALLER, rule, got, "outputs of one model")
    if (before.batch.features is None) != (after.batch.features is None):
        alone = "reference" if after.batch.features is None else "current"
        rule, fix = "given of both periods", "features of the other too, or of neither"
        raise BadValueError("features", CALLER, rule, f"those of `{alone}` alone", fix)
    return before, after


def _period_of(outputs: Any, y: Any, features: Any, seed: int, argument: str) -> Period:
    """Return what is known of one period, and warn of missing labels."""
    shards = as_shards(
        outputs, y, features=features,
        caller=CALLER, argument=argument, label_argument=f"y_{argument}",
    )  # fmt: skip
    batch = load_rows(shards, seed=seed)
    if not isinstance(batch.outputs, BaseClassOutputs | TopLabel):
        kinds = "Logits, Probabilities, Members, TopLabel or an array of probabilities"
        got = type(batch.outputs).__name__
        raise BadTypeError(argument, CALLER, kinds, got, "a classifier's outputs")
    if not len(batch):
        raise BadValueError(argument, CALLER, "1 row or more", "none", "rows of both periods")
    if (batch.weight != 1).any():
        rule, fix = "without weights: each row counts once", "columns without `weight`"
        raise BadValueError(argument, CALLER, rule, "weights", fix)
    warn_of_missing(batch.n_missing, len(batch), CALLER, stacklevel=5)
    return Period(batch)


WIDTH = 80
FEWEST_ROWS_SHOWN = 20
MOST_CLASSES_SHOWN = 10


def _verdict_on(found: Drift) -> str:
    """Say what moved and what to do about it."""
    n_rows = f"{found.n_reference:,} and {found.n_current:,} rows"
    if min(found.n_reference, found.n_current) < FEWEST_ROWS_SHOWN:
        return f"Too few rows to tell ({n_rows})."
    if not found.moved:
        return f"No sign of drift between {n_rows}."
    words = [
        _input_words(found),
        _prior_words(found),
        _confidence_words(found),
        _truth_words(found),
    ]
    return " ".join(filter(None, words))


def _input_words(found: Drift) -> str:
    """Say whether inputs are strange."""
    if "strange inputs" not in found.moved:
        return ""
    shift = found.shifts["strange inputs"]
    return (
        f"Inputs are strange: {shift.current:.1%} of them are further out than all but "
        f"{shift.reference:.0%} of known rows. Look at them before anything else."
    )


def _prior_words(found: Drift) -> str:
    """Say whether classes are as common as they were."""
    if "labels" in found.shifts:
        has_moved = "labels" in found.moved
        seen = f", by the labels (distance {found.shifts['labels'].distance:.3f})"
    else:
        has_moved = "predicted classes" in found.moved
        seen = f", as far as predictions tell{_change_words(found)}"
    if not has_moved:
        if "predicted classes" not in found.moved:
            return ""
        return "Other classes are predicted while labels are as common as before: retrain."
    said = f"The prior moved{seen}: adjust_prior."
    if "strange inputs" in found.moved:
        said += " Only if inputs of a class look as they did: strange ones may not."
    return said


def _change_words(found: Drift) -> str:
    """Say which class changed most, where its share could be estimated."""
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


def _confidence_words(found: Drift) -> str:
    """Say whether confidence moved, and whether something else explains it."""
    doubts = [name for name in ("confidence", "entropy", "energy") if name in found.moved]
    if not doubts:
        return ""
    shift = found.shifts["confidence"]
    means = f"mean confidence {shift.reference:.1%}, now {shift.current:.1%}"
    if doubts == ["energy"]:
        return f"The size of logits moved, the confidence did not ({means}): look at the inputs."
    has_prior = "labels" in found.moved or "predicted classes" in found.moved
    if "over-confidence" in found.moved:
        return f"Confidence moved ({means})."
    if "over-confidence" in found.shifts:
        return f"Confidence moved ({means}), and is as true as before: nothing to recalibrate."
    if has_prior or "strange inputs" in found.moved:
        why = "strange inputs" if "strange inputs" in found.moved else "another prior"
        return f"Confidence moved too ({means}), as {why} can make it: look again after that."
    alone = " while the classes predicted did not" if "predicted classes" in found.shifts else ""
    return f"Confidence moved ({means}){alone}: recalibrate."


def _truth_words(found: Drift) -> str:
    """Say whether the model is as right as it was."""
    words = []
    if "accuracy" in found.moved:
        shift = found.shifts["accuracy"]
        assert shift.difference is not None
        verb = "fell" if shift.difference.value < 0 else "rose"
        words.append(f"Accuracy {verb} from {shift.reference:.1%} to {shift.current:.1%}.")
        if found.moved == ("accuracy",):
            words.append("Outputs look as before: what labels mean may have changed. Retrain.")
    elif "log loss" in found.moved:
        shift = found.shifts["log loss"]
        words.append(f"Log loss went from {shift.reference:.3g} to {shift.current:.3g}.")
    if "over-confidence" in found.moved:
        shift = found.shifts["over-confidence"]
        words.append(
            f"Confidence less accuracy went from {shift.reference:+.1%} to {shift.current:+.1%}: "
            "recalibrate on rows of this period."
        )
    return " ".join(words)


def _drift_lines(found: Drift) -> list[str]:
    """Tell drift line by line, in 80 columns."""
    tested = [shift for shift in found.shifts.values() if shift.p_value is not None]
    note = (
        f"{found.n_reference:,} reference rows, {found.n_current:,} current ones. All "
        f"{len(tested)} tests together raise a false alarm in at most {1 - found.level:.0%} of "
        "cases (Holm)."
    )
    change = f"change ({found.level:.0%})"
    head = f"  {'':<22} {'before':>8} {'now':>8}  {change:<20} {'apart':>5} {'p':>7}"
    lines = [*wrap(found.verdict, WIDTH), "", *wrap(note, WIDTH), "", head]
    lines += [_shift_line(name, shift) for name, shift in found.shifts.items()]
    lines += ["", *_accuracy_lines(found), *_prior_lines(found)]
    return lines


def _shift_line(name: str, shift: DistributionShift) -> str:
    """Tell one figure of both periods."""
    before = "" if shift.reference is None else f"{shift.reference:.3g}"
    now = "" if shift.current is None else f"{shift.current:.3g}"
    one = shift.difference
    difference = "" if one is None else f"{one.low:+.2g} to {one.high:+.2g}"
    far = "" if shift.distance is None else f"{shift.distance:.3f}"
    p_value = "" if shift.p_value is None else f"{shift.p_value:.4f}"
    p_value = "<0.0001" if p_value == "0.0000" else p_value
    mark = " *" if shift.has_moved else ""
    line = f"  {name:<22} {before:>8} {now:>8}  {difference:<20} {far:>5} {p_value:>7}{mark}"
    return line.rstrip()


def _accuracy_lines(found: Drift) -> list[str]:
    """Tell the accuracy to expect without labels of this period."""
    lines = [f"  accuracy expected if calibrated      {found.expected_accuracy:.1%}"]
    one = found.thresholded_accuracy
    if one is not None:
        between = f"({one.low:.1%} to {one.high:.1%})"
        lines.append(f"  accuracy expected by its threshold   {one.value:.1%} {between}")
    return lines


def _prior_lines(found: Drift) -> list[str]:
    """Tell how common classes were and are, those that changed most first."""
    if found.prior is None or found.reference_prior is None:
        return []
    prior, before = found.prior, found.reference_prior
    names = found.classes or range(before.size)
    order = np.argsort(-np.abs(prior.prior - before), kind="stable")[:MOST_CLASSES_SHOWN]
    lines = ["", f"  {'class':<22} {'before':>8} {'now':>8}  (estimated, {prior.method})"]
    for k in order:
        between = f"{prior.low[k]:.1%} to {prior.high[k]:.1%}"
        between = between if prior.is_identified[k] else "not identified"
        name = str(list(names)[k])[:22]
        lines.append(f"  {name:<22} {before[k]:>8.1%} {prior.prior[k]:>8.1%}  {between}")
    return lines


EPSILON = 0.05  # of known rows are as strange as what is called strange
FEWEST_ROWS = 20  # of either period, below which nothing is said to have moved
MOST_CLASSES = 50  # beyond, hardly any share of a class would be identified


@final
@dataclass(frozen=True, slots=True, eq=False)
class Drift:
    """What moved between two periods. `print(drift)` tells it in words.

    `shifts` are by name; those without a p-value are told, not tested. All tested ones together
    raise a false alarm in at most 1 - `level` of all cases (Holm). `prior` is how common classes
    are now, estimated without labels of this period, beside `reference_prior`. `expected_accuracy`
    is what the outputs of this period say themselves, true if calibrated; `_thresholded_accuracy`
    the share of rows above the confidence that as many reference rows exceed as were right.
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
    def moved(self) -> tuple[str, ...]:
        """The names of what has moved."""
        return tuple(name for name, shift in self.shifts.items() if shift.has_moved)

    @property
    def has_drifted(self) -> bool:
        """Whether anything has moved."""
        return bool(self.moved)

    @property
    def verdict(self) -> str:
        """What moved, and what to do about it."""
        return _verdict_on(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, texts and lists, ready for JSON."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        values["shifts"] = {
            name: {f.name: plain(getattr(shift, f.name)) for f in fields(shift)}
            for name, shift in self.shifts.items()
        }
        if self.prior is not None:
            kept = ("prior", "low", "high", "is_identified", "method")
            values["prior"] = {name: plain(getattr(self.prior, name)) for name in kept}
        return {**values, "moved": list(self.moved), "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join(_drift_lines(self))


def detect_drift(
    reference: Any,
    current: Any,
    *,
    y_reference: Any = None,
    y_current: Any = None,
    reference_features: Any = None,
    current_features: Any = None,
    level: float = 0.95,
    seed: int = 0,
    n_resamples: int = 200,
) -> Drift:
    """Return what moved between outputs of one model on two periods, with or without labels.

    Rows of either period are taken as independent draws; of shards, 100,000 are drawn by `seed`.
    Features tell strange inputs, by a `MahalanobisDistance` fitted on half of the reference.
    Thresholded accuracy is after Garg et al., "Leveraging unlabeled data to predict
    out-of-distribution performance", 2022.

    >>> before, after = [[0.9, 0.1], [0.2, 0.8]] * 100, [[0.6, 0.4], [0.4, 0.6]] * 100
    >>> detect_drift(before, after).moved
    ('confidence',)
    """
    share = as_share(level, "level", CALLER, is_open=True)
    n_draws = as_n_resamples(n_resamples, CALLER)
    features = reference_features, current_features
    labels = y_reference, y_current
    before, after = _both_periods(reference, current, labels, features, seed)
    shifts = {
        **_output_shifts(before, after, share),
        **_feature_shifts(before, after, seed),
        **_labeled_shifts(before, after, share, seed, n_draws),
    }
    prior, reference_prior = _priors_of(before, after, share, seed, n_draws)
    a, b = before.batch.rows, after.batch.rows
    return Drift(
        n_reference=len(before),
        n_current=len(after),
        level=share,
        shifts=_judged(shifts, share, min(len(before), len(after))),
        wasserstein=float(wasserstein_distance(a.confidence, b.confidence)),
        expected_accuracy=float(b.confidence.mean()),
        thresholded_accuracy=_thresholded_accuracy(before, after, share),
        prior=prior,
        reference_prior=reference_prior,
        classes=None if after.outputs is None else after.outputs.classes,
    )


def _output_shifts(before: Period, after: Period, level: float) -> dict[str, DistributionShift]:
    """Return whether outputs moved: what can be asked without labels."""
    a, b = before.batch.rows, after.batch.rows
    shifts = {"confidence": distribution_shift(a.confidence, b.confidence, level)}
    if before.outputs is None or after.outputs is None:
        return shifts
    assert a.predicted is not None
    assert b.predicted is not None
    shifts["predicted classes"] = share_shift(a.predicted, b.predicted, before.n_classes)
    first, second = uncertainty_scores(before.outputs), uncertainty_scores(after.outputs)
    if before.n_classes > 2:  # of two classes the entropy is the confidence, told otherwise
        shifts["entropy"] = distribution_shift(first.entropy, second.entropy, level)
    if first.energy is not None and second.energy is not None:
        shifts["energy"] = distribution_shift(first.energy, second.energy, level)
    return shifts


def _feature_shifts(before: Period, after: Period, seed: int) -> dict[str, DistributionShift]:
    """Return whether more inputs are strange than among rows of the reference held back."""
    known, new = before.batch.features, after.batch.features
    if known is None or new is None or len(known) < 2 * FEWEST_ROWS:
        return {}
    order = np.random.default_rng(seed).permutation(len(known))
    fitted, held = order[: len(order) // 2], order[len(order) // 2 :]
    codes = before.codes
    if codes is not None and (codes[fitted] >= 0).any():
        fitted = fitted[codes[fitted] >= 0]
        distance = MahalanobisDistance().fit(known[fitted], codes[fitted])
    else:
        distance = MahalanobisDistance().fit(known[fitted])
    region = ConformalOutlierDetector(EPSILON).fit(distance.score(known[held]))
    n_strange = int(region.predict(distance.score(new)).sum())
    return {"strange inputs": strange_shift(held.size, len(new), n_strange, EPSILON)}


def _labeled_shifts(
    before: Period, after: Period, level: float, seed: int, n_resamples: int
) -> dict[str, DistributionShift]:
    """Return whether the model is as right as it was; nothing without labels of both periods."""
    first, second = before.labeled, after.labeled
    if first is None or second is None or min(len(first), len(second)) < FEWEST_ROWS:
        return {}
    a, b = first.rows, second.rows
    gaps = [rows.confidence - rows.correct for rows in (a, b)]
    shifts = {
        "accuracy": mean_shift(a.correct, b.correct, level, seed),
        "over-confidence": mean_shift(gaps[0], gaps[1], level, seed),
    }
    if _is_finite(a.log_loss) and _is_finite(b.log_loss):
        shifts["log loss"] = mean_shift(a.log_loss, b.log_loss, level, seed)
    if before.codes is not None and after.codes is not None:
        codes = before.codes[before.codes >= 0], after.codes[after.codes >= 0]
        shifts["labels"] = share_shift(*codes, before.n_classes)
    shifts[TITLES["expected_calibration_error"]] = _error_shift(
        first, second, level, seed, n_resamples
    )
    return shifts


def _is_finite(losses: FloatArray | None) -> TypeGuard[FloatArray]:
    """Whether losses are known and none is infinite."""
    return losses is not None and bool(np.isfinite(losses).all())


def _error_shift(
    first: Batch, second: Batch, level: float, seed: int, n_resamples: int
) -> DistributionShift:
    """Return the calibration errors of both periods; not tested, as few rows alone raise one."""
    edges = uniform_edges(N_BINS)

    def error(batch: Batch) -> float:
        return ReliabilityState.of(batch, edges).expected()

    # Seeds of their own: the rows of both periods are drawn independently.
    old = np.array(list(over_resamples(first, error, 2 * seed, n_resamples)))
    new = np.array(list(over_resamples(second, error, 2 * seed + 1, n_resamples)))
    before, after = error(first), error(second)
    return DistributionShift(
        None, None, before, after, interval_of(after - before, new - old, level, CALLER)
    )


def _judged(
    shifts: dict[str, DistributionShift], level: float, n_rows: int
) -> dict[str, DistributionShift]:
    """Return shifts with adjusted p-values, and which of them are no accident."""
    tested = [name for name, shift in shifts.items() if shift.p_value is not None]
    raw = [shifts[name].p_value or 0.0 for name in tested]
    adjusted = holm(raw) if n_rows >= FEWEST_ROWS else np.ones(len(raw))
    found = dict(zip(tested, adjusted.tolist(), strict=True))
    return {
        name: replace(shift, p_value=found[name], has_moved=found[name] < 1 - level)
        if name in found
        else shift
        for name, shift in shifts.items()
    }


def _priors_of(
    before: Period, after: Period, level: float, seed: int, n_resamples: int
) -> tuple[PriorEstimate | None, FloatArray | None]:
    """Return how common classes are now and were, as far as outputs tell.

    By the confusion matrix where all classes have labels in the reference, else by the likelihood.
    """
    if before.outputs is None or after.outputs is None or before.n_classes > MOST_CLASSES:
        return None, None
    codes = np.array([], dtype=np.int64) if before.codes is None else before.codes
    labeled = np.flatnonzero(codes >= 0)
    counts = np.bincount(codes[labeled], minlength=before.n_classes)
    settings: dict[str, Any] = {"level": level, "seed": seed, "n_resamples": n_resamples}
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
        warnings.simplefilter("ignore", DubitoWarning)  # the estimate says what is not identified
        return estimate_prior(after.outputs, **settings), prior


def _thresholded_accuracy(before: Period, after: Period, level: float) -> Interval | None:
    """Return the accuracy that confidence lets expect, where the reference has labels."""
    if before.labeled is None:
        return None
    rows, confidence = before.labeled.rows, after.batch.rows.confidence
    n_right = round(float(rows.correct.sum()))
    ranked = np.sort(rows.confidence)[::-1]
    threshold = ranked[n_right] if n_right < ranked.size else -np.inf
    value, error = mean_with_error((confidence > threshold).astype(np.float64))
    errors = error, mean_with_error(rows.correct)[1]
    reach = float(ndtri((1 + level) / 2) * np.hypot(*errors))
    return Interval(value, max(value - reach, 0.0), min(value + reach, 1.0))
