"""The costs of errors and reviews of several labels per row, or the F-beta score to maximize."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, NamedTuple, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, as_number, contiguous, require_choice
from dubito.data.expressions import HIGHEST_COST
from dubito.decide.actions import too_costly
from dubito.decide.costs import read_cells
from dubito.errors import BadFileError, BadValueError
from dubito.formatting import HTMLTable, html_view, join_words, plain
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.expected_cost import best_sets
from dubito.outputs import ClassName
from dubito.serialization.fields import (
    Entry,
    any_of,
    dict_of,
    list_of,
    number,
    optional,
    schema_of,
    states,
    text,
)
from dubito.serialization.objects import Record, stores_fields

Costs = float | tuple[float | None, ...] | dict[str, float | None]

CALLER = "LabelCosts"
COLUMNS = ("false_positive", "false_negative", "review")
EVERY = "*"  # stands for all labels that a mapping does not name
TIE = 1e-9  # relative: at equal cost a label is reviewed
N_LISTED = 20  # labels in a notebook
N_SHOWN = 5  # names of labels in a message


_cost = optional(number(0, HIGHEST_COST))


@states(lambda: any_of(*map(schema_of, (_cost, list_of(_cost), dict_of(_cost)))))
def _as_given(value: Any, entry: Entry) -> Any:
    """Check for costs in a document: one number, one per label, or by name."""
    if isinstance(value, dict):
        return dict_of(_cost)(value, entry)
    if isinstance(value, list | np.ndarray):
        return list_of(_cost)(value, entry)
    return _cost(value, entry)


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class LabelCosts(Record):
    """The costs of several labels per row: of both errors, and of a review.

    Each cost is one positive number for all labels, a mapping by label name (in which "*" stands
    for all other labels), or a sequence of one per label. The costs of a row are those of its
    labels added up.

    Parameters
    ----------
    false_positive, false_negative : float, mapping or sequence, default 1
        The cost of a label that is predicted and false, and of one that is true and not predicted.
    review : float, mapping or sequence, optional
        The cost of having a person check one label; None for no such review.
    review_row : float, optional
        The cost of sending the whole row to a person, who checks all of its labels.

    Examples
    --------
    >>> from dubito import LabelCosts
    >>> costs = LabelCosts(1, {"tumor": 50, "*": 5}, review=0.4, review_row=1.5)
    >>> costs.for_labels(["cough", "tumor"]).false_negative
    (5.0, 50.0)
    """

    has_header: ClassVar[bool] = False

    false_positive: Annotated[Any, _as_given] = 1.0
    false_negative: Annotated[Any, _as_given] = 1.0
    review: Annotated[Any, _as_given] = None
    review_row: Annotated[float | None, _cost] = None

    def __post_init__(self) -> None:
        for name in ("false_positive", "false_negative"):
            object.__setattr__(self, name, _as_costs(getattr(self, name), name))
        if self.review is not None:
            object.__setattr__(self, "review", _as_costs(self.review, "review"))
        if self.review_row is not None:
            object.__setattr__(self, "review_row", _as_cost(self.review_row, "review_row"))

    def _repr_html_(self) -> str:
        given = [getattr(self, name) for name in COLUMNS]
        labels: list[Any] = [key for one in given if isinstance(one, Mapping) for key in one]
        labels = list(dict.fromkeys(labels))
        labels += range(max((len(one) for one in given if isinstance(one, tuple)), default=0))
        rows = []
        for label in labels[:N_LISTED] or ["all labels"]:
            name = "other labels" if label == EVERY else str(label)
            rows.append((name, *(_cell(one, label) for one in given)))
        more = f"and {len(labels) - N_LISTED:,} more labels" if len(labels) > N_LISTED else ""
        names = [name.replace("_", " ") for name in COLUMNS]
        row = "" if self.review_row is None else f"Review of a whole row: {plain(self.review_row)}."
        return html_view("Costs per label.", HTMLTable(("label", *names), rows), more, row)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], **others: Any) -> LabelCosts:
        """Return the costs of a CSV file, one row per label.

        Parameters
        ----------
        path : str or path
            Its header starts with `label`, and names any of `false_positive`, `false_negative` and
            `review`. The label `*` stands for all others; a blank review is none.
        **others : float
            The costs that the file does not have.

        Returns
        -------
        LabelCosts
        """
        name = fspath(path)
        [header, *rows], decimal = read_cells(path)
        columns = header[1:]
        is_known = header[0].lower() == "label" and {*columns} <= {*COLUMNS}
        if not is_known or not columns or len({*columns}) != len(columns) or not rows:
            problem = f"its header must be label,{','.join(COLUMNS)}, or some of these"
            raise BadFileError(name, problem, "Write one label per line below it")
        labels = [row[0] for row in rows]
        if len({*labels}) != len(labels):
            raise BadFileError(name, "a label occurs twice", "Write one line per label")
        found: dict[str, Any] = {column: {} for column in columns}
        for label, *cells in rows:
            for column, cell in zip(columns, cells, strict=True):
                try:
                    is_none = column == "review" and not cell
                    found[column][label] = None if is_none else float(cell.replace(decimal, "."))
                except ValueError as error:
                    problem = f"{cell!r} in row {label!r}, column `{column}`, is not a number"
                    raise BadFileError(name, problem, "Write a positive number") from error
        for column in columns:
            if column in others:
                rule, fix = "must not be given twice", "Leave it out, or remove it from the file"
                raise BadValueError(column, CALLER, rule, f"{others[column]:g} and {name}", fix)
        try:
            return cls(**found, **others)
        except BadValueError as error:
            problem = f"a cost in column `{error.argument}` {error.rule}, got {error.got}"
            raise BadFileError(name, problem, error.fix) from error

    def __str__(self) -> str:
        parts = [
            f"false positive {_range(self.false_positive)}",
            f"false negative {_range(self.false_negative)}",
        ]
        if self.review is not None:
            parts.append(f"review of a label {_range(self.review)}")
        if self.review_row is not None:
            parts.append(f"review of a row {self.review_row:g}")
        return ", ".join(parts)

    def for_labels(self, names: Sequence[ClassName], caller: str = CALLER) -> LabelCosts:
        """Return the same costs as one per label.

        Parameters
        ----------
        names : sequence
            The names of the labels, in their order.
        caller : str
            The function that error messages name.

        Returns
        -------
        LabelCosts
        """
        given = {name: getattr(self, name) for name in ("false_positive", "false_negative")}
        found = {name: _by_label(value, names, name, caller) for name, value in given.items()}
        review = self.review
        if review is not None:
            review = _by_label(review, names, "review", caller)
            review = None if set(review) == {None} else review
        for name, costs in found.items():
            if None in costs:
                rule, fix = "must have a cost for each label", "Pass a positive number"
                raise BadValueError(name, caller, rule, f"none for {names[costs.index(None)]}", fix)
        return LabelCosts(**found, review=review, review_row=self.review_row)

    @property
    def arrays(self) -> CostArrays:
        """The costs as arrays of one per label, infinite where nothing can be reviewed."""
        fp, fn = (np.array(one, np.float64) for one in (self.false_positive, self.false_negative))
        review = np.full(fp.shape, np.inf)
        if self.review is not None:
            review = np.array([np.inf if one is None else one for one in self.review], np.float64)
        return CostArrays(fp, fn, review, np.inf if self.review_row is None else self.review_row)

    def warnings(self, names: Sequence[ClassName]) -> list[str]:
        """Return a sentence for each review that no probabilities could make optimal.

        Parameters
        ----------
        names : sequence
            The names of the labels.

        Returns
        -------
        list of str

        Examples
        --------
        >>> from dubito import LabelCosts
        >>> LabelCosts(review=0.6).warnings(["cough"])
        ['Review of cough is never chosen: it would have to cost 0.5 or less.']
        """
        costs = self.for_labels(names).arrays
        worst = costs.false_positive * costs.false_negative
        worst /= costs.false_positive + costs.false_negative  # of an uncertain label
        is_known = np.isfinite(costs.review)
        is_unused = is_known & (costs.review > worst * (1 + TIE))
        found = []
        for pair in sorted({*zip(costs.review[is_unused], worst[is_unused], strict=True)}):
            is_here = is_unused & (costs.review == pair[0]) & (worst == pair[1])
            problem = f"Review of {_shown(names, is_here)} is never chosen"
            found.append(too_costly(problem, pair[0] - pair[1], pair[0]))
        most = float(np.minimum(costs.review, worst).sum())
        if np.isfinite(costs.review_row):
            if costs.review_row >= most * (1 - TIE):
                excess, price = costs.review_row - most, costs.review_row
                found.append(too_costly("Review of a row is never chosen", excess, price))
            is_above = is_known & ~is_unused & (costs.review > costs.review_row)
            if is_above.any():
                which = _shown(names, is_above)
                found.append(f"Review of {which} costs more than that of the row: it is unused.")
        return found


class CostArrays(NamedTuple):
    """Costs as arrays by label, and the cost of reviewing a row; infinite without reviews."""

    false_positive: FloatArray
    false_negative: FloatArray
    review: FloatArray
    review_row: float

    def is_positive(self, p: FloatArray) -> BoolArray:
        """Return which labels cost less if they are predicted, or as much."""
        return np.asarray(self.false_positive * (1 - p) <= self.false_negative * p)

    def of_errors(self, y: FloatArray, is_positive: BoolArray) -> FloatArray:
        """Return the cost of predicting labels or not, by their truth or its probability."""
        return np.where(is_positive, self.false_positive * (1 - y), self.false_negative * y)

    def is_reviewed(self, least: FloatArray) -> BoolArray:
        """Return which labels are cheaper to review than any decision, which costs the least."""
        margin = TIE * np.maximum(self.false_positive, self.false_negative)
        return np.asarray(self.review <= least + margin)


def _range(costs: Costs) -> str:
    """Return the lowest and the highest cost of labels.

    >>> _range(1.0), _range((1.0, 20.0, None))
    ('1', '1 to 20')
    """
    if isinstance(costs, float):
        return f"{costs:g}"
    values = costs.values() if isinstance(costs, dict) else costs
    found = [one for one in values if one is not None]
    low, high = min(found, default=0.0), max(found, default=0.0)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _as_costs(value: Any, argument: str) -> Costs:
    """Return costs as one float, a tuple of them, or a dict by the text of names."""
    if isinstance(value, Mapping):
        return {str(name): _as_optional(one, argument) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(_as_optional(one, argument) for one in value)
    return _as_cost(value, argument)


def _as_optional(value: Any, argument: str) -> float | None:
    """Return one cost; a label whose cost of a review is None cannot be reviewed."""
    return None if value is None and argument == "review" else _as_cost(value, argument)


def _as_cost(value: Any, argument: str) -> float:
    """Return one cost."""
    fix = "Pass a cost such as 0.5"
    return as_number(value, argument, CALLER, 0, HIGHEST_COST, fix=fix, is_open=True)


def _cell(given: Any, label: Any) -> str:
    """Return the cost of a label as text; nothing if there is none."""
    if isinstance(given, Mapping):
        given = given.get(label, given.get(EVERY))
    elif isinstance(given, tuple):
        given = given[label] if isinstance(label, int) and label < len(given) else None
    return "" if given is None else plain(given)


def _by_label(
    value: Costs, names: Sequence[ClassName], argument: str, caller: str
) -> tuple[float | None, ...]:
    """Return one cost per label."""
    if isinstance(value, float):
        return (value,) * len(names)
    if isinstance(value, tuple):
        if len(value) != len(names):
            rule, fix = f"must be one number, or one per label ({len(names)})", "Name the labels"
            raise BadValueError(argument, caller, rule, f"{len(value)}", fix)
        return value
    known = [str(name) for name in names]
    shown = join_words([*known[:N_SHOWN], *(["others"] if len(known) > N_SHOWN else [])])
    for name in value:
        if name not in known and name != EVERY:
            rule, fix = f"must name labels only ({shown})", "Correct the name, or remove it"
            raise BadValueError(argument, caller, rule, repr(name), fix)
    missing = [name for name in known if name not in value]
    if missing and EVERY not in value:
        rule, fix = "must have a cost for each label", "Add it, or '*' for all other labels"
        raise BadValueError(argument, caller, rule, f"none for {missing[0]!r}", fix)
    return tuple(value[name if name in value else EVERY] for name in known)


def _shown(names: Sequence[ClassName], is_shown: BoolArray) -> str:
    """Return the names of some labels, of many the first."""
    found = [str(names[k]) for k in np.flatnonzero(is_shown).tolist()]
    if len(found) == len(names) > 1:
        return "single labels"
    return join_words(found, N_SHOWN)


AVERAGES = ("macro", "micro", "samples")
BLOCK_ENTRIES = 1 << 16
MIN_THRESHOLD = 1e-12  # threshold: a label of probability 0 is never predicted


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class FBeta(Record):
    """The F-beta score as the aim of decisions on several labels per row, instead of costs.

    "macro" is the mean of the scores of labels, "micro" the score of all pairs of row and label,
    "samples" the mean of the scores of rows. For "macro" and "micro" a label is predicted from a
    threshold on, the maximal score divided by 1 + beta^2, which an exact scan over all distinct
    probabilities finds. For "samples" the best set of labels of each row is found exactly, if its
    labels are independent. A row without true and predicted labels has score 1; a label without
    any is left out of the mean.

    Parameters
    ----------
    beta : float, default 1
        How much more recall counts than precision.
    average : {"macro", "micro", "samples"}, default "macro"
        What is averaged.

    References
    ----------
    Waegeman, Dembczynski, Jachnik, Cheng and Hüllermeier, "On the Bayes-optimality of F-measure
    maximizers", JMLR 2014; Lipton, Elkan and Naryanaswamy, "Optimal thresholding of classifiers to
    maximize F1 measure", ECML 2014.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import FBeta
    >>> FBeta(average="samples").best_sets(np.array([[0.4, 0.3, 0.1]])).tolist()
    [[True, True, False]]
    """

    has_header: ClassVar[bool] = False

    beta: Annotated[float, number(1e-3, 1e3)] = 1.0
    average: Annotated[str, text] = "macro"

    def __post_init__(self) -> None:
        beta = as_number(self.beta, "beta", "FBeta", 1e-3, 1e3, fix="Pass beta=1")
        require_choice(self.average, AVERAGES, "average", "FBeta")
        object.__setattr__(self, "beta", beta)

    def __str__(self) -> str:
        return f"{self.average} F{self.beta:g}"

    def thresholds(self, p: FloatArray, weight: FloatArray) -> FloatArray | None:
        """Return from which calibrated probability on each label is predicted.

        Parameters
        ----------
        p : array, rows x labels
            Calibrated probabilities.
        weight : array
            Weights of the rows.

        Returns
        -------
        array of one per label, or None
            None for "samples", which has no thresholds.
        """
        n_labels = p.shape[1]
        if self.average == "macro":
            return np.array([self._threshold(p[:, k], weight) for k in range(n_labels)])
        if self.average == "micro":
            return np.full(n_labels, self._threshold(p.ravel(), np.repeat(weight, n_labels)))
        return None

    def _threshold(self, p: FloatArray, weight: FloatArray) -> float:
        """Return the threshold of highest expected score, of the sums that it consists of.

        The best score is at a cut where adding a row changes nothing: its probability would be the
        score divided by 1 + beta^2.
        """
        order = np.argsort(-p, kind="stable")
        weight, hits = weight[order], np.cumsum(weight[order] * p[order])
        scores = hits / np.maximum(self.beta**2 * hits[-1] + np.cumsum(weight), 1e-300)
        return max(float(scores.max()), MIN_THRESHOLD)

    def best_sets(self, p: FloatArray) -> BoolArray:
        """Return the labels of each row whose expected score is highest, if independent.

        Parameters
        ----------
        p : array, rows x labels
            Calibrated probabilities.

        Returns
        -------
        array of bool, rows x labels
        """
        result = np.empty(p.shape, np.bool_)
        values = np.empty(len(p))

        def fill(rows: slice) -> None:
            best_sets(contiguous(p[rows]), self.beta**2, result[rows], values[rows])

        run_in_order(fill, row_blocks(len(p), p.shape[1], BLOCK_ENTRIES))
        return result

    def row_scores(self, y: FloatArray, is_positive: BoolArray, weight: FloatArray) -> FloatArray:
        """Return one number per row whose weighted mean is the realized score.

        For "samples" these are the scores of rows; otherwise how much each row adds, linearized at
        the score of all rows (the delta method), so that a bootstrap over rows is one over means.

        Parameters
        ----------
        y : array, rows x labels
            0, 1 or probabilities, NaN where unknown.
        is_positive : array of bool, rows x labels
            Which labels are predicted.
        weight : array
            Weights of the rows.

        Returns
        -------
        array of one number per row
        """
        square, is_known = self.beta**2, ~np.isnan(y)
        hits = np.where(is_known, is_positive * y, 0.0)
        sizes = np.where(is_known, square * y + is_positive, 0.0)  # b2 true + predicted
        if self.average == "samples":
            top, bottom = (1 + square) * hits.sum(axis=1), sizes.sum(axis=1)
            return np.asarray(np.divide(top, bottom, out=np.ones(len(y)), where=bottom > 0))
        if self.average == "micro":
            hits, sizes = hits.sum(axis=1, keepdims=True), sizes.sum(axis=1, keepdims=True)
        total = weight.sum()
        top, bottom = weight @ hits / total, weight @ sizes / total
        is_defined = bottom > 0
        hits, sizes = hits[:, is_defined], sizes[:, is_defined]
        top, bottom = top[is_defined], bottom[is_defined]
        if not is_defined.any():
            return np.ones(len(y))
        values = (1 + square) * (top / bottom + hits / bottom - sizes * top / bottom**2)
        return np.asarray(values.mean(axis=1))
