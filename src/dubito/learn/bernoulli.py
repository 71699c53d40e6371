"""The Bernoulli likelihood: yes or no, for one question or several at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution
from torch.nn import functional

from dubito.learn.likelihood import as_count, as_known
from dubito.learn.regression_likelihood import BaseRegressionLikelihood, of_rows

__all__ = ["Bernoulli"]


@final
@dataclass(frozen=True, slots=True)
class Bernoulli(BaseRegressionLikelihood):
    """Yes or no, from log odds: binary cross-entropy, summed over the questions of a row.

    `y` holds 0 and 1, booleans, or shares between them where it is uncertain; NaN is left out.

    >>> import torch
    >>> round(Bernoulli().loss(torch.tensor([[0.0]]), torch.tensor([1])).item(), 3)
    0.693
    """

    n_targets: int = 1

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "Bernoulli")

    @property
    def n_outputs(self) -> int:
        return self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        log_odds = self._parameters(outputs, "predict")
        return of_rows(lambda x: distributions.Bernoulli(logits=x), log_odds)

    def _truth(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        truth = BaseRegressionLikelihood._truth(self, y, shape, caller)
        return as_known(truth, (truth >= 0) & (truth <= 1), "y", caller, "between 0 and 1")

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(parameters, truth, reduction="none")
