"""Likelihoods of one class out of several: categorical, Brier and uncertainty-aware losses, soft labels."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from math import log
from typing import Any, Literal, final

import torch
from torch import Tensor, distributions
from torch.nn import functional

from dubito.arrays import as_share
from dubito.errors import BadTypeError, BadValueError, BoundWarning
from dubito.learn.likelihoods import (
    BaseLikelihood,
    as_count,
    as_floor,
    as_known,
    beta_weighted,
    floored,
    positive,
    require_tensor,
)

TOLERANCE = 1e-3  # label probabilities further from 1 are refused, closer ones are renormalized


class BaseClassLikelihood(BaseLikelihood):
    """A likelihood of classes.

    `y` holds whole numbers, the class of each row, or label probabilities, rows x classes; a row
    of NaN is left out. Of maps, classes are on axis 1, as in the outputs.
    """

    __slots__ = ()

    n_classes: int

    @abstractmethod
    def predict(self, outputs: Tensor) -> distributions.Categorical: ...

    def logits(self, outputs: Tensor) -> Tensor:
        """Return the logits of the classes, on axis 1, as the network put them out."""
        self._parameters(outputs, "logits")
        return outputs[:, : self.n_classes]

    def _truth(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        return _label_shares(y, (shape[0], *shape[2:]), self.n_classes, caller)

    def _losses(self, parameters: Tensor, truth: Tensor, is_known: Tensor) -> Tensor:
        return self._class_losses(parameters, truth).masked_fill(~is_known.any(-1), 0)

    @abstractmethod
    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        """Return the loss of each row for label probabilities, classes on the last axis."""


def _label_shares(y: Tensor, shape: tuple[int, ...], n_classes: int, caller: str) -> Tensor:
    """Return label probabilities of rows of a shape, classes on the last axis."""
    require_tensor(y, "y", caller)
    if y.is_floating_point():
        return _shares_of(y, shape, n_classes, caller)
    if y.dtype == torch.bool:
        fix = "`.long()` for class numbers"
        raise BadTypeError("y", caller, "class numbers or label probabilities", "booleans", fix)
    if y.shape != shape:
        fix = "one class number a row, or label probabilities of floating point"
        raise BadValueError("y", caller, f"of shape {shape}", f"shape {tuple(y.shape)}", fix)
    is_class = (y >= 0) & (y < n_classes)
    rule = f"class numbers from 0 to {n_classes - 1}"
    as_known(y, is_class, "y", caller, rule, "`uncertain_labels` where others mark rows")
    return functional.one_hot(y.long(), n_classes)


def _shares_of(y: Tensor, shape: tuple[int, ...], n_classes: int, caller: str) -> Tensor:
    """Return label probabilities that sum to 1, or are all NaN."""
    wanted = (shape[0], n_classes, *shape[1:])
    if y.shape != wanted:
        rule, fix = f"label probabilities of shape {wanted}", "`.long()` for class numbers"
        raise BadValueError("y", caller, rule, f"shape {tuple(y.shape)}", fix)
    shares = y.movedim(1, -1).to(torch.promote_types(y.dtype, torch.float32))
    as_known(shares, shares >= 0, "y", caller, "probabilities, 0 or above")
    sums = shares.sum(-1, keepdim=True)
    is_fine = ((sums - 1).abs() <= TOLERANCE) | shares.isnan().all(-1, keepdim=True)
    if not torch.compiler.is_compiling() and not is_fine.all():
        place = (~is_fine[..., 0]).nonzero()[0]
        got = f"a sum of {sums[tuple(place)].item():.6g}"
        fix = "dividing each row by its sum, or NaN in all of a row to leave it out"
        raise BadValueError("y", caller, "rows that sum to 1", got, fix, int(place[0]))
    return shares / sums


def cross_entropy(log_probabilities: Tensor, shares: Tensor) -> Tensor:
    """Return the cross-entropy of each row; a class of share 0 counts nothing, be it impossible."""
    return -torch.where(shares > 0, shares * log_probabilities, 0.0).sum(-1)


FORMS = ("all", "others")
STRATEGIES = ("soft", "ignore", "class")


def smooth_labels(
    y: Tensor, n_classes: int, epsilon: float, form: Literal["all", "others"] = "all"
) -> Tensor:
    """Return label probabilities, rows x classes, that leave a share of doubt in every label.

    Form "all" spreads `epsilon` over all classes, epsilon / K each; "others" gives epsilon / (K -
    1) to every class but the label's. `y` holds class numbers or label probabilities. Szegedy et
    al., "Rethinking the inception architecture for computer vision", 2016.

    >>> smooth_labels(torch.tensor([0]), n_classes=4, epsilon=0.5)
    tensor([[0.6250, 0.1250, 0.1250, 0.1250]])
    """
    caller = "smooth_labels"
    as_count(n_classes, "n_classes", caller, least=2)
    share = as_share(epsilon, "epsilon", caller)
    _as_form(form, caller)
    require_tensor(y, "y", caller)
    shape = (y.shape[0], *y.shape[2:]) if y.is_floating_point() else tuple(y.shape)
    shares = _label_shares(y, shape, n_classes, caller)
    floats = shares if shares.is_floating_point() else shares.to(torch.get_default_dtype())
    return _smoothed(floats, share, form).movedim(-1, 1)


def _smoothed(shares: Tensor, epsilon: float, form: str) -> Tensor:
    """Return label probabilities, classes on the last axis, with a share of doubt."""
    n_classes = shares.shape[-1]
    if form == "all":
        return (1 - epsilon) * shares + epsilon / n_classes
    return (1 - epsilon) * shares + epsilon / (n_classes - 1) * (1 - shares)


def _as_form(form: Any, caller: str) -> None:
    """Raise unless it is a known form of smoothing."""
    if form not in FORMS:
        raise BadValueError("form", caller, "'all' or 'others'", repr(form), "form='all'")


def uncertain_labels(
    y: Tensor, n_classes: int, mark: int, strategy: Literal["soft", "ignore", "class"] = "soft"
) -> Tensor:
    """Return label probabilities of rows of which some are marked as uncertain, as by a person.

    A marked row may be any class alike ("soft"), have no label (NaN, which every loss leaves out),
    or be of one more class, the last one ("class"): then there are `n_classes` + 1 columns. Irvin
    et al., "CheXpert: a large chest radiograph dataset with uncertainty labels", 2019.

    >>> uncertain_labels(torch.tensor([1, -1]), n_classes=2, mark=-1)
    tensor([[0.0000, 1.0000],
            [0.5000, 0.5000]])
    """
    caller = "uncertain_labels"
    as_count(n_classes, "n_classes", caller, least=2)
    require_tensor(y, "y", caller)
    if strategy not in STRATEGIES:
        rule = "'soft', 'ignore' or 'class'"
        raise BadValueError("strategy", caller, rule, repr(strategy), "strategy='soft'")
    if y.is_floating_point() or y.dtype == torch.bool:
        rule, fix = "class numbers and marks", "`.long()`"
        raise BadValueError("y", caller, rule, f"{y.dtype}", fix)
    is_marked = y == mark
    shares = _label_shares(y.masked_fill(is_marked, 0), tuple(y.shape), n_classes, caller)
    shares = shares.to(torch.get_default_dtype())
    if strategy == "class":
        shares = functional.pad(shares.masked_fill(is_marked.unsqueeze(-1), 0), (0, 1))
        shares[..., -1] = is_marked.to(shares.dtype)
    else:
        share = 1 / n_classes if strategy == "soft" else torch.nan
        shares = shares.masked_fill(is_marked.unsqueeze(-1), share)
    return shares.movedim(-1, 1)


@final
@dataclass(frozen=True, slots=True)
class Categorical(BaseClassLikelihood):
    """One class out of several, from logits: cross-entropy.

    `label_smoothing` is the share of doubt in every label, in the `form` that `smooth_labels` names.
    `uncertain_labels` makes label probabilities of rows marked as uncertain.

    >>> import torch
    >>> Categorical(3).predict(torch.tensor([[0.0, 2.0, 1.0]])).mode
    tensor([1])
    """

    n_classes: int
    label_smoothing: float = 0.0
    form: Literal["all", "others"] = "all"

    def __post_init__(self) -> None:
        as_count(self.n_classes, "n_classes", "Categorical", least=2)
        as_share(self.label_smoothing, "label_smoothing", "Categorical")
        _as_form(self.form, "Categorical")

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        return distributions.Categorical(logits=self._parameters(outputs, "predict"))

    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        shares = _smoothed(shares, self.label_smoothing, self.form)
        return cross_entropy(parameters.log_softmax(-1), shares)


@final
@dataclass(frozen=True, slots=True)
class SquaredError(BaseClassLikelihood):
    """One class out of several, from logits, by squared error summed over the classes.

    It is a normal likelihood of the one-hot label, of variance 1/2, up to a constant. Bounded, and
    so less moved by wrong labels than cross-entropy. Brier, "Verification of forecasts expressed in
    terms of probability", 1950.

    >>> import torch
    >>> SquaredError(2).loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.5000)
    """

    n_classes: int

    def __post_init__(self) -> None:
        as_count(self.n_classes, "n_classes", "SquaredError", least=2)

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        return distributions.Categorical(logits=self._parameters(outputs, "predict"))

    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        return _squared_error(parameters.softmax(-1), shares)


def _squared_error(probabilities: Tensor, shares: Tensor) -> Tensor:
    """Return the squared error of each row, summed over its classes."""
    return (shares - probabilities).square().sum(-1)


LOWEST, FEW = -4.0, 10  # the floor of so few classes or less


@final
@dataclass(frozen=True, slots=True)
class UncertaintyAware(BaseClassLikelihood):
    """Classes with a log variance s of their own a row, high where labels are often wrong.

    Outputs are K logits and s. With h their softmax the loss is 0.5 * (exp(-s) * |onehot - h|^2 +
    K * s), at its least where s is the log of the mean squared error. An error near 0 has no
    least, hence the `floor` under s; "auto" is -4, or less for over 10 classes, as no error lifts s
    above log(2 / K). `beta` above 0 weights rows by exp(beta * s). In the "faithful" `form`
    cross-entropy trains the classes, and this loss trains s only. `certainty_form` is that of the
    certainty which views vote by. Kornaev et al., "Awareness of uncertainty in classification using
    a multivariate model and multi-views", 2024.

    >>> import torch
    >>> UncertaintyAware(2).log_variance(torch.tensor([[1.0, 0.0, -1.5], [1.0, 0.0, -9.0]]))
    tensor([-1.5000, -4.0000])
    """

    n_classes: int
    floor: float | None
    beta: float
    form: Literal["joint", "faithful"]
    certainty_form: Literal["precision", "sigmoid"]

    def __init__(
        self,
        n_classes: int,
        floor: float | Literal["auto"] | None = "auto",
        beta: float = 0.0,
        form: Literal["joint", "faithful"] = "joint",
        certainty_form: Literal["precision", "sigmoid"] = "precision",
    ) -> None:
        caller = "UncertaintyAware"
        as_count(n_classes, "n_classes", caller, least=2)
        if form not in ("joint", "faithful"):
            rule, fix = "'joint' or 'faithful'", "form='joint'"
            raise BadValueError("form", caller, rule, repr(form), fix)
        if certainty_form not in ("precision", "sigmoid"):
            rule, fix = "'precision' or 'sigmoid'", "certainty_form='precision'"
            raise BadValueError("certainty_form", caller, rule, repr(certainty_form), fix)
        if floor == "auto":
            floor = LOWEST - log(max(n_classes, FEW) / FEW)
        limit = None if floor is None else as_floor(floor, caller)
        share = as_share(beta, "beta", caller)
        values = (n_classes, limit, share, form, certainty_form)
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    @property
    def n_outputs(self) -> int:
        return self.n_classes + 1

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        logits = self._parameters(outputs, "predict")[..., :-1]
        return distributions.Categorical(logits=logits)

    def log_variance(self, outputs: Tensor) -> Tensor:
        """Return s of each row, from the floor up: a doubt, larger where labels are noisier."""
        return floored(self._parameters(outputs, "log_variance")[..., -1], self.floor)

    def certainty(self, outputs: Tensor) -> Tensor:
        """Return the trust in each row: exp(-s) by "precision", 1 - sigmoid(s) by "sigmoid"."""
        doubt = floored(self._parameters(outputs, "certainty")[..., -1], self.floor)
        return positive(-doubt) if self.certainty_form == "precision" else (-doubt).sigmoid()

    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        if self.floor is None and not torch.compiler.is_compiling():
            _warn_of_no_floor()
        logits, log_variance = parameters[..., :-1], floored(parameters[..., -1], self.floor)
        # One s and one error a row, both without a class axis: each s sees its own error only.
        errors = _squared_error(logits.softmax(-1), shares)
        if self.form == "faithful":
            classes = cross_entropy(logits.log_softmax(-1), shares)
            return classes + self._variance_losses(errors.detach(), log_variance)
        return self._variance_losses(errors, log_variance)

    def _variance_losses(self, errors: Tensor, log_variance: Tensor) -> Tensor:
        losses = 0.5 * (errors * (-log_variance).exp() + self.n_classes * log_variance)
        return beta_weighted(losses, log_variance, self.beta)


def _warn_of_no_floor() -> None:
    """Say that the loss falls for ever as errors vanish."""
    text = (
        "UncertaintyAware without a floor has no least loss: where the error goes to 0, s goes to "
        "minus infinity. Try floor=-4.0."
    )
    warnings.warn(text, BoundWarning, stacklevel=6)
