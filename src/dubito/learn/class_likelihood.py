"""Likelihoods of one class out of several, known for sure, in shares, or not at all."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, distributions
from torch.nn import functional

from dubito.errors import BadTypeError, BadValueError
from dubito.learn.likelihood import BaseLikelihood, as_known, require_tensor

__all__ = ["BaseClassLikelihood", "cross_entropy", "label_shares"]

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
        return label_shares(y, (shape[0], *shape[2:]), self.n_classes, caller)

    def _losses(self, parameters: Tensor, truth: Tensor, is_known: Tensor) -> Tensor:
        return self._class_losses(parameters, truth).masked_fill(~is_known.any(-1), 0)

    @abstractmethod
    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        """Return the loss of each row for label probabilities, classes on the last axis."""


def label_shares(y: Tensor, shape: tuple[int, ...], n_classes: int, caller: str) -> Tensor:
    """Return label probabilities of rows of a shape, classes on the last axis."""
    require_tensor(y, "y", caller)
    if y.is_floating_point():
        return shares_of(y, shape, n_classes, caller)
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


def shares_of(y: Tensor, shape: tuple[int, ...], n_classes: int, caller: str) -> Tensor:
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
