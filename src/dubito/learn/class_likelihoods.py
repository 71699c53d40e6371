"""Likelihoods of classes: categorical, Brier and uncertainty-aware losses, and soft labels."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from math import log
from typing import Literal, final

import torch
from torch import Tensor, distributions
from torch.nn import functional

from dubito.arrays import as_count, as_fraction, require_choice
from dubito.errors import BadTypeError, BadValueError, BoundWarning
from dubito.learn.likelihoods import (
    BaseLikelihood,
    as_floor,
    beta_weighted,
    bounded_exp,
    floored,
    require_tensor,
    require_valid,
)

TOLERANCE = 1e-3  # label probabilities that sum to 1 up to this are renormalized, others refused
SMALL = 2e-4  # probabilities from raw scores are smoothed below this, so that none is 0
FORMS = ("all", "others")  # of label smoothing
DEFAULT_FLOOR, FEW_CLASSES = -4.0, 10  # the default floor of s for at most so many classes
WITHOUT_FLOOR = (
    "UncertaintyAware without a floor has no minimum: s goes to minus infinity where the error "
    "goes to 0. Use floor=-4.0."
)


class BaseClassLikelihood(BaseLikelihood):
    """A likelihood of classes.

    `y` holds class indices, or label probabilities of shape (n_rows, n_classes); a row of NaN is
    ignored. In maps, classes are on axis 1, as in the outputs.
    """

    __slots__ = ()

    n_classes: int

    def __post_init__(self) -> None:
        as_count(self.n_classes, "n_classes", type(self).__name__, least=2)

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        logits = self._parameters(outputs, "predict")[..., : self.n_classes]
        return distributions.Categorical(logits=logits)

    def logits(self, outputs: Tensor) -> Tensor:
        """Return the class logits among the outputs.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_outputs)
            The outputs of the network.

        Returns
        -------
        Tensor of shape (n_rows, n_classes)
            Logits, with classes on axis 1.
        """
        self._parameters(outputs, "logits")
        return outputs[:, : self.n_classes]

    def _targets(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        return _label_probabilities(y, (shape[0], *shape[2:]), self.n_classes, caller)

    def _losses(self, parameters: Tensor, targets: Tensor, is_known: Tensor) -> Tensor:
        return self._class_losses(parameters, targets).masked_fill(~is_known.any(-1), 0)

    @abstractmethod
    def _class_losses(self, parameters: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each row for label probabilities with classes on the last axis."""


@final
@dataclass(frozen=True, slots=True)
class Categorical(BaseClassLikelihood):
    """One of several classes, from logits: cross-entropy.

    Parameters
    ----------
    n_classes : int
        The number of classes.
    label_smoothing : float, default=0.0
        The probability that is taken from the label, as in `smooth_labels`.
    form : {"all", "others"}, default="all"
        How it is spread, as in `smooth_labels`.

    Examples
    --------
    >>> from dubito.learn import Categorical
    >>> import torch
    >>> Categorical(3).predict(torch.tensor([[0.0, 2.0, 1.0]])).mode
    tensor([1])
    """

    n_classes: int
    label_smoothing: float = 0.0
    form: Literal["all", "others"] = "all"

    def __post_init__(self) -> None:
        BaseClassLikelihood.__post_init__(self)
        as_fraction(self.label_smoothing, "label_smoothing", "Categorical")
        require_choice(self.form, FORMS, "form", "Categorical")

    def _class_losses(self, parameters: Tensor, labels: Tensor) -> Tensor:
        smoothed = _smoothed(labels, self.label_smoothing, self.form)
        return cross_entropy(parameters.log_softmax(-1), smoothed)


@final
@dataclass(frozen=True, slots=True)
class SquaredError(BaseClassLikelihood):
    """One of several classes, by the squared error to the one-hot label, summed over classes.

    Up to a constant, the likelihood of a one-hot label with normal noise of variance 1/2. On the
    softmax it is the Brier score: bounded, and so less affected by wrong labels than cross-entropy.
    On raw scores it is the square loss of regression, without a softmax: the scores themselves tend
    to the probabilities. `predict` takes the nearest point of the probability simplex, which keeps
    the order of the classes and is as close to any label as the scores, or closer. Probabilities
    below 0.0002 are smoothed, so that none is 0 and classes far behind keep their order, too.

    Parameters
    ----------
    n_classes : int
        The number of classes.
    on : {"softmax", "scores"}, default="softmax"
        What is compared with the label: the softmax of the outputs, or the outputs as they are.

    References
    ----------
    Brier, "Verification of forecasts expressed in terms of probability", 1950. Hui and Belkin,
    "Evaluation of neural architectures trained with square loss vs cross-entropy in classification
    tasks", 2021.

    Examples
    --------
    >>> from dubito.learn import SquaredError
    >>> import torch
    >>> SquaredError(2).loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.5000)
    >>> SquaredError(2, on="scores").loss(torch.tensor([[0.0, 1.0]]), torch.tensor([1]))
    tensor(0.)
    """

    n_classes: int
    on: Literal["softmax", "scores"] = "softmax"

    def __post_init__(self) -> None:
        BaseClassLikelihood.__post_init__(self)
        require_choice(self.on, ("softmax", "scores"), "on", "SquaredError")

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        if self.on == "softmax":
            return BaseClassLikelihood.predict(self, outputs)
        nearest = _onto_simplex(self._parameters(outputs, "predict"))
        # Increasing and smooth, so that no two classes change places.
        smoothed = SMALL**2 / (2 * SMALL - nearest.clamp(max=SMALL))
        return distributions.Categorical(probs=torch.where(nearest < SMALL, smoothed, nearest))

    def logits(self, outputs: Tensor) -> Tensor:
        if self.on == "softmax":
            return BaseClassLikelihood.logits(self, outputs)
        return self.predict(outputs).logits.movedim(-1, 1)

    def _class_losses(self, parameters: Tensor, labels: Tensor) -> Tensor:
        compared = parameters.softmax(-1) if self.on == "softmax" else parameters
        return _squared_error(compared, labels)


@final
@dataclass(frozen=True, slots=True)
class UncertaintyAware(BaseClassLikelihood):
    """Classes with a predicted log variance s per row, which is high where labels are noisy.

    The outputs are K logits and s. With h the softmax of the logits, the loss of a row is
    0.5 * (exp(-s) * |onehot - h|^2 + K * s), which is minimal where s is the log of the mean
    squared error.

    Parameters
    ----------
    n_classes : int
        The number of classes K.
    floor : float, None or "auto", default="auto"
        A lower bound of s, since the loss is unbounded as the error goes to 0. "auto" is -4, and
        less for more than 10 classes, as no error lifts s above log(2 / K).
    beta : float, default=0.0
        Weights losses by exp(beta * s).
    form : {"joint", "faithful"}, default="joint"
        "faithful" trains the classes by cross-entropy, and only s by this loss.
    certainty_form : {"precision", "sigmoid"}, default="precision"
        The certainty that `vote` uses: exp(-s), or 1 - sigmoid(s).

    References
    ----------
    Kornaev et al., "Awareness of uncertainty in classification using a multivariate model and
    multi-views", 2024.

    Examples
    --------
    >>> from dubito.learn import UncertaintyAware
    >>> import torch
    >>> UncertaintyAware(2).log_variance(torch.tensor([[1.0, 0.0, -1.5], [1.0, 0.0, -9.0]]))
    tensor([-1.5000, -4.0000])
    """

    n_classes: int
    floor: float | Literal["auto"] | None = "auto"
    beta: float = 0.0
    form: Literal["joint", "faithful"] = "joint"
    certainty_form: Literal["precision", "sigmoid"] = "precision"

    def __post_init__(self) -> None:
        caller = "UncertaintyAware"
        BaseClassLikelihood.__post_init__(self)
        require_choice(self.form, ("joint", "faithful"), "form", caller)
        require_choice(self.certainty_form, ("precision", "sigmoid"), "certainty_form", caller)
        as_fraction(self.beta, "beta", caller)
        if self.floor == "auto":
            floor = DEFAULT_FLOOR - log(max(self.n_classes, FEW_CLASSES) / FEW_CLASSES)
            object.__setattr__(self, "floor", floor)
        elif self.floor is not None:
            as_floor(self.floor, caller)

    @property
    def n_outputs(self) -> int:
        return self.n_classes + 1

    def log_variance(self, outputs: Tensor) -> Tensor:
        """Return s of each row, an uncertainty score that is larger where labels are noisier.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_classes + 1)
            The outputs of the network.

        Returns
        -------
        Tensor of shape (n_rows,)
            Log variances of at least `floor`.
        """
        return self._log_variance(self._parameters(outputs, "log_variance"))

    def certainty(self, outputs: Tensor) -> Tensor:
        """Return the certainty of each row: exp(-s), or 1 - sigmoid(s).

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_classes + 1)
            The outputs of the network.

        Returns
        -------
        Tensor of shape (n_rows,)
            Positive certainties, in the form of `certainty_form`.
        """
        s = self._log_variance(self._parameters(outputs, "certainty"))
        return bounded_exp(-s) if self.certainty_form == "precision" else (-s).sigmoid()

    def _class_losses(self, parameters: Tensor, labels: Tensor) -> Tensor:
        if self.floor is None and not torch.compiler.is_compiling():
            warnings.warn(WITHOUT_FLOOR, BoundWarning, stacklevel=5)
        logits, log_variance = parameters[..., :-1], self._log_variance(parameters)
        # Both have one entry per row and no class axis: each s is paired with its own error only.
        errors = _squared_error(logits.softmax(-1), labels)
        if self.form == "faithful":
            losses = cross_entropy(logits.log_softmax(-1), labels)
            return losses + self._variance_losses(errors.detach(), log_variance)
        return self._variance_losses(errors, log_variance)

    def _log_variance(self, parameters: Tensor) -> Tensor:
        assert self.floor != "auto"  # which stands for a number
        return floored(parameters[..., -1], self.floor)

    def _variance_losses(self, errors: Tensor, log_variance: Tensor) -> Tensor:
        losses = 0.5 * (errors * (-log_variance).exp() + self.n_classes * log_variance)
        return beta_weighted(losses, log_variance, self.beta)


def smooth_labels(
    y: Tensor, n_classes: int, epsilon: float, form: Literal["all", "others"] = "all"
) -> Tensor:
    """Return smoothed label probabilities.

    Parameters
    ----------
    y : Tensor
        Class indices, or label probabilities with classes on axis 1.
    n_classes : int
        The number of classes K.
    epsilon : float
        The probability that is taken from the label.
    form : {"all", "others"}, default="all"
        "all" gives epsilon / K to every class, "others" epsilon / (K - 1) to every class but the
        label's.

    Returns
    -------
    Tensor of shape (n_rows, n_classes)
        Label probabilities, with classes on axis 1.

    References
    ----------
    Szegedy et al., "Rethinking the inception architecture for computer vision", 2016.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import smooth_labels
    >>> smooth_labels(torch.tensor([0]), n_classes=4, epsilon=0.5)
    tensor([[0.6250, 0.1250, 0.1250, 0.1250]])
    """
    caller = "smooth_labels"
    as_count(n_classes, "n_classes", caller, least=2)
    fraction = as_fraction(epsilon, "epsilon", caller)
    require_choice(form, FORMS, "form", caller)
    require_tensor(y, "y", caller)
    shape = (y.shape[0], *y.shape[2:]) if y.is_floating_point() else tuple(y.shape)
    labels = _label_probabilities(y, shape, n_classes, caller)
    floats = labels if labels.is_floating_point() else labels.to(torch.get_default_dtype())
    return _smoothed(floats, fraction, form).movedim(-1, 1)


def uncertain_labels(
    y: Tensor, n_classes: int, mark: int, strategy: Literal["soft", "ignore", "class"] = "soft"
) -> Tensor:
    """Return label probabilities for labels of which some are marked as uncertain.

    Parameters
    ----------
    y : Tensor of int
        Class indices, or `mark`.
    n_classes : int
        The number of classes.
    mark : int
        The value of an uncertain label.
    strategy : {"soft", "ignore", "class"}, default="soft"
        An uncertain label is equally probable in all classes ("soft"), unknown (NaN, which every
        loss ignores), or an additional last class, for which the result has `n_classes` + 1
        columns.

    Returns
    -------
    Tensor of shape (n_rows, n_classes)
        Label probabilities, with classes on axis 1.

    References
    ----------
    Irvin et al., "CheXpert: a large chest radiograph dataset with uncertainty labels and expert
    comparison", 2019.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import uncertain_labels
    >>> uncertain_labels(torch.tensor([1, -1]), n_classes=2, mark=-1)
    tensor([[0.0000, 1.0000],
            [0.5000, 0.5000]])
    """
    caller = "uncertain_labels"
    as_count(n_classes, "n_classes", caller, least=2)
    require_tensor(y, "y", caller)
    require_choice(strategy, ("soft", "ignore", "class"), "strategy", caller)
    if y.is_floating_point() or y.dtype == torch.bool:
        rule, fix = "must hold class indices and marks", "Call .long()"
        raise BadValueError("y", caller, rule, f"{y.dtype}", fix)
    is_marked = y == mark
    labels = _label_probabilities(y.masked_fill(is_marked, 0), tuple(y.shape), n_classes, caller)
    labels = labels.to(torch.get_default_dtype())
    if strategy == "class":
        labels = functional.pad(labels.masked_fill(is_marked.unsqueeze(-1), 0), (0, 1))
        labels[..., -1] = is_marked.to(labels.dtype)
    else:
        value = 1 / n_classes if strategy == "soft" else torch.nan
        labels = labels.masked_fill(is_marked.unsqueeze(-1), value)
    return labels.movedim(-1, 1)


def cross_entropy(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each row; a label of probability 0 adds 0 even to log 0."""
    return -torch.where(labels > 0, labels * log_probabilities, 0.0).sum(-1)


def _onto_simplex(scores: Tensor) -> Tensor:
    """Return scores less a number per row: their part above 0 is the nearest distribution."""
    ranked = scores.sort(-1, descending=True).values
    numbers = torch.arange(1, scores.shape[-1] + 1, device=scores.device)
    excess = (ranked.cumsum(-1) - 1) / numbers  # what the first so many exceed a sum of 1 by, each
    n_positive = (ranked > excess).sum(-1, keepdim=True)
    return scores - excess.gather(-1, n_positive - 1)


def _squared_error(probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the squared error of each row, summed over the classes."""
    return (labels - probabilities).square().sum(-1)


def _smoothed(labels: Tensor, epsilon: float, form: str) -> Tensor:
    """Return smoothed label probabilities, with classes on the last axis."""
    n_classes = labels.shape[-1]
    if form == "all":
        return (1 - epsilon) * labels + epsilon / n_classes
    return (1 - epsilon) * labels + epsilon / (n_classes - 1) * (1 - labels)


def _label_probabilities(y: Tensor, shape: tuple[int, ...], n_classes: int, caller: str) -> Tensor:
    """Return label probabilities for rows of a shape, with classes on the last axis."""
    require_tensor(y, "y", caller)
    if y.is_floating_point():
        return _normalized_labels(y, shape, n_classes, caller)
    if y.dtype == torch.bool:
        rule, fix = "must hold class indices or label probabilities", "Call .long()"
        raise BadTypeError("y", caller, rule, "booleans", fix)
    if y.shape != shape:
        fix = "Pass one class index per row, or floating-point label probabilities"
        raise BadValueError("y", caller, f"must have shape {shape}", f"shape {tuple(y.shape)}", fix)
    is_class = (y >= 0) & (y < n_classes)
    rule = f"must hold class indices from 0 to {n_classes - 1}"
    require_valid(y, is_class, "y", caller, rule, "Use uncertain_labels if others mark rows")
    return functional.one_hot(y.long(), n_classes)


def _normalized_labels(y: Tensor, shape: tuple[int, ...], n_classes: int, caller: str) -> Tensor:
    """Return label probabilities that sum to 1, or are all NaN."""
    expected = (shape[0], n_classes, *shape[1:])
    if y.shape != expected:
        rule, fix = f"must be label probabilities of shape {expected}", "Call .long() for indices"
        raise BadValueError("y", caller, rule, f"shape {tuple(y.shape)}", fix)
    labels = y.movedim(1, -1).to(torch.promote_types(y.dtype, torch.float32))
    require_valid(labels, labels >= 0, "y", caller, "must not be negative")
    sums = labels.sum(-1, keepdim=True)
    is_valid = ((sums - 1).abs() <= TOLERANCE) | labels.isnan().all(-1, keepdim=True)
    if not torch.compiler.is_compiling() and not is_valid.all():
        place = (~is_valid[..., 0]).nonzero()[0]
        got = f"a sum of {sums[tuple(place)].item():.6g}"
        fix = "Divide each row by its sum, or set a whole row to NaN to ignore it"
        raise BadValueError("y", caller, "must have rows that sum to 1", got, fix, int(place[0]))
    return labels / sums
