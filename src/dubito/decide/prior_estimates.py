"""How common each class is where nobody labels: estimated from the outputs alone.

Both methods assume label shift: classes became more or less common, and within a class inputs look
as they did. "em" needs outputs calibrated for the training prior; "bbse" needs labeled validation
rows in their stead.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, as_seed, as_share, freeze
from dubito.calibrate.rows import as_class_outputs
from dubito.data.codes import names_of
from dubito.decide.prior_confusion import PriorConfusion
from dubito.decide.prior_likelihood import PriorLikelihood
from dubito.decide.priors import as_prior
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.kernels.blocks import map_in_order
from dubito.measure.intervals import as_n_resamples
from dubito.outputs import ClassName, Logits, Probabilities

__all__ = ["PriorEstimate", "estimate_prior"]

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
    require_some_rows(known, caller)
    model: PriorLikelihood | PriorConfusion
    if method == "em":
        model = likelihood_of(known, train_prior, validation, caller)
    elif method == "bbse":
        model = confusion_of(known, train_prior, validation, caller)
    else:
        rule, fix = "'em' or 'bbse'", "method='em'"
        raise BadValueError("method", caller, rule, repr(method), fix)
    prior = model.estimate()
    is_identified = np.asarray(model.standard_errors(prior) <= FLAT)
    warn_of_flat(known, is_identified, method)
    low, high = bootstrap(model, prior, share, resamples, first_seed)
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


def likelihood_of(
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


def confusion_of(
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


def require_some_rows(outputs: Logits | Probabilities, caller: str) -> None:
    """Raise unless there is a row."""
    if not outputs.n_rows:
        fix = "the outputs of rows met in deployment"
        raise BadValueError("outputs", caller, "1 row or more", "none", fix)


def bootstrap(
    model: PriorLikelihood | PriorConfusion, prior: FloatArray, level: float, n: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return percentiles of the estimates of resamples, around the estimate itself."""
    seeds = np.random.SeedSequence(seed).generate_state(n).tolist()
    values = np.stack(list(map_in_order(lambda one: model.resampled(prior, one), seeds)))
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.clip(np.minimum(low, prior), 0, 1), np.clip(np.maximum(high, prior), 0, 1)


def warn_of_flat(outputs: Logits | Probabilities, is_identified: BoolArray, method: str) -> None:
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
