"""The Laplace likelihood: absolute error, with a scale that the network gives too."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import final

from torch import Tensor, distributions
from torch.distributions import Distribution

from dubito.learn.likelihood import as_count
from dubito.learn.log_variance import as_floor, floored, positive
from dubito.learn.regression_likelihood import BaseRegressionLikelihood, of_rows

__all__ = ["Laplace"]


@final
@dataclass(frozen=True, slots=True)
class Laplace(BaseRegressionLikelihood):
    """A Laplace distribution whose location and scale both depend on the input.

    Outputs are the locations, then the logarithms of the scales, which count from `floor` up. Its
    location is the median: use it where some targets are far off.

    >>> import torch
    >>> Laplace().predict(torch.tensor([[3.0, 0.0]])).mode
    tensor([3.])
    """

    n_targets: int = 1
    floor: float = -10.0

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "Laplace")
        as_floor(self.floor, "Laplace")

    @property
    def n_outputs(self) -> int:
        return 2 * self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        location, raw = self._parameters(outputs, "predict").chunk(2, -1)
        return of_rows(distributions.Laplace, location, positive(floored(raw, self.floor)))

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        location, raw = parameters.chunk(2, -1)
        log_scale = floored(raw, self.floor)
        return (truth - location).abs() * (-log_scale).exp() + log_scale + log(2)
