"""Rows that are logits or probabilities, and what they mean in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.floating[Any]]

FLOOR = 1e-12


@pytest.fixture
def some_rows() -> Callable[..., tuple[Floats, NDArray[np.float64]]]:
    """Return what makes rows, and the same rows as logits in float64."""

    def made(
        seed: int, shape: tuple[int, int], dtype: type[np.floating[Any]], is_logits: bool
    ) -> tuple[Floats, NDArray[np.float64]]:
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 3, shape).astype(dtype)
        if is_logits:
            return logits, logits.astype(np.float64)
        shares = special.softmax(logits, axis=1) * (rng.random(shape) < 0.7)  # some exactly 0
        shares[:, 0] += 1e-3
        array = np.asarray(shares / shares.sum(axis=1, keepdims=True), dtype)
        return array, np.log(np.maximum(array.astype(np.float64), FLOOR))

    return made
