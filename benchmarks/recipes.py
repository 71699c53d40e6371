"""Common hand-written recipes of temperature scaling, and an exact reference."""

from collections.abc import Callable

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, softmax

from dubito.arrays import FloatArray, IntArray

__all__ = ["exact_temperature", "lbfgs_temperature", "minimize_temperature"]

BLOCK = 2_000  # rows of float64 at once


def lbfgs_temperature(logits: FloatArray, y: IntArray) -> float:
    """Return the temperature of the classic PyTorch recipe: LBFGS on cross-entropy from 1.5."""
    import torch

    inputs, target = torch.from_numpy(logits), torch.from_numpy(y)
    temperature = torch.nn.Parameter(torch.full((1,), 1.5, dtype=inputs.dtype))
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(inputs / temperature, target)
        loss.backward()
        return loss

    optimizer.step(closure)
    return float(temperature.item())


def minimize_temperature(logits: FloatArray, y: IntArray) -> float:
    """Return the temperature of the SciPy recipe: `minimize` on a float64 log loss."""
    scores, rows = logits.astype(np.float64), np.arange(y.size)

    def loss(temperature: FloatArray) -> float:
        return float(-log_softmax(scores / temperature[0], axis=1)[rows, y].mean())

    return float(minimize(loss, [1.0], bounds=[(0.01, 100.0)]).x[0])


def exact_temperature(logits: FloatArray, y: IntArray) -> float:
    """Return the temperature where the derivative of the float64 log loss is 0: slow, but exact."""
    return float(1 / brentq(derivative(logits, y), 1e-3, 1e3, xtol=1e-14, rtol=1e-13))


def derivative(logits: FloatArray, y: IntArray) -> Callable[[float], float]:
    """Return the derivative of the summed log loss in the inverse temperature."""
    label = float(logits[np.arange(y.size), y].sum(dtype=np.float64))

    def slope(beta: float) -> float:
        total = 0.0
        for start in range(0, y.size, BLOCK):
            scores = logits[start : start + BLOCK].astype(np.float64)
            total += float((softmax(beta * scores, axis=1) * scores).sum())
        return total - label

    return slope
