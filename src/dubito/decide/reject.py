"""Rejecting by a threshold on the largest posterior, and choosing it with a guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from dubito.arrays import BoolArray, FloatArray, as_share, require_everywhere
from dubito.data.batch import Batch, row_statistics
from dubito.decide.actions import MARGIN
from dubito.errors import BadValueError, EmptyStateError
from dubito.measure.state import warn_of_missing
from dubito.outputs import as_outputs

# Thresholds to try, as log odds from the strictest down, are fixed before any row is seen: that is
# what the guarantee rests on. The last accepts every row.
LOG_ODDS = np.append(np.arange(18.0, -7.0, -0.05), -np.inf)
STARTS = np.array([*np.searchsorted(-LOG_ODDS, [-12, -8, -6, -4, -3, -2, -1]), LOG_ODDS.size - 1])


@final
@dataclass(frozen=True, slots=True)
class ThresholdChoice:
    """A threshold, what it did on `n` held-out rows, and what is guaranteed.

    `risk` is the share of errors among accepted rows, 0 if there are none. `risk_bound` holds with
    a chance of 1 - delta.
    """

    threshold: float
    coverage: float
    risk: float
    risk_bound: float
    n: int
    is_met: bool
    words: str


def reject_threshold(cost: float) -> float:
    """Return the threshold that a reject cost stands for where an error costs 1.

    Chow, "On optimum recognition error and reject tradeoff", 1970.

    >>> reject_threshold(0.25)
    0.75
    """
    return 1.0 - as_share(cost, "cost", "reject_threshold")


def reject_by_threshold(outputs: Any, threshold: float) -> BoolArray:
    """Return which rows to reject: those whose largest posterior is at most the threshold.

    A threshold of 1 rejects all, one below 1 / K none. It is the same as a reject cost of 1 -
    threshold under zero-one costs, and as there a tie is what is within 1e-9.

    >>> reject_by_threshold([[0.875, 0.125], [0.75, 0.25], [0.5, 0.5]], 0.75).tolist()
    [False, True, True]
    """
    limit = as_share(threshold, "threshold", "reject_by_threshold")
    wrapped = as_outputs(outputs, "outputs", "reject_by_threshold")
    return np.asarray(row_statistics(wrapped, None).least_confidence >= accepted_below(limit))


def accepted_below(threshold: Any) -> Any:
    """Return the doubt below which a threshold accepts a row."""
    return 1.0 - threshold - MARGIN


def choose_threshold(
    y_true: Any,
    outputs: Any,
    *,
    risk: float | None = None,
    coverage: float | None = None,
    delta: float = 0.05,
) -> ThresholdChoice:
    """Return the threshold of most coverage at a wanted risk, or of least risk at a coverage.

    The wish holds for rows to come with a chance of 1 - `delta`, whatever the model, if these rows
    were neither trained nor calibrated on. Thresholds are tested in fixed sequences, with most
    power where outputs are calibrated: Angelopoulos et al., "Learn then test", 2021.

    >>> choice = choose_threshold([1] * 90, [0.9] * 90, risk=0.1)
    >>> choice.is_met, choice.coverage
    (True, 1.0)
    """
    caller = "choose_threshold"
    if (risk is None) == (coverage is None):
        got = "neither" if risk is None else "both"
        fix = "risk=0.02 or coverage=0.8"
        raise BadValueError("risk", caller, "given, or else `coverage`", got, fix)
    chance = as_share(delta, "delta", caller, is_open=True)
    batch = Batch.of(y_true, outputs, caller=caller)
    batch.require_labels(caller)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel=3)
    rows = JudgedRows.of(batch, caller)
    if risk is not None:
        return _choice_at_risk(rows, as_share(risk, "risk", caller), chance)
    return _choice_at_coverage(rows, as_share(coverage, "coverage", caller), chance)


@final
@dataclass(frozen=True, slots=True, eq=False)
class JudgedRows:
    """The doubt of labeled rows, sorted, and how many of the first rows are errors."""

    doubt: FloatArray
    n_errors: FloatArray

    @classmethod
    def of(cls, batch: Batch, caller: str) -> JudgedRows:
        """Sort the rows that have a label, each of which must be right or wrong."""
        is_labeled = batch.labeled_weight > 0
        correct = batch.rows.correct[is_labeled]
        if not correct.size:
            raise EmptyStateError("A threshold")
        is_plain = (correct == 0) | (correct == 1)
        rule, fix = "labels, each right or wrong", "one label a row instead of shares"
        require_everywhere(is_plain, correct, "y_true", caller, rule, fix)
        doubt = batch.rows.least_confidence[is_labeled]
        order = np.argsort(doubt, kind="stable")
        return cls(doubt[order], np.append(0.0, np.cumsum(1 - correct[order])))

    @property
    def n(self) -> int:
        """How many rows there are."""
        return int(self.doubt.size)

    def accepted(self, threshold: Any) -> Any:
        """Return how many rows a threshold accepts."""
        return np.searchsorted(self.doubt, accepted_below(threshold), side="left")

    def choice(
        self, threshold: float, risk_bound: float, words: str, is_met: bool
    ) -> ThresholdChoice:
        """Return a choice, with what it does on these rows; `words` come after that."""
        n_accepted = int(self.accepted(threshold))
        share, risk = n_accepted / self.n, float(self.n_errors[n_accepted]) / max(n_accepted, 1)
        did = f"coverage {share:.1%}, risk {risk:.2%} on {self.n:,} rows"
        text = f"Accept above {threshold:.6g}: {did}; {words}" if n_accepted else words
        return ThresholdChoice(threshold, share, risk, risk_bound, self.n, is_met, text)


def _choice_at_risk(rows: JudgedRows, risk: float, delta: float) -> ThresholdChoice:
    """Go down from each start while the risk is shown to be low; take the lowest threshold."""
    thresholds = special.expit(LOG_ODDS)
    n_accepted = rows.accepted(thresholds)
    n_errors = rows.n_errors[n_accepted]
    level = delta / len(STARTS)
    # The chance of so few errors where the risk is `risk`: exact for a threshold fixed in advance.
    chance = special.bdtr(n_errors, n_accepted, risk) if risk < 1 else np.zeros(thresholds.size)
    fails = np.append(np.flatnonzero(chance > level), thresholds.size)
    lowest = max(
        int(fails[np.searchsorted(fails, s)]) - 1 if s not in fails else -1 for s in STARTS
    )
    sure = f"{1 - delta:.6g} confidence"
    if lowest >= 0:
        words = f"the risk is at most {risk:.6g} with {sure}."
        return rows.choice(float(thresholds[lowest]), risk, words, is_met=True)
    least = float(_upper_bound(n_errors[STARTS], n_accepted[STARTS], level).min())
    n_needed = int(np.ceil(np.log(level) / np.log1p(-risk))) if risk >= 1e-9 else 0
    fix = f"{n_needed:,} accepted rows without an error, or a" if n_needed else "a"
    words = (
        f"No threshold has a risk of at most {risk:.6g} with {sure} on {rows.n:,} rows: the least "
        f"bound shown is {least:.3g}. All rows are rejected. Try {fix} higher risk."
    )
    return rows.choice(1.0, least, words, is_met=False)


def _choice_at_coverage(rows: JudgedRows, coverage: float, delta: float) -> ThresholdChoice:
    """Give up as many of the most doubtful rows as the wish allows, ties included.

    At most a share 1 - coverage lies beyond the r-th most doubtful row, unless fewer than r of n
    rows fell there: a binomial chance, whatever the distribution.
    """
    n_beyond = np.arange(rows.n)
    chances = special.bdtr(n_beyond, rows.n, 1 - coverage) if coverage < 1 else np.ones(rows.n)
    n_given_up = int((chances <= delta).sum())
    threshold, bonus = 0.0, 0
    if n_given_up:
        # Below the row by more than a tie, so that it is accepted. Where a row marks the threshold
        # its own label is not one of a random accepted row: it counts as an error in the bound.
        edge = float(rows.doubt[rows.n - n_given_up])
        threshold, bonus = max(0.0, 1.0 - edge - 2 * MARGIN), 1
    n_accepted = rows.accepted(threshold)
    n_errors = np.minimum(rows.n_errors[n_accepted] + bonus, n_accepted)
    bound = float(_upper_bound(n_errors, n_accepted, delta))
    sure = f"{1 - delta:.6g} confidence"
    words = (
        f"the coverage is at least {coverage:.6g}, and the risk at most {bound:.3g}, each with "
        f"{sure}."
    )
    if not n_given_up and coverage < 1:
        words += " So few rows allow no threshold but that which accepts all."
    return rows.choice(threshold, bound, words, is_met=True)


def _upper_bound(n_errors: Any, n_rows: Any, level: float) -> Any:
    """Return the exact upper bound of a binomial share, after Clopper and Pearson, 1934."""
    n_right = np.asarray(n_rows - n_errors, dtype=np.float64)
    inner = special.betaincinv(n_errors + 1.0, np.maximum(n_right, 1.0), 1 - level)
    return np.where(n_right > 0, inner, 1.0)
