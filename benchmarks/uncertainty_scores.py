"""All uncertainty scores of a large matrix of logits in one pass, beside SciPy, in one run.

    python -m benchmarks.uncertainty_scores            # 50,000 x 1,000 float32 logits, 200 MB
    python -m benchmarks.uncertainty_scores --quick    # a hundredth of it

SciPy's softmax and entropy give two of the four scores; margin and energy are added the usual way,
with numpy.partition and scipy.special.logsumexp. The scores of both are compared first.
"""

import argparse
from collections.abc import Callable

import numpy as np
from scipy.special import logsumexp, softmax
from scipy.stats import entropy

from benchmarks.clock import best_times, peak_growth
from dubito import Logits
from dubito.arrays import FloatArray
from dubito.doubt.scores import uncertainty_scores
from dubito.kernels.blocks import n_threads

__all__ = ["main"]

CHECKED = "dubito, all four scores, input checked"
READY = "dubito, all four scores, checked before"
TWO = "SciPy, softmax and entropy"
FOUR = "SciPy and NumPy, all four scores"


def some_logits(n_rows: int, n_classes: int) -> FloatArray:
    """Return logits of a model that is sure of most rows."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((n_rows, n_classes), dtype=np.float32)
    logits *= 2
    logits[np.arange(n_rows), rng.integers(0, n_classes, n_rows)] += 12
    return logits


def of_scipy(logits: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return 1 - confidence and entropy."""
    p = softmax(logits, axis=1)
    return 1 - p.max(axis=1), entropy(p, axis=1)


def all_of_scipy(logits: FloatArray) -> tuple[FloatArray, ...]:
    """Return 1 - confidence, entropy, 1 - margin and energy."""
    p = softmax(logits, axis=1)
    two = np.partition(p, -2, axis=1)[:, -2:]
    margin = 1 - (two[:, 1] - two[:, 0])
    return 1 - two[:, 1], entropy(p, axis=1), margin, -logsumexp(logits, axis=1)


def largest_differences(logits: FloatArray) -> dict[str, float]:
    """Return the largest difference of each score from SciPy in float64."""
    ours = uncertainty_scores(Logits(logits))
    theirs = all_of_scipy(logits.astype(np.float64))
    mine = (ours.least_confidence, ours.entropy, ours.margin_uncertainty, ours.energy)
    names = ("least_confidence", "entropy", "margin_uncertainty", "energy")
    return {
        name: float(np.abs(a - b).max())
        for name, a, b in zip(names, mine, theirs, strict=True)
        if a is not None
    }


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows")
    n_rows, n_classes = (500 if parser.parse_args().quick else 50_000), 1_000
    logits = some_logits(n_rows, n_classes)
    checked = Logits(logits)
    off = largest_differences(logits[:1_000])  # loads or compiles the kernels, too
    calls: dict[str, Callable[[], object]] = {
        CHECKED: lambda: uncertainty_scores(Logits(logits)),
        READY: lambda: uncertainty_scores(checked),
    }
    peers: dict[str, Callable[[], object]] = {
        TWO: lambda: of_scipy(logits),
        FOUR: lambda: all_of_scipy(logits),
    }
    megabytes = logits.nbytes / 2**20
    growth = {name: peak_growth(call) for name, call in {**calls, **peers}.items()}
    best = best_times({"numpy.sum": logits.sum, **calls}, 15) | best_times(peers, 2)
    print(f"{n_rows:,} x {n_classes:,} float32 logits, {megabytes:.0f} MB, {n_threads()} threads")
    print("off SciPy in float64: " + ", ".join(f"{name} {gap:.0e}" for name, gap in off.items()))
    print(f"\n{'':<42} {'seconds':>9} {'x numpy.sum':>12} {'peak memory':>14}")
    for name, seconds in best.items():
        memory = f"{growth[name] / megabytes:+.1%}" if name in growth else ""
        ratio = seconds / best["numpy.sum"]
        print(f"{name:<42} {seconds:>9.4f} {ratio:>12.1f} {memory:>14}".rstrip())
    print(f"\nfour of ours are {best[TWO] / best[CHECKED]:.1f}x faster than two of SciPy's")


if __name__ == "__main__":
    main()
