"""Coverage by width and in the worst slab, against brute force and against chance."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dubito.doubt import PredictionIntervals, conditional_coverage
from dubito.errors import BadTypeError, BadValueError

RNG = np.random.default_rng(0)
N = 400
X = RNG.normal(size=(N, 2))
STD = np.exp(X[:, 0])
Y = STD * RNG.normal(size=N)
FIXED = PredictionIntervals(np.full(N, -2.5), np.full(N, 2.5))
LOCAL = PredictionIntervals(-1.645 * STD, 1.645 * STD)


def test_bins_are_quintiles_of_the_width_with_their_coverage() -> None:
    found = conditional_coverage(Y, LOCAL)
    order = np.argsort(STD)
    is_covered = np.abs(Y) <= 1.645 * STD
    assert [one.n_rows for one in found.bins] == pytest.approx([80] * 5, abs=1)
    first = order[: found.bins[0].n_rows]
    assert found.bins[0].coverage == pytest.approx(is_covered[first].mean())
    assert found.bins[0].high == pytest.approx(2 * 1.645 * np.sort(STD)[first.size - 1])
    assert found.coverage == pytest.approx(is_covered.mean())
    gaps = [abs(one.coverage - found.coverage) for one in found.bins]
    assert found.gap == pytest.approx(max(gaps))
    assert sum(one.n_rows for one in found.bins) == found.n_rows == N
    assert found.worst_slab is None


def test_chance_explains_the_gap_of_calibrated_intervals_only() -> None:
    p_values = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        width = rng.random(200) + 0.1
        y = np.where(rng.random(200) < 0.9, 0.0, 9.0)
        found = conditional_coverage(y, PredictionIntervals(-width, width), random_state=seed)
        p_values.append(found.p_value)
        assert 0.02 < found.chance_gap < 0.08
    assert stats.kstest(p_values, "uniform").pvalue > 0.001
    assert conditional_coverage(np.abs(Y), PredictionIntervals(-1 / STD, 1 / STD)).p_value < 0.001


def test_the_worst_slab_is_that_of_brute_force() -> None:
    x, y = X[:60], Y[:60]
    intervals = PredictionIntervals(FIXED.low[:60], FIXED.high[:60])
    found = conditional_coverage(y, intervals, features=x, n_directions=20, random_state=3)
    slab = found.worst_slab
    assert slab is not None
    rng = np.random.default_rng(3)
    order = rng.permutation(60)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    directions = rng.normal(size=(20, 2))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    is_covered = np.abs(y) <= 2.5
    lowest = 1.0
    for one in directions:
        half = order[:30][np.argsort(scaled[order[:30]] @ one)]
        for a in range(30):
            for b in range(a + 6, 31):
                lowest = min(lowest, is_covered[half[a:b]].mean())
    assert slab.found_coverage == pytest.approx(lowest)
    other = order[30:]
    place = scaled[other] @ slab.direction
    inside = is_covered[other][(place >= slab.low) & (place <= slab.high)]
    assert slab.n_rows == inside.size
    assert slab.coverage == pytest.approx(inside.mean())
    # Hypergeometric: as likely that so few of the covered rows fall into the slab.
    table = [
        [inside.sum(), inside.size - inside.sum()],
        [is_covered[other].sum() - inside.sum(), (~is_covered[other]).sum() - (~inside).sum()],
    ]
    assert slab.p_value == pytest.approx(stats.fisher_exact(table, "less").pvalue)


def test_it_prints_a_table_and_finds_what_a_fixed_width_misses() -> None:
    found = conditional_coverage(Y, FIXED, features=X)
    assert found.worst_slab is not None
    assert found.worst_slab.coverage < 0.75 < found.worst_slab.rest_coverage
    assert found.worst_slab.p_value < 0.001
    printed = str(found)
    assert printed.startswith(f"Coverage {found.coverage * 100:.1f} % of 400 rows.\n")
    assert "5 to 5" in printed  # equal widths are one bin
    assert "Worst slab of features: " in printed
    assert len(found.bins) == 1
    good = conditional_coverage(Y, LOCAL, features=X).worst_slab
    assert good is not None
    assert good.p_value > 0.01


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: conditional_coverage(Y, (Y, Y)), BadTypeError, "must be PredictionIntervals"),  # type: ignore[arg-type]
        (lambda: conditional_coverage(Y[:3], FIXED), BadValueError, "`y_true` must have length"),
        (lambda: conditional_coverage([np.nan] * N, FIXED), BadValueError, "must be finite"),
        (lambda: conditional_coverage(Y, FIXED, features=X[:3]), BadValueError, "`features`"),
        (lambda: conditional_coverage(Y, FIXED, n_bins=0), BadValueError, "`n_bins`"),
        (
            lambda: conditional_coverage(Y[:6], PredictionIntervals(Y[:6], Y[:6]), features=X[:6]),
            BadValueError,
            "at least 20 rows, got 6",
        ),
    ],
)
def test_what_cannot_be_is_reported(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
