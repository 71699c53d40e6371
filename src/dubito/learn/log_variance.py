"""Log variances that a network gives: never below a floor, and how they weigh a loss."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from dubito.errors import BadValueError

__all__ = ["as_floor", "beta_weighted", "floored", "positive"]

HIGHEST = 60.0  # sums of losses times exp of it are still float32


def as_floor(floor: Any, caller: str) -> float:
    """Return a floor, a number whose exponential any float holds."""
    is_number = isinstance(floor, int | float) and not isinstance(floor, bool)
    if not (is_number and -HIGHEST <= floor <= HIGHEST):
        rule = f"a number from {-HIGHEST:g} to {HIGHEST:g}"
        raise BadValueError("floor", caller, rule, repr(floor), "floor=-4.0")
    return float(floor)


def floored(log_variance: Tensor, floor: float | None) -> Tensor:
    """Return log variances from the floor up: of an error of 0 the likelihood has no maximum.

    What is below the floor still learns to rise, and is not pushed down further.
    """
    if floor is None:
        return log_variance
    found: Tensor = Floored.apply(log_variance, floor)  # type: ignore[no-untyped-call]
    return found


@final
class Floored(torch.autograd.Function):
    """The larger of a tensor and a floor; slopes pass below it where a step along them is up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, floor: float) -> Tensor:
        return values.clamp(min=floor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        values, floor = inputs
        ctx.save_for_backward(values >= floor)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (is_above,) = ctx.saved_tensors
        return torch.where(is_above | (slope < 0), slope, 0.0), None


def beta_weighted(losses: Tensor, log_variance: Tensor, beta: float) -> Tensor:
    """Return losses times variance ** beta, which is held fixed while gradients are taken.

    At 0 rows of large variance hardly train the mean any more, at 1 all train it alike.
    """
    return losses * positive(beta * log_variance.detach()) if beta else losses


def positive(logarithm: Tensor) -> Tensor:
    """Return the exponential, held far below the largest float32."""
    return logarithm.clamp(max=HIGHEST).exp()
