"""Squared error of class probabilities: the Brier score as a loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor, distributions

from dubito.learn.class_likelihood import BaseClassLikelihood
from dubito.learn.likelihood import as_count

__all__ = ["SquaredError", "squared_error"]


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
        return squared_error(parameters.softmax(-1), shares)


def squared_error(probabilities: Tensor, shares: Tensor) -> Tensor:
    """Return the squared error of each row, summed over its classes."""
    return (shares - probabilities).square().sum(-1)
