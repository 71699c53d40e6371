"""Do conformal sets, intervals and outlier detectors have the coverage they should?

    python -m studies.conformal_coverage            # 1,000 fresh draws, less than a minute
    python -m studies.conformal_coverage --quick    # 100 draws

Each draw is new: n known rows to fit on, m rows to cover. With k = ceil((n + 1) level), the
number of covered rows is BetaBinomial(m, k, n + 1 - k), for any model. The models here are wrong on
purpose: over-confident classes, a biased mean, a std that is too small.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import stats

from dubito import Logits, Normal, Quantiles
from dubito.arrays import FloatArray, IntArray
from dubito.doubt.conformal.classifier import ConformalClassifier
from dubito.doubt.conformal.regressor import ConformalRegressor
from dubito.doubt.outliers import ConformalOutlierDetector

LEVEL, N_KNOWN, N_NEW = 0.9, 200, 200
N_CELLS = 20  # of the test, with nearly equal probability
MIN_P_VALUE = 0.001  # below this p-value, coverage does not follow its distribution


def classes(rng: np.random.Generator, n_rows: int) -> tuple[FloatArray, IntArray]:
    """Return logits of five classes that are twice too sharp, and labels."""
    true_logits = rng.normal(0, 1.5, (n_rows, 5))
    labels = (true_logits + rng.gumbel(size=true_logits.shape)).argmax(axis=1)
    return (2 * true_logits).astype(np.float32), labels


def numbers(rng: np.random.Generator, n_rows: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a biased mean, a std that is too small, and targets with skewed noise."""
    mean, std = rng.normal(size=n_rows), np.exp(rng.normal(0, 0.5, n_rows))
    return mean, std, mean + 0.5 + 1.5 * std * (rng.exponential(size=n_rows) - 1)


def sets_of(method: Any, rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m labels are in their sets."""
    logits, y = classes(rng, n + m)
    sets = ConformalClassifier(LEVEL, method).fit(Logits(logits[:n]), y[:n])
    return round(m * sets.predict(Logits(logits[n:])).coverage(y[n:]))


def intervals_of(method: Any, rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m targets are in their intervals."""
    mean, std, y = numbers(rng, n + m)
    outputs: Any = Normal(mean, std)
    if method == "quantiles":
        outputs = Quantiles(np.stack([mean - std, mean + std], axis=1), [0.05, 0.95])
    known, new = outputs.take(slice(0, n)), outputs.take(slice(n, n + m))
    fitted = ConformalRegressor(LEVEL, method).fit(known, y[:n])
    return round(m * fitted.predict(new).coverage(y[n:]))


def region_of(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m in-distribution points are not flagged as outliers."""
    score = rng.gamma(0.5, size=n + m)
    return int(m - ConformalOutlierDetector(1 - LEVEL).fit(score[:n]).predict(score[n:]).sum())


METHODS: dict[str, Callable[[np.random.Generator, int, int], int]] = {
    "ConformalClassifier, lac": lambda *draw: sets_of("lac", *draw),
    "ConformalClassifier, aps": lambda *draw: sets_of("aps", *draw),
    "ConformalRegressor, absolute": lambda *draw: intervals_of("absolute", *draw),
    "ConformalRegressor, normalized": lambda *draw: intervals_of("normalized", *draw),
    "ConformalRegressor, quantiles": lambda *draw: intervals_of("quantiles", *draw),
    "ConformalOutlierDetector": region_of,
}


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """Agreement of coverage counts with a distribution: both means, and a p-value."""

    mean: float
    expected: float
    p_value: float


def coverage_distribution(n: int, m: int, level: float) -> Any:
    """Return the distribution of the number of m rows covered by a fit on n."""
    k = int(np.ceil(round((n + 1) * level, 9)))
    return stats.betabinom(m, k, n + 1 - k)


def covered(method: str, n_draws: int, n: int = N_KNOWN, m: int = N_NEW, seed: int = 0) -> IntArray:
    """Return how many of m rows were covered in each of some fresh draws."""
    rng = np.random.default_rng(seed)
    return np.array([METHODS[method](rng, n, m) for _ in range(n_draws)])


def fit_of(counts: IntArray, distribution: Any, m: int) -> Fit:
    """Compare counts with their distribution by a chi-square test over about 20 cells."""
    chances = distribution.pmf(np.arange(m + 1))
    cells = np.minimum(np.cumsum(chances) * N_CELLS, N_CELLS - 1).astype(int)
    _, cells = np.unique(cells, return_inverse=True)
    expected = np.bincount(cells, chances) * len(counts) / chances.sum()
    found = np.bincount(cells[counts], minlength=expected.size)
    p_value = float(stats.chisquare(found, expected).pvalue)
    return Fit(float(counts.mean() / m), float(distribution.mean() / m), p_value)


def main() -> None:
    """Print the coverage over fresh draws and its distribution."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="100 draws instead of 1,000")
    n_draws = 100 if parser.parse_args().quick else 1000
    distribution = coverage_distribution(N_KNOWN, N_NEW, LEVEL)
    fits = {name: fit_of(covered(name, n_draws), distribution, N_NEW) for name in METHODS}
    n_passed = sum(fit.p_value >= MIN_P_VALUE for fit in fits.values())
    means = [fit.mean for fit in fits.values()]
    low, high = (distribution.ppf(p) / N_NEW for p in (0.05, 0.95))
    print(
        f"{n_passed} of {len(fits)} methods have the coverage that theory gives: nominal "
        f"{LEVEL:.0%}, observed {min(means):.2%} to {max(means):.2%}\non average, expected "
        f"{distribution.mean() / N_NEW:.2%}. Single draws vary, as they should: in theory 90 % "
        f"of them\nare between {low:.1%} and {high:.1%}.\n"
    )
    print(f"{n_draws:,} fresh draws of {N_KNOWN} known and {N_NEW} new rows; chi-square test\n")
    print(f"{'':<32} {'coverage':>10} {'expected':>10} {'p-value':>10}")
    for name, fit in fits.items():
        print(f"{name:<32} {fit.mean:>10.3%} {fit.expected:>10.3%} {fit.p_value:>10.3f}")


if __name__ == "__main__":
    main()
