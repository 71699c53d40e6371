"""Do conformal sets, intervals and outlier detectors have the coverage they should?

    python -m studies.conformal_coverage            # 1,000 fresh draws, about a minute
    python -m studies.conformal_coverage --quick    # 40 draws

Each draw is new: n known rows to fit on, m rows to cover. With k = ceil((n + 1) level), the
number of covered rows is BetaBinomial(m, k, n + 1 - k), for any model. The models here are wrong on
purpose: over-confident classes, a biased mean, a std that is too small.

Rows that a method learns from or is chosen on do not calibrate: n is the number of the others. With
groups, bins and weights, n is the number of rows of the group or bin that is evaluated, or of those
with a density ratio of 1 (of the others it is 0). Intervals with a threshold for each end, and
central intervals of a predictive system, lie between two ranks of signed errors, k apart.

Under covariate shift where every ratio is above 0, and for clusters of classes, theory gives a
lower bound of the mean coverage only.
"""

import argparse
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import stats

from dubito import Logits, Normal, Quantiles
from dubito.arrays import FloatArray, IntArray
from dubito.doubt.conformal.classifier import MIN_TUNED, TUNING_FRACTION, ConformalClassifier
from dubito.doubt.conformal.predictive_system import ConformalPredictiveSystem
from dubito.doubt.conformal.regressor import MIN_ROWS, ConformalRegressor
from dubito.doubt.outliers import ConformalOutlierDetector
from dubito.errors import DubitoWarning

LEVEL, N_KNOWN, N_NEW = 0.9, 200, 200
N_CELLS = 20  # of the test, with nearly equal probability
MIN_P_VALUE = 0.001  # below this p-value, coverage does not follow its distribution


def classes(
    rng: np.random.Generator, n_rows: int, n_classes: int = 5
) -> tuple[FloatArray, IntArray]:
    """Return logits that are twice too sharp, and labels."""
    true_logits = rng.normal(0, 1.5, (n_rows, n_classes))
    labels = (true_logits + rng.gumbel(size=true_logits.shape)).argmax(axis=1)
    return (2 * true_logits).astype(np.float32), labels


def numbers(rng: np.random.Generator, n_rows: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return a biased mean, a std that is too small, and targets with skewed noise."""
    mean, std = rng.normal(size=n_rows), np.exp(rng.normal(0, 0.5, n_rows))
    return mean, std, mean + 0.5 + 1.5 * std * (rng.exponential(size=n_rows) - 1)


def sets_of(method: Any, rng: np.random.Generator, n: int, m: int, **settings: Any) -> int:
    """Return how many of m labels are in their sets."""
    logits, y = classes(rng, n + m)
    sets = ConformalClassifier(LEVEL, method, **settings).fit(Logits(logits[:n]), y[:n])
    return round(m * sets.predict(Logits(logits[n:])).coverage(y[n:]))


def sets_of_group(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m labels of one group are in their sets; the model is worse on another."""
    logits, y = classes(rng, 2 * (n + m))
    groups = np.repeat(["good", "bad"], n + m)
    logits[n + m :] *= -1
    known = np.arange(2 * (n + m)) % (n + m) < n
    new = ~known & (groups == "good")
    sets = ConformalClassifier(LEVEL).fit(Logits(logits[known]), y[known], groups[known])
    return round(m * sets.predict(Logits(logits[new]), groups[new]).coverage(y[new]))


def sets_of_class(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m rows of one class have it in their sets, with a threshold per class."""
    logits, y = classes(rng, 30 * (n + m))
    one, others = np.flatnonzero(y == 0)[: n + m], np.flatnonzero(y != 0)[: 4 * n]
    known, new = np.concatenate([one[:n], others]), one[n:]
    sets = ConformalClassifier(LEVEL, "aps", conditional="class")
    return round(
        m * sets.fit(Logits(logits[known]), y[known]).predict(Logits(logits[new])).coverage(y[new])
    )


def sets_of_clusters(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m labels are in their sets, with a threshold per cluster of 30 classes."""
    n *= 10
    logits, y = classes(rng, n + m, 30)
    logits[:, :10] -= 2
    sets = ConformalClassifier(LEVEL, conditional="cluster").fit(Logits(logits[:n]), y[:n])
    return round(m * sets.predict(Logits(logits[n:])).coverage(y[n:]))


def shifted_sets(method: Any, rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m labels are in their sets where inputs are not those of the fit.

    New rows have the first true logit from N(1, 1.5^2) instead of N(0, 1.5^2).
    """
    true_logits = rng.normal(0, 1.5, (n + m, 5))
    true_logits[n:, 0] += 1
    y = (true_logits + rng.gumbel(size=true_logits.shape)).argmax(axis=1)
    ratio = np.exp((true_logits[:, 0] - 0.5) / 1.5**2)
    known, new = Logits(2 * true_logits[:n]), Logits(2 * true_logits[n:])
    sets = ConformalClassifier(LEVEL, method).fit(known, y[:n], density_ratio=ratio[:n])
    return round(m * sets.predict(new, density_ratio=ratio[n:]).coverage(y[n:]))


def intervals_of(method: Any, rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m targets are in their intervals."""
    mean, std, y = numbers(rng, n + m)
    outputs: Any = Normal(mean, std)
    if method == "quantiles":
        outputs = Quantiles(np.stack([mean - std, mean + std], axis=1), [0.05, 0.95])
    known, new = outputs.take(slice(0, n)), outputs.take(slice(n, n + m))
    fitted = ConformalRegressor(LEVEL, method).fit(known, y[:n])
    return round(m * fitted.predict(new).coverage(y[n:]))


def learned_intervals(settings: Any, rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m targets are in intervals with other settings."""
    mean, std, y = numbers(rng, n + m)
    regressor = ConformalRegressor(LEVEL, random_state=int(rng.integers(1000)), **settings)
    fitted = regressor.fit(Normal(mean[:n], std[:n]), y[:n])
    return round(m * fitted.predict(Normal(mean[n:], std[n:])).coverage(y[n:]))


def binned_intervals(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m targets of the first of two automatic bins are in their intervals."""
    mean, std, y = numbers(rng, n + 4 * m)
    regressor = ConformalRegressor(LEVEL, "absolute", n_bins=2, bin_by="mean")
    fitted = regressor.fit(Normal(mean[:n], std[:n]), y[:n])
    assert fitted.bin_edges_ is not None
    rows = n + np.flatnonzero(mean[n:] <= fitted.bin_edges_[0])[:m]
    return round(m * fitted.predict(Normal(mean[rows], std[rows])).coverage(y[rows]))


def grouped_intervals(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m targets of one of two groups are in their intervals."""
    mean, std, y = numbers(rng, n + m)
    groups = np.arange(n) % 2
    outputs = Normal(mean[:n], std[:n])
    fitted = ConformalRegressor(LEVEL, "normalized").fit(outputs, y[:n] * (1 + groups), groups)
    found = fitted.predict(Normal(mean[n:], std[n:]), np.zeros(m, dtype=int))
    return round(m * found.coverage(y[n:]))


def weighted_intervals(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m targets are covered, if half of n known rows are of another kind."""
    mean, std, y = numbers(rng, n + m)
    ratio = (np.arange(n) % 2).astype(float)
    y[:n] = np.where(ratio == 0, y[:n] + 5, y[:n])
    outputs = Normal(mean[:n], std[:n])
    fitted = ConformalRegressor(LEVEL, "normalized").fit(outputs, y[:n], density_ratio=ratio)
    found = fitted.predict(Normal(mean[n:], std[n:]), density_ratio=np.ones(m))
    return round(m * found.coverage(y[n:]))


def distributions_of(method: Any, rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m targets are in the central intervals of a predictive system."""
    mean, std, y = numbers(rng, n + m)
    system = ConformalPredictiveSystem(LEVEL, method, random_state=int(rng.integers(1000)))
    fitted = system.fit(Normal(mean[:n], std[:n]), y[:n])
    found = fitted.predict(Normal(mean[n:], std[n:])).interval(LEVEL)
    return round(m * found.coverage(y[n:]))


def region_of(rng: np.random.Generator, n: int, m: int) -> int:
    """Return how many of m in-distribution points are not flagged as outliers."""
    score = rng.gamma(0.5, size=n + m)
    return int(m - ConformalOutlierDetector(1 - LEVEL).fit(score[:n]).predict(score[n:]).sum())


METHODS: dict[str, Callable[[np.random.Generator, int, int], int]] = {
    "ConformalClassifier, lac": lambda *draw: sets_of("lac", *draw),
    "ConformalClassifier, aps": lambda *draw: sets_of("aps", *draw),
    "ConformalClassifier, aps, randomized": lambda *draw: sets_of("aps", *draw, randomize=True),
    "ConformalClassifier, raps": lambda *draw: sets_of("raps", *draw, penalty=0.1, k_reg=1),
    "ConformalClassifier, raps, tuned": lambda *draw: sets_of("raps", *draw),
    "ConformalClassifier, saps": lambda *draw: sets_of("saps", *draw, penalty=0.1),
    "ConformalClassifier, saps, tuned": lambda *draw: sets_of("saps", *draw),
    "ConformalClassifier, by group": sets_of_group,
    "ConformalClassifier, by class": sets_of_class,
    "ConformalRegressor, absolute": lambda *draw: intervals_of("absolute", *draw),
    "ConformalRegressor, normalized": lambda *draw: intervals_of("normalized", *draw),
    "ConformalRegressor, quantiles": lambda *draw: intervals_of("quantiles", *draw),
    "ConformalRegressor, adaptive": lambda *draw: learned_intervals({"method": "adaptive"}, *draw),
    "ConformalRegressor, default": lambda *draw: learned_intervals({}, *draw),
    "ConformalRegressor, asymmetric": lambda *draw: learned_intervals(
        {"method": "normalized", "symmetric": False}, *draw
    ),
    "ConformalRegressor, bins": binned_intervals,
    "ConformalRegressor, groups": grouped_intervals,
    "ConformalRegressor, weighted": weighted_intervals,
    "ConformalPredictiveSystem": lambda *draw: distributions_of("normalized", *draw),
    "ConformalPredictiveSystem, learned": lambda *draw: distributions_of("adaptive", *draw),
    "ConformalOutlierDetector": region_of,
}
TWO_ENDED = {
    "ConformalRegressor, asymmetric",
    "ConformalPredictiveSystem",
    "ConformalPredictiveSystem, learned",
}
# The part of the known rows that calibrates what is evaluated, where it is not all.
CALIBRATING = {
    "ConformalRegressor, adaptive": 0.5,
    "ConformalRegressor, default": 0.5,
    "ConformalRegressor, bins": 0.5,
    "ConformalRegressor, groups": 0.5,
    "ConformalRegressor, weighted": 0.5,
    "ConformalPredictiveSystem, learned": 0.5,
}
# Methods whose mean coverage has a lower bound only.
BOUNDED: dict[str, Callable[[np.random.Generator, int, int], int]] = {
    "ConformalClassifier, lac, shifted": lambda *draw: shifted_sets("lac", *draw),
    "ConformalClassifier, aps, shifted": lambda *draw: shifted_sets("aps", *draw),
    "ConformalClassifier, by cluster": sets_of_clusters,
}


@final
@dataclass(frozen=True, slots=True)
class Fit:
    """Agreement of coverage counts with a distribution: both means, and a p-value."""

    mean: float
    expected: float
    p_value: float


def distribution_of(method: str, n: int = N_KNOWN, m: int = N_NEW) -> Any:
    """Return the distribution of the number of m rows that a method covers.

    Between the ranks of two ends, each of (1 + level) / 2, lie as many as they are apart.
    """
    is_fixed = method == "ConformalRegressor, default" and n < MIN_ROWS
    part = 1.0 if is_fixed else CALIBRATING.get(method, 1.0)
    n = int(part * n)
    if method.endswith("tuned") and n >= MIN_TUNED:
        n -= int(n * TUNING_FRACTION)
    if method not in TWO_ENDED:
        return coverage_distribution(n, m, LEVEL)
    k = 2 * int(np.ceil(round((n + 1) * (1 + LEVEL) / 2, 9))) - (n + 1)
    return stats.betabinom(m, k, n + 1 - k)


def coverage_distribution(n: int, m: int, level: float) -> Any:
    """Return the distribution of the number of m rows covered by a fit on n."""
    k = int(np.ceil(round((n + 1) * level, 9)))
    return stats.betabinom(m, k, n + 1 - k)


def covered(method: str, n_draws: int, n: int = N_KNOWN, m: int = N_NEW, seed: int = 0) -> IntArray:
    """Return how many of m rows were covered in each of some fresh draws."""
    rng = np.random.default_rng(seed)
    draw = {**METHODS, **BOUNDED}[method]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # new rows that outweigh all known ones
        return np.array([draw(rng, n, m) for _ in range(n_draws)])


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
    parser.add_argument("--quick", action="store_true", help="40 draws instead of 1,000")
    n_draws = 40 if parser.parse_args().quick else 1000
    distribution = coverage_distribution(N_KNOWN, N_NEW, LEVEL)
    fits = {name: fit_of(covered(name, n_draws), distribution_of(name), N_NEW) for name in METHODS}
    n_passed = sum(fit.p_value >= MIN_P_VALUE for fit in fits.values())
    means = [fit.mean for fit in fits.values()]
    low, high = (distribution.ppf(p) / N_NEW for p in (0.05, 0.95))
    print(
        f"{n_passed} of {len(fits)} methods have the coverage that theory gives: nominal "
        f"{LEVEL:.0%}, observed {min(means):.2%} to {max(means):.2%}\non average. Single draws "
        f"vary, as they should: in theory 90 % of them are between {low:.1%} and\n{high:.1%} if "
        f"all {N_KNOWN} known rows calibrate.\n"
    )
    print(
        f"{n_draws:,} fresh draws of {N_KNOWN} known and {N_NEW} new rows; chi-square test, whose"
    )
    print("p-values are not adjusted: of 20 methods, one is expected to be below 0.05\n")
    width = max(map(len, {**METHODS, **BOUNDED}))
    print(f"{'':<{width}} {'coverage':>10} {'expected':>10} {'p-value':>10}")
    for name, fit in fits.items():
        print(f"{name:<{width}} {fit.mean:>10.3%} {fit.expected:>10.3%} {fit.p_value:>10.3f}")
    print(f"\n{'a lower bound only':<{width}} {'coverage':>10} {'at least':>10} {'std. error':>10}")
    for name in BOUNDED:
        rate = covered(name, n_draws) / N_NEW
        error = rate.std() / np.sqrt(n_draws)
        print(f"{name:<{width}} {rate.mean():>10.3%} {LEVEL:>10.0%} {error:>10.3%}")


if __name__ == "__main__":
    main()
