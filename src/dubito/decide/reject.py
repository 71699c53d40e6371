"""Rejecting by a threshold on the largest posterior, and choosing it with a guaranteed risk."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, final

import numpy as np
import scipy

from dubito.arrays import BoolArray, FloatArray, IntArray, as_fraction, freeze, require_everywhere
from dubito.data.batch import make_batch, require_labels, row_statistics
from dubito.decide.actions import MARGIN
from dubito.errors import BadValueError, EmptyStateError
from dubito.formatting import percent, short_percent
from dubito.measure.state import warn_of_missing
from dubito.outputs import as_outputs

DEPTH = 0.6  # tests start at the geometric mean of the fewest rows and this fraction of all rows
# Fractions of the rows at which tests start again, and the part of delta that each may spend.
LATER_STARTS = ((0.25, 0.01), (0.5, 0.01), (0.75, 0.01), (1.0, 0.1))
FEW_STARTS = ((1.0, 0.05),)  # if a quarter of the rows is too few for a test
STEP = 1.01  # from one number of tolerated errors to the next, if there are many
LARGEST_BET = 0.9  # relative to one that could lose everything
MAX_ROWS = 100_000_000
MAX_BETS = 1_000_000


def uncertainty_limit(threshold: Any) -> Any:
    """Return the uncertainty (1 - confidence, or loss) at and above which a row is rejected."""
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
        return np.searchsorted(self.least_confidence, uncertainty_limit(threshold), side="left")

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
            return _binomial_bound(self.loss_first[n_entries], self.n_first[n_entries], level)

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


def _binomial_bound(n_errors: float, n_rows: float, level: float) -> float:
    """Return the exact upper bound of a binomial proportion (Clopper and Pearson, 1934)."""
    n_right = n_rows - n_errors
    return float(scipy.special.betaincinv(n_errors + 1, n_right, 1 - level)) if n_right > 0 else 1.0


@final
@dataclass(frozen=True, slots=True)
class ThresholdChoice:
    """A threshold on the largest posterior, its results on held-out rows, and its guarantee.

    Attributes
    ----------
    threshold : float
        Accept a row if its largest posterior is above this.
    coverage : float
        The fraction of rows accepted.
    risk : float
        The error rate among accepted rows, 0 if there are none.
    risk_bound : float
        The upper bound of the risk, with probability 1 - delta.
    n : int
        The number of held-out rows.
    is_met : bool
        Whether the requested risk or coverage is guaranteed.
    summary : str
        The result in one sentence.
    """

    threshold: float
    coverage: float
    risk: float
    risk_bound: float
    n: int
    is_met: bool
    summary: str


def reject_threshold(cost: float) -> float:
    """Return the threshold on the largest posterior that is equivalent to a reject cost.

    Parameters
    ----------
    cost : float
        The cost of rejecting, where an error costs 1.

    Returns
    -------
    float

    References
    ----------
    Chow, "On optimum recognition error and reject tradeoff", 1970.

    Examples
    --------
    >>> from dubito.decide import reject_threshold
    >>> reject_threshold(0.25)
    0.75
    """
    return 1.0 - as_fraction(cost, "cost", "reject_threshold")


def reject_by_threshold(outputs: Any, threshold: float) -> BoolArray:
    """Return which rows to reject: those whose largest posterior is at most the threshold.

    Equivalent to a reject cost of 1 - threshold under 0-1 loss; ties are within 1e-9.

    Parameters
    ----------
    outputs : array, Logits, Probabilities, Members or TopLabel
        Calibrated outputs.
    threshold : float
        1 rejects every row, a threshold below 1 / K none.

    Returns
    -------
    array of bool

    Examples
    --------
    >>> from dubito.decide import reject_by_threshold
    >>> reject_by_threshold([[0.875, 0.125], [0.75, 0.25], [0.5, 0.5]], 0.75).tolist()
    [False, True, True]
    """
    limit = as_fraction(threshold, "threshold", "reject_by_threshold")
    wrapped = as_outputs(outputs, "outputs", "reject_by_threshold")
    return np.asarray(row_statistics(wrapped, None).least_confidence >= uncertainty_limit(limit))


def choose_threshold(
    y_true: Any,
    outputs: Any = None,
    *,
    risk: float | None = None,
    coverage: float | None = None,
    delta: float = 0.05,
    sample_weight: Any = None,
) -> ThresholdChoice:
    """Return the threshold of highest coverage at a given risk, or of lowest risk at a coverage.

    The guarantee holds for new rows from the same distribution with probability 1 - `delta`,
    whatever the model, if these rows were used neither for training nor for calibration.

    Parameters
    ----------
    y_true : array
        Labels. `TopLabel` outputs are passed alone, in this place.
    outputs : array, Logits, Probabilities, Members or TopLabel
        Outputs of held-out rows.
    risk : float, optional
        The largest error rate among accepted rows.
    coverage : float, optional
        The smallest fraction of rows to accept. Give either this or `risk`.
    delta : float, default 0.05
        The probability that the guarantee fails.
    sample_weight : array, optional
        Frequency weights: a row of weight 2 counts as two independent rows.

    Returns
    -------
    ThresholdChoice
        If no threshold can be guaranteed, it rejects all rows, and `is_met` is False.

    Notes
    -----
    From the most confident rows on, ever lower thresholds are tested by exact binomial tails until
    one fails. With a small part of `delta`, tests start again at a quarter, a half, three quarters
    and all of the rows, for models whose most confident rows are not the best ones.

    References
    ----------
    Angelopoulos et al., "Learn then test: calibrating predictive algorithms to achieve risk
    control", 2021. Wiens and Dmitrienko, "The fallback procedure for evaluating a single family of
    hypotheses", 2005.

    Examples
    --------
    >>> from dubito.decide import choose_threshold
    >>> choice = choose_threshold([1] * 90, [0.9] * 90, risk=0.1)
    >>> choice.is_met, choice.coverage
    (True, 1.0)
    """
    caller = "choose_threshold"
    if (risk is None) == (coverage is None):
        got = "neither" if risk is None else "both"
        rule, fix = "must be given, or else `coverage`", "Pass risk=0.02 or coverage=0.8"
        raise BadValueError("risk", caller, rule, got, fix)
    level = as_fraction(delta, "delta", caller, is_open=True)
    batch = make_batch(y_true, outputs, sample_weight=sample_weight, caller=caller)
    require_labels(batch, caller)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel=3)
    is_labeled = batch.labeled_weight > 0
    correct = batch.rows.correct[is_labeled]
    is_plain = (correct == 0) | (correct == 1)
    rule, fix = "must be one label per row", "Pass the most probable label of each row"
    require_everywhere(is_plain, correct, "y_true", caller, rule, fix)
    scores, weight = batch.rows.least_confidence[is_labeled], batch.labeled_weight[is_labeled]
    rows = RankedLosses.of(scores, 1 - correct, weight, is_binary=True)
    if not rows.n_rows:
        raise EmptyStateError("A threshold")
    if risk is not None:
        return threshold_at_risk(rows, as_fraction(risk, "risk", caller), level)
    return _threshold_at_coverage(rows, as_fraction(coverage, "coverage", caller), level)


class LossUnit(NamedTuple):
    """What losses from 0 to 1 stand for: costs from `low` to `high`, or errors."""

    low: float = 0.0
    high: float = 1.0
    is_cost: bool = False

    def value(self, loss: float) -> float:
        """Return a mean loss in this unit."""
        return self.low + (self.high - self.low) * loss

    def text(self, loss: float, digits: str = ".6g") -> str:
        """Return a mean loss as text, an error rate in percent."""
        return f"{self.value(loss):.6g}" if self.is_cost else f"{100 * loss:{digits}} %"

    @property
    def name(self) -> str:
        """The name of a mean loss."""
        return "mean cost" if self.is_cost else "error rate"


ERRORS = LossUnit()


def threshold_at_risk(
    rows: RankedLosses, risk: float, delta: float, unit: LossUnit = ERRORS
) -> ThresholdChoice:
    """Return the lowest threshold that surely has a mean loss of at most `risk`, or 1."""
    threshold, first = rows.lowest_safe_threshold(risk, delta)
    limit = f"at most {unit.text(risk)} with {short_percent(1 - delta)} confidence"
    if threshold is not None:
        return _choice(rows, threshold, risk, f"{limit}.", unit)
    bound = rows.upper_bound(first, delta)
    n_needed = rows.fewest_rows(risk, delta * (1 - FEW_STARTS[0][1]))
    fix = "more rows, or a" if unit.is_cost else "a"
    if not unit.is_cost and n_needed < 1e9:
        fix = f"at least {n_needed:,.0f} accepted rows without an error, or a"
    failure = (
        f"No threshold guarantees {'a' if unit.is_cost else 'an'} {unit.name} of {limit} on "
        f"{rows.n_rows:,} rows; the bound for the {rows.n_first[first]:,} most confident rows is "
        f"{unit.text(bound, '.3g')}. All rows are rejected. Use {fix} higher limit."
    )
    return ThresholdChoice(1.0, 0.0, 0.0, unit.value(bound), rows.n_rows, False, failure)


def _choice(
    rows: RankedLosses, threshold: float, bound: float, guarantee: str, unit: LossUnit = ERRORS
) -> ThresholdChoice:
    """Return a choice that is guaranteed, with its results on these rows."""
    n_entries = int(rows.accepted(threshold))
    coverage, risk = float(rows.n_first[n_entries] / rows.n_rows), rows.mean_loss(n_entries)
    least = f"minimum confidence {threshold:.6g}"
    if unit.is_cost:
        least = f"expected cost below {unit.value(1 - threshold):.6g}"
    text = f"{percent(coverage)} of {rows.n_rows:,} rows are accepted ({least}). "
    text += f"Their {unit.name} is {unit.text(risk, '.2f')}, and {guarantee}"
    values = threshold, coverage, unit.value(risk), unit.value(bound)
    return ThresholdChoice(*values, rows.n_rows, True, text)


def _threshold_at_coverage(rows: RankedLosses, coverage: float, delta: float) -> ThresholdChoice:
    """Reject as many of the least confident rows as the coverage allows, ties included.

    At most a fraction 1 - coverage lies beyond the r-th least confident row, unless fewer than r
    of n rows fell there: a binomial probability, whatever the distribution.
    """
    n_rows = rows.n_rows
    p_values = scipy.special.bdtr(np.arange(n_rows), n_rows, 1 - coverage)
    n_rejected = int((p_values <= delta).sum())
    threshold, bonus = 0.0, 0
    if n_rejected:
        # Below the row by more than a tie, so that it is accepted. The row that sets the threshold
        # is not a random accepted row: it counts as an error in the bound.
        entry = np.searchsorted(rows.n_first, n_rows - n_rejected, side="right") - 1
        edge = float(rows.least_confidence[entry])
        threshold, bonus = max(0.0, 1.0 - edge - 2 * MARGIN), 1
    n_entries = rows.accepted(threshold)
    n_accepted = rows.n_first[n_entries]
    n_errors = np.minimum(rows.loss_first[n_entries] + bonus, n_accepted)
    bound = _binomial_bound(n_errors, n_accepted, delta)
    guarantee = (
        f"at most {percent(bound, 2)}; coverage at least {short_percent(coverage)}, each with "
        f"{short_percent(1 - delta)} confidence."
    )
    if not n_rejected and coverage < 1:
        guarantee += " With so few rows, only the threshold that accepts all is guaranteed."
    return _choice(rows, threshold, bound, guarantee)
