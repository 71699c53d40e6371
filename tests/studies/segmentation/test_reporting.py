"""Reported settings were chosen on validation images."""

from dataclasses import dataclass

import numpy as np

from studies.segmentation.reporting import chosen


@dataclass(frozen=True)
class Way:
    """What identifies a run."""

    method: str
    seed: int
    strength: float


def test_the_strength_is_chosen_on_validation_images() -> None:
    def run(validation: float, test: float) -> dict[str, np.ndarray]:
        return {"validation": np.array([validation, 0]), "test": np.array([test, 0])}

    runs = {
        Way("a", 0, 0.1): run(0.5, 0.9),
        Way("a", 0, 1.0): run(0.6, 0.7),
        Way("a", 1, 0.1): run(0.8, 0.8),
        Way("b", 0, 0.1): run(0.9, 0.8),
    }
    strength, test = chosen(runs, "a", 0)
    assert (strength, test[0]) == (1.0, 0.7)
