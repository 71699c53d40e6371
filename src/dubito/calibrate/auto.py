"""The default calibrator: cross-validates the candidates that suit the data and stacks them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, NamedTuple, Self, final

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
    is_number,
    make_folds,
    standard_error,
    weighted_mean,
)
from dubito.calibrate.forest import ForestCalibration
from dubito.calibrate.isotonic import IsotonicCalibration
from dubito.calibrate.matrix import StructuredMatrixScaling, VectorScaling
from dubito.calibrate.one_vs_rest import OneVsRest
from dubito.calibrate.temperature import TemperatureScaling, fit_mixture_weights
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BadValueError, DubitoWarning, EmptyStateError
from dubito.formatting import join_words, percent
from dubito.kernels.blocks import map_in_order
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
from dubito.serialization.objects import clone, estimator, record_of

MIN_ROWS = 10  # with fewer, nothing is calibrated: a selection would be chance
FEW_ROWS = 100  # with fewer, only the simplest candidates, and no mixture
FLEXIBLE_ROWS = 200  # flexible candidates need this many; of two classes, MANY_ROWS
MANY_ROWS = 1000  # with fewer, noise alone decides whether a simpler candidate is as good
MAX_SPLINE_CLASSES = 100  # above, five numbers per pair of classes are too many
MAX_LOCAL_CLASSES = 30  # above, rows are too far apart for forests and radial basis functions
N_FITTED = 10  # times `max_samples` rows are fitted: more hardly change any calibrator
MAX_MATRIX_CLASSES = 250  # above, a number per pair of classes takes too long

MIN_CANDIDATES = 2  # whatever the time budget: unchanged, and temperature scaling
# What a weight that makes no difference adds to the log likelihood of all labels, on average. Of
# many rows, a part must also lower the log loss by this fraction.
CHANCE_GAIN, MIN_GAIN = 0.5, 0.001
# A simpler candidate is as good as the best if its loss is higher by at most as many standard
# errors plus 1 / n, and (of many rows) by at most this fraction. Both rules were chosen on
# development sets: `python -m benchmarks.calibration_rules`.
N_STANDARD_ERRORS, MAX_EXCESS = 0.5, 0.002
PRIOR_WEIGHT = 1.0  # pseudo-rows that pull the weights of the mixture towards equal ones
MANY_TIMES = 10  # above, how much higher a log loss is has no meaning
MIN_SHOWN_WEIGHT = 0.0005  # lower weights of equal probabilities go unmentioned
N_HALVINGS = 20  # of the interval of a weight: its error is 1e-6
N_RACED_FOLDS = 2  # after which a costly candidate that cannot be a part is dropped


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
    """The weighted mean of what several calibrators return, and of equal probabilities."""

    calibrators_: list[BaseCalibrator]
    weights_: FloatArray
    uniform_weight_: float

    def _numbers_per_row(self) -> int:
        return self.n_classes_ + max(one._numbers_per_row() for one in self.calibrators_)

    def apply(self, outputs: Any) -> Logits | Probabilities:
        result = freeze(self.predict_proba(outputs))
        return unchecked(Probabilities, {"array": result, "classes": self.classes_})

    def _add_probabilities(self, block: RowBlock, weight: float, mixed: FloatArray) -> None:
        uniform = self.uniform_weight_
        mixed += weight * uniform / self.n_classes_
        for part, calibrator in zip(self.weights_, self.calibrators_, strict=True):
            calibrator._add_probabilities(block, float(weight * (1 - uniform) * part), mixed)

    def _mixed(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return the probabilities of a block, classes x rows."""
        mixed = np.zeros(outputs.array.shape[::-1])
        self._add_probabilities(RowBlock(outputs), 1.0, mixed)
        return mixed

    def _fill_probabilities(self, outputs: Logits | Probabilities, result: FloatArray) -> None:
        write_probabilities(self._mixed(outputs), FLOOR, result)

    def _fill_classes(self, outputs: Logits | Probabilities, result: IntArray) -> None:
        np.argmax(self._mixed(outputs), axis=0, out=result)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return np.log(np.maximum(self._mixed(outputs), FLOOR)).T

    def _describe(self) -> str:
        order = np.argsort(-np.asarray(self.weights_), kind="stable")
        scale = 1 - self.uniform_weight_
        parts = [
            f"{percent(scale * self.weights_[k], 0)} {_name(self.calibrators_[k])}" for k in order
        ]
        if self.uniform_weight_ >= MIN_SHOWN_WEIGHT:
            parts.append(f"{percent(self.uniform_weight_)} equal probabilities")
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
        self.calibrators_ = [clone(one).fit(shards) for one in self.calibrators]
        self.weights_, self.uniform_weight_ = self.weights, self.uniform_weight


def _name(calibrator: BaseCalibrator) -> str:
    """Return the constructor call of a calibrator, on one line."""
    return " ".join(repr(calibrator).split())


def _suitable_calibrators(
    n_classes: int, n_rows: int, parametric_only: bool = False
) -> Iterator[BaseCalibrator]:
    """Yield the candidates for data of this size, the simplest first."""
    is_binary = n_classes == 2
    has_many = n_rows >= (MANY_ROWS if is_binary else FLEXIBLE_ROWS)
    yield IdentityCalibrator()
    yield TemperatureScaling()
    if n_rows < FEW_ROWS:
        return
    # What depends on the offset of a row of logits did no better on held-out rows.
    yield PlattScaling() if is_binary else VectorScaling(regularization=1.0, input="log_proba")
    if is_binary:
        yield BetaCalibration()
    elif n_classes <= MAX_MATRIX_CLASSES:
        yield StructuredMatrixScaling(regularization=0.3 if has_many else 3.0)
    if has_many and not parametric_only:
        yield IsotonicCalibration() if is_binary else OneVsRest(IsotonicCalibration())
    if n_classes <= MAX_SPLINE_CLASSES:
        yield StructuredMatrixScaling(regularization=3.0, basis="spline")
        if has_many:
            yield StructuredMatrixScaling(regularization=0.3, basis="spline")
    if has_many and n_classes <= MAX_LOCAL_CLASSES:
        if not parametric_only:
            yield ForestCalibration()
        yield StructuredMatrixScaling(regularization=0.3, basis="rbf")


class Candidate(NamedTuple):
    """An unfitted calibrator, the likelihood of each held-out label, and the time its fits took.

    One that was dropped early has the likelihoods of the labels of the first folds only.
    """

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

    def first(self, n_labels: int) -> HeldOutLabels:
        """Return the labels of the first folds."""
        some = slice(n_labels)
        return HeldOutLabels(self.weights[some], self.rows[some], self.folds[some])

    def mean(self, values: FloatArray) -> float:
        """Return the weighted mean of one value per label."""
        return weighted_mean(values, self.weights)

    def standard_error(self, values: FloatArray) -> float:
        """Return the standard error of that mean."""
        return standard_error(values, self.weights, self.rows)


@final
class _CrossValidation:
    """Fits calibrators on folds, and evaluates the labels that each fold holds out."""

    def __init__(self, batch: Batch, folds: Sequence[Fold], time_budget: float | None) -> None:
        self.batch, self.folds = batch, folds
        self.end = np.inf if time_budget is None else time.perf_counter() + time_budget
        columns = []
        for fold, (_, test) in enumerate(folds):
            rows = LabeledRows.of(batch.take(test))
            _, weights, positions = rows.label_likelihoods([rows.array])
            columns.append((weights, test[positions], np.full(weights.size, fold)))
        self.labels = HeldOutLabels(*map(np.concatenate, zip(*columns, strict=True)))

    def evaluate(
        self, calibrators: Sequence[BaseCalibrator], folds: range, is_limited: bool = True
    ) -> list[Candidate]:
        """Return the candidates whose fits could be made in time, using threads."""
        tasks = [(one, fold) for one in calibrators for fold in folds]
        with warnings.catch_warnings():  # the fit on all rows warns
            warnings.simplefilter("ignore", DubitoWarning)
            results = list(map_in_order(partial(self._run, is_limited), tasks))
        candidates = []
        for k, calibrator in enumerate(calibrators):
            some = results[k * len(folds) : (k + 1) * len(folds)]
            done = [result for result in some if result is not None]
            if len(done) == len(folds):
                likelihoods = np.concatenate([one for one, _ in done])
                candidates.append(Candidate(calibrator, likelihoods, sum(t for _, t in done)))
        return candidates

    def _run(
        self, is_limited: bool, task: tuple[BaseCalibrator, int]
    ) -> tuple[FloatArray, float] | None:
        """Return the likelihoods of the labels of a fold and the seconds taken, if in time."""
        start = time.perf_counter()
        if is_limited and start > self.end:
            return None
        train, test = self.folds[task[1]]
        calibrator = clone(task[0])
        calibrator._is_rough = True
        calibrator.fit(ArrayShards(self.batch.take(train)))
        rows = LabeledRows.of(self.batch.take(test))
        likelihoods, _, _ = rows.label_likelihoods([calibrator.predict_proba(rows.outputs)])
        return likelihoods[:, 0], time.perf_counter() - start


def _is_costly(calibrator: BaseCalibrator) -> bool:
    """Return whether a candidate takes longer than most others together."""
    return isinstance(calibrator, ForestCalibration) or "rbf" in calibrator.get_params().values()


def _cross_validated_likelihoods(
    calibrators: Iterable[BaseCalibrator],
    batch: Batch,
    folds: Sequence[Fold],
    time_budget: float | None = None,
    max_parts: int | None = 3,
) -> tuple[list[Candidate], HeldOutLabels]:
    """Fit each calibrator to all folds while there is time, and evaluate held-out labels.

    Costly ones are dropped after the first folds if they cannot improve on the others.
    """
    run = _CrossValidation(batch, folds, time_budget)
    every = list(calibrators)
    cheap = [one for one in every if not _is_costly(one)]
    costly = [one for one in every if _is_costly(one)]
    whole = range(len(folds))
    found = run.evaluate(cheap[:MIN_CANDIDATES], whole, is_limited=False)
    found += run.evaluate(cheap[MIN_CANDIDATES:], whole)
    if max_parts is None or len(folds) <= N_RACED_FOLDS:
        return found + run.evaluate(costly, whole), run.labels
    raced = run.evaluate(costly, whole[:N_RACED_FOLDS])
    likelihoods = _stack(found)
    n_classes = LabeledRows.of(batch).outputs.n_classes
    mixture_of = _mixtures(likelihoods, run.labels, n_classes)
    parts = _select_parts(likelihoods, run.labels, mixture_of, max_parts)
    current = np.exp(-mixture_of(tuple(parts)).loss)
    promising = [one for one in raced if _may_help(one, current, run.labels, max_parts)]
    rest = run.evaluate([one.calibrator for one in promising], whole[N_RACED_FOLDS:])
    for before in raced:
        after = next((one for one in rest if one.calibrator is before.calibrator), None)
        if after is not None:
            likelihoods = np.concatenate([before.likelihoods, after.likelihoods])
            before = Candidate(before.calibrator, likelihoods, before.seconds + after.seconds)
        found.append(before)
    return found, run.labels


def _may_help(
    candidate: Candidate, current: FloatArray, labels: HeldOutLabels, max_parts: int
) -> bool:
    """Return whether a candidate may still improve on a mixture of others, by its first folds."""
    tried = np.maximum(candidate.likelihoods, FLOOR)
    current, first = current[: tried.size], labels.first(tried.size)
    if max_parts == 1:
        gain = np.log(tried) - np.log(current)
    else:
        step = _best_step(current, tried, first.weights)
        gain = np.log1p(step * (tried - current) / current)
    return first.mean(gain) + first.standard_error(gain) > CHANCE_GAIN / first.n_rows


def _stack(candidates: Sequence[Candidate]) -> FloatArray:
    """Return the likelihoods of candidates side by side, none of them 0."""
    return np.maximum(np.stack([one.likelihoods for one in candidates], axis=1), FLOOR)


class Selection(NamedTuple):
    """The calibrators to fit on all rows and their weights, with the reason and the figures."""

    calibrators: list[BaseCalibrator]
    weights: FloatArray
    uniform_weight: float
    chosen: str
    reason: str
    leaderboard: list[dict[str, Any]]
    evidence: CalibrationEvidence


def _best_step(current: FloatArray, likelihoods: FloatArray, weights: FloatArray) -> float:
    """Return the weight of a candidate in its best mixture with `current`, by bisection."""
    low, high = 0.0, 1.0
    difference = likelihoods - current
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        is_rising = weights @ (difference / (current + middle * difference)) > 0
        low, high = (middle, high) if is_rising else (low, middle)
    return (low + high) / 2


def _simplest_as_good(likelihoods: FloatArray, labels: HeldOutLabels) -> int:
    """Return the first candidate whose loss exceeds the lowest by no more than noise."""
    losses = -np.log(likelihoods)
    means = [labels.mean(column) for column in losses.T]
    best = int(np.argmin(means))
    most = np.inf if labels.n_rows < MANY_ROWS else MAX_EXCESS * means[best]
    for k in range(best):
        excess = losses[:, k] - losses[:, best]
        noise = N_STANDARD_ERRORS * labels.standard_error(excess) + 1 / labels.n_rows
        if means[k] <= means[0] and labels.mean(excess) <= min(noise, most):
            return k
    return best


def _select_parts(
    likelihoods: FloatArray, labels: HeldOutLabels, mixture_of: _Mixtures, max_parts: int | None
) -> list[int]:
    """Return the parts of a mixture, the one of largest weight first, or a single candidate.

    Those with the largest weights in the mixture of all candidates are taken, and the last of them
    is left out as long as that costs no more likelihood than chance, half per weight (of many rows,
    or than 0.1 % of the log loss). What is left in the end is the simplest candidate that is as
    good as the best one up to noise. None for `max_parts` takes all candidates.
    """
    single = [_simplest_as_good(likelihoods, labels)]
    if max_parts == 1:
        return single
    every = mixture_of(tuple(range(likelihoods.shape[1])))
    order = np.argsort(-every.weights[:-1], kind="stable")
    parts = [int(k) for k in order[:max_parts]]
    if max_parts is None:
        return parts
    loss = labels.mean(mixture_of(tuple(parts)).loss)
    while len(parts) > 1:
        fewer = parts[:-1] if len(parts) > 2 else single
        n_weights = 1 if len(parts) > 2 else 2  # the uniform part goes with the last but one
        simpler = labels.mean(mixture_of(tuple(fewer)).loss)
        least = MIN_GAIN * simpler if labels.n_rows >= MANY_ROWS else 0.0
        if simpler - loss > n_weights * CHANCE_GAIN / labels.n_rows + least:
            return parts
        parts, loss = fewer, simpler
    return single


class _Mixture(NamedTuple):
    """Weights of parts, equal probabilities last, and the loss of each label."""

    weights: FloatArray
    loss: FloatArray


_Mixtures = Callable[[tuple[int, ...]], _Mixture]


def _mixtures(likelihoods: FloatArray, labels: HeldOutLabels, n_classes: int) -> _Mixtures:
    """Return a function from candidates to their best mixture, fitted once for the same ones.

    Equal probabilities beside them bound the loss of labels that no other part thought possible; a
    single candidate stays as it is.
    """

    @cache
    def mixture_of(parts: tuple[int, ...]) -> _Mixture:
        uniform = np.full(len(likelihoods), 1 / n_classes)
        every = np.column_stack([likelihoods[:, parts], uniform])
        weights = np.array([1.0, 0.0])
        if len(parts) > 1:
            weights = fit_mixture_weights(every, labels.weights, PRIOR_WEIGHT)
        return _Mixture(weights, np.asarray(-np.log(every @ weights)))

    return mixture_of


def _cost_of_simpler(
    parts: Sequence[int],
    names: Sequence[str],
    losses: Sequence[FloatArray],
    mixture_of: _Mixtures,
    labels: HeldOutLabels,
) -> str:
    """Return what the next simpler choice would cost: one part less, or a simpler calibrator."""
    if len(parts) > 1:
        simpler, what = tuple(parts[:-1]), f"without {names[parts[-1]]}"
    elif parts[0]:
        k = min(range(parts[0]), key=lambda k: labels.mean(losses[k]))
        simpler, what = (
            (k,),
            "with unchanged probabilities" if k == 0 else f"with {names[k]} instead",
        )
    else:
        return ""
    lowest = max(labels.mean(mixture_of(tuple(parts)).loss), FLOOR)
    ratio = labels.mean(mixture_of(simpler).loss) / lowest
    how = "many times" if ratio > MANY_TIMES else percent(max(ratio - 1, 0.0))
    return f"; {what}, the held-out log loss would be {how} higher"


def _select_calibrators(
    candidates: Sequence[Candidate],
    labels: HeldOutLabels,
    n_folds: int,
    n_classes: int,
    max_parts: int | None = 3,
) -> Selection:
    """Return the calibrator, or the mixture of a few, that explains held-out labels.

    The first candidate leaves probabilities unchanged: what does worse is not taken.
    """
    dropped = [one for one in candidates if one.likelihoods.size < labels.weights.size]
    candidates = [one for one in candidates if one.likelihoods.size == labels.weights.size]
    likelihoods = _stack(candidates)
    names = [_name(one.calibrator) for one in candidates]
    is_few = labels.n_rows < FEW_ROWS
    mixture_of = _mixtures(likelihoods, labels, n_classes)
    parts = _select_parts(likelihoods, labels, mixture_of, 1 if is_few else max_parts)
    losses = [-np.log(column) for column in likelihoods.T]

    best = int(np.argmin([labels.mean(loss) for loss in losses]))
    (*found, uniform_weight), mixed = mixture_of(tuple(parts))
    n_tried = len(candidates) + len(dropped)
    if is_few:
        reason = f"fewer than {FEW_ROWS} rows are too few to weigh a mixture"
    elif len(parts) > 1:
        reason = "together they have the lowest held-out log loss"
        if max_parts is not None:
            reason = "each part lowers the held-out log loss beyond noise"
    else:
        reason = f"no other of {n_tried} candidates lowers the held-out log loss beyond noise"
    is_mixed = len(parts) > 1
    reason += _cost_of_simpler(parts, names, losses, mixture_of, labels)
    weights = np.zeros(len(candidates))
    weights[parts] = np.asarray(found) / sum(found)
    lines: list[tuple[str, FloatArray, float | None, float, bool]] = [
        (name, loss, float(weight), one.seconds, False)
        for name, loss, weight, one in zip(names, losses, weights, candidates, strict=True)
    ]
    if is_mixed:
        lines.append(("mixture", mixed, None, sum(one.seconds for one in candidates), False))
    for one in dropped:
        # Estimated from how it differs from the best candidate on the folds it was fitted on.
        first = labels.first(one.likelihoods.size)
        difference = -np.log(np.maximum(one.likelihoods, FLOOR)) - losses[best][: first.rows.size]
        estimate = losses[best] + first.mean(difference)
        lines.append((_name(one.calibrator), estimate, 0.0, one.seconds, True))
    leaderboard = [
        {
            "name": name,
            "log_loss": labels.mean(loss),
            "standard_error": labels.standard_error(loss),
            "weight": weight,
            "seconds": seconds,
            "dropped": is_dropped,
        }
        for name, loss, weight, seconds, is_dropped in lines
    ]
    return Selection(
        calibrators=[clone(candidates[k].calibrator) for k in parts],
        weights=weights[parts],
        uniform_weight=float(uniform_weight),
        chosen="mixture" if is_mixed else names[parts[0]],
        reason=reason,
        leaderboard=sorted(leaderboard, key=lambda line: float(line["log_loss"])),
        evidence=CalibrationEvidence(
            log_loss_before=labels.mean(losses[0]),
            log_loss_after=labels.mean(mixed),
            standard_error=labels.standard_error(mixed - losses[0]),
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
        uniform_weight=0.0,
        chosen=_name(unchanged),
        reason=f"{len(batch)} rows are too few to select a calibrator",
        leaderboard=[],
        evidence=CalibrationEvidence(loss, loss, 0.0, len(batch), 0),
    )


def _in_order(shards: Shards, times: Any, groups: Any, caller: str) -> Batch:
    """Return the rows from the first to the last; those of equal times stay as they were."""
    values = np.asarray(times)
    if groups is not None:
        rule, fix = "must be given without `groups`", "Leave one of them out"
        raise BadValueError("times", caller, rule, "both", fix)
    if not isinstance(shards, ArrayShards):
        rule, fix = "must be given with arrays", "Sort rows by time and pass cv=TimeSeriesSplit(5)"
        raise BadValueError("times", caller, rule, "Shards", fix)
    batch: Batch = shards.batch
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
        Of more rows, a random sample of this size is used to select; the selected calibrators are
        fitted on a sample ten times as large, or on all rows of more than 100 classes.
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
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 300)
    >>> logits = Logits(4 * (np.eye(3)[y] + rng.normal(size=(300, 3))))
    >>> auto = AutoCalibrator().fit(logits, y)
    >>> auto.chosen_
    'TemperatureScaling()'
    >>> print(auto.evidence_)
    log loss from 1.681 to 0.879, cross-fitted on 300 rows
    """

    chosen_: str
    reason_: str
    leaderboard_: list[dict[str, Any]]
    evidence_: CalibrationEvidence
    n_fitted_: int

    param_fields = declare(
        cv=Omittable(_cv_field),
        max_parts=Omittable(optional(integer(1))),
        parametric_only=Omittable(boolean),
    )
    fitted_fields = declare(
        chosen_=text,
        reason_=text,
        leaderboard_=list_of(_LEADERBOARD_LINE),
        evidence_=record_of(CalibrationEvidence),
        calibrators_=list_of(estimator(BaseCalibrator)),
        weights_=distribution("calibrators_"),
        uniform_weight_=number(0, 1),
        n_fitted_=Omittable(integer(1)),
    )

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
        shards = labeled_shards(outputs, y, sample_weight, name, groups)
        if times is None:
            return super().fit(shards)
        ordered = ArrayShards(_in_order(shards, times, groups, name))
        from sklearn.model_selection import TimeSeriesSplit

        cv, self.cv = self.cv, TimeSeriesSplit(self.cv) if is_number(self.cv) else self.cv
        try:
            return super().fit(ordered)
        finally:
            self.cv = cv

    def _unfitted_copy(self) -> BaseCalibrator:
        if not self.__sklearn_is_fitted__():
            return super()._unfitted_copy()
        return _FixedMixture(
            [clone(one) for one in self.calibrators_], self.weights_, self.uniform_weight_
        )

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
            likelihoods = _cross_validated_likelihoods(
                tried, batch, folds, self.time_budget, self.max_parts
            )
            found = _select_calibrators(*likelihoods, len(folds), self.n_classes_, self.max_parts)
        self.chosen_, self.reason_ = found.chosen, found.reason
        self.leaderboard_, self.evidence_ = found.leaderboard, found.evidence
        rows, n_fitted = shards, N_FITTED * self.max_samples
        if self.n_classes_ <= MAX_SPLINE_CLASSES:  # above, candidates are sums over a stream
            rows = ArrayShards(sample_rows(shards, n_fitted, seed))
            if len(rows.batch) == n_fitted:
                self.n_fitted_ = n_fitted
        self.calibrators_ = list(map_in_order(lambda one: one.fit(rows), found.calibrators))
        self.weights_, self.uniform_weight_ = found.weights, found.uniform_weight

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
