"""Several members asked about many images, and the figures of what they say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dubito import Members
from dubito.arrays import FloatArray
from dubito.learn import MonteCarloDropout
from dubito.measure import accuracy, expected_calibration_error, log_loss
from studies.common.images import READ_ROWS

__all__ = ["FIGURES", "Ask", "dropout_passes", "figures_of", "members_over"]

FIGURES = ("accuracy", "ECE", "log loss")
Ask = Callable[[Tensor], Members]


def members_over(ask: Ask, pixels: Tensor) -> Members:
    """Return what an ensemble, or passes with dropout, say of images that are many."""
    with torch.no_grad():
        parts = [ask(batch).array for batch in torch.split(pixels, READ_ROWS)]
    return Members(np.concatenate(parts, axis=1))


def dropout_passes(network: nn.Sequential, n_passes: int, likelihood: Any) -> Ask:
    """Return what asks a trained network several times with dropout awake.

    The layers before the first dropout say the same in every pass: they run once for all.
    """
    first = next(i for i, layer in enumerate(network) if isinstance(layer, nn.Dropout))
    body = network[:first]
    passes = MonteCarloDropout(network[first:], n_passes, likelihood=likelihood)
    return lambda pixels: passes(body(pixels))


def figures_of(labels: Any, outputs: Any) -> FloatArray:
    """Return accuracy, expected calibration error and log loss."""
    figures = accuracy, expected_calibration_error, log_loss
    return np.array([figure(labels, outputs) for figure in figures])
