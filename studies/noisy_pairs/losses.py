"""The losses that are trained on swapped labels, by name, and the slip that one is known for."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional

from dubito.learn import (
    BaseLikelihood,
    Categorical,
    EarlyLearningRegularization,
    GeneralizedCrossEntropy,
    SquaredError,
    UncertaintyAware,
)
from studies.common.training import Loss

N_CLASSES = 10
FLOOR = -4.0


class Learning(NamedTuple):
    """What a network's outputs mean, and the loss that it learns by."""

    likelihood: BaseLikelihood
    loss: Loss


def plain(likelihood: BaseLikelihood) -> Learning:
    """Return a likelihood that learns by its own loss, whatever the rows' numbers."""
    return Learning(likelihood, lambda outputs, y, _: likelihood.loss(outputs, y))


def slipped(outputs: Tensor, y: Tensor, _: Tensor) -> Tensor:
    """Return the uncertainty-aware loss with a slip: [B, 1] times [B] pairs all with all.

    Each s sees the mean error of the batch instead of its own row's.
    """
    n_classes = outputs.shape[1] - 1
    errors = functional.one_hot(y, n_classes) - outputs[:, :-1].softmax(1)
    s = outputs[:, -1:].clamp(min=FLOOR)
    return 0.5 * ((-s).exp() * errors.square().sum(1) + n_classes * s).mean()


def remembering(n_rows: int) -> Learning:
    """Return cross-entropy that holds on to what was learned early."""
    regularization = EarlyLearningRegularization(n_rows, N_CLASSES)
    return Learning(regularization.classes, regularization.loss)


LOSSES: dict[str, Callable[[int], Learning]] = {
    "cross-entropy": lambda _: plain(Categorical(N_CLASSES)),
    "square loss": lambda _: plain(SquaredError(N_CLASSES)),
    "GCE": lambda _: plain(GeneralizedCrossEntropy(N_CLASSES)),
    "ELR": remembering,
    "joint, floor -4": lambda _: plain(UncertaintyAware(N_CLASSES, floor=FLOOR)),
    "joint, floor -7": lambda _: plain(UncertaintyAware(N_CLASSES, floor=-7.0)),
    "joint, no floor": lambda _: plain(UncertaintyAware(N_CLASSES, floor=None)),
    "faithful": lambda _: plain(UncertaintyAware(N_CLASSES, floor=FLOOR, form="faithful")),
    "slip": lambda _: Learning(UncertaintyAware(N_CLASSES, floor=FLOOR), slipped),
}
FLOORS = ("joint, floor -4", "joint, floor -7", "joint, no floor")
CHOSEN = "joint, chosen floor"  # of these, by validation


def learning(name: str, n_rows: int) -> Learning:
    """Return one of the losses for so many rows to learn from."""
    return LOSSES[name](n_rows)
