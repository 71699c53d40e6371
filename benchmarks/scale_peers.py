"""Alternatives for a Parquet file of ten logits per row: other packages, or pandas."""

import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast
from unittest import mock

import numpy as np
from pyarrow import parquet

from benchmarks.scale_rows import PLAIN
from dubito.arrays import FloatArray, IntArray
from dubito.data import scan
from dubito.measure import Audit

__all__ = ["PEERS", "peers_table"]

N_BINS = 15
LOGITS = [f"logit_{k}" for k in range(PLAIN.n_classes)]


def arrays_of(path: Path) -> Iterator[tuple[FloatArray, IntArray]]:
    """Yield logits and labels as pandas reads them from a file, batch by batch."""
    with parquet.ParquetFile(path) as file:
        for batch in file.iter_batches():
            frame = batch.to_pandas()
            yield frame[LOGITS].to_numpy(), frame["y"].to_numpy()


def by_pandas(path: Path) -> dict[str, float]:
    """Return log loss and ECE of all rows, summed over chunks of a frame."""
    loss, n_rows = 0.0, 0
    count, confidence, correct = np.zeros(N_BINS), np.zeros(N_BINS), np.zeros(N_BINS)
    for logits, y in arrays_of(path):
        exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = exponentials / exponentials.sum(axis=1, keepdims=True)
        says = p.max(axis=1).astype(np.float64)
        loss -= float(np.log(p[np.arange(len(y)), y]).sum(dtype=np.float64))
        bins = np.clip(np.ceil(says * N_BINS).astype(int) - 1, 0, N_BINS - 1)
        count += np.bincount(bins, minlength=N_BINS)
        confidence += np.bincount(bins, says, minlength=N_BINS)
        correct += np.bincount(bins, p.argmax(axis=1) == y, minlength=N_BINS)
        n_rows += len(y)
    return {"log loss": loss / n_rows, "ECE": float(np.abs(confidence - correct).sum() / n_rows)}


def by_torchmetrics(path: Path) -> dict[str, float]:
    """Return the ECE of torchmetrics, which stores all confidences."""
    import torch
    from torchmetrics.classification import MulticlassCalibrationError

    metric = MulticlassCalibrationError(PLAIN.n_classes, n_bins=N_BINS)
    for logits, y in arrays_of(path):
        metric.update(torch.tensor(logits).softmax(dim=1), torch.tensor(y))
    return {"ECE": float(metric.compute())}


def by_dask_ml(path: Path) -> dict[str, float]:
    """Return the log loss of dask-ml, over the threads of this process.

    It passes an `eps` that scikit-learn no longer accepts; it is dropped here.
    """
    import dask.dataframe
    import sklearn.metrics
    from scipy.special import softmax

    def without_eps(*arrays: Any, eps: float, **settings: Any) -> Any:
        return kept(*arrays, **settings)

    kept, frames = sklearn.metrics.log_loss, cast(Any, dask.dataframe)
    log_loss = import_module("dask_ml.metrics").log_loss
    # In memory, as Dask otherwise reads logits and labels in parts that do not match.
    frame = frames.read_parquet(path, split_row_groups=4).persist()
    lengths = tuple(frame.map_partitions(len).compute())
    logits, y = (frame[names].to_dask_array(lengths=lengths) for names in (LOGITS, "y"))
    p = logits.map_blocks(softmax, axis=1, dtype=logits.dtype)
    with mock.patch.object(sklearn.metrics, "log_loss", without_eps), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about float32 sums that are off 1
        return {"log loss": float(log_loss(y, p, labels=np.arange(PLAIN.n_classes)))}


def by_audit(path: Path) -> dict[str, float]:
    """Return two of the metrics of an audit."""
    found = Audit.of(scan(path, PLAIN.columns), n_bins=N_BINS, n_resamples=0)
    assert found.log_loss is not None
    return {"log loss": found.log_loss, "ECE": found.expected_calibration_error}


# What each alternative needs besides pyarrow, and its function.
Peers = dict[str, tuple[tuple[str, ...], Callable[[Path], dict[str, float]]]]
PEERS: Peers = {
    "dubito, all of an audit": ((), by_audit),
    "pandas in chunks": (("pandas",), by_pandas),
    "torchmetrics": (("pandas", "torchmetrics"), by_torchmetrics),
    "dask-ml log_loss": (("dask_ml",), by_dask_ml),
}


def peers_table(path: Path, n_rows: int, peers: Peers = PEERS) -> str:
    """Return a table of each alternative, its seconds and its results."""
    lines = [f"alternatives, {PLAIN.title}, {n_rows:,} rows"]
    lines.append(f"{'':<24} {'seconds':>9} {'x audit':>8} {'log loss':>10} {'ECE':>8}")
    first = None
    for name, (needed, call) in peers.items():
        if missing := [package for package in needed if find_spec(package) is None]:
            lines.append(f"{name:<24} {', '.join(missing)} not installed")
            continue
        start = time.perf_counter()
        found = call(path)
        seconds = time.perf_counter() - start
        first = seconds if first is None else first
        loss, error = (f"{found[key]:.5f}" if key in found else "-" for key in ("log loss", "ECE"))
        lines.append(f"{name:<24} {seconds:>9.2f} {seconds / first:>8.1f} {loss:>10} {error:>8}")
    return "\n".join(lines)
