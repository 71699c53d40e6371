"""Class priors: adjusting probabilities to them, and estimating them from unlabeled rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import scipy

from dubito.arrays import (
    ArrayResult,
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    as_distributions,
    as_floats,
    as_fraction,
    contiguous,
    draw_seed,
    freeze,
    require_choice,
)
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.argument_order import convert_in_order
from dubito.data.batch import make_batch
from dubito.data.labels import Labels, names_of
from dubito.errors import BadTypeError, BadValueError, BaseRuleError, DubitoWarning
from dubito.formatting import percent, short_percent
from dubito.kernels.blocks import map_in_order, row_blocks, run_in_order
from dubito.kernels.scaling import log_softmax_rows, mixture_step, softmax_rows
from dubito.measure.intervals import as_n_resamples
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseClassOutputs, ClassName, Logits, Probabilities, unchecked


def plain_codes(
    y: Any, outputs: Logits | Probabilities, argument: str, caller: str, stacklevel: int
) -> IntArray:
    """Return the column index of each label, -1 where it is missing, with a warning."""
    batch = make_batch(y, outputs, caller=caller, argument=argument)
    if not isinstance(batch.labels, Labels) or batch.labels.probabilities is not None:
        got = "None" if batch.labels is None else "label probabilities"
        fix = "Pass the most probable label of each row"
        raise BadValueError(argument, caller, "must be one label per row", got, fix)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel + 2)
    return batch.labels.codes


NOTHING = -1e300  # the log of a prior of 0, finite for the kernels
MIN_LOG_POSTERIOR = -1e250  # no log posterior is below; a sum of many is still far above NOTHING


def adjust_prior(outputs: Any, train_prior: Any, deploy_prior: Any) -> Probabilities:
    """Return posteriors under other class frequencies than those of training.

    Use it under prior shift, such as a model trained on balanced classes and deployed at 1:99.

    Parameters
    ----------
    outputs : array, Logits, Probabilities or Members
        Outputs calibrated for `train_prior`. A probability of 0 counts as the smallest positive
        number of its precision.
    train_prior, deploy_prior : array or dict
        Class frequencies before and after, in the order of the columns or by class name. A class
        with a `deploy_prior` of 0 gets probability 0.

    Returns
    -------
    Probabilities

    References
    ----------
    Saerens, Latinne and Decaestecker, "Adjusting the outputs of a classifier to new a priori
    probabilities", 2002.

    Examples
    --------
    >>> from dubito.decide import adjust_prior
    >>> adjust_prior([[0.5, 0.5]], [0.5, 0.5], [0.01, 0.99]).array.tolist()
    [[0.01, 0.99]]
    """
    caller = "adjust_prior"
    known = as_class_outputs(outputs, caller)
    before = as_prior(train_prior, known, "train_prior", caller, is_positive=True)
    shift = log_prior(as_prior(deploy_prior, known, "deploy_prior", caller)) - np.log(before)
    result = np.empty(known.array.shape, known.array.dtype)

    def fill(rows: slice) -> None:
        result[rows] = probabilities_of(log_posteriors(known.take(rows)) + shift, result.dtype)

    run_in_order(fill, row_blocks(known.n_rows, known.n_classes))
    return unchecked(Probabilities, {"array": result, "classes": known.classes})


def as_prior(
    value: Any, outputs: BaseClassOutputs, argument: str, caller: str, *, is_positive: bool = False
) -> FloatArray:
    """Return the probability of each class in the order of the columns, from a list or a dict."""
    if isinstance(value, Mapping):
        names = list(names_of(outputs))
        if set(value) != set(names):
            rule, fix = f"must have the keys {names}", "Use the class names of the outputs"
            raise BadValueError(argument, caller, rule, f"{list(value)}", fix)
        value = [value[name] for name in names]
    found = as_floats(value, argument, caller).astype(np.float64)
    if found.shape != (outputs.n_classes,):
        rule, fix = f"must have {outputs.n_classes} probabilities", "Give one for every class"
        got = f"{found.size}" if found.ndim == 1 else f"shape {found.shape}"
        raise BadValueError(argument, caller, rule, got, fix)
    prior: FloatArray = as_distributions(found[np.newaxis], argument, caller)[0]
    if is_positive and not prior.all():
        name = names_of(outputs)[int(np.argmin(prior))]
        rule, fix = "must be above 0 for every class", "Drop columns that no training row had"
        raise BadValueError(argument, caller, rule, f"0 for class {name!r}", fix)
    return prior


def log_prior(prior: FloatArray) -> FloatArray:
    """Return the log of each probability, `NOTHING` for 0."""
    return np.log(prior, out=np.full(prior.shape, NOTHING), where=prior > 0)


def log_posteriors(outputs: Logits | Probabilities) -> FloatArray:
    """Return log probabilities in float64; 0 counts as the smallest positive number."""
    result = np.empty(outputs.array.shape)
    least = float(np.finfo(outputs.array.dtype).tiny)
    log_softmax_rows(contiguous(outputs.array), 1.0, isinstance(outputs, Logits), least, result)
    return np.maximum(result, MIN_LOG_POSTERIOR)


def posteriors(outputs: Logits | Probabilities, rows: IntArray | slice = slice(None)) -> FloatArray:
    """Return the probabilities of some rows in float64."""
    return np.exp(log_posteriors(outputs.take(rows)))


def probabilities_of(scores: FloatArray, precision: Any) -> FloatArray:
    """Return the softmax of log scores, 0 where a prior is 0."""
    result = np.empty(scores.shape, precision)
    softmax_rows(contiguous(scores), 0.0, result)
    result[scores < NOTHING / 2] = 0
    return result


CLOSE = 1e-6  # total log likelihood that another prior could still gain
CLOSE_ENOUGH = 1e-2  # the same for a resample, whose noise is about 1
ROUNDING = 1e-12  # of the log likelihood per row
MAX_ITER = 2000
MIN_PRIOR = 1e-300  # so that no row ever becomes impossible
MAX_DRAWN = 20_000  # rows of a resample; the spread for more is scaled from this many
NO_INFORMATION = 1e-9


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorLikelihood:
    """The likelihood of each row under each class, classes x rows, up to a factor per row."""

    parts: FloatArray
    start: FloatArray

    @classmethod
    def of(
        cls, outputs: Logits | Probabilities, train_prior: Any, validation: Any, caller: str
    ) -> PriorLikelihood:
        """Return posteriors divided by the prior they were trained with."""
        if validation is not None:
            rule, fix = "must be None for method 'em'", "Use method='bbse', which learns from it"
            raise BadTypeError("validation", caller, rule, type(validation).__name__, fix)
        if train_prior is None:
            rule = "must be given for method 'em'"
            fix = "Pass the class frequencies of the training rows"
            raise BadTypeError("train_prior", caller, rule, "None", fix)
        start = as_prior(train_prior, outputs, "train_prior", caller, is_positive=True)
        logs = log_posteriors(outputs) - np.log(start)
        logs -= logs.max(axis=1, keepdims=True)
        return cls(contiguous(np.exp(logs).T), start)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.parts.shape[1])

    def estimate(self) -> FloatArray:
        """Return the maximum-likelihood prior."""
        return _most_likely(self.parts, self.start, CLOSE)

    def standard_errors(self, prior: FloatArray) -> FloatArray:
        """Return the standard error of each class probability, from the likelihood's curvature."""
        ratio = self.parts / np.maximum(prior @ self.parts, MIN_PRIOR)
        # The probabilities sum to 1: only directions orthogonal to equal changes count.
        columns = np.column_stack([np.ones(prior.size), np.eye(prior.size)[:, 1:]])
        across = np.linalg.qr(columns)[0][:, 1:]
        values, vectors = np.linalg.eigh(across.T @ (ratio @ ratio.T) @ across)
        spread = (across @ vectors) ** 2 / np.maximum(values, NO_INFORMATION)
        return np.asarray(np.sqrt(spread.sum(axis=1)))

    def resampled(self, prior: FloatArray, seed: int) -> FloatArray:
        """Return the estimate from a bootstrap resample.

        For very many rows, fewer are drawn, and the deviation is scaled to the number of all rows.
        """
        n_drawn = min(self.n_rows, MAX_DRAWN)
        rows = np.random.default_rng(seed).integers(self.n_rows, size=n_drawn)
        start = 0.9 * prior + 0.1 * self.start  # a probability of 0 could not grow again
        drawn = _most_likely(contiguous(self.parts[:, rows]), start, CLOSE_ENOUGH)
        return np.asarray(prior + (drawn - prior) * np.sqrt(n_drawn / self.n_rows))


def _most_likely(parts: FloatArray, start: FloatArray, close: float) -> FloatArray:
    """Return the mixture weights that maximize the likelihood of classes x rows.

    Expectation-maximization with squared extrapolation (Varadhan and Roland, 2008). The problem
    is concave, so the slopes bound what is left to gain.
    """
    weights = contiguous(np.ones(parts.shape[1]))
    explained = np.empty(start.size)

    def step(mixture: FloatArray) -> tuple[FloatArray, float]:
        mixture_step(parts, weights, mixture, explained)
        new = np.maximum(explained / weights.size, MIN_PRIOR)
        return new, float((explained / mixture).max()) - weights.size

    enough = max(close, ROUNDING * weights.size)
    mixture = np.maximum(start, MIN_PRIOR)
    for _ in range(MAX_ITER):
        first, gain = step(mixture)
        if gain < enough:
            break
        second, _ = step(first)
        mixture = _stretched(mixture, first, second)
    return np.asarray(mixture / mixture.sum())


def _stretched(zeroth: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return the extrapolation of two steps, or the last one where it leaves the simplex."""
    move = first - zeroth
    bend = second - first - move
    size = float(np.sqrt(bend @ bend))
    if size == 0:
        return second
    length = max(1.0, float(np.sqrt(move @ move)) / size)
    result = zeroth + 2 * length * move + length**2 * bend
    return result if (result > 0.01 * second).all() else second


NO_RANK = 1e-9  # singular values below carry no information


def _as_validation(y: Any, outputs: Any, caller: str) -> Logits | Probabilities:
    """Return the outputs of labeled rows, or raise if they are in the place of the labels."""
    try:
        return convert_in_order(y, outputs, as_class_outputs, caller)
    except BaseRuleError as error:
        if "swapped" not in error.rule:
            raise
        rule, fix = "must be (labels, outputs)", "Pass validation=(y, outputs) of held-out rows"
        raise BadValueError("validation", caller, rule, "them swapped", fix) from error


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorConfusion:
    """Counts of predicted (row) by true class (column), and of predictions for new rows."""

    counts: IntArray
    predicted: IntArray

    @classmethod
    def of(
        cls, outputs: Logits | Probabilities, train_prior: Any, validation: Any, caller: str
    ) -> PriorConfusion:
        """Count predictions of labeled and of unlabeled rows, whatever the training prior."""
        if train_prior is not None:
            as_prior(train_prior, outputs, "train_prior", caller)
        if not (isinstance(validation, tuple) and len(validation) == 2):
            rule = "must be a pair (labels, outputs) for method 'bbse'"
            fix = "Pass validation=(y, outputs) of held-out rows"
            raise BadTypeError("validation", caller, rule, type(validation).__name__, fix)
        y, seen = validation[0], _as_validation(*validation, caller)
        if seen.n_classes != outputs.n_classes or (
            None not in (seen.classes, outputs.classes) and seen.classes != outputs.classes
        ):
            rule = "must have the classes of `outputs`"
            fix = "Pass the same columns in the same order"
            got = f"{seen.n_classes} columns, classes {seen.classes}"
            raise BadValueError("validation", caller, rule, got, fix)
        codes = plain_codes(y, seen, "validation", caller, stacklevel=3)
        n_classes = outputs.n_classes
        tops = seen.array.argmax(axis=1)[codes >= 0]
        cells = np.bincount(tops * n_classes + codes[codes >= 0], minlength=n_classes**2)
        counts = cells.reshape(n_classes, n_classes)
        if not counts.sum(axis=0).all():
            name = names_of(seen)[int(np.argmin(counts.sum(axis=0)))]
            rule, fix = "must have labeled rows of every class", "Pass more validation rows"
            raise BadValueError("validation", caller, rule, f"none of class {name!r}", fix)
        return cls(counts, np.bincount(outputs.array.argmax(axis=1), minlength=n_classes))

    def estimate(self) -> FloatArray:
        """Return the prior of best fit, without negative probabilities."""
        return _solved(self.counts, self.predicted)

    def standard_errors(self, prior: FloatArray) -> FloatArray:
        """Return standard errors: the noise of all counts through the inverse matrix."""
        n_labeled = self.counts.sum(axis=0)
        confusion, predicted = self.counts / n_labeled, self.predicted / self.predicted.sum()
        noise = _noise_of(predicted) / self.predicted.sum()
        for j, weight in enumerate(prior):
            # Smoothed: no error among validation rows does not prove that there are none.
            smoothed = (self.counts[:, j] + 1 / prior.size) / (n_labeled[j] + 1)
            noise = noise + weight**2 * _noise_of(smoothed) / n_labeled[j]
        left, values, right = np.linalg.svd(confusion)
        inverse = right.T @ (left / np.maximum(values, NO_RANK)).T
        return np.sqrt(np.maximum(np.diag(inverse @ noise @ inverse.T), 0))

    def resampled(self, _: FloatArray, seed: int) -> FloatArray:
        """Return the estimate from a bootstrap resample of both samples."""
        generator = np.random.default_rng(seed)
        n_labeled = self.counts.sum(axis=0)
        counts = generator.multinomial(n_labeled, (self.counts / n_labeled).T).T
        n_rows = int(self.predicted.sum())
        return _solved(counts, generator.multinomial(n_rows, self.predicted / n_rows))


def _solved(counts: IntArray, predicted: IntArray) -> FloatArray:
    """Return the class probabilities whose expected predictions are nearest to the observed."""
    found, _ = scipy.optimize.nnls(counts / counts.sum(axis=0), predicted / predicted.sum())
    return np.asarray(found / found.sum())


def _noise_of(p: FloatArray) -> FloatArray:
    """Return the covariance of one draw from a categorical distribution."""
    return np.diag(p) - np.outer(p, p)


FLAT = 0.2  # standard error above which a class probability counts as not identified


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PriorEstimate(ArrayResult):
    """Estimated class frequencies of unlabeled rows, with confidence intervals.

    Attributes
    ----------
    prior : array of float
        The estimated probability of each class.
    low, high : array of float
        The ends of the interval; 0 and 1 where a class is not identified.
    is_identified : array of bool
        Whether the data determine the frequency of the class.
    classes : tuple or None
        The names of the classes.
    level : float
        The confidence level of the intervals.
    method : str
        "em" or "bbse".
    n_rows : int
        The number of unlabeled rows.
    """

    prior: FloatArray
    low: FloatArray
    high: FloatArray
    is_identified: BoolArray
    classes: tuple[ClassName, ...] | None
    level: float
    method: str
    n_rows: int

    def summary(self) -> str:
        """Return one line per class: its frequency and its interval.

        Returns
        -------
        str
            A heading, and one line per class.
        """
        names = self.classes or range(self.prior.size)
        rows = zip(names, self.prior, self.low, self.high, self.is_identified, strict=True)
        lines = [
            f"{name}: {percent(prior)} ({percent(low)} to {percent(high)})"
            + ("" if known else ", not identified")
            for name, prior, low, high, known in rows
        ]
        head = f"{self.method}, {self.n_rows:,} rows, {short_percent(self.level)} intervals"
        return "\n".join([head, *lines])


def estimate_prior(
    outputs: Any,
    train_prior: Any = None,
    method: Literal["em", "bbse"] = "em",
    *,
    validation: tuple[Any, Any] | None = None,
    level: float = 0.95,
    n_resamples: int = 200,
    random_state: RandomState = 0,
) -> PriorEstimate:
    """Return the class frequencies of unlabeled rows, with bootstrap intervals.

    Use it under prior shift (label shift). A warning names the classes whose frequencies the data
    do not determine.

    Parameters
    ----------
    outputs : array, Logits, Probabilities or Members
        Outputs for the unlabeled rows.
    train_prior : array or dict, optional
        Class frequencies for which the outputs are calibrated; needed by "em".
    method : "em" or "bbse", default "em"
        "em" maximizes the likelihood of calibrated outputs. "bbse" inverts the confusion matrix
        of `validation` and needs no calibration.
    validation : tuple (labels, outputs), optional
        Held-out rows with labels; needed by "bbse".
    level : float, default 0.95
        The confidence level.
    n_resamples : int, default 200
        The number of bootstrap resamples.
    random_state : int, RandomState or None, default 0
        Determines the resamples.

    Returns
    -------
    PriorEstimate

    References
    ----------
    Saerens, Latinne and Decaestecker, "Adjusting the outputs of a classifier to new a priori
    probabilities", 2002 ("em"). Lipton, Wang and Smola, "Detecting and correcting for label shift
    with black box predictors", 2018 ("bbse").

    Examples
    --------
    >>> from dubito.decide import estimate_prior
    >>> p = [[0.9, 0.1]] * 20 + [[0.2, 0.8]] * 80
    >>> estimate_prior(p, [0.5, 0.5]).prior.round(3).tolist()
    [0.167, 0.833]
    """
    caller = "estimate_prior"
    confidence = as_fraction(level, "level", caller, is_open=True)
    resamples, seed = as_n_resamples(n_resamples, caller), draw_seed(random_state, caller)
    known = as_class_outputs(outputs, caller)
    if not known.n_rows:
        fix = "Pass the outputs of rows met in deployment"
        raise BadValueError("outputs", caller, "must have at least 1 row", "0", fix)
    require_choice(method, ("em", "bbse"), "method", caller)
    kind = PriorLikelihood if method == "em" else PriorConfusion
    model: PriorLikelihood | PriorConfusion = kind.of(known, train_prior, validation, caller)
    prior = model.estimate()
    is_identified = np.asarray(model.standard_errors(prior) <= FLAT)
    _warn_of_flat(known, is_identified, method)
    seeds = np.random.SeedSequence(seed).generate_state(resamples).tolist()
    drawn = np.stack(list(map_in_order(lambda one: model.resampled(prior, one), seeds)))
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    # The interval always contains the estimate.
    low, high = np.minimum(low, prior).clip(0, 1), np.maximum(high, prior).clip(0, 1)
    return PriorEstimate(
        prior=freeze(prior),
        low=freeze(np.where(is_identified, low, 0.0)),
        high=freeze(np.where(is_identified, high, 1.0)),
        is_identified=freeze(is_identified),
        classes=known.classes,
        level=confidence,
        method=method,
        n_rows=known.n_rows,
    )


def _warn_of_flat(outputs: Logits | Probabilities, is_identified: BoolArray, method: str) -> None:
    """Warn about classes whose frequencies the data do not determine."""
    if is_identified.all():
        return
    names = names_of(outputs)
    which = ", ".join(str(names[k]) for k in np.flatnonzero(~is_identified))
    why = {
        "em": "the likelihood is almost flat, with too few rows or outputs that hardly separate "
        "these classes",
        "bbse": "the confusion matrix is nearly singular for this number of rows",
    }[method]
    text = (
        f"estimate_prior: the prior of the classes {which} is not identified ({why}). Their "
        "intervals are 0 to 1. Use more rows, or a model that separates these classes."
    )
    warnings.warn(text, DubitoWarning, stacklevel=3)
