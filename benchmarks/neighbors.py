"""The distance to the 50th nearest of many rows, beside scikit-learn's exact search, in one run.

    python -m benchmarks.neighbors            # 50,000 known rows x 512, 5,000 queries, float32
    python -m benchmarks.neighbors --quick    # a tenth of the rows, a tenth of the queries

Both get features of length 1. scikit-learn's `algorithm="brute"` finds the same distances; "largest
gap" is the furthest that two answers are apart.
"""

import argparse
from collections.abc import Callable

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.clock import best_times, peak_growth
from dubito.arrays import FloatArray
from dubito.doubt.feature_distances import NearestNeighborDistance
from dubito.kernels.blocks import n_threads

__all__ = ["main"]

N_NEIGHBorS = 50
N_FEATURES = 512


def unit_features(n_rows: int, seed: int) -> FloatArray:
    """Return directions that gather about some of many, as those of classes do."""
    middles = np.random.default_rng(0).standard_normal((100, N_FEATURES), dtype=np.float32)
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_rows, N_FEATURES), dtype=np.float32)
    features += middles[rng.integers(0, 100, n_rows)]
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return features


def searches(
    known: FloatArray, queries: FloatArray
) -> dict[str, tuple[Callable[[], object], Callable[[], FloatArray]]]:
    """Return fit and search of each, of which fits are done already."""
    ours = NearestNeighborDistance(N_NEIGHBorS).fit(known)
    peer = NearestNeighbors(n_neighbors=N_NEIGHBorS, algorithm="brute").fit(known)

    def peers_distance() -> FloatArray:
        return np.asarray(peer.kneighbors(queries)[0][:, -1])

    ours.score(queries[:2])  # loads or compiles the kernels
    return {
        "dubito NearestNeighborDistance": (lambda: ours.fit(known), lambda: ours.score(queries)),
        "scikit-learn NearestNeighbors": (lambda: peer.fit(known), peers_distance),
    }


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="a tenth of rows and queries")
    is_quick = parser.parse_args().quick
    n_known, n_queries, n_times = (5_000, 500, 2) if is_quick else (50_000, 5_000, 5)
    known, queries = unit_features(n_known, 1), unit_features(n_queries, 2)
    both = searches(known, queries)
    answers: list[FloatArray] = []
    growth = {name: peak_growth(lambda: answers.append(s())) for name, (_, s) in both.items()}  # noqa: B023
    fits = best_times({name: fit for name, (fit, _) in both.items()}, 2)
    best = best_times({name: search for name, (_, search) in both.items()}, n_times)
    megabytes = known.nbytes / 2**20
    print(
        f"{n_known:,} x {N_FEATURES} float32 rows, {megabytes:.0f} MB, {n_queries:,} queries, "
        f"{N_NEIGHBorS} neighbors, {n_threads()} threads\n"
    )
    print(f"{'':<32} {'fit s':>8} {'search s':>9} {'x dubito':>9} {'peak MB':>9}")
    fastest = best["dubito NearestNeighborDistance"]
    for name, seconds in best.items():
        ratio = seconds / fastest
        print(f"{name:<32} {fits[name]:>8.3f} {seconds:>9.3f} {ratio:>9.2f} {growth[name]:>+9.0f}")
    print(f"\nlargest gap between the two: {np.abs(answers[0] - answers[1]).max():.1e}")


if __name__ == "__main__":
    main()
