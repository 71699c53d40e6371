"""Every first figure of a large matrix of logits, beside numpy.sum and beside peers.

    python -m benchmarks.row_pass            # 50,000 x 1,000 float32 logits, 200 MB
    python -m benchmarks.row_pass --quick    # a hundredth of it

accuracy + log loss + Brier + ECE + entropy are one `audit`, checks of the input included. Peers get
ready probabilities or logits, whichever they take, and are left out where they are not installed.
"""

import argparse
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from benchmarks.clock import best_time, peak_growth
from dubito import Logits, audit
from dubito.arrays import FloatArray, IntArray
from dubito.kernels.blocks import n_threads

__all__ = ["main"]


def logits_and_labels(n_rows: int, n_classes: int) -> tuple[FloatArray, IntArray]:
    """Return logits of a model that is right in about three rows of four."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((n_rows, n_classes), dtype=np.float32)
    logits *= 2
    y = rng.integers(0, n_classes, n_rows)
    logits[np.arange(n_rows), y] += 12 * (rng.random(n_rows) < 0.76).astype(np.float32)
    return logits, y


def peers(logits: FloatArray, y: IntArray) -> dict[str, Callable[[], object]]:
    """Return what else computes some of these figures."""
    calls: dict[str, Callable[[], object]] = {}
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities = shares / shares.sum(axis=1, keepdims=True)
    n_classes = logits.shape[1]
    if find_spec("sklearn"):
        from sklearn.metrics import log_loss

        def scikit_learn() -> object:
            return log_loss(y, probabilities, labels=np.arange(n_classes))

        calls["scikit-learn log_loss, ready probabilities"] = scikit_learn
    if find_spec("torchmetrics"):
        import torch
        from torchmetrics.functional.classification import multiclass_calibration_error

        tensor, target = torch.from_numpy(probabilities), torch.from_numpy(y)

        def torchmetrics() -> object:
            return multiclass_calibration_error(tensor, target, n_classes, n_bins=15)

        calls["torchmetrics ECE, ready probabilities"] = torchmetrics
    return calls


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    n_rows, n_classes = (500 if parser.parse_args().quick else 50_000), 1_000
    logits, y = logits_and_labels(n_rows, n_classes)
    megabytes = logits.nbytes / 2**20

    def dubito() -> object:
        return audit(y, Logits(logits))

    audit(y[:100], Logits(logits[:100]))  # loads or compiles the kernels
    growth = peak_growth(dubito)
    one_sum = best_time(logits.sum, 9)
    ours = best_time(dubito, 9)
    print(f"{n_rows:,} x {n_classes:,} float32 logits, {megabytes:.0f} MB, {n_threads()} threads\n")
    print(f"{'':<44} {'seconds':>9} {'x numpy.sum':>12}")
    print(f"{'numpy.sum':<44} {one_sum:>9.4f} {1:>12.1f}")
    print(f"{'dubito: 5 figures, checks, reliability':<44} {ours:>9.4f} {ours / one_sum:>12.1f}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer's warning about float32 sums is not our subject
        for name, call in peers(logits, y).items():
            seconds = best_time(call, 1)
            print(f"{name:<44} {seconds:>9.4f} {seconds / one_sum:>12.1f}")
    print(f"\nmemory: {growth:+.1f} MB at its peak, {growth / megabytes:.1%} of the loaded array")


if __name__ == "__main__":
    main()
