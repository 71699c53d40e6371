"""Likelihoods of one or several numbers a row, each with a distribution of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from dubito.errors import BadValueError
from dubito.learn.likelihood import BaseLikelihood, as_known, require_tensor

__all__ = ["BaseRegressionLikelihood", "of_rows"]


class BaseRegressionLikelihood(BaseLikelihood):
    """A likelihood of targets that are independent given the outputs: their losses add up.

    `y` is rows x targets, or one number a row where there is one target; it is never broadcast.
    """

    __slots__ = ()

    n_targets: int

    def _truth(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        require_tensor(y, "y", caller)
        wanted = (shape[0], self.n_targets, *shape[2:])
        if y.shape == wanted:
            truth = y.movedim(1, -1)
        elif self.n_targets == 1 and y.shape == (shape[0], *shape[2:]):
            truth = y.unsqueeze(-1)
        else:
            rule, fix = f"of shape {wanted}", "targets in the order of the outputs"
            raise BadValueError("y", caller, rule, f"shape {tuple(y.shape)}", fix)
        return as_known(truth, truth.isfinite(), "y", caller, "finite")

    def _losses(self, parameters: Tensor, truth: Tensor, is_known: Tensor) -> Tensor:
        return self._target_losses(parameters, truth).masked_fill(~is_known, 0).sum(-1)

    @abstractmethod
    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        """Return the negative log-likelihood of each target."""


def of_rows(kind: Callable[..., Distribution], *parameters: Tensor) -> Distribution:
    """Return a distribution of whole rows: of one number where there is a single target."""
    if parameters[0].shape[-1] == 1:
        return kind(*(parameter.squeeze(-1) for parameter in parameters))
    return Independent(kind(*parameters), 1)
