"""The maps that parametric calibrators learn, in torch: logits in, scores out, rows x classes.

Classes are on the last axis, scores are log probabilities up to a shift a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from dubito.arrays import FloatArray
from dubito.calibrate import basis
from dubito.calibrate.rows import FLOOR

__all__ = [
    "BetaCurve",
    "Binary",
    "Indifferent",
    "Line",
    "Mapped",
    "Mixed",
    "Scaled",
    "Tempered",
    "Together",
]

WIDEST = log((1 - FLOOR) / FLOOR)  # log odds, either way


class BaseMap(nn.Module):
    """A map whose numbers are buffers in float64: moved and kept with the network, not trained."""

    def hold(self, **numbers: Any) -> None:
        """Register what was learned."""
        for name, value in numbers.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

    def forward(self, values: Tensor) -> Tensor:
        """Return the scores of some rows, or the log odds of some."""
        raise NotImplementedError


@final
class Tempered(BaseMap):
    """Logits divided by a temperature."""

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.hold(temperature=temperature)

    def forward(self, values: Tensor) -> Tensor:
        return values / self.get_buffer("temperature")


@final
class Indifferent(BaseMap):
    """The same score for every class: no opinion."""

    def forward(self, values: Tensor) -> Tensor:
        return torch.zeros_like(values)


@final
class Scaled(BaseMap):
    """Each class's log probability scaled and shifted, after a temperature."""

    def __init__(self, temperature: float, weight: FloatArray, bias: FloatArray) -> None:
        super().__init__()
        self.hold(temperature=temperature, weight=weight, bias=bias)

    def forward(self, values: Tensor) -> Tensor:
        x = log_probabilities(values / self.get_buffer("temperature"))
        return x * self.get_buffer("weight") + self.get_buffer("bias")


@final
class Mapped(BaseMap):
    """A matrix on the numbers of a basis: log probabilities, their bends, and bumps."""

    def __init__(self, of: basis.Basis, weight: FloatArray, bias: FloatArray) -> None:
        super().__init__()
        self.hold(beta=of.beta, weight=weight, bias=bias, width=of.width)
        self.is_straight = of.shape == "straight"
        self.has_bumps = of.centers is not None
        if of.centers is not None:
            self.hold(centers=of.centers)

    def forward(self, values: Tensor) -> Tensor:
        x = log_probabilities(values * self.get_buffer("beta"))
        parts = [x]
        if not self.is_straight:
            parts += [x.exp(), *((x - bend).clamp(min=0) for bend in basis.BENDS)]
        if self.has_bumps:
            parts.append(self.bumps(x))
        return torch.cat(parts, -1) @ self.get_buffer("weight").T + self.get_buffer("bias")

    def bumps(self, x: Tensor) -> Tensor:
        """Return how near rows are to each known one."""
        gaps = x.clamp(min=basis.FAR)[..., None, :] - self.get_buffer("centers")
        return (-0.5 * gaps.square().sum(-1) / self.get_buffer("width").square()).exp()


@final
class Mixed(BaseMap):
    """The log of the mean of what several maps say, by their shares."""

    def __init__(self, parts: Iterable[nn.Module], shares: FloatArray) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.hold(shares=shares)

    def forward(self, values: Tensor) -> Tensor:
        said = torch.stack([part(values).softmax(-1).clamp(min=FLOOR) for part in self.parts], -1)
        return (said @ self.get_buffer("shares")).log()


@final
class Line(BaseMap):
    """Log odds times a slope, plus an intercept."""

    def __init__(self, slope: float, intercept: float) -> None:
        super().__init__()
        self.hold(slope=slope, intercept=intercept)

    def forward(self, values: Tensor) -> Tensor:
        return self.get_buffer("slope") * values + self.get_buffer("intercept")


@final
class BetaCurve(BaseMap):
    """Log odds a log(p) - b log(1 - p) + c."""

    def __init__(self, coefficients: FloatArray) -> None:
        super().__init__()
        self.hold(coefficients=coefficients)

    def forward(self, values: Tensor) -> Tensor:
        a, b, c = self.get_buffer("coefficients").unbind()
        return a * logsigmoid(values) - b * logsigmoid(-values) + c


@final
class Binary(BaseMap):
    """A curve on the log odds of the second of two classes."""

    def __init__(self, curve: nn.Module) -> None:
        super().__init__()
        self.curve = curve

    def forward(self, values: Tensor) -> Tensor:
        odds = self.curve(log_odds(values)[..., 1])
        return torch.stack([logsigmoid(-odds), logsigmoid(odds)], -1)


@final
class Together(BaseMap):
    """A curve for each class against the rest; a row that none wants stays as it came."""

    def __init__(self, curves: Iterable[nn.Module]) -> None:
        super().__init__()
        self.curves = nn.ModuleList(curves)

    def forward(self, values: Tensor) -> Tensor:
        odds = log_odds(values)
        each = [curve(odds[..., k]).sigmoid() for k, curve in enumerate(self.curves)]
        shares = torch.stack(each, -1)
        is_empty = shares.sum(-1, keepdim=True) <= len(each) * FLOOR
        return torch.where(is_empty, values.log_softmax(-1), shares.clamp(min=FLOOR).log())


def log_probabilities(logits: Tensor) -> Tensor:
    """Return log probabilities, none below what calibrators read."""
    return logits.log_softmax(-1).clamp(min=basis.LOWEST)


def log_odds(logits: Tensor) -> Tensor:
    """Return each class's log odds against all others together.

    What is left beside the top class is summed, not subtracted from 1.
    """
    x = logits.log_softmax(-1)
    top = x.argmax(-1, keepdim=True)
    beside_top = x.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    beside = torch.log1p(-x.exp().scatter(-1, top, 0.0)).scatter(-1, top, beside_top)
    return (x - beside).clamp(-WIDEST, WIDEST)
