"""Calibrators as layers: what was learned after training becomes the network's last step."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import nn

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
)
from dubito.calibrate.rows import FLOOR
from dubito.errors import BadTypeError, BadValueError, UnfittedError
from dubito.learn import maps

__all__ = ["CalibrationModule", "to_module"]

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
        raise cannot_be_appended(calibrator, calibrator)
    if not calibrator.__sklearn_is_fitted__():
        raise UnfittedError(type(calibrator).__name__, CALLER)
    return CalibrationModule(map_of(calibrator, calibrator), calibrator.n_classes_)


def map_of(calibrator: Any, whole: BaseCalibrator) -> nn.Module:
    """Return the map from logits to calibrated ones, up to a shift a row, of a part of a whole."""
    match calibrator:
        case IdentityCalibrator():
            return nn.Identity()
        case TemperatureScaling():
            return maps.Tempered(calibrator.temperature_)
        case VectorScaling():
            return maps.Scaled(calibrator.temperature_, calibrator.weight_, calibrator.bias_)
        case MatrixScaling() | StructuredMatrixScaling():
            return maps.Mapped(calibrator._basis(), calibrator.weight_, calibrator.bias_)
        case EnsembleTemperatureScaling():
            parts = [maps.Tempered(calibrator.temperature_), nn.Identity(), maps.Indifferent()]
            return maps.Mixed(parts, calibrator.weights_)
        case AutoCalibrator():
            return maps.Mixed(
                (map_of(one, whole) for one in calibrator.calibrators_), calibrator.weights_
            )
        case OneVsRest():
            return maps.Together(curve_of(one, whole) for one in calibrator.calibrators_)
        case PlattScaling() | BetaCalibration():
            return maps.Binary(curve_of(calibrator, whole))
    raise cannot_be_appended(calibrator, whole)


def curve_of(calibrator: Any, whole: BaseCalibrator) -> nn.Module:
    """Return the map from a class's log odds to calibrated ones."""
    match calibrator:
        case PlattScaling():
            return maps.Line(calibrator.slope_, calibrator.intercept_)
        case BetaCalibration():
            return maps.BetaCurve(calibrator.coefficients_)
    raise cannot_be_appended(calibrator, whole)


def cannot_be_appended(part: Any, whole: Any) -> BadTypeError:
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
