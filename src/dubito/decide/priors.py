"""Class priors: adjusting probabilities to them, and estimating them from unlabeled rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from scipy.optimize import nnls

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_distributions,
    as_floats,
    as_seed,
    as_share,
    contiguous,
    freeze,
    require_dimensions,
)
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.mixture import mixture_step
from dubito.kernels.softmax import log_softmax_rows, softmax_rows
from dubito.measure.intervals import as_n_resamples
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseClassOutputs, ClassName, Logits, Probabilities, unchecked


def plain_codes(
    y: Any, outputs: Logits | Probabilities, argument: str, caller: str, stacklevel: int
) -> IntArray:
    """Return the column number of each label, -1 where it is missing, and warn of those."""
    batch = Batch.of(y, outputs, caller=caller, argument=argument)
    if not isinstance(batch.labels, Labels) or batch.labels.probabilities is not None:
        got = "None" if batch.labels is None else "label probabilities"
        fix = "the most probable label of each row"
        raise BadValueError(argument, caller, "plain labels, one a row", got, fix)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel + 2)
    return batch.labels.codes


NOTHING = -1e300  # the log of a prior of 0, kept finite for the kernels
LEAST = -1e250  # no posterior's log is below; a sum of many is still far above nothing


def adjust_prior(outputs: Any, from_prior: Any, to_prior: Any) -> Probabilities:
    """Return posteriors as if classes were as common as `to_prior`, not as in training.

    Use it where a model trained on 5:5 meets 1:99; outputs must be calibrated for `from_prior`.
    A class of prior 0 gets 0; a probability of 0 counts as the smallest that its precision holds.
    Saerens, Latinne and Decaestecker, "Adjusting the outputs of a classifier", 2002.

    >>> adjust_prior([[0.5, 0.5]], [0.5, 0.5], [0.01, 0.99]).array.tolist()
    [[0.01, 0.99]]
    """
    caller = "adjust_prior"
    known = as_class_outputs(outputs, caller)
    before = as_prior(from_prior, known, "from_prior", caller, is_positive=True)
    shift = log_prior(as_prior(to_prior, known, "to_prior", caller)) - np.log(before)
    result = np.empty(known.array.shape, known.array.dtype)

    def fill(rows: slice) -> None:
        result[rows] = probabilities_of(log_posteriors(known.take(rows)) + shift, result.dtype)

    for _ in map_in_order(fill, row_blocks(known.n_rows, known.n_classes)):
        pass
    return unchecked(Probabilities, {"array": result, "classes": known.classes})


def as_prior(
    value: Any,
    outputs: BaseClassOutputs,
    argument: str,
    caller: str,
    *,
    is_positive: bool = False,
) -> FloatArray:
    """Return one share a class in the order of the columns, of a list or of shares by name."""
    if isinstance(value, Mapping):
        value = _shares_by_name(value, outputs, argument, caller)
    shares = as_floats(value, argument, caller).astype(np.float64)
    require_dimensions(shares, (1,), argument, caller, "one proportion per class")
    if shares.size != outputs.n_classes:
        rule, fix = f"{outputs.n_classes} shares, one a class", "a share for every column"
        raise BadValueError(argument, caller, rule, f"{shares.size}", fix)
    prior: FloatArray = as_distributions(shares[np.newaxis], argument, caller)[0]
    if is_positive and not prior.all():
        name = names_of(outputs)[int(np.argmin(prior))]
        rule, fix = "above 0 for every class", "leaving out columns that no training row had"
        raise BadValueError(argument, caller, rule, f"0 for class {name!r}", fix)
    return prior


def _shares_by_name(
    value: Mapping[Any, Any], outputs: BaseClassOutputs, argument: str, caller: str
) -> list[Any]:
    """Return shares in the order of the columns."""
    names = list(names_of(outputs))
    if set(value) != set(names):
        rule = f"a share for each of the classes {names}"
        raise BadValueError(argument, caller, rule, f"{list(value)}", "the names of the outputs")
    return [value[name] for name in names]


def log_prior(prior: FloatArray) -> FloatArray:
    """Return the log of each share, of 0 a finite number that leaves nothing."""
    return np.log(prior, out=np.full(prior.shape, NOTHING), where=prior > 0)


def log_posteriors(outputs: Logits | Probabilities) -> FloatArray:
    """Return log probabilities in float64, of 0 that of the smallest normal number."""
    result = np.empty(outputs.array.shape)
    least = float(np.finfo(outputs.array.dtype).tiny)
    log_softmax_rows(contiguous(outputs.array), 1.0, isinstance(outputs, Logits), least, result)
    return np.maximum(result, LEAST)


def probabilities_of(scores: FloatArray, precision: Any) -> FloatArray:
    """Return the probabilities that log scores stand for, 0 where a prior is 0."""
    result = np.empty(scores.shape, precision)
    softmax_rows(contiguous(scores), 0.0, result)
    result[scores < NOTHING / 2] = 0
    return result


CLOSE = 1e-6  # log likelihood of all rows together that another prior could still gain
CLOSE_ENOUGH = 1e-2  # the same of a resample, whose noise is about 1
ROUNDING = 1e-12  # of it a row
MOST_ROUNDS = 2000
LEAST_PRIOR = 1e-300  # a share, so that no row is ever impossible
MOST_DRAWN = 20_000  # rows of a resample; the spread of more is scaled from so many
NO_INFORMATION = 1e-9


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorLikelihood:
    """What each row's input is worth under each class, classes x rows, up to a factor a row."""

    parts: FloatArray
    start: FloatArray

    @classmethod
    def of(cls, outputs: Logits | Probabilities, train_prior: FloatArray) -> PriorLikelihood:
        """Return posteriors over the prior they were trained with."""
        logs = log_posteriors(outputs) - np.log(train_prior)
        logs -= logs.max(axis=1, keepdims=True)
        return cls(contiguous(np.exp(logs).T), train_prior)

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return int(self.parts.shape[1])

    def estimate(self) -> FloatArray:
        """Return the most likely prior."""
        return _most_likely(self.parts, self.start, CLOSE)

    def standard_errors(self, prior: FloatArray) -> FloatArray:
        """Return how uncertain each share is, by the curvature of the likelihood."""
        ratio = self.parts / np.maximum(prior @ self.parts, LEAST_PRIOR)
        # Shares move, their sum does not: directions across that of equal changes.
        columns = np.column_stack([np.ones(prior.size), np.eye(prior.size)[:, 1:]])
        across = np.linalg.qr(columns)[0][:, 1:]
        values, vectors = np.linalg.eigh(across.T @ (ratio @ ratio.T) @ across)
        spread = (across @ vectors) ** 2 / np.maximum(values, NO_INFORMATION)
        return np.asarray(np.sqrt(spread.sum(axis=1)))

    def resampled(self, prior: FloatArray, seed: int) -> FloatArray:
        """Return the estimate of as many rows, drawn with replacement.

        Of very many fewer are drawn, and the deviation shrinks as that of all rows would.
        """
        n_drawn = min(self.n_rows, MOST_DRAWN)
        rows = np.random.default_rng(seed).integers(self.n_rows, size=n_drawn)
        start = 0.9 * prior + 0.1 * self.start  # a share of 0 could not grow again
        drawn = _most_likely(contiguous(self.parts[:, rows]), start, CLOSE_ENOUGH)
        return np.asarray(prior + (drawn - prior) * np.sqrt(n_drawn / self.n_rows))


def _most_likely(parts: FloatArray, start: FloatArray, close: float) -> FloatArray:
    """Return the shares under which classes x rows of likelihoods are most likely.

    Steps of expectation-maximization, stretched where two of them show the way (Varadhan and
    Roland, 2008). The problem is concave: the slopes bound what is left to gain.
    """
    weights = contiguous(np.ones(parts.shape[1]))
    explained = np.empty(start.size)

    def step(shares: FloatArray) -> tuple[FloatArray, float]:
        mixture_step(parts, weights, shares, explained)
        new = np.maximum(explained / weights.size, LEAST_PRIOR)
        return new, float((explained / shares).max()) - weights.size

    enough = max(close, ROUNDING * weights.size)
    shares = np.maximum(start, LEAST_PRIOR)
    for _ in range(MOST_ROUNDS):
        first, gain = step(shares)
        if gain < enough:
            break
        second, _ = step(first)
        shares = _stretched(shares, first, second)
    return np.asarray(shares / shares.sum())


def _stretched(zeroth: FloatArray, first: FloatArray, second: FloatArray) -> FloatArray:
    """Return where three steps in a row lead, or the last where that leaves the simplex."""
    move = first - zeroth
    bend = second - first - move
    size = float(np.sqrt(bend @ bend))
    if size == 0:
        return second
    length = max(1.0, float(np.sqrt(move @ move)) / size)
    result = zeroth + 2 * length * move + length**2 * bend
    return result if (result > 0.01 * second).all() else second


NO_RANK = 1e-9  # singular values below say nothing


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorConfusion:
    """How often each class (column) was predicted as each (row), and what is predicted now."""

    counts: IntArray
    predicted: IntArray

    @classmethod
    def of(
        cls, y: Any, validation: Any, outputs: Logits | Probabilities, caller: str
    ) -> PriorConfusion:
        """Count predictions of labeled and of unlabeled rows."""
        seen = as_class_outputs(validation, caller)
        if seen.n_classes != outputs.n_classes or (
            None not in (seen.classes, outputs.classes) and seen.classes != outputs.classes
        ):
            rule, fix = "over the classes of the outputs", "the same columns in the same order"
            got = f"{seen.n_classes} columns, classes {seen.classes}"
            raise BadValueError("validation", caller, rule, got, fix)
        codes = plain_codes(y, seen, "validation", caller, stacklevel=4)
        n_classes = outputs.n_classes
        tops = seen.array.argmax(axis=1)[codes >= 0]
        cells = np.bincount(tops * n_classes + codes[codes >= 0], minlength=n_classes**2)
        counts = cells.reshape(n_classes, n_classes)
        if not counts.sum(axis=0).all():
            name = names_of(seen)[int(np.argmin(counts.sum(axis=0)))]
            rule, fix = "with labeled rows of every class", "more validation rows"
            raise BadValueError("validation", caller, rule, f"none of class {name!r}", fix)
        return cls(counts, np.bincount(outputs.array.argmax(axis=1), minlength=n_classes))

    def estimate(self) -> FloatArray:
        """Return the prior that fits best, without negative shares."""
        return _solved(self.counts, self.predicted)

    def standard_errors(self, prior: FloatArray) -> FloatArray:
        """Return how uncertain each share is: the noise of all counts through the inverse."""
        n_labeled = self.counts.sum(axis=0)
        shares, predicted = self.counts / n_labeled, self.predicted / self.predicted.sum()
        noise = _noise_of(predicted) / self.predicted.sum()
        for j, share in enumerate(prior):
            # Validation without a single error has not shown that there are none.
            smoothed = (self.counts[:, j] + 1 / prior.size) / (n_labeled[j] + 1)
            noise = noise + share**2 * _noise_of(smoothed) / n_labeled[j]
        left, values, right = np.linalg.svd(shares)
        inverse = right.T @ (left / np.maximum(values, NO_RANK)).T
        return np.sqrt(np.maximum(np.diag(inverse @ noise @ inverse.T), 0))

    def resampled(self, _: FloatArray, seed: int) -> FloatArray:
        """Return the estimate of as many rows of both kinds, drawn with replacement."""
        generator = np.random.default_rng(seed)
        n_labeled = self.counts.sum(axis=0)
        counts = generator.multinomial(n_labeled, (self.counts / n_labeled).T).T
        n_rows = int(self.predicted.sum())
        return _solved(counts, generator.multinomial(n_rows, self.predicted / n_rows))


def _solved(counts: IntArray, predicted: IntArray) -> FloatArray:
    """Return the shares of classes under which `predicted` is nearest to what is expected."""
    found, _ = nnls(counts / counts.sum(axis=0), predicted / predicted.sum())
    return np.asarray(found / found.sum())


def _noise_of(shares: FloatArray) -> FloatArray:
    """Return the covariance of one draw among the shares."""
    return np.diag(shares) - np.outer(shares, shares)


FLAT = 0.2  # standard error of a share beyond which the rows hardly say anything of it


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorEstimate:
    """An estimated share of each class, with the interval that holds it at `level`.

    Where the data do not identify a class's share, `is_identified` is False and its interval is
    all from 0 to 1.
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
        """Say in words how common each class is."""
        names = self.classes or range(self.prior.size)
        rows = zip(names, self.prior, self.low, self.high, self.is_identified, strict=True)
        lines = [
            f"{name}: {share:.1%} ({low:.1%} to {high:.1%})" + ("" if known else ", not identified")
            for name, share, low, high, known in rows
        ]
        head = f"{self.method} over {self.n_rows:,} rows, intervals at {self.level:.0%}"
        return "\n".join([head, *lines])


def estimate_prior(
    outputs: Any,
    train_prior: Any = None,
    method: Literal["em", "bbse"] = "em",
    *,
    validation: tuple[Any, Any] | None = None,
    level: float = 0.95,
    n_resamples: int = 200,
    seed: int = 0,
) -> PriorEstimate:
    """Return how common each class is among unlabeled rows, with a bootstrap interval.

    "em" maximizes the likelihood of `outputs`, calibrated for `train_prior` (Saerens et al., 2002).
    "bbse" solves the confusion matrix of `validation`, a pair (labels, outputs), for the shares of
    predicted classes and needs no calibration (Lipton et al., 2018). A warning names the classes
    that the data cannot tell apart.

    >>> p = [[0.9, 0.1]] * 20 + [[0.2, 0.8]] * 80
    >>> estimate_prior(p, [0.5, 0.5]).prior.round(3).tolist()
    [0.167, 0.833]
    """
    caller = "estimate_prior"
    share = as_share(level, "level", caller, is_open=True)
    resamples, first_seed = as_n_resamples(n_resamples, caller), as_seed(seed, caller)
    known = as_class_outputs(outputs, caller)
    _require_some_rows(known, caller)
    model: PriorLikelihood | PriorConfusion
    if method == "em":
        model = _likelihood_of(known, train_prior, validation, caller)
    elif method == "bbse":
        model = _confusion_of(known, train_prior, validation, caller)
    else:
        rule, fix = "'em' or 'bbse'", "method='em'"
        raise BadValueError("method", caller, rule, repr(method), fix)
    prior = model.estimate()
    is_identified = np.asarray(model.standard_errors(prior) <= FLAT)
    _warn_of_flat(known, is_identified, method)
    low, high = _bootstrap(model, prior, share, resamples, first_seed)
    return PriorEstimate(
        prior=freeze(prior),
        low=freeze(np.where(is_identified, low, 0.0)),
        high=freeze(np.where(is_identified, high, 1.0)),
        is_identified=freeze(is_identified),
        classes=known.classes,
        level=share,
        method=method,
        n_rows=known.n_rows,
    )


def _likelihood_of(
    outputs: Logits | Probabilities, train_prior: Any, validation: Any, caller: str
) -> PriorLikelihood:
    """Return what expectation-maximization needs."""
    if validation is not None:
        fix = "method='bbse', which learns from it"
        raise BadTypeError("validation", caller, "None for 'em'", type(validation).__name__, fix)
    if train_prior is None:
        fix = "the share of each class among the training rows"
        raise BadTypeError("train_prior", caller, "one share a class for 'em'", "None", fix)
    shares = as_prior(train_prior, outputs, "train_prior", caller, is_positive=True)
    return PriorLikelihood.of(outputs, shares)


def _confusion_of(
    outputs: Logits | Probabilities, train_prior: Any, validation: Any, caller: str
) -> PriorConfusion:
    """Return what black-box shift estimation needs; it does not depend on the training prior."""
    if train_prior is not None:
        as_prior(train_prior, outputs, "train_prior", caller)
    if not (isinstance(validation, tuple) and len(validation) == 2):
        rule, fix = (
            "a pair (labels, outputs) for 'bbse'",
            "validation=(y, outputs) of held-out rows",
        )
        raise BadTypeError("validation", caller, rule, type(validation).__name__, fix)
    return PriorConfusion.of(*validation, outputs, caller)


def _require_some_rows(outputs: Logits | Probabilities, caller: str) -> None:
    """Raise unless there is a row."""
    if not outputs.n_rows:
        fix = "the outputs of rows met in deployment"
        raise BadValueError("outputs", caller, "1 row or more", "none", fix)


def _bootstrap(
    model: PriorLikelihood | PriorConfusion, prior: FloatArray, level: float, n: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return percentiles of the estimates of resamples, around the estimate itself."""
    seeds = np.random.SeedSequence(seed).generate_state(n).tolist()
    values = np.stack(list(map_in_order(lambda one: model.resampled(prior, one), seeds)))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.clip(np.minimum(low, prior), 0, 1), np.clip(np.maximum(high, prior), 0, 1)


def _warn_of_flat(outputs: Logits | Probabilities, is_identified: BoolArray, method: str) -> None:
    """Name the classes whose shares the data leave open."""
    if is_identified.all():
        return
    names = names_of(outputs)
    which = ", ".join(str(names[k]) for k in np.flatnonzero(~is_identified))
    why = {
        "em": "the likelihood is all but flat there: too few rows, or outputs that hardly tell "
        "these classes apart",
        "bbse": "the confusion matrix is too close to singular for its rows",
    }[method]
    text = (
        f"The prior is not identified for the classes {which}: {why}. Their intervals are 0 to 1. "
        "Try more rows, or a model that tells them apart."
    )
    warnings.warn(text, DubitoWarning, stacklevel=3)
