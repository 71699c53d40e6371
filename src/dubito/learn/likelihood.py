"""The recipe of maximum likelihood: a distribution whose parameters a network gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from dubito.errors import BadTypeError, BadValueError

__all__ = ["BaseLikelihood", "as_count", "as_known", "as_number", "require_tensor"]

MEND = "mending such labels, or NaN for one that is not known"


class BaseLikelihood(ABC):
    """A distribution of labels: `loss` trains a network to give it, `predict` returns it.

    Outputs are rows x n_outputs. Of maps, images x n_outputs x height x width, every pixel is a
    row. Half precision goes up to float32 first, so that autocast is safe. What is NaN in labels of
    floating point is unknown and left out.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """How many numbers a row the network has to put out."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of the rows that have a label: what to minimize."""
        losses, is_labeled = self._labeled_losses(outputs, y, "loss")
        return losses.sum() / is_labeled.sum().clamp(min=1)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, 0 where it has no label; for weights of one's own."""
        return self._labeled_losses(outputs, y, "losses")[0]

    @abstractmethod
    def predict(self, outputs: Tensor) -> Distribution:
        """Return the distribution of each row's label; its `mode` is the single best answer."""

    def _labeled_losses(self, outputs: Tensor, y: Tensor, method: str) -> tuple[Tensor, Tensor]:
        parameters = self._parameters(outputs, method)
        caller = f"{type(self).__name__}.{method}"
        truth = self._truth(y, outputs.shape, caller)
        truth = truth.to(parameters.dtype)
        is_known = ~truth.isnan()
        losses = self._losses(parameters, truth.masked_fill(~is_known, 0), is_known)
        return losses, is_known.any(-1)

    def _parameters(self, outputs: Tensor, method: str) -> Tensor:
        """Return outputs in float32 or float64, with what belongs to one row on the last axis."""
        caller = f"{type(self).__name__}.{method}"
        require_tensor(outputs, "outputs", caller)
        if outputs.ndim < 2 or outputs.shape[1] != self.n_outputs:
            rule = f"rows x {self.n_outputs}, or images x {self.n_outputs} x height x width"
            fix = f"a last layer of {self.n_outputs} outputs"
            raise BadValueError("outputs", caller, rule, f"shape {tuple(outputs.shape)}", fix)
        if not outputs.is_floating_point():
            rule, fix = "of floating point", "`.float()`"
            raise BadTypeError("outputs", caller, rule, f"{outputs.dtype}", fix)
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32)).movedim(1, -1)

    @abstractmethod
    def _truth(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        """Return checked labels of outputs of a shape, NaN where unknown, a row on the last axis.

        What belongs to a row are its targets, or its label probabilities.
        """

    @abstractmethod
    def _losses(self, parameters: Tensor, truth: Tensor, is_known: Tensor) -> Tensor:
        """Return the loss of each row, counting only what is known of it."""


def require_tensor(value: Any, argument: str, caller: str) -> None:
    """Raise unless `value` is a tensor."""
    if not isinstance(value, Tensor):
        got = type(value).__name__
        raise BadTypeError(argument, caller, "a tensor", got, "`torch.as_tensor(...)`")


def as_known(
    truth: Tensor, is_fine: Tensor, argument: str, caller: str, rule: str, fix: str = MEND
) -> Tensor:
    """Return labels as they came, or raise at the first entry that is neither fine nor NaN.

    A compiled step does not look: to branch on values would break its graph.
    """
    if torch.compiler.is_compiling():
        return truth
    is_wrong = ~(is_fine | truth.isnan()) if truth.is_floating_point() else ~is_fine
    if is_wrong.any():
        row, *place = (int(index) for index in is_wrong.nonzero()[0])
        got = f"{truth[(row, *place)].item():.6g}"
        column = None if not place else place[0] if len(place) == 1 else str(tuple(place))
        raise BadValueError(argument, caller, rule, got, fix, row, column)
    return truth


def as_count(value: Any, argument: str, caller: str, least: int = 1) -> int:
    """Return a whole number from `least` up."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        rule, fix = f"a whole number from {least} up", f"{argument}={least}"
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return int(value)


def as_number(value: Any, argument: str, caller: str, fix: str, above: float = -inf) -> float:
    """Return a finite number, where asked above a bound."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and above < value < inf):
        rule = "a finite number" + (f" above {above:g}" if above > -inf else "")
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return float(value)
