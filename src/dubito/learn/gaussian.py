"""Normal likelihoods: of fixed variance, and of a variance that the network gives too."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, pi
from typing import final

from torch import Tensor
from torch.distributions import Distribution, Normal

from dubito.arrays import as_share
from dubito.learn.likelihood import as_count, as_number
from dubito.learn.log_variance import as_floor, beta_weighted, floored, positive
from dubito.learn.regression_likelihood import BaseRegressionLikelihood, of_rows

__all__ = ["Gaussian", "HeteroscedasticGaussian"]


@final
@dataclass(frozen=True, slots=True)
class Gaussian(BaseRegressionLikelihood):
    """A normal distribution of fixed variance: squared error, up to constants.

    Outputs are the means, one a target. Use it where noise is the same everywhere.

    >>> import torch
    >>> Gaussian(variance=0.5).predict(torch.tensor([[3.0]])).mode
    tensor([3.])
    """

    n_targets: int = 1
    variance: float = 1.0

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "Gaussian")
        as_number(self.variance, "variance", "Gaussian", "variance=1.0", above=0)

    @property
    def n_outputs(self) -> int:
        return self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        mean = self._parameters(outputs, "predict")
        return of_rows(Normal, mean, mean.new_full((), self.variance**0.5).expand_as(mean))

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        squares = (truth - parameters).square() / self.variance
        return 0.5 * (squares + log(2 * pi * self.variance))


@final
@dataclass(frozen=True, slots=True)
class HeteroscedasticGaussian(BaseRegressionLikelihood):
    """A normal distribution whose mean and variance both depend on the input.

    Outputs are the means, then the logarithms of the variances, which count from `floor` up. With
    `beta` above 0 (0.5 is usual) losses are weighted by variance ** beta, so that the mean also
    learns where noise seems large. Seitzer et al., "On the pitfalls of heteroscedastic
    uncertainty estimation with probabilistic neural networks", 2022.

    >>> import torch
    >>> HeteroscedasticGaussian().predict(torch.tensor([[3.0, 0.0]])).stddev
    tensor([1.])
    """

    n_targets: int = 1
    beta: float = 0.0
    floor: float = -20.0

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "HeteroscedasticGaussian")
        as_share(self.beta, "beta", "HeteroscedasticGaussian")
        as_floor(self.floor, "HeteroscedasticGaussian")

    @property
    def n_outputs(self) -> int:
        return 2 * self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        mean, raw = self._parameters(outputs, "predict").chunk(2, -1)
        return of_rows(Normal, mean, positive(0.5 * floored(raw, self.floor)))

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        mean, raw = parameters.chunk(2, -1)
        log_variance = floored(raw, self.floor)
        squares = (truth - mean).square() * (-log_variance).exp()
        losses = 0.5 * (squares + log_variance + log(2 * pi))
        return beta_weighted(losses, log_variance, self.beta)
