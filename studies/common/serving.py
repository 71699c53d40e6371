"""The service as a process of its own, and a policy for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, Policy
from dubito.outputs import Logits

__all__ = ["Process", "SCRIPT", "fitted_policy", "served", "start"]

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


def start(
    policy: Path, database: str, log: Path, *words: str, under: Sequence[str] = ()
) -> tuple[Process, str]:
    """Start a service, maybe under another program; return its process and where it listens."""
    command = [SCRIPT, "serve", str(policy), "--database", database, "--port", "0", "--json"]
    with log.open("a") as errors:
        process = subprocess.Popen(
            [*under, *command, *words], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    told = ""
    while not told.rstrip().endswith("}"):
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"The service did not start: {log.read_text()[-2000:]}")
        told += line
    return process, str(json.loads(told)["address"])


@contextmanager
def served(policy: Path, database: str, log: Path, *words: str) -> Iterator[str]:
    """Yield the address of a service, which is told to stop in the end."""
    process, address = start(policy, database, log, *words)
    try:
        yield address
    finally:
        process.terminate()
        process.communicate(timeout=60)
