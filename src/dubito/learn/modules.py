"""Parametric calibrators as PyTorch modules."""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from dubito.arrays import FloatArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    EnsembleTemperatureScaling,
    IdentityCalibrator,
    MatrixScaling,
    OneVsRest,
    PlattScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
    basis,
)
from dubito.calibrate.calibrator import FLOOR
from dubito.errors import BadTypeError, BadValueError, UnfittedError

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
        x = _log_probabilities(values / self.get_buffer("temperature"))
        return x * self.get_buffer("weight") + self.get_buffer("bias")


@final
class Mapped(BaseMap):
    """A matrix on the numbers of a basis: log probabilities, their bends, and bumps."""

    def __init__(self, of: basis.Basis, weight: FloatArray, bias: FloatArray) -> None:
        super().__init__()
        self.hold(beta=of.beta, weight=weight, bias=bias, width=of.width)
        self.is_linear = of.kind == "linear"
        self.has_bumps = of.centers is not None
        if of.centers is not None:
            self.hold(centers=of.centers)

    def forward(self, values: Tensor) -> Tensor:
        x = _log_probabilities(values * self.get_buffer("beta"))
        parts = [x]
        if not self.is_linear:
            parts += [x.exp(), *((x - bend).clamp(min=0) for bend in basis.SPLINE_KNOTS)]
        if self.has_bumps:
            parts.append(self.bumps(x))
        return torch.cat(parts, -1) @ self.get_buffer("weight").T + self.get_buffer("bias")

    def bumps(self, x: Tensor) -> Tensor:
        """Return how near rows are to each known one."""
        gaps = x.clamp(min=basis.MIN_RBF_LOG_PROBA)[..., None, :] - self.get_buffer("centers")
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
        odds = self.curve(_log_odds(values)[..., 1])
        return torch.stack([logsigmoid(-odds), logsigmoid(odds)], -1)


@final
class Together(BaseMap):
    """A curve for each class against the rest; a row that none wants stays as it came."""

    def __init__(self, curves: Iterable[nn.Module]) -> None:
        super().__init__()
        self.curves = nn.ModuleList(curves)

    def forward(self, values: Tensor) -> Tensor:
        odds = _log_odds(values)
        each = [curve(odds[..., k]).sigmoid() for k, curve in enumerate(self.curves)]
        shares = torch.stack(each, -1)
        is_empty = shares.sum(-1, keepdim=True) <= len(each) * FLOOR
        return torch.where(is_empty, values.log_softmax(-1), shares.clamp(min=FLOOR).log())


def _log_probabilities(logits: Tensor) -> Tensor:
    """Return log probabilities, none below what calibrators read."""
    return logits.log_softmax(-1).clamp(min=basis.MIN_LOG_PROBA)


def _log_odds(logits: Tensor) -> Tensor:
    """Return each class's log odds against all others together.

    What is left beside the top class is summed, not subtracted from 1.
    """
    x = logits.log_softmax(-1)
    top = x.argmax(-1, keepdim=True)
    beside_top = x.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    beside = torch.log1p(-x.exp().scatter(-1, top, 0.0)).scatter(-1, top, beside_top)
    return (x - beside).clamp(-WIDEST, WIDEST)


CALLER = "to_module"


@final
class CalibrationModule(nn.Module):
    """Logits in, calibrated probabilities out: what `predict_proba` of a calibrator says.

    Logits are rows x classes; of maps, images x classes x height x width. It has nothing to train,
    and lets gradients through. It computes in float64, which `.float()` before `.to(device)` gives
    up where a device has none.
    """

    def __init__(self, scores: nn.Module, n_classes: int) -> None:
        super().__init__()
        self.scores = scores
        self.n_classes = n_classes
        self.register_buffer("floor", torch.tensor(FLOOR, dtype=torch.float64))

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Return calibrated probabilities, none below 1e-12."""
        chances = self._scored(logits).softmax(-1)
        return torch.maximum(chances, self.get_buffer("floor")).to(logits.dtype).movedim(-1, 1)

    def log_probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return calibrated log probabilities, of which no small one is lost."""
        return self._scored(logits).log_softmax(-1).to(logits.dtype).movedim(-1, 1)

    def _scored(self, logits: torch.Tensor) -> torch.Tensor:
        if not logits.is_floating_point():
            rule, fix = "of floating point", "`.float()`"
            raise BadTypeError("logits", type(self).__name__, rule, f"{logits.dtype}", fix)
        columns = logits[:, None] if logits.ndim == 1 else logits
        rows = columns.movedim(1, -1).to(self.get_buffer("floor").dtype)
        if rows.shape[-1] == 1:  # one logit is that of the second of two classes
            rows = torch.cat([torch.zeros_like(rows), rows], -1)
        if rows.shape[-1] != self.n_classes:
            rule, fix = f"over the {self.n_classes} classes of the fit", "the same columns"
            got = f"shape {tuple(logits.shape)}"
            raise BadValueError("logits", type(self).__name__, rule, got, fix)
        scores: torch.Tensor = self.scores(rows)
        return scores


def to_module(calibrator: BaseCalibrator) -> CalibrationModule:
    """Return a fitted calibrator as a module, to append to a network that puts out logits.

    `nn.Sequential(network, to_module(calibrator))` says what `predict_proba` says. Only parametric
    calibrators can be appended, `OneVsRest` of those, and `AutoCalibrator(parametric_only=True)`.

    >>> from dubito import Logits
    >>> scaling = TemperatureScaling().fit(Logits([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]), [0, 1, 1])
    >>> to_module(scaling)(torch.tensor([[3.0, 0.0]]))
    tensor([[0.6667, 0.3333]])
    """
    if not isinstance(calibrator, BaseCalibrator):
        raise _cannot_be_appended(calibrator, calibrator)
    if not calibrator.__sklearn_is_fitted__():
        raise UnfittedError(type(calibrator).__name__, CALLER)
    return CalibrationModule(_map_of(calibrator, calibrator), calibrator.n_classes_)


def _map_of(calibrator: Any, whole: BaseCalibrator) -> nn.Module:
    """Return the map from logits to calibrated ones, up to a shift a row, of a part of a whole."""
    match calibrator:
        case IdentityCalibrator():
            return nn.Identity()
        case TemperatureScaling():
            return Tempered(calibrator.temperature_)
        case VectorScaling():
            return Scaled(calibrator.temperature_, calibrator.weight_, calibrator.bias_)
        case MatrixScaling() | StructuredMatrixScaling():
            return Mapped(calibrator._features(), calibrator.weight_, calibrator.bias_)
        case EnsembleTemperatureScaling():
            parts = [Tempered(calibrator.temperature_), nn.Identity(), Indifferent()]
            return Mixed(parts, calibrator.weights_)
        case AutoCalibrator():
            return Mixed(
                (_map_of(one, whole) for one in calibrator.calibrators_), calibrator.weights_
            )
        case OneVsRest():
            return Together(_curve_of(one, whole) for one in calibrator.calibrators_)
        case PlattScaling() | BetaCalibration():
            return Binary(_curve_of(calibrator, whole))
    raise _cannot_be_appended(calibrator, whole)


def _curve_of(calibrator: Any, whole: BaseCalibrator) -> nn.Module:
    """Return the map from a class's log odds to calibrated ones."""
    match calibrator:
        case PlattScaling():
            return Line(calibrator.slope_, calibrator.intercept_)
        case BetaCalibration():
            return BetaCurve(calibrator.coefficients_)
    raise _cannot_be_appended(calibrator, whole)


def _cannot_be_appended(part: Any, whole: Any) -> BadTypeError:
    """Say which calibrators can be appended."""
    rule = (
        "TemperatureScaling, VectorScaling, MatrixScaling, StructuredMatrixScaling, "
        "EnsembleTemperatureScaling, PlattScaling, BetaCalibration, IdentityCalibrator, or OneVsRest or AutoCalibrator "
        "of these alone"
    )
    is_auto = isinstance(whole, AutoCalibrator)
    fix = "AutoCalibrator(parametric_only=True)" if is_auto else "TemperatureScaling()"
    got = " with ".join(dict.fromkeys(type(one).__name__ for one in (whole, part)))
    return BadTypeError("calibrator", CALLER, rule, got, f"{fix}.fit(outputs, y)")
