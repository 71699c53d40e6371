"""Rejecting by a threshold on the largest posterior, and choosing it with a guarantee."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from scipy import special

from dubito.arrays import BoolArray, as_fraction, require_everywhere
from dubito.data.batch import Batch, row_statistics
from dubito.decide.actions import MARGIN
from dubito.decide.ranked_losses import FEW_STARTS, RankedLosses, accepted_below, binomial_bound
from dubito.errors import BadValueError, EmptyStateError
from dubito.formatting import percent, short_percent
from dubito.measure.state import warn_of_missing
from dubito.outputs import as_outputs


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
    batch = Batch.of(y_true, outputs, sample_weight=sample_weight, caller=caller)
    batch.require_labels(caller)
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
        return _choice(rows, threshold, risk, f", {limit}.", unit)
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
    text = f"{percent(coverage)} of {rows.n_rows:,} rows are accepted ({least}); "
    text += f"{unit.name} {unit.text(risk, '.2f')}{guarantee}"
    values = threshold, coverage, unit.value(risk), unit.value(bound)
    return ThresholdChoice(*values, rows.n_rows, True, text)


def _threshold_at_coverage(rows: RankedLosses, coverage: float, delta: float) -> ThresholdChoice:
    """Reject as many of the least confident rows as the coverage allows, ties included.

    At most a fraction 1 - coverage lies beyond the r-th least confident row, unless fewer than r
    of n rows fell there: a binomial probability, whatever the distribution.
    """
    n_rows = rows.n_rows
    n_beyond = np.arange(n_rows)
    p_values = special.bdtr(n_beyond, n_rows, 1 - coverage) if coverage < 1 else np.ones(n_rows)
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
    bound = float(binomial_bound(n_errors, n_accepted, delta))
    guarantee = (
        f", at most {percent(bound, 2)}; coverage at least {short_percent(coverage)}, each with "
        f"{short_percent(1 - delta)} confidence."
    )
    if not n_rejected and coverage < 1:
        guarantee += " With so few rows, only the threshold that accepts all is guaranteed."
    return _choice(rows, threshold, bound, guarantee)
