import numpy as np
import pytest

from benchmarks.datasets import generate_logits
from benchmarks.recipes import exact_temperature, minimize_temperature
from dubito import Logits
from dubito.calibrate import TemperatureScaling


def test_three_ways_to_one_temperature() -> None:
    logits, y = generate_logits(3_000, 5)
    exact = exact_temperature(logits, y)
    assert minimize_temperature(logits, y) == pytest.approx(exact, abs=1e-4)
    assert TemperatureScaling().fit(Logits(logits), y).temperature_ == pytest.approx(
        exact, abs=1e-6
    )


def test_the_exact_one_is_the_least_loss() -> None:
    logits, y = generate_logits(500, 4)

    def loss(temperature: float) -> float:
        scores = logits.astype(float) / temperature
        return float((np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(y.size), y]).mean())

    exact = exact_temperature(logits, y)
    assert loss(exact) < min(loss(exact * 1.001), loss(exact / 1.001))
