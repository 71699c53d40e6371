"""The service as a separate process, and a policy for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dubito.calibrate import MultiLabelCalibrator, TemperatureScaling, VarianceScaling
from dubito.decide import (
    CostMatrix,
    ErrorCosts,
    LabelCosts,
    MultiLabelPolicy,
    Policy,
    RegressionPolicy,
)
from dubito.outputs import Logits, MultiLabel, Normal, Quantiles, Samples

__all__ = [
    "Process", "SCRIPT", "fitted_label_policy", "fitted_policy", "fitted_value_policy", "served",
    "start",
]  # fmt: skip

Process = subprocess.Popen[str]
SCRIPT = str(Path(sys.executable).with_name("dubito"))


def fitted_policy(n_classes: int = 3, reject_cost: float = 0.3) -> Policy:
    """Return a small policy that rejects some rows, over classes a, b, c and so on."""
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(1000, n_classes))
    labels = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    names = [chr(ord("a") + k) for k in range(n_classes)]
    costs = CostMatrix.zero_one(names).with_reject(reject_cost)
    return Policy.fit(Logits(logits), labels, costs=costs, calibrator=TemperatureScaling())


def fitted_label_policy(review: float = 0.3, n_labels: int = 3) -> MultiLabelPolicy:
    """Return a small policy for some of the labels edema, effusion and fracture of a row."""
    rng = np.random.default_rng(0)
    names = ["edema", "effusion", "fracture"][:n_labels]
    odds = rng.normal(-1, 1.5, (600, n_labels))
    y = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    costs = LabelCosts(1, {"edema": 5, "*": 2}, review=review, review_row=0.8 * n_labels / 3)
    outputs = MultiLabel.from_logits(2 * odds, names)
    calibrator = MultiLabelCalibrator("platt", other_labels=False)
    return MultiLabelPolicy.fit(outputs, y, costs=costs, calibrator=calibrator)


def fitted_value_policy(kind: str = "Normal", review_cost: float = 12.0) -> RegressionPolicy:
    """Return a small policy for order quantities, which reviews the most uncertain rows."""
    rng = np.random.default_rng(0)
    mean, std = rng.normal(100, 20, 600), np.exp(rng.normal(1, 0.6, 600))
    y, z = mean + 2 * std * rng.normal(size=600), np.array([-1.64, -0.67, 0.0, 0.67, 1.64])
    outputs: Normal | Samples | Quantiles = Normal(mean, std)
    if kind == "Samples":
        outputs = Samples(mean[:, np.newaxis] + std[:, np.newaxis] * rng.normal(size=(600, 30)))
    if kind == "Quantiles":
        levels = [0.05, 0.25, 0.5, 0.75, 0.95]
        outputs = Quantiles(mean[:, np.newaxis] + std[:, np.newaxis] * z, levels)
    return RegressionPolicy.fit(
        outputs, y, costs=ErrorCosts.linear(under=4, over=1), calibrator=VarianceScaling(),
        review_cost=review_cost, max_width=60,
    )  # fmt: skip


def start(
    policy: Path, database: str, log: Path, *arguments: str, under: Sequence[str] = ()
) -> tuple[Process, str]:
    """Start a service, optionally under another program; return its process and address."""
    command = [SCRIPT, "serve", str(policy), "--database", database, "--port", "0", "--json"]
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*under, *command, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    output = ""
    while not output.rstrip().endswith("}"):
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"The service did not start: {log.read_text()[-2000:]}")
        output += line
    return process, str(json.loads(output)["address"])


@contextmanager
def served(policy: Path, database: str, log: Path, *arguments: str) -> Iterator[str]:
    """Yield the address of a service, which is stopped in the end."""
    process, address = start(policy, database, log, *arguments)
    try:
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)
