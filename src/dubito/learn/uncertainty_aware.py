"""A classifier that also says how far off it expects to be: one more output, a log variance."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import log
from typing import Literal, final

import torch
from torch import Tensor, distributions

from dubito.arrays import as_share
from dubito.errors import BadValueError, BoundWarning
from dubito.learn.class_likelihood import BaseClassLikelihood, cross_entropy
from dubito.learn.likelihood import as_count
from dubito.learn.log_variance import as_floor, beta_weighted, floored, positive
from dubito.learn.squared_error import squared_error

__all__ = ["UncertaintyAware"]

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
            warn_of_no_floor()
        logits, log_variance = parameters[..., :-1], floored(parameters[..., -1], self.floor)
        # One s and one error a row, both without a class axis: each s sees its own error only.
        errors = squared_error(logits.softmax(-1), shares)
        if self.form == "faithful":
            classes = cross_entropy(logits.log_softmax(-1), shares)
            return classes + self._variance_losses(errors.detach(), log_variance)
        return self._variance_losses(errors, log_variance)

    def _variance_losses(self, errors: Tensor, log_variance: Tensor) -> Tensor:
        losses = 0.5 * (errors * (-log_variance).exp() + self.n_classes * log_variance)
        return beta_weighted(losses, log_variance, self.beta)


def warn_of_no_floor() -> None:
    """Say that the loss falls for ever as errors vanish."""
    text = (
        "UncertaintyAware without a floor has no least loss: where the error goes to 0, s goes to "
        "minus infinity. Try floor=-4.0."
    )
    warnings.warn(text, BoundWarning, stacklevel=6)
