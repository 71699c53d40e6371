"""The candidates of the default calibrator, and how one or a few of them are selected."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate.binary import BetaCalibration, PlattScaling
from dubito.calibrate.calibrator import (
    FLOOR,
    BaseCalibrator,
    ColumnBlock,
    LabeledRows,
    drop_unlabeled,
    log_probabilities,
)
from dubito.calibrate.cross_validation import CalibrationEvidence, Fold, HeldOutLabels
from dubito.calibrate.forest import ForestCalibration
from dubito.calibrate.isotonic import IsotonicCalibration
from dubito.calibrate.matrix import StructuredMatrixScaling, VectorScaling
from dubito.calibrate.one_vs_rest import OneVsRest
from dubito.calibrate.temperature import TemperatureScaling, fit_mixture_weights
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import DubitoWarning
from dubito.formatting import percent
from dubito.kernels.blocks import map_in_order
from dubito.kernels.columns import add_softmax
from dubito.outputs import Logits, Probabilities
from dubito.serialization.objects import clone

MIN_ROWS = 10  # with fewer, nothing is calibrated: a selection would be chance
FEW_ROWS = 100  # with fewer, only the simplest candidates, and no mixture
FLEXIBLE_ROWS = 200  # flexible candidates need this many; of two classes, MIN_COMPARED_ROWS
MIN_COMPARED_ROWS = 1000  # with fewer, noise alone decides whether a simpler candidate is as good
MAX_SPLINE_CLASSES = 100  # above, five numbers per pair of classes are too many
MAX_LOCAL_CLASSES = 30  # above, rows are too far apart for forests and radial basis functions
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
MAX_RATIO = 10  # above, how much higher a log loss is has no meaning
N_HALVINGS = 20  # of the interval of a weight: its error is 1e-6
N_RACED_FOLDS = 2  # after which a costly candidate that cannot be a part is dropped


@final
class IdentityCalibrator(BaseCalibrator):
    """Return probabilities unchanged: the baseline that every calibrator must beat.

    Examples
    --------
    >>> from dubito.calibrate import IdentityCalibrator
    >>> IdentityCalibrator().fit([[0.7, 0.3]], [0]).predict_proba([[0.7, 0.3]]).round(3).tolist()
    [[0.7, 0.3]]
    """

    _needs_several_classes = False

    def _learn(self, shards: Shards) -> None:
        """There is nothing to learn."""

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return log_probabilities(outputs)

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        add_softmax(block.log_proba, 1.0, weight, mixed)

    def _describe(self) -> str:
        return "probabilities are unchanged"


def constructor_call(calibrator: BaseCalibrator) -> str:
    """Return the constructor call of a calibrator, on one line."""
    return " ".join(repr(calibrator).split())


def _suitable_calibrators(
    n_classes: int, n_rows: int, parametric_only: bool = False
) -> Iterator[BaseCalibrator]:
    """Yield the candidates for data of this size, the simplest first."""
    is_binary = n_classes == 2
    has_many = n_rows >= (MIN_COMPARED_ROWS if is_binary else FLEXIBLE_ROWS)
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


@final
class _CrossValidation:
    """Fits calibrators on folds, and evaluates the labels that each fold holds out."""

    def __init__(self, batch: Batch, folds: Sequence[Fold], time_budget: float | None) -> None:
        self.batch, self.folds = batch, folds
        self.end = np.inf if time_budget is None else time.perf_counter() + time_budget
        held_out = [LabeledRows.of(batch.take(test)).label_entries() for _, test in folds]
        weights = np.concatenate([weights for _, _, weights in held_out])
        pairs = zip(held_out, folds, strict=True)
        rows = np.concatenate([test[positions] for (positions, *_), (_, test) in pairs])
        self.labels = HeldOutLabels(weights, rows)

    def evaluate(
        self, calibrators: Sequence[BaseCalibrator], folds: range, is_limited: bool = True
    ) -> list[Candidate]:
        """Return the candidates whose fits could be made in time, using threads."""
        tasks = [(one, fold) for one in calibrators for fold in folds]
        # The fit on all rows warns.
        with warnings.catch_warnings(action="ignore", category=DubitoWarning):
            results = iter(list(map_in_order(partial(self._run, is_limited), tasks)))
        candidates = []
        for calibrator in calibrators:
            done = [result for result in islice(results, len(folds)) if result is not None]
            if len(done) == len(folds):
                likelihoods, seconds = zip(*done, strict=True)
                candidates.append(Candidate(calibrator, np.concatenate(likelihoods), sum(seconds)))
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
        likelihoods, _, _ = rows.label_likelihoods([calibrator._predict_proba(rows.outputs)])
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
    most = np.inf if labels.n_rows < MIN_COMPARED_ROWS else MAX_EXCESS * means[best]
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
        least = MIN_GAIN * simpler if labels.n_rows >= MIN_COMPARED_ROWS else 0.0
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
        simpler, what = (k,), f"with {names[k]} instead" if k else "with unchanged probabilities"
    else:
        return ""
    lowest = max(labels.mean(mixture_of(tuple(parts)).loss), FLOOR)
    ratio = labels.mean(mixture_of(simpler).loss) / lowest
    how = "many times" if ratio > MAX_RATIO else percent(max(ratio - 1, 0.0))
    return f"; {what}, the held-out log loss would be {how} higher"


def select_calibrators(
    batch: Batch,
    folds: Sequence[Fold],
    max_parts: int | None = 3,
    time_budget: float | None = None,
    parametric_only: bool = False,
) -> Selection:
    """Cross-validate the candidates that suit the data, and return the best one or a few."""
    n_classes = LabeledRows.of(batch).outputs.n_classes
    tried = _suitable_calibrators(n_classes, len(drop_unlabeled(batch)), parametric_only)
    candidates, labels = _cross_validated_likelihoods(tried, batch, folds, time_budget, max_parts)
    return _select_among(candidates, labels, len(folds), n_classes, max_parts)


def _select_among(
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
    names = [constructor_call(one.calibrator) for one in candidates]
    is_few = labels.n_rows < FEW_ROWS
    mixture_of = _mixtures(likelihoods, labels, n_classes)
    parts = _select_parts(likelihoods, labels, mixture_of, 1 if is_few else max_parts)
    losses = [-np.log(column) for column in likelihoods.T]
    (*found, uniform_weight), mixed = mixture_of(tuple(parts))
    is_mixed = len(parts) > 1
    if is_few:
        reason = f"fewer than {FEW_ROWS} rows are too few to weigh a mixture"
    elif not is_mixed:
        n_tried = len(candidates) + len(dropped)
        reason = f"no other of {n_tried} candidates lowers the held-out log loss beyond noise"
    elif max_parts is None:
        reason = "together they have the lowest held-out log loss"
    else:
        reason = "each part lowers the held-out log loss beyond noise"
    weights = np.zeros(len(candidates))
    weights[parts] = np.asarray(found) / sum(found)

    def line(
        name: str, loss: FloatArray, weight: float | None, seconds: float, dropped: bool = False
    ) -> dict[str, Any]:
        more = {"weight": weight, "seconds": seconds, "dropped": dropped}
        return {"name": name, **labels.loss_figures(loss), **more}

    leaderboard = [
        line(name, loss, float(weight), one.seconds)
        for name, loss, weight, one in zip(names, losses, weights, candidates, strict=True)
    ]
    best = losses[int(np.argmin([entry["log_loss"] for entry in leaderboard]))]
    if is_mixed:
        leaderboard.append(line("mixture", mixed, None, sum(one.seconds for one in candidates)))
    for one in dropped:
        # Estimated from how it differs from the best candidate on the folds it was fitted on.
        first = labels.first(one.likelihoods.size)
        difference = -np.log(np.maximum(one.likelihoods, FLOOR)) - best[: first.rows.size]
        estimate = best + first.mean(difference)
        name = constructor_call(one.calibrator)
        leaderboard.append(line(name, estimate, 0.0, one.seconds, dropped=True))
    return Selection(
        calibrators=[clone(candidates[k].calibrator) for k in parts],
        weights=weights[parts],
        uniform_weight=float(uniform_weight),
        chosen="mixture" if is_mixed else names[parts[0]],
        reason=reason + _cost_of_simpler(parts, names, losses, mixture_of, labels),
        leaderboard=sorted(leaderboard, key=lambda entry: float(entry["log_loss"])),
        evidence=labels.evidence(losses[0], mixed, n_folds),
    )


def select_nothing(batch: Batch) -> Selection:
    """Return the identity, for too few rows to select anything."""
    rows = LabeledRows.of(batch)
    unchanged = np.exp(log_probabilities(rows.outputs))
    likelihoods, weights, positions = rows.label_likelihoods([unchanged])
    loss = -np.log(np.maximum(likelihoods[:, 0], FLOOR))
    calibrator = IdentityCalibrator()
    return Selection(
        calibrators=[calibrator],
        weights=np.ones(1),
        uniform_weight=0.0,
        chosen=constructor_call(calibrator),
        reason=f"{len(batch)} rows are too few to select a calibrator",
        leaderboard=[],
        evidence=HeldOutLabels(weights, positions).evidence(loss, loss, n_folds=0),
    )
