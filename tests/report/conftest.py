"""A small classifier to report on, summarized once for all tests."""

from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.data import ArrayShards, Batch
from dubito.decide import CostMatrix
from dubito.report.summary import Summary

CLASSES = ("cat", "<script>alert(1)</script>", "fox")


@pytest.fixture(scope="session")
def batch() -> Batch:
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(240, 3))
    labels = (logits / 3 + rng.gumbel(size=(240, 3))).argmax(axis=1)
    truth: list[Any] = [CLASSES[k] for k in labels]
    truth[7] = None
    return Batch.of(
        truth,
        Logits(logits, CLASSES),
        sample_weight=rng.integers(0, 3, 240).astype(float),
        features=rng.normal(size=(240, 4)) + labels[:, np.newaxis],
        ids=[f"<b>row-{k}</b>" for k in range(240)],
        groups=np.where(np.arange(240) % 3 == 0, "north & south", "east"),
    )


@pytest.fixture(scope="session")
def costs() -> CostMatrix:
    table = [[0, 5, 1], [2, 0, 1], [1, 3, 0]]
    return CostMatrix(table, classes=CLASSES).with_reject([0.6, 0.5, 0.4], name="ask & wait")


@pytest.fixture(scope="session")
def summary(batch: Batch, costs: CostMatrix) -> Summary:
    rng = np.random.default_rng(1)
    ood = Batch.of(
        None, Logits(rng.normal(size=(60, 3)), CLASSES), features=9 * rng.normal(size=(60, 4))
    )
    return Summary.of(ArrayShards(batch), ood=ood, costs=costs, command="a < b", seed=3)
