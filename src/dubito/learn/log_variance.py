"""Log variances that a network gives: never below a floor, and how they weigh a loss."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dubito.learn.likelihood import as_number

__all__ = ["as_floor", "beta_weighted", "floored", "positive"]

HIGHEST = 60.0  # sums of losses times exp of it are still float32


def as_floor(floor: Any, caller: str) -> float:
    """Return a floor, which is any finite number."""
    return as_number(floor, "floor", caller, "floor=-4.0")


def floored(log_variance: Tensor, floor: float | None) -> Tensor:
    """Return log variances from the floor up: of an error of 0 the likelihood has no maximum."""
    return log_variance if floor is None else log_variance.clamp(min=floor)


def beta_weighted(losses: Tensor, log_variance: Tensor, beta: float) -> Tensor:
    """Return losses times variance ** beta, which is held fixed while gradients are taken.

    At 0 rows of large variance hardly train the mean any more, at 1 all train it alike.
    """
    return losses * positive(beta * log_variance.detach()) if beta else losses


def positive(logarithm: Tensor) -> Tensor:
    """Return the exponential, held far below the largest float32."""
    return logarithm.clamp(max=HIGHEST).exp()
