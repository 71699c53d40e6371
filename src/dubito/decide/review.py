"""Review with limited capacity: who reviews which row, and what one more review would save.

A `ReviewTeam` holds reviewers: how each errs, its price, and how many rows it can review. The value
of a review is the expected cost that it saves: the cost of the best decision without it, minus its
price and the expected cost of what is decided after the answer. The plan of highest total value
that exceeds no capacity is a linear program; its dual has one number per reviewer, the *shadow
price*: what one more review of theirs would save. A row goes to the reviewer whose value net of the
shadow price is highest, if that is above 0, so that prices alone decide rows as they arrive.

    team = ReviewTeam([Reviewer("ann", capacity=40, error_rate=0.02), ...])
    team.values(probabilities, costs)         # rows x reviewers: what each review would save
    plan = team.plan(probabilities, costs)    # of a batch: plan.reviewer, plan.shadow_prices
    queue = plan.team.queue(n_expected=2000)  # of a stream: starts from the plan's shadow prices
    queue.assign(values)                      # index of a reviewer or -1, never above capacity
    team.learn(names, y_true, answers)        # a team that knows how reviewers err
    team.update(probabilities, "ann", answers)  # posteriors after answers; `values` of these says
                                              # whether a second opinion pays
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Annotated, Any, ClassVar, Literal, final

import numpy as np
from scipy import special

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_array,
    as_count,
    as_fraction,
    as_fractions,
    as_list,
    as_number,
    contiguous,
    freeze,
    require_choice,
)
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.sink import write_atomic
from dubito.decide.actions import least_costs
from dubito.decide.answerers import COMBINES, Answerer, as_codes
from dubito.decide.costs import (
    CostMatrix,
    as_costs,
    class_order,
    number_or_text,
    read_cells,
    read_json,
)
from dubito.decide.review_planning import (
    ReviewPlan,
    ReviewQueue,
    assigned_rows,
    exact_plan,
    is_optimal,
    marginal_values,
    saving_of_more,
    smoothed_prices,
)
from dubito.decide.row_costs import RowCosts, without_reject
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.expected_cost import share_rows
from dubito.outputs import ClassName, Logits, Probabilities, as_names
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    Entry,
    Omittable,
    class_names,
    describe,
    integer,
    list_of,
    number,
    one_of,
    optional,
    scalar,
    text,
)
from dubito.serialization.objects import Record, record_of, stores_fields

STRENGTHS = 2.0 ** np.arange(11)  # answers that the team's choice of wrong answers may count for
PRIOR_ANSWERS = 20.0  # that a stated error rate counts for, in each class
OTHER_CLASS = 0.5  # of an answer: what one to another class counts at first
MAX_PER_CLASS = 10.0  # answers to one class: many count for half of these elsewhere
LOWEST_ERROR, HIGHEST_ERROR = 1e-4, 0.95
HOURS = 8.0  # of a day, where a file states a capacity per hour only
COLUMNS = (  # of a CSV file; those between the first and the last are numbers
    "name", "capacity_per_day", "capacity_per_hour", "hours_per_day", "error_rate", "cost",
    "skills",
)  # fmt: skip

FILE_COLUMNS = {"capacity": "capacity_per_day", "rows_per_hour": "capacity_per_hour"}
FIXES = {
    "error_rate": "Write a fraction such as 0.05: divide percentages by 100",
    "confusion": "Write fractions that sum to 1 in each row, or whole counts",
    "capacity": "Write how many rows the reviewer can review, such as 40",
}

_table = Omittable(optional(array(None, None, low=0.0)))  # true class x answer


def _rates(value: Any, entry: Entry) -> Any:
    """Check for an error rate, or one per class in a list or a dict."""
    if isinstance(value, dict):
        return {key: number(0.0, 1.0)(one, entry.at(str(key))) for key, one in value.items()}
    if isinstance(value, list):
        return list_of(number(0.0, 1.0))(value, entry)
    return None if value is None else number(0.0, 1.0)(value, entry)


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class Reviewer(Record):
    """A reviewer: how it errs, what a review costs, and how many rows it can review.

    Parameters
    ----------
    name : str
        Identifies the reviewer in plans and files.
    capacity : int
        How many rows it can review in the period that is planned, such as a day.
    error_rate : float, dict or list, optional
        The probability of a wrong answer: one number, or one per class for someone who knows some
        classes better than others. All wrong answers are equally probable.
    confusion : array, classes x classes, optional
        The probability, or the count, of each answer (columns) in each true class (rows).
    cost : float or str, default 0
        The price of a review: a number, or an expression of columns.
    combine : "bayes" or "replace", default "bayes"
        Whether the answer is combined with the model's probabilities, or replaces them.
    rows_per_hour : float, optional
        How fast it reviews. Plans then state what one more hour would save, and a queue that is
        given the time assigns it no more rows in any hour.
    counts : array, classes x classes, optional
        Answers whose truth is known, true class x answer; `ReviewTeam.learn` adds to them.
    shadow_price : float, default 0
        What one more review would save, as the last plan found.
    skills : sequence of str or number, optional
        The classes it knows: rows whose most probable class is another one are not reviewed by it.

    Examples
    --------
    >>> from dubito.decide import Reviewer
    >>> Reviewer("ann", capacity=40, error_rate=0.02)
    Reviewer('ann', capacity=40, error_rate=0.02)
    """

    has_header: ClassVar[bool] = False

    name: Annotated[str, text]
    capacity: Annotated[int, integer()]
    error_rate: Annotated[Any, Omittable(_rates)] = None
    confusion: Annotated[Any, _table] = None
    cost: Annotated[float | str, Omittable(scalar)] = 0.0
    combine: Annotated[str, Omittable(one_of(*COMBINES))] = "bayes"
    rows_per_hour: Annotated[float | None, Omittable(optional(number(1e-6, 1e9)))] = None
    counts: Annotated[FloatArray | None, _table] = None
    shadow_price: Annotated[float, Omittable(number(0.0))] = 0.0
    skills: Annotated[Sequence[ClassName] | None, Omittable(class_names())] = None

    def __post_init__(self) -> None:
        as_count(self.capacity, "capacity", "Reviewer", 0, example=40)
        require_choice(self.combine, COMBINES, "combine", "Reviewer")
        as_number(self.shadow_price, "shadow_price", "Reviewer", 0.0, fix="Use shadow_price=0")
        if self.rows_per_hour is not None:
            fix = "Use rows_per_hour=12"
            as_number(self.rows_per_hour, "rows_per_hour", "Reviewer", 0.0, fix=fix, is_open=True)
        if self.error_rate is not None and self.confusion is not None:
            rule, fix = "must be None with a confusion matrix", "Pass one of the two"
            raise BadValueError("error_rate", "Reviewer", rule, repr(self.error_rate), fix)
        if self.error_rate is None and self.confusion is None and self.counts is None:
            rule, fix = "must be given", "Pass error_rate=0.05, or a confusion matrix"
            raise BadValueError("error_rate", f"Reviewer {self.name!r}", rule, "none", fix)
        rates = self.error_rate
        if isinstance(rates, Mapping):
            rates = list(rates.values())
        if rates is not None:
            check = as_fractions if np.ndim(rates) else as_fraction
            check(rates, "error_rate", f"Reviewer {self.name!r}")
        CostMatrix([[self.cost]])
        if not isinstance(self.cost, str):
            as_number(self.cost, "cost", "Reviewer", 0.0, fix="Pass what a review costs")
        if self.skills is not None:
            fix = "Use skills=['fraud']"
            found = as_list(self.skills, "skills", "Reviewer", "must be a list of classes", fix)
            object.__setattr__(self, "skills", tuple(found))

    def __repr__(self) -> str:
        parts = [f"{self.name!r}", f"capacity={self.capacity}"]
        parts += [] if self.error_rate is None else [f"error_rate={self.error_rate}"]
        parts += [] if self.counts is None else [f"{self.counts.sum():.0f} confirmed answers"]
        parts += [f"shadow_price={self.shadow_price:.4g}"] if self.shadow_price else []
        return f"Reviewer({', '.join(parts)})"

    def _values(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.fields}
        return {name: value for name, value in values.items() if value is not None}

    def stated(self, classes: tuple[ClassName, ...] | None, n_classes: int) -> Answerer | None:
        """Return how it errs according to what was stated, None where nothing was.

        Parameters
        ----------
        classes : tuple of str or number, or None
            The classes, in the order of lists of error rates.
        n_classes : int
            Their number.

        Returns
        -------
        Answerer or None
            Error rates or a confusion matrix.
        """
        rates: Any = self.error_rate
        if rates is None and self.confusion is None:
            return None
        if isinstance(rates, Mapping):
            known = {str(name): rate for name, rate in rates.items()}
            names = [str(name) for name in classes or range(n_classes)]
            if set(known) != set(names):
                rule, fix = f"must have the classes {', '.join(names)}", "Name each class once"
                got = ", ".join(known) or "none"
                raise BadValueError("error_rate", f"Reviewer {self.name!r}", rule, got, fix)
            rates = [known[name] for name in names]
        return Answerer.of(
            self.name, n_classes, error_rate=rates, confusion=self.confusion,
            combine=self.combine, caller=f"Reviewer {self.name!r}",
        )  # fmt: skip

    def known_codes(self, names: list[str]) -> list[int]:
        """Return its skills as positions among the classes, all of them if none are stated.

        Parameters
        ----------
        names : list of str
            The classes, in order.

        Returns
        -------
        list of int
            Positions among `names`.
        """
        skills = names if self.skills is None else [str(name) for name in self.skills]
        unknown = [name for name in skills if name not in names]
        if unknown:
            rule, fix = f"must be among the classes {', '.join(names)}", "Use their names"
            raise BadValueError("skills", f"Reviewer {self.name!r}", rule, unknown[0], fix)
        return [names.index(name) for name in skills]


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class ReviewTeam(Record):
    """Reviewers with limited capacity, and plans for them.

    Parameters
    ----------
    reviewers : list of Reviewer
        The members of the team, each with a name of its own.
    classes : list of str or number, optional
        The order of the classes in confusion matrices, counts and lists of error rates. By default
        that of the outputs.

    Examples
    --------
    >>> from dubito.decide import ReviewTeam, Reviewer
    >>> ann = Reviewer("ann", capacity=1, error_rate=0.02)
    >>> bob = Reviewer("bob", capacity=1, error_rate=[0.1, 0.4])  # better at the first class
    >>> plan = ReviewTeam([ann, bob]).plan([[0.5, 0.5], [0.6, 0.4], [0.9, 0.1]])
    >>> plan.reviewer.tolist()
    [0, 1, -1]
    """

    reviewers: Annotated[tuple[Reviewer, ...], list_of(record_of(Reviewer))]
    classes: Annotated[tuple[ClassName, ...] | None, Omittable(class_names())] = None

    def __init__(
        self, reviewers: Iterable[Reviewer], classes: Iterable[ClassName] | None = None
    ) -> None:
        team = tuple(reviewers)
        fix = "Pass ReviewTeam([Reviewer('ann', capacity=40, error_rate=0.02)])"
        if not team or not all(isinstance(one, Reviewer) for one in team):
            got = type(team[0]).__name__ if team else "none"
            raise BadTypeError("reviewers", "ReviewTeam", "must be reviewers", got, fix)
        names = [one.name for one in team]
        fix = "Name each reviewer once"
        as_names(names, len(team), "reviewers", "reviewer", "ReviewTeam", fix)
        object.__setattr__(self, "reviewers", team)
        object.__setattr__(self, "classes", None if classes is None else tuple(classes))

    def _values(self) -> dict[str, Any]:
        known = {} if self.classes is None else {"classes": self.classes}
        return {"reviewers": self.reviewers, **known}

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ReviewTeam:
        """Return the team in a file: a CSV table, a JSON list of reviewers, or what `save` wrote.

        Parameters
        ----------
        path : str or path
            The file. In JSON, a reviewer is an object with the parameters of `Reviewer`. A CSV or
            TSV file has one line per reviewer and the columns `name`, `capacity_per_day` or
            `capacity_per_hour` (for a day of 8 hours, or of those in a column `hours_per_day`),
            and where needed `error_rate`, `cost`, and `skills`, classes separated by `|`.

        Returns
        -------
        ReviewTeam
        """
        name = fspath(path)
        fix = 'Write a list such as [{"name": "ann", "capacity": 40, "error_rate": 0.02}]'
        is_table = name.lower().endswith((".csv", ".tsv"))
        values = _listed_reviewers(name) if is_table else read_json(path, fix)
        if isinstance(values, list):
            _require_names(values, name, is_table)
            values = {"reviewers": values}
        if isinstance(values, dict):
            values = {"class": cls.__name__, "format": 1, **values}
            if values["class"] != cls.__name__:
                problem = f"it holds {describe(values['class'])}, not a {cls.__name__}"
                raise BadFileError(name, problem, fix)
        try:
            return cls._read(values, Entry("values", name, {}))
        except BadValueError as error:
            at = re.fullmatch(r"reviewers\[(\d+)\]\.(\w+)", error.argument)
            if at is None:
                raise
            column = at[2] if not is_table else FILE_COLUMNS.get(at[2], at[2])
            place = f"row {int(at[1]) + 1}, column {column}" if is_table else f"`{at[0]}`"
            fix = FIXES.get(at[2], f"Correct the {'cell' if is_table else 'entry'}")
            problem = f"{place} {error.rule}, got {error.got}"
            raise BadFileError(name, problem, fix) from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write the team as a JSON file, atomically.

        Parameters
        ----------
        path : str or path
            The file.
        """
        write_atomic(path, json.dumps(self.to_dict(), indent=1) + "\n")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the reviewers."""
        return tuple(one.name for one in self.reviewers)

    @property
    def capacities(self) -> IntArray:
        """How many rows each can review."""
        return np.array([one.capacity for one in self.reviewers], np.int64)

    @property
    def shadow_prices(self) -> FloatArray:
        """What one more review of each would save, as the last plan found."""
        return np.array([one.shadow_price for one in self.reviewers])

    def with_shadow_prices(self, prices: Any) -> ReviewTeam:
        """Return the same team with other shadow prices.

        Parameters
        ----------
        prices : array of shape (n_reviewers,)
            The new price of each reviewer.

        Returns
        -------
        ReviewTeam
            A new team.
        """
        pairs = zip(self.reviewers, np.asarray(prices).tolist(), strict=True)
        return ReviewTeam([replace(one, shadow_price=p) for one, p in pairs], self.classes)

    def answerers(
        self, classes: tuple[ClassName, ...] | None, n_classes: int
    ) -> tuple[Answerer, ...]:
        """Return how each reviewer errs, in the order of some classes.

        Where there are confirmed answers, a stated error rate counts as 20 answers in each class,
        to which the reviewer's own are added. Answers to another class count for half or less, and
        for 5 at most; answers of other people only say which wrong answers are given instead.

        Parameters
        ----------
        classes : tuple of str or number, or None
            The classes of the outputs, in order.
        n_classes : int
            Their number.

        Returns
        -------
        tuple of Answerer
            One per reviewer.
        """
        order, known = None, classes
        if classes is not None and self.classes is not None:
            order, known = class_order(self.classes, classes), self.classes
            if order is None:
                rule, fix = f"must be {classes}", "Use the class names of the outputs"
                raise BadValueError("classes", "ReviewTeam", rule, f"{self.classes}", fix)
        stated = [one.stated(known, n_classes) for one in self.reviewers]
        counts = [self._counts_of(one, n_classes) for one in self.reviewers]
        found = stated if not np.sum(counts) else _posterior_means(self, stated, np.stack(counts))
        result = []
        for one, asked in zip(self.reviewers, found, strict=True):
            if asked is None:
                rule, fix = "needs an error rate", "Pass error_rate=0.05, or learn from answers"
                raise BadTypeError("", f"Reviewer {one.name!r}", rule, "none", fix)
            result.append(asked if order is None else asked.in_order(order))
        return tuple(result)

    def _counts_of(self, reviewer: Reviewer, n_classes: int) -> FloatArray:
        """Return the confirmed answers of a reviewer, true class x answer."""
        if reviewer.counts is None:
            return np.zeros((n_classes, n_classes))
        if reviewer.counts.shape != (n_classes, n_classes):
            rule, fix = f"must be {n_classes} x {n_classes}", "Count answers by class"
            got = f"shape {reviewer.counts.shape}"
            raise BadValueError("counts", f"Reviewer {reviewer.name!r}", rule, got, fix)
        return reviewer.counts

    def learn(
        self, names: Any, y_true: Any, answers: Any, *, n_classes: int | None = None
    ) -> ReviewTeam:
        """Return the team with more confirmed answers, from which it knows how reviewers err.

        Use answers whose truth became known, or that another person confirmed independently.

        Parameters
        ----------
        names : array of str
            Who answered.
        y_true, answers : array
            True classes and answers: column indices, or names if the team has `classes`.
        n_classes : int, optional
            The number of classes, if the team has neither `classes` nor counts.

        Returns
        -------
        ReviewTeam

        Examples
        --------
        >>> import numpy as np
        >>> from dubito.decide import ReviewTeam, Reviewer
        >>> team = ReviewTeam([Reviewer(name, 9, error_rate=0.1) for name in ("ann", "bob")])
        >>> names, truth = ["ann"] * 50 + ["bob"] * 50, [0, 1] * 50
        >>> answers = [0, 1] * 25 + [0, 1, 0, 1, 0, 1, 0, 1, 1, 1] * 5
        >>> team = team.learn(names, truth, answers, n_classes=2)
        >>> [f"{1 - np.diag(one.likelihoods).mean():.2f}" for one in team.answerers(None, 2)]
        ['0.04', '0.10']
        """
        caller = "ReviewTeam.learn"
        sizes = [one.counts.shape[0] for one in self.reviewers if one.counts is not None]
        known = len(self.classes) if self.classes else max(sizes, default=n_classes or 0)
        as_count(known, "n_classes", caller, 2)
        truth = self._codes_of(y_true, known, "y_true", caller)
        given = self._codes_of(answers, known, "answers", caller)
        who = [str(name) for name in as_list(names, "names", caller, "must be a list", "Pass one")]
        if not len(who) == truth.size == given.size:
            rule, fix = f"must have {len(who)} entries, like `names`", "Pass one per answer"
            raise BadValueError("answers", caller, rule, f"{given.size}", fix)
        counts = {one.name: self._counts_of(one, known).copy() for one in self.reviewers}
        for row, (name, k, j) in enumerate(zip(who, truth.tolist(), given.tolist(), strict=True)):
            if name not in counts:
                rule, fix = f"must be one of {', '.join(self.names)}", "Add the reviewer"
                raise BadValueError("names", caller, rule, repr(name), fix, row)
            counts[name][k, j] += 1
        team = [replace(one, counts=freeze(counts[one.name])) for one in self.reviewers]
        return ReviewTeam(team, self.classes)

    def _codes_of(self, value: Any, n_classes: int, argument: str, caller: str) -> IntArray:
        """Return classes as column indices, given as such or by name."""
        found = as_array(value, argument, caller)
        if self.classes is None or found.dtype.kind in "iu":
            return as_codes(found, n_classes, argument, caller)
        code_of = {str(name): code for code, name in enumerate(self.classes)}
        for row, name in enumerate(found.tolist()):
            if str(name) not in code_of:
                rule, fix = f"must be one of {', '.join(code_of)}", "Use the classes of the team"
                raise BadValueError(argument, caller, rule, repr(name), fix, row)
        return np.array([code_of[str(name)] for name in found.tolist()], np.int64)

    def costs(self, costs: CostMatrix) -> CostMatrix:
        """Return costs with one action per reviewer, whose price includes its shadow price.

        Decisions by these costs, such as those of a policy, ask each reviewer about as often as
        its capacity allows, row by row. They replace other actions that reject. Skills are no part
        of costs: use error rates by class for decisions by these.

        Parameters
        ----------
        costs : CostMatrix
            The cost of each action in each class.

        Returns
        -------
        CostMatrix
        """
        table = as_costs(costs, "costs", "ReviewTeam.costs")
        result = without_reject(table)
        asked = self.answerers(table.classes, table.n_classes)
        for one, answerer in zip(self.reviewers, asked, strict=True):
            price: Any = one.cost
            if one.shadow_price:
                extra = f"{one.shadow_price:.6g}"
                price = f"{price} + {extra}" if isinstance(price, str) else price + float(extra)
            result = result.with_answerer(answerer, price)
        return result

    def values(self, outputs: Any, costs: CostMatrix | None = None, row_costs: Any = None) -> Any:
        """Return what a review of each row by each reviewer is expected to save, net of its price.

        Parameters
        ----------
        outputs : array, Logits, Probabilities or Members
            Calibrated outputs.
        costs : CostMatrix, optional
            The cost of each action in each class; actions that reject are left out. By default
            every error costs 1.
        row_costs : dict, data frame or array, optional
            The columns that the costs and the prices depend on.

        Returns
        -------
        array of float, rows x reviewers
            Negative where a review costs more than it saves, -inf where the most probable class is
            none of the reviewer's skills. They are what `expected_costs` of
            `CostMatrix.with_review` say.

        Notes
        -----
        If there is one action, to answer (`CostMatrix.for_answers`), a reviewer gives an answer of
        their own, which is wrong with their error rate. Where it differs from the model's, the
        better of the two is taken ("bayes") or always theirs ("replace"); where the two agree,
        nothing changes. With wrong answers that cost 1 more than correct ones, a review saves
        max(1 - P(correct) - error rate, 0) with "bayes", and without the maximum with "replace".

        Examples
        --------
        >>> from dubito.decide import ReviewTeam, Reviewer
        >>> team = ReviewTeam([Reviewer("ann", capacity=40, error_rate=0.02, cost=0.1)])
        >>> team.values([[0.5, 0.5], [0.99, 0.01]]).round(2).tolist()
        [[0.38], [-0.1]]
        """
        return self._valued(outputs, costs, row_costs, "ReviewTeam.values")[0]

    def _valued(
        self, outputs: Any, costs: Any, row_costs: Any, caller: str
    ) -> tuple[FloatArray, IntArray, FloatArray, CostMatrix]:
        """Return values, and the action, its cost, and the costs without a review."""
        wrapped = as_class_outputs(outputs, caller)
        if costs is None:
            costs = CostMatrix.zero_one(wrapped.classes or wrapped.n_classes)
        table = as_costs(costs, "costs", caller).for_classes(wrapped.classes, wrapped.n_classes)
        n_rows = wrapped.n_rows
        prices = CostMatrix([[one.cost] for one in self.reviewers], self.names)
        is_array = np.ndim(row_costs) == 3 and not isinstance(row_costs, Mapping)
        given = row_costs if is_array or table.columns else None
        by_row = RowCosts.of(given, table, n_rows, caller).without_reject()
        price = RowCosts.of(row_costs if prices.columns else None, prices, n_rows, caller)
        asked = self.answerers(table.classes or wrapped.classes, wrapped.n_classes)
        values = np.empty((n_rows, len(asked)))
        found = least_costs(wrapped, by_row.costs, by_row, caller)

        def fill(rows: slice) -> None:
            part = contiguous(wrapped.array[rows])
            p = np.empty(part.shape)
            share_rows(part, isinstance(wrapped, Logits), p)
            paid = price.take(rows).in_class(0)
            for r, one in enumerate(asked):
                after = one.costs_after(p, by_row.terms(rows))
                values[rows, r] = found.cost[rows] - after - paid[r]

        run_in_order(fill, row_blocks(n_rows, wrapped.n_classes))
        names = [str(name) for name in table.classes or wrapped.classes or range(wrapped.n_classes)]
        for r, reviewer in enumerate(self.reviewers):
            if reviewer.skills is not None:
                values[~np.isin(found.predicted_class, reviewer.known_codes(names)), r] = -np.inf
        return values, found.action, found.cost, by_row.costs

    def prices(self, values: Any, capacities: Any = None) -> FloatArray:
        """Return the shadow prices of some rows: what one more review of each would save.

        Parameters
        ----------
        values : array, rows x reviewers
            What `values` returns.
        capacities : array of int, optional
            How many of the rows each can review, by default the capacity of each.

        Returns
        -------
        array of float

        Examples
        --------
        >>> from dubito.decide import ReviewTeam, Reviewer
        >>> team = ReviewTeam([Reviewer("ann", capacity=1, error_rate=0.0)])
        >>> team.prices(team.values([[0.5, 0.5], [0.7, 0.3]])).round(1).tolist()
        [0.3]
        """
        found = np.asarray(values, np.float64)
        left = self.capacities if capacities is None else np.asarray(capacities, np.int64)
        prices = smoothed_prices(found, left)
        return marginal_values(found, assigned_rows(found, prices, left), left, prices)

    def savings_of_more(
        self, values: Any, plan: Any, rows: Any, capacities: Any = None
    ) -> FloatArray:
        """Return what more reviews of each reviewer would save, beyond those of a plan.

        Rows are reviewed that are not yet, or are passed on from one reviewer to another who is
        better suited, as long as that saves anything.

        Parameters
        ----------
        values : array, rows x reviewers
            What `values` returns.
        plan : array of int of shape (n_rows,)
            The reviewer of each row, -1 for none: `ReviewPlan.reviewer`.
        rows : array of float of shape (n_reviewers,)
            How many more rows each could review; a fraction of a row saves that fraction.
        capacities : array of int, optional
            How many rows each can review in the plan, by default the capacity of each.

        Returns
        -------
        array of float of shape (n_reviewers,)

        Examples
        --------
        >>> from dubito.decide import ReviewTeam, Reviewer
        >>> team = ReviewTeam([Reviewer("ann", capacity=1, error_rate=0.0)])
        >>> values = team.values([[0.5, 0.5], [0.6, 0.4], [0.9, 0.1]])
        >>> team.savings_of_more(values, [0, -1, -1], [12]).round(2).tolist()
        [0.5]
        """
        found, taken = np.asarray(values, np.float64), np.asarray(plan, np.int64)
        left = self.capacities if capacities is None else np.asarray(capacities, np.int64)
        more = np.asarray(rows, np.float64)
        is_proven = is_optimal(found, taken, left, self.shadow_prices)
        prices = None if is_proven else smoothed_prices(found, left)
        saved = [saving_of_more(found, taken, left, prices, r, n) for r, n in enumerate(more)]
        return np.array(saved)

    def plan(
        self,
        outputs: Any,
        costs: CostMatrix | None = None,
        row_costs: Any = None,
        *,
        method: Literal["prices", "exact"] = "prices",
    ) -> ReviewPlan:
        """Return who reviews which row, so that the expected cost is lowest within capacity.

        Parameters
        ----------
        outputs : array, Logits, Probabilities or Members
            Calibrated outputs.
        costs : CostMatrix, optional
            The cost of each action in each class; actions that reject are left out. By default
            every error costs 1.
        row_costs : dict, data frame or array, optional
            The columns that the costs and the prices depend on.
        method : "prices" or "exact", default "prices"
            "prices" finds prices by a smoothed dual, and assigns rows by them; "exact" then solves
            the linear program of the rows that prices leave open (HiGHS). Shadow prices are what
            one more review saves over the plan: of an exact plan, the lowest optimal duals, and 0
            for anyone with capacity left.

        Returns
        -------
        ReviewPlan

        References
        ----------
        Talluri and van Ryzin, "An analysis of bid-price controls for network revenue management",
        1998.
        """
        require_choice(method, ("prices", "exact"), "method", "ReviewTeam.plan")
        values, action, cost, table = self._valued(outputs, costs, row_costs, "ReviewTeam.plan")
        prices = smoothed_prices(values, self.capacities)
        reviewer = assigned_rows(values, prices, self.capacities)
        if method == "exact":
            reviewer = exact_plan(values, prices, self.capacities, reviewer)
        value = np.where(reviewer < 0, 0.0, values[np.arange(len(values)), reviewer])
        known = None if method == "exact" else prices
        team = self.with_shadow_prices(marginal_values(values, reviewer, self.capacities, known))
        return ReviewPlan(reviewer, value, action, cost, values, table.actions, team)

    def queue(self, n_expected: int) -> ReviewQueue:
        """Return what assigns rows as they arrive, starting from the team's shadow prices.

        Parameters
        ----------
        n_expected : int
            How many rows are expected until capacities are renewed.

        Returns
        -------
        ReviewQueue
        """
        return ReviewQueue(self, n_expected)

    def update(self, outputs: Any, name: str, answers: Any) -> Probabilities:
        """Return the probabilities of rows after the answers of a reviewer.

        The `values` of these say whether a second opinion pays: they assume that reviewers err
        independently given the class.

        Parameters
        ----------
        outputs : array, Logits, Probabilities or Members
            Calibrated outputs.
        name : str
            Who answered.
        answers : array
            One answer per row: column indices, or names if the team has `classes`.

        Returns
        -------
        Probabilities

        Examples
        --------
        >>> from dubito.decide import ReviewTeam, Reviewer
        >>> team = ReviewTeam([Reviewer("ann", capacity=9, error_rate=0.2)])
        >>> after = team.update([[0.5, 0.5]], "ann", [1])
        >>> after.array.round(2).tolist(), bool(team.values(after).max() > 1e-9)
        ([[0.2, 0.8]], False)
        """
        caller = "ReviewTeam.update"
        wrapped = as_class_outputs(outputs, caller)
        if name not in self.names:
            rule, fix = f"must be one of {', '.join(self.names)}", "Add the reviewer"
            raise BadValueError("name", caller, rule, repr(name), fix)
        codes = self._codes_of(answers, wrapped.n_classes, "answers", caller)
        if codes.size != wrapped.n_rows:
            rule, fix = f"must have {wrapped.n_rows} entries", "Pass one answer per row"
            raise BadValueError("answers", caller, rule, f"{codes.size}", fix)
        asked = self.answerers(wrapped.classes, wrapped.n_classes)[self.names.index(name)]
        p = np.empty(wrapped.array.shape)
        share_rows(contiguous(wrapped.array), isinstance(wrapped, Logits), p)
        return Probabilities(asked.updated(p, codes), wrapped.classes)


def _require_names(values: list[Any], path: str, is_table: bool) -> None:
    """Raise where reviewers in a file have no name, or that of another one."""
    line_of: dict[Any, str] = {}
    for k, one in enumerate(values):
        name = one.get("name") if isinstance(one, dict) else "?"  # checked later
        at = f"row {k + 1}" if is_table else f"entry {k + 1}"
        if name is None or (isinstance(name, str) and not name.strip()):
            raise BadFileError(path, f"{at} has no name", "Fill in `name` for each reviewer")
        if isinstance(name, str) and name in line_of and name != "?":
            problem = f"{line_of[name]} and {at} have the same name, {name!r}"
            raise BadFileError(path, problem, "Name each reviewer once")
        line_of[str(name)] = at


def _listed_reviewers(path: str) -> list[dict[str, Any]]:
    """Return the reviewers of a CSV file as values, not yet checked; blank cells are left out."""
    table, decimal_sign = read_cells(path)
    head = [name.lower() for name in table[0]] if table else []
    unknown = [name for name in head if name not in COLUMNS]
    if unknown or "name" not in head or len(set(head)) < len(head):
        problem = f"a column occurs twice ({','.join(head)})"
        if unknown or "name" not in head:
            problem = f"unknown column {unknown[0]!r}" if unknown else "it has no column `name`"
        fix = "The columns are name, capacity_per_day or capacity_per_hour and hours_per_day, "
        raise BadFileError(path, problem, f"{fix}error_rate, cost, skills")
    found = []
    for cells in table[1:]:
        texts = {name: cell for name, cell in zip(head, cells, strict=True) if cell}
        named = texts.keys() & {*COLUMNS[1:-1]}
        numbers = {name: number_or_text(texts[name], decimal_sign) for name in named}
        a_day, an_hour = numbers.get("capacity_per_day"), numbers.get("capacity_per_hour")
        if a_day is None and isinstance(an_hour, float):
            hours = numbers.get("hours_per_day", HOURS)
            a_day = np.floor(an_hour * hours) if isinstance(hours, float) else hours
        if a_day is None:
            problem = f"row {cells[0]!r} has no capacity"
            raise BadFileError(path, problem, "Fill in capacity_per_day or capacity_per_hour")
        is_whole = isinstance(a_day, float) and a_day.is_integer()
        capacity = int(a_day) if is_whole else a_day
        one: dict[str, Any] = {"name": texts.get("name"), "capacity": capacity}
        one |= {} if an_hour is None else {"rows_per_hour": an_hour}
        one |= {name: numbers[name] for name in ("error_rate", "cost") if name in numbers}
        if "skills" in texts:
            one["skills"] = [part.strip() for part in re.split(r"[|;,]", texts["skills"])]
        found.append(one)
    return found


def _posterior_means(
    team: ReviewTeam, stated: Sequence[Answerer | None], counts: FloatArray
) -> list[Answerer | None]:
    """Return how reviewers err, given confirmed answers: reviewers x true classes x answers.

    The stated error rate of a class counts for `PRIOR_ANSWERS` answers. Those to other classes
    count `OTHER_CLASS` each at first, and less the more there are of one class, since classes
    differ in how hard they are: relative to what was stated, and never those of other people. Which
    wrong answer is given instead is learned from the whole team.
    """
    n_reviewers, n_classes = counts.shape[:2]
    is_right = np.eye(n_classes, dtype=np.bool_)
    answered, errors = counts.sum(axis=2), np.where(is_right, 0.0, counts)
    wrong = errors.sum(axis=2)
    pooled = (wrong.sum() + 1.0) / (answered.sum() + 10.0)
    uniform = np.where(is_right, 1 - pooled, pooled / (n_classes - 1))
    prior = np.stack([uniform if one is None else one.likelihoods for one in stated])
    rates = np.clip(1 - prior[:, is_right], LOWEST_ERROR, HIGHEST_ERROR)
    weight = OTHER_CLASS / (1 + answered / MAX_PER_CLASS)
    borrowed = weight * answered
    # Errors of other classes are counted as the fraction of those that were expected there.
    ratio = np.minimum(wrong / np.maximum(answered, 1.0) / rates, 1 / rates.max(axis=1)[:, None])
    relative = borrowed * ratio
    n_others = borrowed.sum(axis=1, keepdims=True) - borrowed
    n_wrong = rates * (relative.sum(axis=1, keepdims=True) - relative)
    rates = (PRIOR_ANSWERS * rates + n_wrong + wrong) / (PRIOR_ANSWERS + n_others + answered)
    rates = np.clip(rates, LOWEST_ERROR, HIGHEST_ERROR)
    others = prior[:, ~is_right].reshape(n_reviewers, n_classes, n_classes - 1) + 1e-12
    others /= others.sum(axis=2, keepdims=True)
    seen = errors.sum(axis=0)[~is_right].reshape(n_classes, n_classes - 1)
    confusion = np.zeros(counts.shape)
    confusion[:, is_right] = 1 - rates
    instead = np.stack([_shrunk(seen, one, 1.0) for one in others])
    confusion[:, ~is_right] = (rates[:, :, np.newaxis] * instead).reshape(n_reviewers, -1)
    return [
        Answerer.of(one.name, n_classes, confusion=table, combine=one.combine, caller="ReviewTeam")
        for one, table in zip(team.reviewers, confusion, strict=True)
    ]


def _shrunk(counts: FloatArray, prior: FloatArray, preference: float) -> FloatArray:
    """Return the probabilities of categories in several groups, groups x categories.

    A Dirichlet prior has the mean `prior`, and its strength is averaged over by how probable it
    makes the counts: the more groups differ from their priors, the weaker it is. A preference above
    0 favors strong priors, so that groups are alike until counts show that they differ.
    """
    alpha = STRENGTHS[:, np.newaxis, np.newaxis] * prior
    total = alpha.sum(axis=2)
    fit = (special.gammaln(alpha + counts) - special.gammaln(alpha)).sum(axis=(1, 2))
    fit += (special.gammaln(total) - special.gammaln(total + counts.sum(axis=1))).sum(axis=1)
    fit += preference * np.log(STRENGTHS)
    weight = np.exp(fit - special.logsumexp(fit))
    means = (alpha + counts) / (total + counts.sum(axis=1))[:, :, np.newaxis]
    return np.asarray(np.einsum("s,sgc->gc", weight, means))
