"""Kernels compiled ahead: a second process compiles what a command needs last.

The first run on a machine compiles kernels in the order in which the command needs them, on one
core, as Numba compiles one at a time. The process started here begins at the other end. Each finds
in the cache what the other has compiled.
"""

from __future__ import annotations

import atexit
import sys
from subprocess import DEVNULL, Popen
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dubito.arrays import IntArray
    from dubito.outputs import BaseOutputs

N_ROWS = 200


def compile_ahead(
    outputs: BaseOutputs, *, ends_with_audit: bool = False, is_audit: bool = False
) -> None:
    """Start to compile the kernels of calibration and decisions, if kernels are being compiled.

    An audit comes last in some commands, first in others, which compile its kernels themselves. If
    it is all that there is, its own kernels are shared out.
    """
    from dubito.kernels.blocks import n_threads
    from dubito.kernels.compile import NOTICE
    from dubito.outputs import Logits, Probabilities

    if not isinstance(outputs, Logits | Probabilities) or not NOTICE.n_compiled or n_threads() < 2:
        return
    kind = [type(outputs).__name__, outputs.array.dtype.name, str(outputs.n_classes)]
    kind += ["audit"] if is_audit else ["fit", "audit"] if ends_with_audit else ["fit"]
    process = Popen(
        [sys.executable, "-m", "dubito.cli.ahead", *kind],
        stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL,
    )  # fmt: skip
    atexit.register(_stop, process)


def _stop(process: Popen[bytes]) -> None:
    """End a process whose work is no longer needed."""
    process.terminate()
    process.wait()


def _rehearse(kind: str, dtype: str, n_classes: int, steps: Sequence[str] = ("fit",)) -> None:
    """Calibrate, decide or audit a few rows, the last step of a command first."""
    import numpy as np

    from dubito import CostMatrix, Logits, Probabilities
    from dubito.calibrate import (
        ForestCalibration,
        IsotonicCalibration,
        OneVsRest,
        StructuredMatrixScaling,
        TemperatureScaling,
    )
    from dubito.decide import optimal_actions
    from dubito.measure import expected_calibration_error, log_loss

    labels = np.arange(max(N_ROWS, 2 * n_classes)) % n_classes
    generator = np.random.default_rng(0)
    array = generator.normal(size=(labels.size, n_classes)) + 2 * np.eye(n_classes)[labels]
    outputs: Logits | Probabilities = Logits(array.astype(dtype))
    if kind == "Probabilities":
        powers = np.exp(array)
        outputs = Probabilities((powers / powers.sum(axis=1, keepdims=True)).astype(dtype))
    if steps[0] == "audit":
        _rehearse_audit(outputs, labels)
        return
    if "audit" in steps:
        log_loss(labels, outputs)
        expected_calibration_error(labels, outputs)
    optimal_actions(outputs, CostMatrix.zero_one(n_classes).with_reject(0.2))
    isotonic = IsotonicCalibration()
    for calibrator in (
        ForestCalibration(),
        StructuredMatrixScaling(basis="rbf"),
        StructuredMatrixScaling(basis="spline"),
        isotonic if n_classes == 2 else OneVsRest(isotonic),
        TemperatureScaling(),
    ):
        calibrator.fit(outputs, labels).predict_proba(outputs)


def _rehearse_audit(outputs: BaseOutputs, labels: IntArray) -> None:
    """Audit a few rows without the pass over the matrix, which the other process compiles."""
    import numpy as np

    from dubito.data import Batch
    from dubito.data.batch import RowStatistics
    from dubito.measure.audit_state import AuditState, BootstrapState
    from dubito.measure.calibration_error import ClasswiseCalibrationState, uniform_edges

    batch = Batch.of(labels, outputs)
    half = np.full(len(batch), 0.5)
    predicted = np.zeros(len(batch), np.int32)
    batch.__dict__["rows"] = RowStatistics(half, half, half, predicted, *[half] * 6)
    ClasswiseCalibrationState.of(batch, uniform_edges(15, "audit"))
    BootstrapState.of(batch, n_resamples=1)
    AuditState.of(batch)


if __name__ == "__main__":
    _rehearse(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:])
