"""Calibration of several binary labels per row: one map per label, shrunk towards a common one."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple, Self, final

import numpy as np
from scipy.special import expit

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    draw_seed,
    freeze,
    require_bool,
    require_choice,
    require_random_state,
)
from dubito.calibrate.binary import minimize_newton
from dubito.calibrate.calibrator import (
    FLOOR,
    OutputContainers,
    drop_unlabeled,
    frame_columns,
    numbered_names,
)
from dubito.calibrate.cross_validation import (
    CalibrationEvidence,
    Folds,
    HeldOutLabels,
    label_losses,
    make_folds,
    rows_to_fit,
)
from dubito.data.batch import Batch
from dubito.data.cache import cached
from dubito.data.labels import LabelMatrix, as_label_matrix, look_like_labels, require_own_places
from dubito.data.shards import CountedShards, Shards, make_shards, sample_rows
from dubito.errors import DubitoWarning
from dubito.formatting import join_words, percent
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks, run_in_order
from dubito.measure.state import require_weight, warn_of_missing
from dubito.outputs import ClassName, MultiLabel, as_multilabel, in_fitted_order
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    Entry,
    Omittable,
    class_names,
    declare,
    fitted,
    integer,
    list_of,
    number,
    one_of,
    record,
    text,
)
from dubito.serialization.objects import clone, record_of

MIN_ROWS = 10  # with fewer, nothing is calibrated: a selection would be chance
SELECTION_ENTRIES, SELECTION_ROWS = 100_000, 4_000  # rows x labels to select on, or rows if more
BLOCK_ENTRIES = 1 << 16  # of rows x labels, for sums
MAX_LOG_ODDS = -np.log(FLOOR)
MAX_OTHER = 8.0  # log odds of other labels beyond this add nothing
MAX_DIRECTIONS = 12  # principal components of the log odds of all labels
BASES = ("auto", "temperature", "platt", "beta")
N_FEATURES = {"temperature": 1, "platt": 2, "beta": 4}  # the first of `_features`

# Precisions of the priors of slope, intercept and the two bends of the common map, and how much
# narrower the spread of bends between labels is than that of slopes and intercepts. The rules were
# chosen on generated sets: forests, networks and logistic regressions, 5 to 80 labels.
COMMON_PRECISION = np.array([0.01, 0.1, 0.1, 0.1])
RELATIVE_SPREAD = np.array([1.0, 1.0, 0.3, 0.3])
SPREADS = (0.1, 0.3, 1.0)  # standard deviations between labels that are tried
OTHER_SPREADS = (0.03, 0.1, 0.3, 1.0)  # of the weights of other labels
FIXED = 1e10  # the precision of what may not vary
N_STANDARD_ERRORS = 0.5  # by which a simpler candidate may be worse than the best
ROUGH, TOLERANCE = 0.01, 1e-7  # predicted gain in log likelihood below which a fit has ended
N_SHOWN = 5  # names of labels in a summary


class _Prior(NamedTuple):
    """A candidate: how many features have coefficients, and how much these vary between labels.

    A spread of 0 gives all labels the same map. `other` is the spread of the weights of other
    labels, 0 to leave them out.
    """

    base: str
    spread: float = 0.0
    other: float = 0.0

    @property
    def n_features(self) -> int:
        return N_FEATURES.get(self.base, 0)

    @property
    def complexity(self) -> tuple[int, bool, bool]:
        return self.n_features, self.spread > 0, self.other > 0

    def __str__(self) -> str:
        if self.n_features < 2:
            what = {"": "unchanged probabilities"}.get(self.base, "one temperature for all labels")
        else:
            name = {"platt": "Platt scaling"}.get(self.base, f"{self.base} calibration")
            each = f"{name} per label (prior sd {self.spread:g})"
            what = each if self.spread else f"one {name} for all labels"
        others = f", with other labels' log odds (prior sd {self.other:g})"
        return what + (others if self.other else "")


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Scale:
    """What makes the features of all labels comparable; learned without labels.

    `limit` bounds log odds, `norms` are the standard deviations of features, and `directions`
    (labels x components) the principal components of the log odds of all labels.
    """

    limit: float
    norms: FloatArray
    center: FloatArray
    directions: FloatArray

    @classmethod
    def of(cls, outputs: MultiLabel, weight: FloatArray) -> _Scale:
        """Return the scale of a sample. Probabilities of 0 count as half the lowest other one."""
        odds = _bounded_log_odds(outputs, np.inf)
        size = np.abs(odds)
        is_finite = np.isfinite(size)
        largest = size[is_finite].max(initial=0.0) + np.log(2)
        limit = float(MAX_LOG_ODDS if is_finite.all() else min(largest, MAX_LOG_ODDS))
        odds = np.clip(odds, -limit, limit)
        norms = np.array([_standard_deviation(one, weight) for one in _features(odds)])
        norms[1] = 1.0  # of the intercept
        others = np.clip(odds, -MAX_OTHER, MAX_OTHER)
        center = np.average(others, axis=0, weights=weight)
        away = others - center
        _, vectors = np.linalg.eigh(away.T @ (weight[:, np.newaxis] * away))
        directions = vectors[:, ::-1][:, :MAX_DIRECTIONS] / _standard_deviation(others, weight)
        return cls(limit, norms, center, directions)


def _standard_deviation(values: FloatArray, weight: FloatArray) -> float:
    """Return that of all entries of weighted rows, 1 if they are all equal."""
    mean, square = (float(np.average((values**k).mean(axis=1), weights=weight)) for k in (1, 2))
    variance = square - mean**2
    return float(np.sqrt(variance)) if variance > 1e-12 * square else 1.0


def _bounded_log_odds(outputs: MultiLabel, limit: float) -> FloatArray:
    """Return log odds in float64."""
    if outputs.odds is not None:
        return np.clip(outputs.odds.astype(np.float64), -limit, limit)
    p = outputs.array.astype(np.float64)
    with np.errstate(divide="ignore"):
        return np.asarray(np.clip(np.log(p) - np.log1p(-p), -limit, limit))


def _features(odds: FloatArray, n_features: int = 4) -> list[FloatArray]:
    """Return the log odds, 1, an even and an odd bend, or the first of them.

    The first three span Platt scaling and beta calibration; the last is 2 p - 1.
    """
    if n_features <= 2:
        return [odds, np.ones_like(odds)][:n_features]
    size = np.abs(odds)
    even = size + 2 * np.log1p(np.exp(-size))  # -log p - log(1 - p)
    return [odds, np.ones_like(odds), even, np.tanh(odds / 2)]


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """Features of some rows; labels and weights are rows x labels, 0 where a label is unknown."""

    features: FloatArray  # features x rows x labels, divided by their norms
    others: FloatArray  # rows x components
    norm: float  # of the log odds
    targets: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, scale: _Scale, batch: Batch, n_features: int = 4) -> _Entries:
        outputs, labels = as_multilabel(batch.outputs, "a calibrator"), batch.labels
        assert isinstance(labels, LabelMatrix)
        odds = _bounded_log_odds(outputs, scale.limit)
        known = ~np.isnan(labels.values)
        columns = zip(_features(odds, n_features), scale.norms, strict=False)
        features = np.stack([one / norm for one, norm in columns])
        others = np.clip(odds, -MAX_OTHER, MAX_OTHER) - scale.center
        return cls(
            features=features,
            others=others @ scale.directions,
            norm=float(scale.norms[0]),
            targets=np.where(known, labels.values, 0.0),
            weight=batch.weight[:, np.newaxis] * known,
        )

    def take(self, rows: Any) -> _Entries:
        return _Entries(
            self.features[:, rows],
            self.others[rows],
            self.norm,
            self.targets[rows],
            self.weight[rows],
        )

    def log_odds(self, coefficients: FloatArray, n_features: int) -> FloatArray:
        """Return calibrated log odds; coefficients of 0 leave them unchanged."""
        odds: FloatArray = self.norm * self.features[0]
        for k in range(n_features):
            odds += self.features[k] * coefficients[:, k]
        if coefficients.shape[1] > n_features:
            odds += self.others @ coefficients[:, n_features:].T
        return odds

    def losses(self, odds: FloatArray) -> FloatArray:
        """Return the log loss of each entry."""
        return np.asarray(np.logaddexp(0, odds) - self.targets * odds)

    def derivatives(self, coefficients: FloatArray, n_features: int) -> FloatArray:
        """Return the sum of the losses, their gradients and Hessians by label, in one array."""
        odds = self.log_odds(coefficients, n_features)
        p = expit(odds)
        loss = np.vdot(self.weight, self.losses(odds))
        slope = self.weight * (p - self.targets)
        curvature = self.weight * p * (1 - p)
        n_labels, size = coefficients.shape
        gradient, hessian = np.empty((n_labels, size)), np.empty((n_labels, size, size))
        own = slice(n_features, size)
        for i in range(n_features):
            gradient[:, i] = np.einsum("nl,nl->l", slope, self.features[i])
            scaled = curvature * self.features[i]
            for j in range(i, n_features):
                products = np.einsum("nl,nl->l", scaled, self.features[j])
                hessian[:, i, j] = hessian[:, j, i] = products
            if size > n_features:
                hessian[:, i, own] = hessian[:, own, i] = scaled.T @ self.others
        if size > n_features:
            gradient[:, own] = slope.T @ self.others
            low, high = np.triu_indices(size - n_features)
            products = curvature.T @ (self.others[:, low] * self.others[:, high])
            hessian[:, n_features + low, n_features + high] = products
            hessian[:, n_features + high, n_features + low] = products
        return np.concatenate([[loss], gradient.ravel(), hessian.ravel()])


class _Fit(NamedTuple):
    """Coefficients, labels x features and components, and those of the common map."""

    coefficients: FloatArray
    common: FloatArray

    def widened(self, prior: _Prior, n_components: int) -> _Fit:
        """Return a start for another candidate, missing coefficients 0."""
        n_features = min(prior.n_features, self.common.size)
        size = prior.n_features + (n_components if prior.other else 0)
        coefficients, common = np.zeros((len(self.coefficients), size)), np.zeros(prior.n_features)
        coefficients[:, :n_features] = self.coefficients[:, :n_features]
        common[:n_features] = self.common[:n_features]
        return _Fit(coefficients, common)


def _fit(
    derivatives: Callable[[FloatArray, int], FloatArray],
    prior: _Prior,
    start: _Fit,
    tolerance: float,
) -> _Fit:
    """Return the most probable coefficients.

    The coefficients of labels are normal around those of the common map, which are normal around
    the identity: given the common map, labels do not depend on each other.
    """
    n, size = prior.n_features, start.coefficients.shape[1]
    spread = prior.spread * RELATIVE_SPREAD[:n]
    precision = np.full(size, FIXED if not prior.other else prior.other**-2)
    precision[:n] = 1 / np.maximum(spread, FIXED**-0.5) ** 2
    wide = COMMON_PRECISION[:n]
    n_labels = len(start.coefficients)
    n_own, eye, each = n_labels * size, np.eye(size), np.arange(n)

    def fit_of(flat: FloatArray) -> _Fit:
        return _Fit(flat[:n_own].reshape(n_labels, size), flat[n_own:])

    def objective(flat: FloatArray) -> tuple[float, FloatArray, FloatArray, FloatArray]:
        at = fit_of(flat)
        sums = derivatives(at.coefficients, n)
        gradient = sums[1 : 1 + n_own].reshape(n_labels, size)
        hessian = sums[1 + n_own :].reshape(n_labels, size, size)
        away = at.coefficients.copy()
        away[:, :n] -= at.common
        penalty = 0.5 * ((precision * away**2).sum() + wide @ at.common**2)
        common = wide * at.common - precision[:n] * away[:, :n].sum(axis=0)
        return sums[0] + penalty, gradient + precision * away, hessian + precision * eye, common

    def newton_step(
        gradient: FloatArray, hessian: FloatArray, common: FloatArray
    ) -> tuple[FloatArray, float]:
        sides = np.zeros((n_labels, size, 1 + n))
        sides[:, :, 0] = -gradient
        sides[:, each, 1 + each] = precision[:n]
        solved = np.linalg.solve(hessian, sides)
        schur = np.diag(n_labels * precision[:n] + wide)
        schur -= precision[:n, np.newaxis] * solved[:, :n, 1:].sum(axis=0)
        side = precision[:n] * solved[:, :n, 0].sum(axis=0) - common
        common_step = np.linalg.solve(schur, side)
        step = solved[:, :, 0] + solved[:, :, 1:] @ common_step
        decrease = -np.vdot(gradient, step) - common @ common_step
        return np.append(step, common_step), float(decrease)

    flat = np.append(start.coefficients, start.common)
    return fit_of(minimize_newton(objective, newton_step, flat, tolerance))


def _fit_rows(prior: _Prior, rows: tuple[_Entries, _Fit]) -> _Fit:
    """Return the coefficients of rows in memory from a start, roughly."""
    return _fit(rows[0].derivatives, prior, rows[1], ROUGH)


def _sum_derivatives(
    shards: Shards, scale: _Scale, coefficients: FloatArray, n_features: int
) -> FloatArray:
    """Return the derivatives of all rows, in blocks that fit in caches."""

    def sums(batch: Batch) -> FloatArray:
        blocks = row_blocks(len(batch), len(coefficients), BLOCK_ENTRIES) or [slice(0, 0)]
        parts = (
            _Entries.of(scale, batch.take(rows), n_features).derivatives(coefficients, n_features)
            for rows in blocks
        )
        return reduce(add, parts)

    return shards.sum(sums)


class _Tried(NamedTuple):
    """A candidate, its fits on folds, and the loss of each held-out entry."""

    prior: _Prior
    fits: list[_Fit]
    losses: FloatArray


@final
class _Selection:
    """Fits candidates on folds, and compares them on the rows that each fold holds out."""

    def __init__(self, entries: _Entries, folds: Sequence[tuple[Any, Any]]) -> None:
        self.parts = [(entries.take(train), entries.take(test)) for train, test in folds]
        weight = np.concatenate([test.weight for _, test in self.parts])
        self.is_known = weight > 0
        order = np.concatenate([test for _, test in folds])
        rows = np.broadcast_to(order[:, np.newaxis], weight.shape)[self.is_known]
        self.labels = HeldOutLabels(weight[self.is_known], rows)
        n_labels, self.n_components = weight.shape[1], entries.others.shape[1]
        self.tried: list[_Tried] = []
        start = _Fit(np.zeros((n_labels, 0)), np.zeros(0))
        self.unchanged = self._evaluate(_Prior(""), [start] * len(folds))

    def _evaluate(self, prior: _Prior, fits: list[_Fit]) -> _Tried:
        """Return a candidate with the losses of the held-out entries."""
        losses = [
            test.losses(test.log_odds(fit.coefficients, prior.n_features))
            for fit, (_, test) in zip(fits, self.parts, strict=True)
        ]
        tried = _Tried(prior, fits, np.concatenate(losses)[self.is_known])
        self.tried.append(tried)
        return tried

    def best(self, candidates: Iterable[_Tried]) -> _Tried:
        """Return the candidate of lowest held-out loss, the first of equals."""
        return min(candidates, key=lambda one: self.labels.mean(one.losses))

    def try_all(self, priors: Iterable[_Prior], last: _Tried) -> _Tried:
        """Fit candidates, each from where the one before ended, and return the best of them."""
        new = []
        for prior in priors:
            starts = [fit.widened(prior, self.n_components) for fit in last.fits]
            rows = [(train, start) for (train, _), start in zip(self.parts, starts, strict=True)]
            last = self._evaluate(prior, list(map_in_order(partial(_fit_rows, prior), rows)))
            new.append(last)
        return self.best(new)

    def simplest_as_good(self) -> _Tried:
        """Return the simplest candidate that is as good as the best up to noise."""
        best = self.best(self.tried)
        kinds = sorted({one.prior.complexity for one in self.tried})
        for kind in kinds[: kinds.index(best.prior.complexity)]:
            found = self.best(one for one in self.tried if one.prior.complexity == kind)
            excess = found.losses - best.losses
            if self.labels.mean(excess) <= N_STANDARD_ERRORS * self.labels.standard_error(excess):
                return found
        return best


@final
class MultiLabelCalibrator(OutputContainers):
    """Calibrate several binary labels per row, each with a map of its own near a common one.

    The map of a label is a logistic regression on its log odds z: slope * z + intercept, and two
    bends as in beta calibration. Maps of all labels are fitted together, shrunk towards a common
    one: a label with many positives gets its own map, one with few nearly the common one. A label
    without positives is evidence, too: its probabilities get low, as far as the rows support it.
    Where it lowers the held-out log loss, the log odds of the other labels enter as well, by their
    principal components, with weights shrunk towards 0. How strongly is selected by cross-fitting,
    like the kind of map; unchanged probabilities and one temperature for all labels are candidates.
    Unknown labels are left out one by one.

    Parameters
    ----------
    base : {"auto", "temperature", "platt", "beta"}, default="auto"
        The kind of map; "auto" selects it.
    other_labels : bool, default=True
        Whether the log odds of other labels may be used. A map of one label alone keeps the ranking
        of its rows, mostly.
    cv : int, scikit-learn splitter or list of splits
        Number of folds (fewer where there are fewer groups), or how to split.
    max_samples : int
        With more rows, a random sample of at most this size is used to select; fewer for many
        labels. The result is fitted on all rows.
    random_state : int, RandomState or None
        Seed of the folds and the sample.

    Attributes
    ----------
    n_labels_ : int
        Number of labels.
    label_names_ : tuple of str or int, or None
        Names of the labels, if the outputs have any.
    coefficients_ : array of shape (n_labels, 4)
        Coefficients of the log odds z, of 1, of -log p - log(1 - p), and of 2 p - 1.
    other_weights_ : array of shape (n_labels, n_labels)
        The weights of all labels' log odds, clipped to +-8; absent where they are not used.
    limit_ : float
        Log odds are clipped to this size.
    unfitted_ : list of int
        The labels that are unknown in every row, which have the common map.
    chosen_, reason_ : str
        What was selected, and why. Numbers in parentheses are standard deviations: of the
        coefficients between labels, and of the weights of other labels.
    leaderboard_ : list of dict
        Name, log loss and its standard error of each candidate, lowest log loss first.
    evidence_ : CalibrationEvidence
        Cross-fitted mean log loss over known labels, before and after calibration.

    References
    ----------
    Platt, "Probabilistic outputs for support vector machines", 1999; Kull, Silva Filho and Flach,
    "Beta calibration", AISTATS 2017; Gelman and Hill, "Data analysis using regression and
    multilevel/hierarchical models", 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import MultiLabel, MultiLabelCalibrator
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=(400, 3))
    >>> y = rng.random((400, 3)) < 1 / (1 + np.exp(-odds))
    >>> calibrator = MultiLabelCalibrator().fit(MultiLabel.from_logits(3 * odds), y)
    >>> calibrator.chosen_
    'one temperature for all labels'
    >>> calibrator.transform(MultiLabel([[0.99, 0.5, 0.01]])).array.round(2).tolist()
    [[0.79, 0.5, 0.21]]
    """

    param_fields = declare(base=Omittable(one_of(*BASES)))
    n_labels_: int = fitted(integer(1))
    label_names_: tuple[ClassName, ...] | None = fitted(class_names("n_labels_"))
    coefficients_: FloatArray = fitted(array("n_labels_", 4))
    other_weights_: FloatArray = fitted(Omittable(array("n_labels_", "n_labels_")))
    limit_: float = fitted(number(0, MAX_LOG_ODDS))
    unfitted_: list[int] = fitted(list_of(integer()))
    chosen_: str = fitted(text)
    reason_: str = fitted(text)
    leaderboard_: list[dict[str, Any]] = fitted(
        list_of(record(name=text, log_loss=number(0), standard_error=number(0)))
    )
    evidence_: CalibrationEvidence = fitted(record_of(CalibrationEvidence))

    def __init__(
        self,
        base: str = "auto",
        other_labels: bool = True,
        cv: Any = 5,
        max_samples: int = 20_000,
        random_state: RandomState = 0,
    ) -> None:
        self.base = base
        self.other_labels = other_labels
        self.cv = cv
        self.max_samples = max_samples
        self.random_state = random_state

    def fit(
        self, outputs: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Select the kind of map and its shrinkage by cross-fitting, and fit it on all rows.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers, array of shape (n_rows, n_labels), or Shards
            Probabilities of labels on rows that the model was not trained on. Shards hold labels,
            weights and groups themselves.
        y : array of shape (n_rows, n_labels), or LabelMatrix, optional
            0 and 1, or probabilities; NaN or None where a label is unknown.
        sample_weight : array of shape (n_rows,), optional
            Frequency weights.
        groups : array of shape (n_rows,), optional
            Rows of one group stay in one fold.

        Returns
        -------
        MultiLabelCalibrator
            The fitted calibrator itself.
        """
        name = type(self).__name__
        shards = self._labeled_shards(outputs, y, sample_weight, groups, name)
        first = next(shards.batches())
        known = as_multilabel(first.outputs, name)
        require_own_places(known, as_label_matrix(first.labels, name), "y", name)
        self._columns = frame_columns(outputs)
        facts = {"n_labels_": known.n_labels, "label_names_": known.label_names}
        with self._fitting(**facts), kept_threads(), cached(shards) as quick:
            counted = CountedShards(quick)
            self._learn(counted)
            warn_of_missing(*counted.n_missing_and_rows(), name, stacklevel=3)
        return self

    def _labeled_shards(
        self, outputs: Any, y: Any, sample_weight: Any, groups: Any, caller: str
    ) -> Shards:
        columns = {"sample_weight": sample_weight, "groups": groups}
        return make_shards(outputs, y, caller=caller, convert=as_multilabel, **columns)

    def _evidence(self, batch: Batch, folds: Folds) -> CalibrationEvidence:
        """Return the metrics of all known labels before calibration, and by fits on other rows."""
        assert isinstance(batch.labels, LabelMatrix)
        held_out = folds.order
        y = batch.labels.values[held_out]
        is_known = ~np.isnan(y)
        rows = np.broadcast_to(held_out[:, np.newaxis], y.shape)[is_known]
        y, labels = y[is_known], HeldOutLabels(batch.weight[rows], rows)

        def probabilities(train: IntArray, test: IntArray) -> FloatArray:
            fitted = clone(self).fit(rows_to_fit(batch, train))
            return fitted._predict_proba(batch.outputs.take(test))

        parts = folds.map(probabilities)
        before = as_multilabel(batch.outputs, type(self).__name__).array[held_out]
        both = [np.asarray(one, np.float64)[is_known] for one in (before, np.concatenate(parts))]
        losses = [label_losses(y, p) for p in both]
        scores = [labels.mean((p - y) ** 2) for p in both]
        return labels.evidence(
            losses[0], losses[1], len(folds), brier_before=scores[0], brier_after=scores[1]
        )

    def transform(self, outputs: Any) -> MultiLabel:
        """Return calibrated outputs, which hold their log odds.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers or array of shape (n_rows, n_labels)
            Probabilities of the labels of the fit, by name if both have names.

        Returns
        -------
        MultiLabel
            For tensors a tensor, and after `set_output` a data frame, of the log odds.
        """
        odds = self._over_blocks(outputs, "transform")
        result: Any = self._contained(odds, outputs, is_transformed=True)
        if result is odds:
            return MultiLabel.from_logits(odds, self.label_names_)
        chosen: MultiLabel = result
        return chosen

    def predict_proba(self, outputs: Any) -> FloatArray:
        """Return calibrated probabilities.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers or array of shape (n_rows, n_labels)
            Probabilities of the labels of the fit, by name if both have names.

        Returns
        -------
        array of shape (n_rows, n_labels)
            The probability that each label is 1, at least 1e-12. A tensor for tensors.
        """
        result: FloatArray = self._contained(self._predict_proba(outputs), outputs)
        return result

    def _predict_proba(self, outputs: Any) -> FloatArray:
        """Return calibrated probabilities as a NumPy array, whatever was chosen for users."""
        return np.asarray(np.maximum(expit(self._over_blocks(outputs, "predict_proba")), FLOOR))

    def _output_names(self) -> tuple[list[str], bool]:
        return numbered_names(self.label_names_, self.n_labels_, "label")

    def summary(self) -> str:
        """Return what was selected and why, as part of a sentence.

        Returns
        -------
        str
            Part of a sentence.
        """
        self._require_fitted("summary")
        text = f"{self.chosen_}, because {self.reason_}"
        if self.unfitted_:
            names = self.label_names_ or tuple(range(self.n_labels_))
            shown = join_words([str(names[k]) for k in self.unfitted_], N_SHOWN)
            text += f"; only the common map for {shown}, unknown in every row"
        return text

    def _learn(self, shards: Shards) -> None:
        def weigh(batch: Batch) -> FloatArray:
            labels = as_label_matrix(batch.labels, type(self).__name__)
            return np.asarray(batch.weight @ ~np.isnan(labels.values))

        known_weight = shards.sum(weigh)
        require_weight(known_weight.sum(), type(self).__name__)
        self.unfitted_ = np.flatnonzero(known_weight == 0).tolist()
        seed = draw_seed(self.random_state, type(self).__name__)
        n_rows = min(self.max_samples, max(SELECTION_ENTRIES // self.n_labels_, SELECTION_ROWS))
        batch = drop_unlabeled(sample_rows(shards, n_rows, seed, is_labeled=True))
        scale = _Scale.of(as_multilabel(batch.outputs, type(self).__name__), batch.weight)
        self.limit_ = scale.limit
        few = len(batch) < MIN_ROWS
        entries = _Entries.of(scale, batch)
        folds = [] if few else make_folds(batch, self.cv, seed, type(self).__name__)
        one = [(np.arange(len(batch)),) * 2]  # to evaluate unchanged probabilities
        selection = _Selection(entries, folds or one)
        chosen = selection.unchanged
        if few:
            self.reason_ = f"{len(batch)} rows are too few to select a calibrator"
        else:
            self._select(selection)
            chosen = selection.simplest_as_good()
            self.reason_ = self._reason(selection, chosen)
        prior, fit = chosen.prior, chosen.fits[0]
        self._state_evidence(selection, chosen, len(folds))
        if prior.n_features:
            fit = _fit_rows(prior, (entries, fit))
            fit = _fit(partial(_sum_derivatives, shards, scale), prior, fit, TOLERANCE)
        self._keep(fit, prior, scale)

    def _select(self, selection: _Selection) -> None:
        """Try candidates, the simplest first, and refine the best of them."""
        bases = ("temperature", "platt", "beta") if self.base == "auto" else (self.base,)
        found = [selection.unchanged]
        for base in bases:
            is_shared = base == "temperature" or self.n_labels_ == 1
            spreads = (0.0, *(() if is_shared else SPREADS))
            found.append(selection.try_all((_Prior(base, one) for one in spreads), found[-1]))
        best = selection.best(found[1:])
        if self.other_labels and self.n_labels_ > 1:
            others = (best.prior._replace(other=one) for one in OTHER_SPREADS)
            selection.try_all(others, best)

    def _reason(self, selection: _Selection, chosen: _Tried) -> str:
        """Return why a candidate was selected, and what unchanged probabilities would cost."""
        n_tried = len(selection.tried)
        if not chosen.prior.n_features:
            return f"none of {n_tried - 1} maps lowers the held-out log loss beyond noise"
        before, after = (selection.labels.mean(one.losses) for one in (selection.unchanged, chosen))
        gain = f"{percent(1 - after / max(before, FLOOR))} below that of the model"
        if chosen is selection.best(selection.tried):
            return f"its held-out log loss is the lowest of {n_tried} candidates, {gain}"
        return (
            f"it is the simplest of {n_tried} candidates within noise of the lowest held-out log "
            f"loss ({N_STANDARD_ERRORS:g} standard errors of the difference); its own is {gain}"
        )

    def _state_evidence(self, selection: _Selection, chosen: _Tried, n_folds: int) -> None:
        """Set the leaderboard, and the figures of the selected candidate."""
        self.chosen_, labels = str(chosen.prior), selection.labels
        lines = [
            {"name": str(one.prior), **labels.loss_figures(one.losses)} for one in selection.tried
        ]
        self.leaderboard_ = sorted(lines, key=lambda line: float(line["log_loss"]))
        self.evidence_ = labels.evidence(selection.unchanged.losses, chosen.losses, n_folds)

    def _keep(self, fit: _Fit, prior: _Prior, scale: _Scale) -> None:
        """Set the coefficients, in the units of the log odds."""
        n = prior.n_features
        self.coefficients_ = np.zeros((self.n_labels_, 4))
        self.coefficients_[:, :n] = fit.coefficients[:, :n] / scale.norms[:n]
        self.coefficients_[:, 0] += 1
        if prior.other:
            self.other_weights_ = fit.coefficients[:, n:] @ scale.directions.T
            self.coefficients_[:, 1] -= self.other_weights_ @ scale.center

    def _calibrated(self, outputs: MultiLabel) -> FloatArray:
        """Return the calibrated log odds of a block."""
        odds = _bounded_log_odds(outputs, self.limit_)
        result = np.zeros_like(odds)
        for feature, coefficients in zip(_features(odds), self.coefficients_.T, strict=True):
            result += feature * coefficients
        if hasattr(self, "other_weights_"):
            result += np.clip(odds, -MAX_OTHER, MAX_OTHER) @ self.other_weights_.T
        return result

    def _over_blocks(self, outputs: Any, method: str) -> FloatArray:
        """Return the calibrated log odds of all rows, in the precision of the outputs."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        known = as_multilabel(outputs, caller)
        known = in_fitted_order(known, self.n_labels_, self.label_names_, caller)
        if look_like_labels(known):
            text = (
                f"{caller}: all outputs are 0 or 1, like labels. Pass probabilities of the model."
            )
            warnings.warn(text, DubitoWarning, stacklevel=3)
        result = np.empty(known.array.shape, known.array.dtype)

        def fill(rows: slice) -> None:
            result[rows] = self._calibrated(known.take(rows))

        with kept_threads():
            run_in_order(fill, row_blocks(known.n_rows, known.n_labels))
        return freeze(result)

    def _check_fitted(self, entry: Entry) -> None:
        if max(self.unfitted_, default=0) >= self.n_labels_:
            rule = f"label numbers below {self.n_labels_}"
            raise entry.at("unfitted_").error(rule, f"{max(self.unfitted_)}")

    def _check_params(self) -> None:
        name = type(self).__name__
        require_choice(self.base, BASES, "base", name)
        require_bool(self.other_labels, "other_labels", name)
        as_count(self.max_samples, "max_samples", name, MIN_ROWS, example=20_000)
        require_random_state(self.random_state, name)
