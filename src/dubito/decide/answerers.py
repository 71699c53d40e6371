"""Whom to ask about a row: how a reviewer or a larger model errs, and what its answer is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_array,
    as_floats,
    as_fractions,
    contiguous,
    freeze,
    require_choice,
    require_dimensions,
    require_everywhere,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import short_percent
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.expected_cost import answer_costs
from dubito.serialization.array_fields import array
from dubito.serialization.fields import Entry, one_of, optional, text
from dubito.serialization.objects import Record, stores_fields

if TYPE_CHECKING:
    from dubito.decide.row_costs import CostTerms

Combine = Literal["bayes", "replace"]
KINDS = ("review", "model")
COMBINES = ("bayes", "replace")
ROUNDING = 1e-9  # by which probabilities may miss a sum of 1
NO_CONFUSION = freeze(np.empty((0, 0)))


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class Answerer(Record):
    """Someone who can be asked for the class of a row, and how it errs.

    Made by `CostMatrix.with_review` and `CostMatrix.with_model`.

    With a single action, to answer (`CostMatrix.for_answers`), the one who is asked gives an
    answer of their own. It is wrong with the error rate of the class, that is, where the model's
    answer is wrong, or where it is correct. If the two answers agree, there is nothing to choose.
    If they differ, one of them is taken: the other one's ("replace"), or the one that is more
    probably correct ("bayes"). So asking costs what the better of the two sources does, and
    never less than the errors of the one who is asked leave; whether two wrong answers are the same
    one makes no difference.

    Attributes
    ----------
    name : str
        The action of asking.
    kind : "review" or "model"
        Whether a person or another model is asked.
    combine : "bayes" or "replace"
        Whether the answer is combined with the model's probabilities by Bayes, which assumes that
        the two err independently given the class, or replaces them.
    error_rate : array of float or None
        The probability of a wrong answer in each class; all wrong answers are equally probable.
    confusion : array of float or None, classes x classes
        The probability of each answer (columns) in each true class (rows).
    """

    has_header: ClassVar[bool] = False

    name: Annotated[str, text]
    kind: Annotated[str, one_of(*KINDS)]
    combine: Annotated[str, one_of(*COMBINES)]
    error_rate: Annotated[FloatArray | None, optional(array(None, low=0.0, high=1.0))]
    confusion: Annotated[FloatArray | None, optional(array(None, None, low=0.0, high=1.0))]

    @classmethod
    def of(
        cls,
        name: str,
        n_classes: int,
        *,
        error_rate: Any = None,
        confusion: Any = None,
        combine: Any = "bayes",
        kind: str = "review",
        caller: str,
    ) -> Answerer:
        """Check how someone errs: by an error rate, one per class, or a confusion matrix.

        Parameters
        ----------
        name : str
            The action of asking.
        n_classes : int
            The number of classes.
        error_rate : float or array of shape (n_classes,), optional
            The probability of a wrong answer, in all classes or in each.
        confusion : array, classes x classes, optional
            The probability, or the count, of each answer (columns) in each true class (rows).
        combine : "bayes" or "replace", default "bayes"
            Whether the answer is combined with the model's probabilities, or replaces them.
        kind : "review" or "model", default "review"
            Whether a person or another model is asked.
        caller : str
            The public function that was called, for error messages.

        Returns
        -------
        Answerer
            With one error rate per class, or a confusion matrix whose rows sum to 1.
        """
        require_choice(combine, COMBINES, "combine", caller)
        if (error_rate is None) == (confusion is None):
            got = "neither" if error_rate is None else "both"
            rule, fix = "needs an error rate or a confusion matrix", "Pass error_rate=0.05"
            raise BadTypeError("", caller, rule, got, fix)
        if confusion is not None:
            table = _as_confusion(confusion, n_classes, caller)
            return cls(name, kind, combine, None, freeze(table))
        given = [error_rate] if np.ndim(error_rate) == 0 else error_rate
        rates = as_fractions(given, "error_rate", caller).astype(np.float64)
        if rates.size not in (1, n_classes):
            rule, fix = "must be one number, or one per class", f"Pass {n_classes} numbers"
            raise BadValueError("error_rate", caller, rule, f"{rates.size}", fix)
        if n_classes < 2:
            rule, fix = "must be of at least 2 classes", "Leave reviews out"
            raise BadValueError("costs", caller, rule, f"{n_classes}", fix)
        return cls(name, kind, combine, freeze(np.array(np.broadcast_to(rates, n_classes))), None)

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> Answerer:
        known = values["error_rate"] if values["confusion"] is None else values["confusion"]
        try:
            return cls.of(n_classes=0 if known is None else len(known), caller="", **values)
        except (BadTypeError, BadValueError) as error:
            raise entry.at(error.argument or "error_rate").error(error.rule, error.got) from error

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        known = self.error_rate if self.confusion is None else self.confusion
        assert known is not None
        return len(known)

    @property
    def likelihoods(self) -> FloatArray:
        """The probability of each answer (columns) in each true class (rows)."""
        if self.confusion is not None:
            return self.confusion
        assert self.error_rate is not None
        n_classes = self.error_rate.size
        table = np.repeat(self.error_rate[:, np.newaxis] / (n_classes - 1), n_classes, axis=1)
        np.fill_diagonal(table, 1 - self.error_rate)
        return table

    @property
    def needs_posterior(self) -> bool:
        """Whether what is done after an answer depends on the probabilities of the row."""
        return self.combine == "bayes"

    def in_order(self, order: list[int]) -> Answerer:
        """Return the same with classes in another order.

        Parameters
        ----------
        order : list of int
            The position of each class among the classes now.

        Returns
        -------
        Answerer
            The same answerer.
        """
        rates = None if self.error_rate is None else freeze(self.error_rate[order])
        table = None if self.confusion is None else freeze(self.confusion[np.ix_(order, order)])
        return Answerer(self.name, self.kind, self.combine, rates, table)

    def costs_after(self, p: FloatArray, terms: CostTerms, *, by_class: bool = False) -> FloatArray:
        """Return the expected cost of what is decided after an answer, without the price of asking.

        Parameters
        ----------
        p : array of float64, rows x classes
            Calibrated probabilities.
        terms : CostTerms
            The costs of the actions that decide.
        by_class : bool, default False
            Whether to return the cost in each true class instead, rows x classes. Weighted by the
            probabilities it sums to the expected cost.

        Returns
        -------
        array of float
        """
        (n_rows, n_classes), (base, entries, values) = p.shape, terms
        if base.shape == (1, 2):
            return self._costs_of_answers(p, terms, by_class=by_class)
        expected = np.empty(n_rows)
        result = np.empty((n_rows, n_classes)) if by_class else NO_CONFUSION.copy()
        rates = np.zeros(n_classes) if self.error_rate is None else self.error_rate
        hits, misses = freeze(1.0 - rates), freeze(rates / max(n_classes - 1, 1))
        table = NO_CONFUSION if self.confusion is None else self.confusion
        is_zero_one = not len(entries) and np.array_equal(base, 1.0 - np.eye(n_classes))
        costs = [freeze(contiguous(one)) for one in (base, entries)]

        def fill(rows: slice) -> None:
            answer_costs(
                contiguous(p[rows]), *costs, freeze(contiguous(values[:, rows])), hits, misses,
                table, self.needs_posterior, is_zero_one, expected[rows],
                result[rows] if by_class else result,
            )  # fmt: skip

        run_in_order(fill, row_blocks(n_rows, n_classes))
        return result if by_class else expected

    def costs_of_own_answer(self, costs: FloatArray) -> FloatArray:
        """Return what their own answer costs where the model's answer is wrong, or correct.

        Parameters
        ----------
        costs : array of shape (..., 2)
            The cost of the model's answer in each class, of which the lower one is that of a
            correct answer.

        Returns
        -------
        array of shape (..., 2)
            The mean over what they may answer in each class.
        """
        low, high = costs.min(axis=-1, keepdims=True), costs.max(axis=-1, keepdims=True)
        return np.asarray(low + (high - low) * (1.0 - np.diag(self.likelihoods)))

    def _costs_of_answers(self, p: FloatArray, terms: CostTerms, *, by_class: bool) -> FloatArray:
        """Return what `costs_after` does, of a single action: to answer."""
        kept = np.repeat(terms.base, len(p), axis=0)
        for _, k, number in terms.entries.tolist():
            kept[:, k] += terms.values[number]
        own = self.costs_of_own_answer(kept)
        expected = (p * own).sum(axis=1)
        if self.needs_posterior:
            is_kept = (p * kept).sum(axis=1) <= expected
            own = np.where(is_kept[:, np.newaxis], kept, own)
            expected = (p * own).sum(axis=1)
        return own if by_class else expected

    def updated(self, p: FloatArray, answers: IntArray) -> FloatArray:
        """Return the probabilities of rows after an answer to each, rows x classes.

        An answer that is impossible under both sides leaves the row as it was.

        Parameters
        ----------
        p : array, rows x classes
            Calibrated probabilities.
        answers : array of int of shape (n_rows,)
            The class that was answered, per row.

        Returns
        -------
        array, rows x classes
            Probabilities given the answers.
        """
        if not self.needs_posterior:
            return np.asarray(np.eye(self.n_classes)[answers])
        joint = p * self.likelihoods.T[answers]
        total = joint.sum(axis=1, keepdims=True)
        return np.where(total > 0, joint / np.where(total > 0, total, 1.0), p)

    def __str__(self) -> str:
        if self.error_rate is None:
            errors = "a confusion matrix"
        elif np.ptp(self.error_rate) == 0:
            errors = f"an error rate of {short_percent(float(self.error_rate[0]))}"
        else:
            low, high = self.error_rate.min(), self.error_rate.max()
            errors = f"error rates of {short_percent(low)} to {short_percent(high)} by class"
        how = "combined by Bayes" if self.needs_posterior else "its answer is final"
        return f"{self.name} ({errors}, {how})"


def _as_confusion(confusion: Any, n_classes: int, caller: str) -> FloatArray:
    """Return the probability of each answer in each class, from such or from counts."""
    table = as_floats(confusion, "confusion", caller).astype(np.float64)
    if table.shape != (n_classes, n_classes):
        rule = f"must be {n_classes} x {n_classes}, true class x answer"
        raise BadValueError("confusion", caller, rule, f"shape {table.shape}", "Pass all classes")
    rule, fix = "must be at least 0 and finite", "Pass counts or probabilities"
    require_everywhere((table >= 0) & np.isfinite(table), table, "confusion", caller, rule, fix)
    total = table.sum(axis=1, keepdims=True)
    if not (total > 0).all():
        rule = "must have answers in every class"
        fix = "Use estimate_confusion(y_true, answers, n_classes), which smooths rare classes"
        row = int(np.argmin(total[:, 0]))
        raise BadValueError("confusion", caller, rule, "none", fix, row)
    if np.abs(total - 1).max() < ROUNDING:
        return table
    if (table != np.round(table)).any():
        row = int(np.argmax(np.abs(total[:, 0] - 1)))
        rule, fix = "must be whole counts, or fractions that sum to 1", "Correct the row"
        raise BadValueError("confusion", caller, rule, f"a sum of {total[row, 0]:.6g}", fix, row)
    return np.asarray(table / total)


def estimate_confusion(
    y_true: Any, answers: Any, n_classes: int, *, prior_weight: float = 1.0
) -> FloatArray:
    """Return how someone errs, from answers whose truth is known: a smoothed confusion matrix.

    Each row is a posterior mean: the counts of a class plus `prior_weight` answers distributed as
    the overall error rate says (with one error of two answers added to that). Use it to describe a
    second model by its predictions on validation rows.

    Parameters
    ----------
    y_true, answers : array of int
        True classes and answers, as column indices.
    n_classes : int
        The number of classes.
    prior_weight : float, default 1
        How many answers per class the overall error rate counts for.

    Returns
    -------
    array of float, classes x classes
        The probability of each answer (columns) in each true class (rows).

    Examples
    --------
    >>> from dubito.decide import estimate_confusion
    >>> estimate_confusion([0, 0, 1, 1], [0, 0, 1, 0], 2).round(2).tolist()
    [[0.89, 0.11], [0.44, 0.56]]
    """
    caller = "estimate_confusion"
    truth = as_codes(y_true, n_classes, "y_true", caller)
    given = as_codes(answers, n_classes, "answers", caller)
    if truth.shape != given.shape:
        rule, fix = f"must have {truth.size} entries, like `y_true`", "Pass one answer per label"
        raise BadValueError("answers", caller, rule, f"{given.size}", fix)
    counts = np.zeros((n_classes, n_classes))
    np.add.at(counts, (truth, given), 1.0)
    n_wrong = counts.sum() - np.trace(counts)
    error = (n_wrong + 1.0) / (counts.sum() + 2.0)
    prior = np.full((n_classes, n_classes), error / max(n_classes - 1, 1))
    np.fill_diagonal(prior, 1 - error)
    counts += prior_weight * prior
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def as_codes(value: Any, n_classes: int, argument: str, caller: str) -> IntArray:
    """Return classes as column indices."""
    found = as_array(value, argument, caller)
    require_dimensions(found, (1,), argument, caller, "one class per row")
    if found.dtype.kind not in "iu":
        rule, fix = "must be column indices of classes", "Pass integers"
        raise BadTypeError(argument, caller, rule, f"dtype {found.dtype}", fix)
    rule, fix = f"must be from 0 to {n_classes - 1}", "Pass column indices of classes"
    require_everywhere((found >= 0) & (found < n_classes), found, argument, caller, rule, fix)
    return found.astype(np.int64)
