"""Losses of held-out rows, ranked: the threshold below which their mean is surely low enough."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import FloatArray, IntArray, freeze
from dubito.decide.actions import MARGIN
from dubito.errors import BadValueError

DEPTH = 0.6  # tests start at the geometric mean of the fewest rows and this fraction of all rows
# Fractions of the rows at which tests start again, and the part of delta that each may spend.
LATER_STARTS = ((0.25, 0.01), (0.5, 0.01), (0.75, 0.01), (1.0, 0.1))
FEW_STARTS = ((1.0, 0.05),)  # if a quarter of the rows is too few for a test
STEP = 1.01  # from one number of tolerated errors to the next, if there are many
LARGEST_BET = 0.9  # relative to one that could lose everything
MAX_ROWS = 100_000_000
MAX_BETS = 1_000_000


def accepted_below(threshold: Any) -> Any:
    """Return the least confidence below which a threshold accepts a row."""
    return 1.0 - threshold - MARGIN


@final
@dataclass(frozen=True, eq=False)
class RankedLosses:
    """Losses from 0 to 1 of held-out rows, from the most to the least confident.

    An entry may stand for several rows. If `is_binary`, a loss can only be 0 or 1, whatever the
    sample, and tests are exact.
    """

    least_confidence: FloatArray
    loss: FloatArray
    n_copies: IntArray
    is_binary: bool

    @classmethod
    def of(
        cls, least_confidence: FloatArray, loss: FloatArray, weight: FloatArray, is_binary: bool
    ) -> RankedLosses:
        """Sort rows. A weight is a number of rows; a fraction is the chance of one more."""
        if not weight.sum() <= MAX_ROWS:
            rule, fix = f"must sum to at most {MAX_ROWS:,}", "Divide all weights by their mean"
            got = f"{weight.sum():.6g}"
            raise BadValueError("sample_weight", "choose_threshold", rule, got, fix)
        random = np.random.default_rng(0)
        copies = np.floor(weight + random.random(weight.size)).astype(np.int64)
        if not is_binary and copies.sum() > MAX_BETS:
            copies = random.binomial(copies, MAX_BETS / copies.sum())
        order = np.argsort(least_confidence, kind="stable")
        return cls(least_confidence[order], loss[order], copies[order], is_binary)

    @cached_property
    def n_first(self) -> IntArray:
        """The number of rows of the first 0, 1, 2, ... entries."""
        return np.append(0, np.cumsum(self.n_copies))

    @cached_property
    def loss_first(self) -> FloatArray:
        """The sum of the losses of the first 0, 1, 2, ... entries."""
        return np.append(0.0, np.cumsum(self.n_copies * self.loss))

    @cached_property
    def _losses_and_order(self) -> tuple[FloatArray, IntArray]:
        """The loss of each row, and the rows in random order."""
        order = np.random.default_rng(0).permutation(self.n_rows)
        return np.repeat(self.loss, self.n_copies), order

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.n_first[-1])

    def accepted(self, threshold: Any) -> Any:
        """Return the number of entries that a threshold accepts."""
        return np.searchsorted(self.least_confidence, accepted_below(threshold), side="left")

    def mean_loss(self, n_entries: int) -> float:
        """Return the mean loss of the first entries, 0 for none."""
        return float(self.loss_first[n_entries] / max(self.n_first[n_entries], 1))

    def fewest_rows(self, limit: float, level: float) -> float:
        """Return how many rows without a loss a test at a level needs."""
        if not 0 < limit < 1:
            return np.inf if limit <= 0 else 1.0
        if self.is_binary:
            return float(np.ceil(np.log(level) / np.log1p(-limit)))
        # Half as many again: the first bets are smaller.
        return float(np.ceil(-1.5 * np.log(level) / np.log1p(LARGEST_BET * limit / (1 - limit))))

    def p_value(self, n_entries: int, limit: float, level: float) -> float:
        """Return the p-value of a mean loss above a limit, of rows like the first entries.

        It is valid at every level, and most powerful at the given one.
        """
        if not 0 < limit < 1:
            return float(limit <= 0)
        n_rows = int(self.n_first[n_entries])
        if self.is_binary:
            return float(scipy.special.bdtr(self.loss_first[n_entries], n_rows, limit))
        losses, order = self._losses_and_order
        return _betting_p_value(losses[order[order < n_rows]], limit, level)

    def upper_bound(self, n_entries: int, level: float) -> float:
        """Return an upper confidence bound of the mean loss, of rows like the first entries."""
        if self.is_binary:
            n_rows = self.n_first[n_entries]
            return float(binomial_bound(self.loss_first[n_entries], n_rows, level))

        def excess(limit: float) -> float:
            return self.p_value(n_entries, limit, level) - level

        low, high = self.mean_loss(n_entries), 1 - 1e-9
        is_inside = low < high and excess(low) > 0 >= excess(high)
        return float(scipy.optimize.bisect(excess, low, high, xtol=1e-6)) if is_inside else 1.0

    def lowest_safe_threshold(self, limit: float, delta: float) -> tuple[float | None, int]:
        """Return the lowest threshold with a mean loss of at most `limit`, or None.

        With it comes the number of entries that the first test accepted. The threshold fails with
        probability at most `delta`. Rows are accepted by rank: the rows above the confidence of
        a row are a random sample of all such rows. From a start on, thresholds are tested
        downwards until one fails; what a start may spend of `delta` passes on to the next
        (the fallback procedure of Wiens and Dmitrienko, 2005).
        """
        if limit >= 1:
            return 0.0, self.loss.size
        thresholds = np.append(1.0 - self.least_confidence, 0.0)
        entries, first = np.unique(self.accepted(thresholds), return_index=True)
        thresholds, n_accepted = thresholds[first], self.n_first[entries]
        fewest, n_tested, levels = self._schedule(limit, delta)
        # Ties are accepted together: as many as fit, but no fewer than can pass a test.
        least = np.searchsorted(n_accepted[:-1], fewest)
        fits = np.maximum(np.searchsorted(n_accepted, n_tested, side="right") - 1, least)
        added = np.bincount(fits, levels)
        level, lowest, tested = 0.0, None, np.unique(fits).tolist()
        for cut in tested:
            level += added[cut]
            if level > 0 and self.p_value(int(entries[cut]), limit, level) <= level:
                lowest = float(thresholds[cut])
            else:
                level = 0.0
        return lowest, int(entries[tested[0]])

    def _schedule(self, limit: float, delta: float) -> tuple[float, IntArray, FloatArray]:
        """Return the fewest rows of a test, and how many rows tests accept, each adding a level.

        None of it depends on the losses. Between starts, a test is where one more error is
        tolerated: the more tests, the sooner one fails by chance.
        """
        n_rows = self.n_rows
        for later in (LATER_STARTS, FEW_STARTS):
            level = delta * (1 - sum(part for _, part in later))
            fewest = self.fewest_rows(limit, level)
            if fewest <= later[0][0] * n_rows:
                break
        else:
            return n_rows, np.array([n_rows]), np.array([delta])
        steps = _efficient_sizes(n_rows, limit, level)
        start = np.append(steps[steps <= np.sqrt(DEPTH * fewest * n_rows)], fewest).max()
        if (steps <= start).sum() < 2:  # no error is tolerated yet, and every row counts
            steps = np.append(np.arange(start, min([*steps[1:2], n_rows])), steps)
        starts = np.maximum([start, *(fraction * n_rows // 1 for fraction, _ in later)], start)
        n_tested = np.unique(np.concatenate([steps[steps >= start], starts]))
        added = [level, *(delta * part for _, part in later)]
        levels = np.bincount(np.searchsorted(n_tested, starts), added, n_tested.size)
        return fewest, n_tested, np.asarray(levels, np.float64)


@lru_cache(maxsize=64)  # the same for every fold and resample of a size
def _efficient_sizes(n_rows: int, limit: float, level: float) -> FloatArray:
    """Return the numbers of rows at which an exact test tolerates one more error.

    Beyond 100 errors, steps are 1 % of them.
    """
    n_errors = np.unique(STEP ** np.arange(np.log(n_rows + 1) / np.log(STEP)) // 1)
    n_errors = np.append(0.0, n_errors[n_errors <= limit * n_rows])
    sizes = np.ceil(scipy.special.bdtrin(n_errors, level, limit))
    return freeze(sizes[sizes <= n_rows])


def _betting_p_value(losses: FloatArray, limit: float, level: float) -> float:
    """Return the p-value of a mean above a limit, from independent losses in random order.

    It is the inverse of the largest wealth of bets against such a mean. The bets are the
    predictable ones of Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
    betting", 2023.
    """
    n_seen = np.arange(2, losses.size + 2)
    means = (limit + np.cumsum(losses)) / n_seen
    variance = (limit * (1 - limit) + np.cumsum((losses - means) ** 2)) / n_seen
    before = np.append(limit * (1 - limit), variance[:-1])
    bets = np.sqrt(-2 * np.log(level) / (losses.size * before))
    bets = np.minimum(bets, LARGEST_BET / (1 - limit))
    wealth = np.cumsum(np.log1p(bets * (limit - losses)))
    return float(np.exp(-max(wealth.max(initial=0.0), 0.0)))


def binomial_bound(n_errors: Any, n_rows: Any, level: float) -> Any:
    """Return the exact upper bound of a binomial proportion (Clopper and Pearson, 1934)."""
    n_right = np.asarray(n_rows - n_errors, dtype=np.float64)
    inner = scipy.special.betaincinv(n_errors + 1.0, np.maximum(n_right, 1.0), 1 - level)
    return np.where(n_right > 0, inner, 1.0)
