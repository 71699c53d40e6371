"""Rejecting by a threshold on the largest posterior, and choosing it with a guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import special

from dubito.arrays import BoolArray, FloatArray, as_fraction, require_everywhere
from dubito.data.batch import Batch, row_statistics
from dubito.decide.actions import MARGIN
from dubito.errors import BadValueError, EmptyStateError
from dubito.measure.state import warn_of_missing
from dubito.outputs import as_outputs

# Thresholds to test, as log odds from the strictest down, are fixed before any row is seen, as the
# guarantee requires. The last accepts every row.
LOG_ODDS = np.append(np.arange(18.0, -7.0, -0.05), -np.inf)
STARTS = np.array([*np.searchsorted(-LOG_ODDS, [-12, -8, -6, -4, -3, -2, -1]), LOG_ODDS.size - 1])


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
    >>> reject_by_threshold([[0.875, 0.125], [0.75, 0.25], [0.5, 0.5]], 0.75).tolist()
    [False, True, True]
    """
    limit = as_fraction(threshold, "threshold", "reject_by_threshold")
    wrapped = as_outputs(outputs, "outputs", "reject_by_threshold")
    return np.asarray(row_statistics(wrapped, None).least_confidence >= accepted_below(limit))


def accepted_below(threshold: Any) -> Any:
    """Return the least confidence below which a threshold accepts a row."""
    return 1.0 - threshold - MARGIN


def choose_threshold(
    y_true: Any,
    outputs: Any = None,
    *,
    risk: float | None = None,
    coverage: float | None = None,
    delta: float = 0.05,
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

    Returns
    -------
    ThresholdChoice

    Notes
    -----
    Thresholds are tested in fixed sequences, with most power where outputs are calibrated.

    References
    ----------
    Angelopoulos et al., "Learn then test: calibrating predictive algorithms to achieve risk
    control", 2021.

    Examples
    --------
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
    batch = Batch.of(y_true, outputs, caller=caller)
    batch.require_labels(caller)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel=3)
    rows = JudgedRows.of(batch, caller)
    if risk is not None:
        return _choice_at_risk(rows, as_fraction(risk, "risk", caller), level)
    return _choice_at_coverage(rows, as_fraction(coverage, "coverage", caller), level)


@final
@dataclass(frozen=True, slots=True, eq=False)
class JudgedRows:
    """The least confidence of labeled rows, sorted, and how many of the first rows are errors."""

    least_confidence: FloatArray
    n_errors: FloatArray

    @classmethod
    def of(cls, batch: Batch, caller: str) -> JudgedRows:
        """Sort the labeled rows, each of which must be correct or wrong."""
        is_labeled = batch.labeled_weight > 0
        correct = batch.rows.correct[is_labeled]
        if not correct.size:
            raise EmptyStateError("A threshold")
        is_plain = (correct == 0) | (correct == 1)
        rule, fix = "must be one label per row", "Pass the most probable label of each row"
        require_everywhere(is_plain, correct, "y_true", caller, rule, fix)
        scores = batch.rows.least_confidence[is_labeled]
        order = np.argsort(scores, kind="stable")
        return cls(scores[order], np.append(0.0, np.cumsum(1 - correct[order])))

    @property
    def n(self) -> int:
        """The number of rows."""
        return int(self.least_confidence.size)

    def accepted(self, threshold: Any) -> Any:
        """Return the number of rows that a threshold accepts."""
        return np.searchsorted(self.least_confidence, accepted_below(threshold), side="left")

    def choice(
        self, threshold: float, risk_bound: float, guarantee: str, is_met: bool
    ) -> ThresholdChoice:
        """Return a choice with its results on these rows."""
        n_accepted = int(self.accepted(threshold))
        coverage, risk = n_accepted / self.n, float(self.n_errors[n_accepted]) / max(n_accepted, 1)
        accepted = f"{coverage:.1%} of {self.n:,} rows are accepted (minimum confidence "
        results = f"{accepted}{threshold:.6g}); error rate {risk:.2%}"
        text = f"{results}{guarantee}" if n_accepted else guarantee
        return ThresholdChoice(threshold, coverage, risk, risk_bound, self.n, is_met, text)


def _choice_at_risk(rows: JudgedRows, risk: float, delta: float) -> ThresholdChoice:
    """Test thresholds downwards from each start until one fails; return the lowest that passed."""
    thresholds = special.expit(LOG_ODDS)
    n_accepted = rows.accepted(thresholds)
    n_errors = rows.n_errors[n_accepted]
    level = delta / len(STARTS)
    # The p-value of so few errors at this risk: exact for a threshold fixed in advance.
    p_value = special.bdtr(n_errors, n_accepted, risk) if risk < 1 else np.zeros(thresholds.size)
    fails = np.append(np.flatnonzero(p_value > level), thresholds.size)
    lowest = max(
        int(fails[np.searchsorted(fails, s)]) - 1 if s not in fails else -1 for s in STARTS
    )
    confidence = f"{100 * (1 - delta):.6g}% confidence"
    if lowest >= 0:
        guarantee = f", at most {100 * risk:.6g}% with {confidence}."
        return rows.choice(float(thresholds[lowest]), risk, guarantee, is_met=True)
    least = float(_upper_bound(n_errors[STARTS], n_accepted[STARTS], level).min())
    n_needed = int(np.ceil(np.log(level) / np.log1p(-risk))) if risk >= 1e-9 else 0
    fix = f"at least {n_needed:,} accepted rows without an error, or a" if n_needed else "a"
    failure = (
        f"No threshold guarantees an error rate of at most {100 * risk:.6g}% with {confidence} on "
        f"{rows.n:,} rows; the lowest bound is {100 * least:.3g}%. All rows are rejected. Use "
        f"{fix} higher risk."
    )
    return rows.choice(1.0, least, failure, is_met=False)


def _choice_at_coverage(rows: JudgedRows, coverage: float, delta: float) -> ThresholdChoice:
    """Reject as many of the least confident rows as the coverage allows, ties included.

    At most a fraction 1 - coverage lies beyond the r-th least confident row, unless fewer than r
    of n rows fell there: a binomial probability, whatever the distribution.
    """
    n_beyond = np.arange(rows.n)
    p_values = special.bdtr(n_beyond, rows.n, 1 - coverage) if coverage < 1 else np.ones(rows.n)
    n_rejected = int((p_values <= delta).sum())
    threshold, bonus = 0.0, 0
    if n_rejected:
        # Below the row by more than a tie, so that it is accepted. The row that sets the threshold
        # is not a random accepted row: it counts as an error in the bound.
        edge = float(rows.least_confidence[rows.n - n_rejected])
        threshold, bonus = max(0.0, 1.0 - edge - 2 * MARGIN), 1
    n_accepted = rows.accepted(threshold)
    n_errors = np.minimum(rows.n_errors[n_accepted] + bonus, n_accepted)
    bound = float(_upper_bound(n_errors, n_accepted, delta))
    guarantee = (
        f", at most {100 * bound:.3g}%; coverage at least {100 * coverage:.6g}%, each with "
        f"{100 * (1 - delta):.6g}% confidence."
    )
    if not n_rejected and coverage < 1:
        guarantee += " With so few rows, only the threshold that accepts all is guaranteed."
    return rows.choice(threshold, bound, guarantee, is_met=True)


def _upper_bound(n_errors: Any, n_rows: Any, level: float) -> Any:
    """Return the exact upper bound of a binomial proportion (Clopper and Pearson, 1934)."""
    n_right = np.asarray(n_rows - n_errors, dtype=np.float64)
    inner = special.betaincinv(n_errors + 1.0, np.maximum(n_right, 1.0), 1 - level)
    return np.where(n_right > 0, inner, 1.0)
