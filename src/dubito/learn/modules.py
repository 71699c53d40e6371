"""Parametric calibrators as PyTorch modules."""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from typing import Any, final

import numpy as np
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

MAX_LOG_ODDS = log((1 - FLOOR) / FLOOR)


class BaseMap(nn.Module):
    """A map whose parameters are float64 buffers: moved and saved with the network, not trained."""

    def __init__(self, **parameters: Any) -> None:
        super().__init__()
        for name, value in parameters.items():
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))

    def forward(self, values: Tensor) -> Tensor:
        """Return the calibrated logits, or log odds, of rows."""
        raise NotImplementedError


@final
class Tempered(BaseMap):
    """Logits divided by a temperature."""

    def forward(self, values: Tensor) -> Tensor:
        return values / self.get_buffer("temperature")


@final
class Uniform(BaseMap):
    """The same logit for every class."""

    def forward(self, values: Tensor) -> Tensor:
        return torch.zeros_like(values)


@final
class Mapped(BaseMap):
    """Vector or matrix scaling of logits, or of basis functions of the log probabilities."""

    def __init__(self, of: basis.Basis, weight: FloatArray, bias: FloatArray) -> None:
        centers = {} if of.centers is None else {"centers": of.centers}
        super().__init__(beta=of.beta, weight=weight, bias=bias, width=of.width, **centers)
        self.is_logits, self.is_linear = of.is_logits, of.kind == "linear"
        self.has_rbf = of.centers is not None

    def forward(self, values: Tensor) -> Tensor:
        x = values * self.get_buffer("beta")
        x = x if self.is_logits else _log_probabilities(x)
        weight, bias = self.get_buffer("weight"), self.get_buffer("bias")
        if weight.ndim == 1:
            return x * weight + bias
        parts = [x]
        if not self.is_linear:
            parts += [x.exp(), *((x - knot).clamp(min=0) for knot in basis.SPLINE_KNOTS)]
        if self.has_rbf:
            parts.append(self.radial_basis(x))
        return torch.cat(parts, -1) @ weight.T + bias

    def radial_basis(self, x: Tensor) -> Tensor:
        """Return the Gaussian kernel of each row and each center."""
        gaps = x.clamp(min=basis.MIN_RBF_LOG_PROBA)[..., None, :] - self.get_buffer("centers")
        return (-0.5 * gaps.square().sum(-1) / self.get_buffer("width").square()).exp()


@final
class Mixed(BaseMap):
    """The log of the weighted mean of the probabilities of several maps."""

    def __init__(self, parts: Iterable[nn.Module], weights: FloatArray) -> None:
        super().__init__(weights=weights)
        self.parts = nn.ModuleList(parts)

    def forward(self, values: Tensor) -> Tensor:
        parts = [part(values).softmax(-1).clamp(min=FLOOR) for part in self.parts]
        return (torch.stack(parts, -1) @ self.get_buffer("weights")).log()


@final
class PlattCurve(BaseMap):
    """Platt scaling: log odds times a slope, plus an intercept."""

    def forward(self, values: Tensor) -> Tensor:
        return self.get_buffer("slope") * values + self.get_buffer("intercept")


@final
class BetaCurve(BaseMap):
    """Beta calibration: log odds a log(p) - b log(1 - p) + c."""

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
class OneVsRestMap(BaseMap):
    """A curve for each class against the rest; rows where all are 0 are unchanged."""

    def __init__(self, curves: Iterable[nn.Module]) -> None:
        super().__init__()
        self.curves = nn.ModuleList(curves)

    def forward(self, values: Tensor) -> Tensor:
        odds = _log_odds(values)
        each = [curve(odds[..., k]).sigmoid() for k, curve in enumerate(self.curves)]
        p = torch.stack(each, -1)
        is_empty = p.sum(-1, keepdim=True) <= len(each) * FLOOR
        return torch.where(is_empty, values.log_softmax(-1), p.clamp(min=FLOOR).log())


def _log_probabilities(logits: Tensor) -> Tensor:
    """Return log probabilities, floored as calibrators do."""
    return logits.log_softmax(-1).clamp(min=basis.MIN_LOG_PROBA)


def _log_odds(logits: Tensor) -> Tensor:
    """Return each class's log odds against all others.

    The complement of the top class is summed, not subtracted from 1.
    """
    x = logits.log_softmax(-1)
    top = x.argmax(-1, keepdim=True)
    log_rest_of_top = x.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    log_rest = torch.log1p(-x.exp().scatter(-1, top, 0.0)).scatter(-1, top, log_rest_of_top)
    return (x - log_rest).clamp(-MAX_LOG_ODDS, MAX_LOG_ODDS)


CALLER = "to_module"


@final
class CalibrationModule(nn.Module):
    """A fitted calibrator as a module: logits in, calibrated probabilities out.

    Made by `to_module`. It has nothing to train and passes gradients. It computes in float64; on
    devices without it, call `.float()` before `.to(device)`.
    """

    def __init__(self, scores: nn.Module, n_classes: int) -> None:
        super().__init__()
        self.scores = scores
        self.n_classes = n_classes
        self.register_buffer("floor", torch.tensor(FLOOR, dtype=torch.float64))

    def forward(self, logits: torch.Tensor) -> torch.Tensor:
        """Return calibrated probabilities.

        Parameters
        ----------
        logits : Tensor of shape (n_rows, n_classes) or (n_images, n_classes, height, width)
            Logits, with classes on axis 1.

        Returns
        -------
        Tensor
            Probabilities of the same shape, at least 1e-12.
        """
        probabilities = self._scored(logits).softmax(-1)
        floored = torch.maximum(probabilities, self.get_buffer("floor"))
        return floored.to(logits.dtype).movedim(-1, 1)

    def log_probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return calibrated log probabilities, which are accurate also where tiny.

        Parameters
        ----------
        logits : Tensor of shape (n_rows, n_classes) or (n_images, n_classes, height, width)
            Logits, with classes on axis 1.

        Returns
        -------
        Tensor
            Log probabilities of the same shape.
        """
        return self._scored(logits).log_softmax(-1).to(logits.dtype).movedim(-1, 1)

    def _scored(self, logits: torch.Tensor) -> torch.Tensor:
        if not logits.is_floating_point():
            rule, fix = "must be floating point", "Call .float()"
            raise BadTypeError("logits", type(self).__name__, rule, f"{logits.dtype}", fix)
        columns = logits[:, None] if logits.ndim == 1 else logits
        rows = columns.movedim(1, -1).to(self.get_buffer("floor").dtype)
        if rows.shape[-1] == 1:  # a single logit is that of the second of two classes
            rows = torch.cat([torch.zeros_like(rows), rows], -1)
        if rows.shape[-1] != self.n_classes:
            rule = f"must have the {self.n_classes} classes of the fit"
            fix = "Pass the same columns"
            got = f"shape {tuple(logits.shape)}"
            raise BadValueError("logits", type(self).__name__, rule, got, fix)
        scores: torch.Tensor = self.scores(rows)
        return scores


def to_module(calibrator: BaseCalibrator) -> CalibrationModule:
    """Return a fitted calibrator as a module, to append to a network that returns logits.

    `nn.Sequential(network, to_module(calibrator))` returns what `predict_proba` returns, and is
    saved, moved and exported with the network.

    Parameters
    ----------
    calibrator : BaseCalibrator
        A fitted parametric calibrator, `OneVsRest` of one, or
        ``AutoCalibrator(parametric_only=True)``.

    Returns
    -------
    CalibrationModule
        The module.

    Examples
    --------
    >>> from dubito import Logits
    >>> scaling = TemperatureScaling().fit(Logits([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]), [0, 1, 1])
    >>> to_module(scaling)(torch.tensor([[3.0, 0.0]]))
    tensor([[0.6667, 0.3333]])
    """
    if not isinstance(calibrator, BaseCalibrator):
        raise _unsupported(calibrator, calibrator)
    if not calibrator.__sklearn_is_fitted__():
        raise UnfittedError(type(calibrator).__name__, CALLER)
    return CalibrationModule(_logit_map(calibrator, calibrator), calibrator.n_classes_)


def _logit_map(calibrator: Any, whole: BaseCalibrator) -> nn.Module:
    """Return the map to calibrated logits (up to a shift per row) of a part of a calibrator."""
    match calibrator:
        case IdentityCalibrator():
            return nn.Identity()
        case TemperatureScaling():
            return Tempered(temperature=calibrator.temperature_)
        case VectorScaling() | MatrixScaling() | StructuredMatrixScaling():
            return Mapped(calibrator._features(), calibrator.weight_, calibrator.bias_)
        case EnsembleTemperatureScaling():
            tempered = Tempered(temperature=calibrator.temperature_)
            parts = [tempered, nn.Identity(), Uniform()]
            return Mixed(parts, calibrator.weights_)
        case AutoCalibrator():
            maps = [_logit_map(one, whole) for one in calibrator.calibrators_]
            uniform_weight = calibrator.uniform_weight_
            weights = np.append((1 - uniform_weight) * calibrator.weights_, uniform_weight)
            return Mixed([*maps, Uniform()], weights)
        case OneVsRest():
            return OneVsRestMap(_odds_map(one, whole) for one in calibrator.calibrators_)
        case PlattScaling() | BetaCalibration():
            return Binary(_odds_map(calibrator, whole))
    raise _unsupported(calibrator, whole)


def _odds_map(calibrator: Any, whole: BaseCalibrator) -> nn.Module:
    """Return the map from a class's log odds to calibrated log odds."""
    match calibrator:
        case PlattScaling():
            return PlattCurve(slope=calibrator.slope_, intercept=calibrator.intercept_)
        case BetaCalibration():
            return BetaCurve(coefficients=calibrator.coefficients_)
    raise _unsupported(calibrator, whole)


def _unsupported(part: Any, whole: Any) -> BadTypeError:
    """Return the error for a calibrator that cannot be converted."""
    rule = (
        "supports TemperatureScaling, VectorScaling, MatrixScaling, StructuredMatrixScaling, "
        "EnsembleTemperatureScaling, PlattScaling, BetaCalibration, IdentityCalibrator, and "
        "OneVsRest or AutoCalibrator of these"
    )
    is_auto = isinstance(whole, AutoCalibrator)
    fix = "AutoCalibrator(parametric_only=True)" if is_auto else "TemperatureScaling()"
    got = " with ".join(dict.fromkeys(type(one).__name__ for one in (whole, part)))
    return BadTypeError("", CALLER, rule, got, f"Use {fix}.fit(outputs, y)")
