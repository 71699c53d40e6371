"""Mahalanobis distances to many classes, beside plain loops over the classes, in one run.

    python -m benchmarks.mahalanobis            # 50,000 x 512 float32 features, 1,000 classes
    python -m benchmarks.mahalanobis --quick    # a fiftieth of the rows, a tenth of the rest

Plain loops go over some of the classes alone, and their time is multiplied up to all of them. One
multiplies with the inverse covariance for each class, as published code does; the other gets rows
that are whitened already, for nothing.
"""

import argparse
from collections.abc import Callable

import numpy as np
from scipy.linalg import solve_triangular

from benchmarks.clock import best_times, peak_growth
from dubito.arrays import FloatArray, IntArray
from dubito.doubt.feature_distances import MahalanobisDistance
from dubito.kernels.blocks import n_threads

__all__ = ["main"]

OURS, PRECISION, WHITENED = "dubito, score", "loop, precision matrix", "loop, ready whitened"


def features_and_labels(
    n_rows: int, n_features: int, n_classes: int
) -> tuple[FloatArray, IntArray]:
    """Return features about the means of classes, correlated."""
    rng = np.random.default_rng(0)
    means = 0.5 * rng.standard_normal((n_classes, n_features), dtype=np.float32)
    mixing = np.eye(n_features, dtype=np.float32)
    mixing += rng.standard_normal((n_features, n_features), dtype=np.float32) / n_features
    y = rng.permutation(np.arange(n_rows) % n_classes)
    noise = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    return means[y] + noise @ mixing, y


def least_by_precision(x: FloatArray, means: FloatArray, precision: FloatArray) -> FloatArray:
    """Return the least squared distance to some means, a product with the precision for each."""
    least = np.full(x.shape[0], np.inf)
    for mean in means:
        off = x - mean
        least = np.minimum(least, np.einsum("ij,ij->i", off @ precision, off))
    return least


def least_by_differences(white: FloatArray, means: FloatArray) -> FloatArray:
    """Return the least squared distance of whitened rows to some whitened means."""
    least = np.full(white.shape[0], np.inf)
    for mean in means:
        off = white - mean
        least = np.minimum(least, np.einsum("ij,ij->i", off, off))
    return least


def whitened(x: FloatArray, covariance: FloatArray) -> FloatArray:
    """Return rows in whose space the covariance is the identity."""
    return np.asarray(solve_triangular(np.linalg.cholesky(covariance), x.T, lower=True).T)


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="far fewer rows, features and classes")
    is_quick = parser.parse_args().quick
    n_rows, n_features, n_classes = (1_000, 51, 100) if is_quick else (50_000, 512, 1_000)
    x, y = features_and_labels(n_rows, n_features, n_classes)
    fitted = MahalanobisDistance().fit(x, y)
    growth = {
        "dubito, fit": peak_growth(lambda: MahalanobisDistance().fit(x, y)),
        OURS: peak_growth(lambda: fitted.score(x)),
    }
    few = max(2, n_classes // 250)
    means, covariance = fitted.means_[:few].astype(x.dtype), fitted.covariance_.astype(x.dtype)
    precision = np.linalg.inv(covariance)
    white, white_means = (np.ascontiguousarray(whitened(a, covariance)) for a in (x, means))
    plain: dict[str, Callable[[], FloatArray]] = {
        PRECISION: lambda: least_by_precision(x, means, precision),
        WHITENED: lambda: least_by_differences(white, white_means),
    }
    calls = {"dubito, fit": lambda: MahalanobisDistance().fit(x, y), OURS: lambda: fitted.score(x)}
    best = best_times({**calls, **plain}, 3)
    for name in plain:
        best[name] *= n_classes / few
    shape = f"{n_rows:,} x {n_features} float32 features, {n_classes:,} classes"
    print(f"{shape}, {x.nbytes / 2**20:.0f} MB, {n_threads()} threads")
    print(f"loops: {few} classes timed, for {n_classes:,} multiplied by {n_classes // few}\n")
    print(f"{'':<28} {'seconds':>9} {'x ours':>8} {'peak memory':>12}")
    for name, seconds in best.items():
        memory = f"{growth[name]:+.0f} MB" if name in growth else ""
        print(f"{name:<28} {seconds:>9.3f} {seconds / best[OURS]:>8.1f} {memory:>12}".rstrip())
    print_agreement(x[:200], fitted)


def print_agreement(x: FloatArray, fitted: MahalanobisDistance) -> None:
    """Print how far our distances are from those of the plain loop, all in float64."""
    rows = x.astype(np.float64)
    expected = least_by_differences(
        *(whitened(a, fitted.covariance_) for a in (rows, fitted.means_))
    )
    gap = float(np.abs(fitted.score(x) / expected - 1).max())
    print(f"\nfurthest from the plain loop in float64: {gap:.1e} of the distance")


if __name__ == "__main__":
    main()
