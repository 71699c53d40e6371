"""The cost of each action in each class: a named matrix, from arrays or files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar, Literal, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_finite,
    as_floats,
    as_list,
    as_number,
    freeze,
    require_everywhere,
)
from dubito.data.batch import Batch
from dubito.data.expressions import HIGHEST_COST, Expression
from dubito.data.parsing import decimal_separator
from dubito.data.sources.formats import separator_of
from dubito.decide.answerers import Answerer
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.formatting import HTMLTable, html_view, join_words, plain, quantity
from dubito.outputs import ClassName, as_names
from dubito.serialization.array_fields import array
from dubito.serialization.documents import read_text
from dubito.serialization.fields import (
    Check,
    Entry,
    Omittable,
    any_of,
    class_names,
    declare,
    list_of,
    list_schema,
    number,
    optional,
    scalar,
    schema_of,
    states,
    text,
)
from dubito.serialization.objects import Record, record_of

MAX_SHOWN = 12  # classes and actions in a notebook
Names = Iterable[ClassName] | None


_cost_array = array(None, None, low=-HIGHEST_COST, high=HIGHEST_COST)


@states(lambda: any_of(list_schema(list_schema(schema_of(_cost_cell), least=1), least=1)))
def _cost_cells(value: Any, entry: Entry) -> Any:
    """Check for a cost table, whose cells may be texts of expressions."""
    rows = value if isinstance(value, list) else []
    has_text = any(isinstance(one, str) for row in rows if isinstance(row, list) for one in row)
    if not has_text:
        return _cost_array(value, entry)
    if len({len(row) if isinstance(row, list) else 0 for row in rows}) != 1:
        raise entry.error("an array of n x n numbers or expressions", "a ragged list")
    cells: Any = list_of(list_of(_cost_cell))(value, entry)
    return cells


@states(lambda: any_of(schema_of(number(-HIGHEST_COST, HIGHEST_COST)), {"type": "string"}))
def _cost_cell(value: Any, entry: Entry) -> float | Expression:
    """Check for one cost, a number or the text of an expression."""
    if not isinstance(value, str):
        return float(number(-HIGHEST_COST, HIGHEST_COST)(value, entry))
    try:
        return Expression.parse(value, entry.name, entry.caller)
    except BadValueError as error:
        raise entry.error(error.rule, error.got) from error


@final
@dataclass(frozen=True, slots=True, eq=False)
class CostMatrix(Record):
    """The cost of each action in each class: a named matrix, actions x classes.

    A gain is a negative cost. A cost that differs from row to row is an expression of columns: a
    text of numbers, column names (in backticks unless they are plain words), ``+ - * /``,
    parentheses, ``min`` and ``max``. It is parsed, never executed.

    Parameters
    ----------
    costs : array, actions x classes
        Numbers, or expressions such as ``"min(5, 0.1 * amount)"``. Use `from_loss` for a matrix in
        the orientation of textbooks, truth x decision.
    actions : list of str, optional
        By default one action per class, with the same name.
    classes : list of str or number, optional
        The classes of the columns. Outputs with class names are matched by name.
    reject : str, optional
        The action that rejects a row (abstains, or sends it to review). It wins ties. By default
        the action called "reject", if there is one.
    pos_label : str or number, optional
        For two columns without `classes`: the class of the second one. It is found among the class
        names that the costs are applied to.
    reviews : list of Answerer, optional
        Who is asked by some of the actions, whose costs are then the prices of asking. Use
        `with_review` and `with_model`.

    Attributes
    ----------
    array : array of float
        A read-only copy of the costs, with 0 in place of each expression. The cost of an action
        that asks someone is its price, without what is decided after the answer.
    expressions : tuple of Expression
        The distinct expressions, in order of first appearance.
    entries : array of int
        Where they stand: one line per cell of its action, its class, and its expression.
    actions : tuple of str
        The names of the rows.
    classes : tuple or None
        The names of the columns, if any were given.
    reject : int or None
        The index of the reject action: where the OOD gate and the risk bound send rows. If there
        are only actions that ask someone, the first of them.
    reviews : tuple of Answerer
        Who is asked by some of the actions.
    pos_label : str, number or None
        The class of the second of two columns, until the costs are applied to classes.

    References
    ----------
    Elkan, "The foundations of cost-sensitive learning", 2001.

    Examples
    --------
    >>> from dubito import CostMatrix
    >>> costs = CostMatrix([[0, 10], [1, 0]], actions=["send home", "treat"])
    >>> costs.with_reject(0.5, name="ask a doctor").actions
    ('send home', 'treat', 'ask a doctor')
    >>> costs = CostMatrix([[0, "amount"], ["fee", 0]], actions=["pass", "block"])
    >>> costs.with_reject("min(5, 0.1 * amount)").columns
    ('amount', 'fee')
    """

    fields: ClassVar[Mapping[str, Check]] = declare(
        actions=list_of(text),
        classes=class_names(),
        costs=_cost_cells,
        reject=optional(text),
        pos_label=Omittable(scalar),
        reviews=Omittable(list_of(record_of(Answerer))),
    )

    array: FloatArray
    expressions: tuple[Expression, ...]
    entries: IntArray
    actions: tuple[str, ...]
    classes: tuple[ClassName, ...] | None
    reject: int | None
    pos_label: ClassName | None
    reviews: tuple[Answerer, ...]

    def __init__(
        self,
        costs: Any,
        actions: Names = None,
        classes: Names = None,
        *,
        reject: str | None = None,
        pos_label: ClassName | None = None,
        reviews: Iterable[Answerer] = (),
    ) -> None:
        cells = _as_cells(costs, "costs", "CostMatrix")
        has_expression = _has_expression(cells)
        number_of: dict[Expression, int] = {}
        entries = [
            [action, class_, number_of.setdefault(cells[action, class_], len(number_of))]
            for action, class_ in np.argwhere(has_expression).tolist()
        ]
        table = freeze(np.where(has_expression, 0.0, cells).astype(np.float64))
        columns = None
        if classes is not None:
            fix = "Name each class once"
            if isinstance(classes, list | tuple) and len(classes) == len(table) != table.shape[1]:
                fix = "Rows are actions and columns are classes: use CostMatrix.from_loss(costs, "
                fix += "rows='truth') if it is the other way round"
            columns = as_names(classes, table.shape[1], "classes", "class", "CostMatrix", fix)
        names = _as_action_names(actions, table.shape[0], columns)
        asked = _checked_reviews(tuple(reviews), names, table.shape[1])
        if reject is None and "reject" not in names and asked:
            reject = asked[0].name
        if pos_label is not None and (columns is not None or table.shape[1] != 2):
            rule, fix = "must be None with classes, or with other than 2 columns", "Leave it out"
            raise BadValueError("pos_label", "CostMatrix", rule, repr(pos_label), fix)
        entry_array = freeze(np.array(entries, np.int64).reshape(-1, 3))
        rejecting = _reject_index(reject, names)
        values = table, tuple(number_of), entry_array, names, columns, rejecting, pos_label, asked
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    @classmethod
    def zero_one(cls, classes: int | np.integer[Any] | Iterable[ClassName]) -> CostMatrix:
        """Return a cost of 1 for each misclassification: minimal cost is minimal error.

        Parameters
        ----------
        classes : int or list
            The number of classes, or their names.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> CostMatrix.zero_one(2).array.tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
            if not 1 <= classes <= 1_000_000:
                rule, fix = "must be at least 1", "Pass the number of columns of the outputs"
                raise BadValueError("classes", "CostMatrix.zero_one", rule, str(classes), fix)
            return cls(1.0 - np.eye(int(classes)))
        rule, fix = "must be a number of classes, or their names", "Use CostMatrix.zero_one(3)"
        if isinstance(classes, str):
            raise BadTypeError("classes", "CostMatrix.zero_one", rule, repr(classes), fix)
        names = as_list(classes, "classes", "CostMatrix.zero_one", rule, fix)
        return cls(1.0 - np.eye(len(names)), classes=names)

    @classmethod
    def for_answers(cls, wrong: float = 1.0) -> CostMatrix:
        """Return the costs of a single action, to answer, for answers that are wrong or correct.

        For `Scores` and `TopLabel` outputs; add `with_reject`, or `with_review` where someone else
        can answer instead.

        Parameters
        ----------
        wrong : float, default 1
            The cost of a wrong answer. A correct one costs 0.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> CostMatrix.for_answers().with_reject(0.2).actions
        ('answer', 'reject')
        """
        return cls([[wrong, 0.0]], actions=["answer"], classes=["wrong", "correct"])

    @classmethod
    def from_loss(
        cls,
        loss: Any,
        *,
        rows: Literal["truth", "actions"],
        actions: Names = None,
        classes: Names = None,
        reject: str | None = None,
    ) -> CostMatrix:
        """Return costs from a loss matrix in either orientation.

        Parameters
        ----------
        loss : array
            The loss matrix.
        rows : "truth" or "actions"
            What its rows are: textbooks print truth x decision.
        actions : list of str, optional
            The names of the actions; by default one per class, with the same name.
        classes : list of str or number, optional
            The names of the classes.
        reject : str, optional
            The action that rejects a row; by default the one called "reject", if any.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> loss = [[0, 1000], [1, 0]]  # ill, well
        >>> CostMatrix.from_loss(loss, rows="truth").array.tolist()
        [[0.0, 1.0], [1000.0, 0.0]]
        """
        if rows not in ("truth", "actions"):
            rule, fix = "must be 'truth' or 'actions'", "Use rows='truth' for a textbook's matrix"
            raise BadValueError("rows", "CostMatrix.from_loss", rule, repr(rows), fix)
        cells = _as_cells(loss, "loss", "CostMatrix.from_loss")
        return cls(cells.T if rows == "truth" else cells, actions, classes, reject=reject)

    @classmethod
    def from_errors(
        cls,
        *,
        false_positive: float | str,
        false_negative: float | str,
        true_positive: float | str = 0.0,
        true_negative: float | str = 0.0,
        actions: Names = None,
        classes: Names = None,
        pos_label: ClassName = 1,
    ) -> CostMatrix:
        """Return the costs of two classes, of which `pos_label` is the positive one.

        Parameters
        ----------
        false_positive, false_negative : float or str
            The cost of each kind of error: a number, or an expression of columns.
        true_positive, true_negative : float or str, default 0
            The cost of each correct decision.
        actions : list of str, optional
            The action for the negative class, then the one for the positive class.
        classes : list, optional
            The classes of the columns. By default those that the costs are applied to.
        pos_label : str or number, default 1
            The positive class. It must be given unless the classes are 0 and 1, or False and True.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> CostMatrix.from_errors(false_positive=1, false_negative=5).array.tolist()
        [[0.0, 5.0], [1.0, 0.0]]
        >>> costs = CostMatrix.from_errors(false_positive=5, false_negative=100, pos_label="churn")
        >>> costs.for_classes(("churn", "stay"), 2).array.tolist()
        [[100.0, 0.0], [0.0, 5.0]]
        """
        caller = "CostMatrix.from_errors"
        fp = _as_cell(false_positive, "false_positive", caller)
        fn = _as_cell(false_negative, "false_negative", caller)
        tp = _as_cell(true_positive, "true_positive", caller)
        tn = _as_cell(true_negative, "true_negative", caller)
        costs = cls([[tn, fn], [fp, tp]], actions, pos_label=pos_label)
        if classes is None:
            return costs
        names = cls(costs.cells, None, classes).classes or ()
        return costs.for_classes(names, len(names))

    @classmethod
    def from_utilities(
        cls,
        utilities: Any,
        actions: Names = None,
        classes: Names = None,
        *,
        reject: str | None = None,
    ) -> CostMatrix:
        """Return costs from utilities: a gain of 3 is a cost of -3.

        Parameters
        ----------
        utilities : array, actions x classes
            The gain of each action in each class.
        actions : list of str, optional
            The names of the actions; by default one per class, with the same name.
        classes : list of str or number, optional
            The names of the classes.
        reject : str, optional
            The action that rejects a row; by default the one called "reject", if any.

        Returns
        -------
        CostMatrix
        """
        cells = _as_cells(utilities, "utilities", "CostMatrix.from_utilities")
        return cls(np.where(cells == 0, 0.0, -cells), actions, classes, reject=reject)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, reject: str | None = None) -> CostMatrix:
        """Return the costs of a CSV file.

        Parameters
        ----------
        path : str or path
            The first row and the first column hold names; the corner cell says what the rows
            are, `action` or `truth`. The other cells hold numbers, or expressions of columns.
        reject : str, optional
            The action that rejects.

        Returns
        -------
        CostMatrix
        """
        costs, actions, classes = _read_cost_table(path)
        return cls(costs, actions, classes, reject=reject)

    @classmethod
    def from_json(cls, path: str | PathLike[str]) -> CostMatrix:
        """Return the costs of a JSON file written from `to_dict`.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        CostMatrix
        """
        return cls.from_dict(read_json(path, "Write the file with json.dumps(costs.to_dict())"))

    def __repr__(self) -> str:
        n_classes = f"{self.n_classes} class{'es' if self.n_classes != 1 else ''}"
        parts = [f"{quantity(self.n_actions, 'action')} x {n_classes}"]
        parts += [f"columns={self.columns}"] if self.columns else []
        parts += [] if self.reject is None else [f"reject={self.reject_name!r}"]
        parts += [f"asking {', '.join(map(str, self.reviews))}"] if self.reviews else []
        parts += [] if self.pos_label is None else [f"pos_label={self.pos_label!r}"]
        return f"CostMatrix({', '.join(parts)})"

    def _repr_html_(self) -> str:
        names = [str(one) for one in self.classes or range(self.n_classes)]
        if self.pos_label is not None:
            names = ["negative", f"{self.pos_label} (positive)"]
        more = ["\N{HORIZONTAL ELLIPSIS}"] * (len(names) > MAX_SHOWN)
        head = ("action", *names[:MAX_SHOWN], *more, "")
        rows = []
        for k, (action, row) in enumerate(zip(self.actions, self.texts, strict=True)):
            cells = [one if isinstance(one, str) else plain(one) for one in row[:MAX_SHOWN]]
            rows.append((action, *cells, *more, "rejects" if k in self.rejecting else ""))
        left_out = len(rows) - MAX_SHOWN - len(self.rejecting)
        if left_out > 0:  # the actions that reject come last
            last = [rows[k] for k in self.rejecting if k >= MAX_SHOWN]
            rows = [*rows[:MAX_SHOWN], (f"{left_out} more", *[""] * (len(head) - 1)), *last]
        size = f"{quantity(self.n_actions, 'action')} x {self.n_classes:,} classes"
        verdict = f"Cost of each action in each class: {size}"
        asked = [f"Asks {join_words([str(one) for one in self.reviews])}."] if self.reviews else []
        return html_view(verdict, HTMLTable(head, rows), *asked)

    def _values(self) -> dict[str, Any]:
        costs = self.texts if self.columns else self.array
        values: dict[str, Any] = {"actions": self.actions, "classes": self.classes, "costs": costs}
        values |= {"reject": self.reject_name, "pos_label": self.pos_label}
        if self.pos_label is None:
            del values["pos_label"]
        return values | ({"reviews": self.reviews} if self.reviews else {})

    @property
    def reject_name(self) -> str | None:
        """The name of the reject action."""
        return None if self.reject is None else self.actions[self.reject]

    @property
    def rejecting(self) -> tuple[int, ...]:
        """The indices of all actions that reject: `reject`, and those that ask someone."""
        deferring = [self.actions.index(one.name) for one in self.reviews]
        first = [] if self.reject is None else [self.reject]
        return tuple(dict.fromkeys([*first, *deferring]))

    @property
    def deciding(self) -> tuple[int, ...]:
        """The indices of all other actions."""
        return tuple(k for k in range(self.n_actions) if k not in self.rejecting)

    @property
    def n_actions(self) -> int:
        """The number of actions, reject included."""
        return int(self.array.shape[0])

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.array.shape[1])

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the costs depend on; none for costs that are the same for all rows."""
        return tuple(dict.fromkeys(name for one in self.expressions for name in one.columns))

    @property
    def cells(self) -> NDArray[Any]:
        """The costs as numbers, or as objects where some of them are an `Expression`."""
        if not self.expressions:
            return self.array
        cells = self.array.astype(object)
        for action, class_, at in self.entries.tolist():
            cells[action, class_] = self.expressions[at]
        return cells

    @property
    def texts(self) -> list[list[float | str]]:
        """The costs as nested lists of numbers, and of the texts of expressions."""
        rows = self.cells.tolist()
        return [[str(one) if isinstance(one, Expression) else one for one in row] for row in rows]

    def at(self, values: Mapping[str, float]) -> CostMatrix:
        """Return the costs of a row whose columns have these values.

        Parameters
        ----------
        values : dict of str to float
            The value of each column.

        Returns
        -------
        CostMatrix
            Costs without expressions.

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> CostMatrix([[0, "amount"], ["2 * fee", 0]]).at({"amount": 50, "fee": 3}).array.tolist()
        [[0.0, 50.0], [6.0, 0.0]]
        """
        array, caller = self.array.copy(), "CostMatrix.at"
        columns = {name: np.array([value]) for name, value in values.items()}
        for action, class_, at in self.entries.tolist():
            [array[action, class_]] = self.expressions[at].evaluate(columns, 1, caller)
        return self._with(costs=array)

    def _with(self, **changes: Any) -> CostMatrix:
        """Return the same costs with some arguments of the constructor changed."""
        own = {"costs": self.cells, "actions": self.actions, "classes": self.classes}
        own |= {"reject": self.reject_name, "pos_label": self.pos_label, "reviews": self.reviews}
        return CostMatrix(**{**own, **changes})

    def with_reject(self, cost: Any, name: str = "reject") -> CostMatrix:
        """Return the same costs with one more action, which rejects the row.

        Parameters
        ----------
        cost : float, str or array
            The cost of rejecting, in all classes or in each: numbers, or expressions of columns.
        name : str, default "reject"
            The name of the action.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> CostMatrix.zero_one(2).with_reject(0.25).array.tolist()
        [[0.0, 1.0], [1.0, 0.0], [0.25, 0.25]]
        """
        caller = "CostMatrix.with_reject"
        if self.reject is not None and self.reject_name not in [one.name for one in self.reviews]:
            rule = "needs a cost matrix without a reject action"
            got = f"one that already has {self.reject_name!r}"
            fix = "Change the costs of that action, or leave it out"
            raise BadValueError("", caller, rule, got, fix)
        cells = np.vstack([self.cells, _as_cost_row(cost, self.n_classes, caller)])
        return self._with(costs=cells, actions=(*self.actions, name), reject=name)

    def with_review(
        self,
        name: str,
        *,
        cost: Any = 0.0,
        error_rate: Any = None,
        confusion: Any = None,
        combine: Literal["bayes", "replace"] = "bayes",
    ) -> CostMatrix:
        """Return the same costs with one more action: to ask a reviewer who may err.

        Its expected cost is the price plus the expected cost of what is decided after the answer,
        by the actions that do not reject. It rejects the row, and wins ties. Where the only
        one of these is to answer (`for_answers`), the reviewer gives an answer of their own, which
        is wrong with their error rate.

        Parameters
        ----------
        name : str
            The name of the action, such as that of the reviewer.
        cost : float, str or array, default 0
            The price of asking, in all classes or in each: numbers, or expressions of columns.
        error_rate : float or array, optional
            The probability of a wrong answer, in all classes or in each; all wrong answers are
            equally probable.
        confusion : array, classes x classes, optional
            The probability, or the count, of each answer (columns) in each true class (rows).
        combine : "bayes" or "replace", default "bayes"
            "bayes" combines the answer with the model's probabilities, as if reviewer and model
            erred independently given the class: never worse where that holds. "replace" acts on
            the answer as if it were the truth.

        Returns
        -------
        CostMatrix

        References
        ----------
        Raiffa and Schlaifer, "Applied statistical decision theory", 1961 (the value of sample
        information).

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> from dubito.decide import expected_costs
        >>> costs = CostMatrix.zero_one(2).with_review("ann", cost=0.05, error_rate=0.1)
        >>> expected_costs([[0.75, 0.25], [0.99, 0.01]], costs).round(3).tolist()
        [[0.25, 0.75, 0.15], [0.01, 0.99, 0.06]]
        """
        settings = {"error_rate": error_rate, "confusion": confusion, "combine": combine}
        return self._with_deferral(name, cost, "review", "CostMatrix.with_review", settings)

    def with_model(
        self,
        name: str,
        *,
        cost: Any = 0.0,
        error_rate: Any = None,
        confusion: Any = None,
        combine: Literal["bayes", "replace"] = "replace",
    ) -> CostMatrix:
        """Return the same costs with one more action: to call a larger model.

        As `with_review`, but the answer replaces that of the small model by default: two models
        often err on the same rows, and Bayes would count their agreement twice.

        Parameters
        ----------
        name : str
            The name of the action, such as that of the model.
        cost : float, str or array, default 0
            The price of a call, in all classes or in each: numbers, or expressions of columns.
        error_rate : float or array, optional
            The probability of a wrong answer, in all classes or in each.
        confusion : array, classes x classes, optional
            The probability, or the count, of each answer in each true class: see
            `estimate_confusion`.
        combine : "bayes" or "replace", default "replace"
            Whether the answer replaces the model's, or is combined with it by Bayes.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> from dubito import CostMatrix
        >>> costs = CostMatrix.zero_one(2).with_model("large", cost=0.01, error_rate=0.04)
        >>> costs.with_reject(0.3).rejecting
        (3, 2)
        """
        settings = {"error_rate": error_rate, "confusion": confusion, "combine": combine}
        return self._with_deferral(name, cost, "model", "CostMatrix.with_model", settings)

    def _with_deferral(
        self, name: str, cost: Any, kind: str, caller: str, settings: dict[str, Any]
    ) -> CostMatrix:
        """Return the same costs with one more action that asks someone."""
        asked = Answerer.of(str(name), self.n_classes, kind=kind, caller=caller, **settings)
        for price in _as_cost_row(cost, self.n_classes, caller).tolist():
            if not isinstance(price, str | Expression) and price < 0:
                rule, fix = "must be at least 0", "Pass what asking costs"
                raise BadValueError("cost", caller, rule, f"{price:g}", fix)
        return self.with_answerer(asked, cost, caller)

    def with_answerer(
        self, asked: Answerer, cost: Any, caller: str = "CostMatrix.with_answerer"
    ) -> CostMatrix:
        """Return the same costs with one more action, which asks someone at a price.

        Parameters
        ----------
        asked : Answerer
            Who is asked, and how they err; its name is that of the action.
        cost : float, str or array of shape (n_classes,)
            The price of asking: a number, an expression of columns, or one per class.
        caller : str, optional
            The public function that was called, for error messages.

        Returns
        -------
        CostMatrix
            Costs with this action as the last one.
        """
        cells = np.vstack([self.cells, _as_cost_row(cost, self.n_classes, caller)])
        actions, reviews = (*self.actions, asked.name), (*self.reviews, asked)
        return self._with(costs=cells, actions=actions, reviews=reviews)

    def for_classes(self, classes: tuple[ClassName, ...] | None, n_classes: int) -> CostMatrix:
        """Return the same costs with columns in the order of a model's classes.

        Where either side has no names, the columns stay in place.

        Parameters
        ----------
        classes : tuple of str or number, or None
            The classes of the model, in the order of its columns.
        n_classes : int
            Their number.

        Returns
        -------
        CostMatrix
            The costs themselves, if the order is the same.
        """
        if n_classes != self.n_classes:
            rule, got = f"has {self.n_classes} classes", f"outputs with {n_classes}"
            fix = "Use one cost column per class of the outputs"
            raise BadValueError("", "The cost matrix", rule, got, fix)
        if self.pos_label is not None:
            return self._with_positive(classes, self.pos_label)
        if classes is None or self.classes is None or classes == self.classes:
            return self
        order = class_order(self.classes, classes)
        if order is None:
            rule, got = f"has the classes {self.classes}", f"outputs with {classes}"
            raise BadValueError("", "The cost matrix", rule, got, "Use the same names in both")
        return self._in_order(order, classes=classes)

    def _in_order(self, order: list[int], **changes: Any) -> CostMatrix:
        """Return the same costs with columns in another order."""
        reviews = [one.in_order(order) for one in self.reviews]
        return self._with(costs=self.cells[:, order], reviews=reviews, **changes)

    def _with_positive(
        self, classes: tuple[ClassName, ...] | None, pos_label: ClassName
    ) -> CostMatrix:
        """Return the same costs, with the column of the positive class where classes have it."""
        known = classes or (0, 1)
        names = [str(name) for name in known]
        spellings = [str(pos_label), *([str(bool(pos_label))] if pos_label in (0, 1) else [])]
        found = [known.index(pos_label)] if pos_label in known else []
        found += [names.index(one) for one in spellings if one in names]
        if not found:
            choices = " or ".join(f"pos_label={name!r}" for name in known)
            rule = f"must be one of the classes {known}"
            fix = f"Pass {choices} to from_errors"
            fix = fix if classes else f"{fix}, or name the classes of the outputs"
            raise BadValueError("pos_label", "CostMatrix", rule, repr(pos_label), fix)
        at = found[0]
        order, actions = [int(column == at) for column in (0, 1)], list(self.actions)
        if classes is not None and actions[:2] == ["0", "1"]:
            actions[:2] = [names[1 - at], names[at]]
        return self._in_order(order, actions=actions, classes=classes, pos_label=None)

    def decide_rows(self, batch: Batch, pos_column: int | None) -> tuple[FloatArray, FloatArray]:
        """Return whether each row's action is that of the positive class, and its realized cost.

        The action of the positive class is the one of lowest cost in it. For `audit`.

        Parameters
        ----------
        batch : Batch
            Rows with labels, and with what the costs depend on.
        pos_column : int or None
            The column of the positive class of two; None without one.

        Returns
        -------
        tuple of two arrays of shape (n_rows,)
            1 where the action is that of the positive class and 0 elsewhere; and the realized cost.
        """
        from dubito.decide.realized import decide_rows

        return decide_rows(batch, self, pos_column)

    def __reduce__(self) -> tuple[Any, ...]:
        return CostMatrix.from_dict, (self.to_dict(),)


def class_order(classes: tuple[ClassName, ...], wanted: tuple[ClassName, ...]) -> list[int] | None:
    """Return the position of each wanted class, None where the classes are not the same.

    Files hold only text, so names that differ are compared as strings, if these are distinct.
    """
    pairs: list[tuple[Any, Any]] = [(classes, wanted)]
    pairs.append(([str(name) for name in classes], [str(name) for name in wanted]))
    for known, sought in pairs:
        if set(known) == set(sought) and len(set(known)) == len(known) == len(sought):
            return [known.index(name) for name in sought]
    return None


def as_costs(costs: Any, argument: str, caller: str) -> CostMatrix:
    """Return a cost matrix unchanged; a plain array is refused, as its orientation is unknown."""
    if not isinstance(costs, CostMatrix):
        fix = "Use CostMatrix(costs), or CostMatrix.from_loss(loss, rows='truth')"
        raise BadTypeError(argument, caller, "must be a CostMatrix", type(costs).__name__, fix)
    return costs


def as_cost(value: Any, argument: str, caller: str) -> float:
    """Return one cost."""
    fix = "Pass a cost such as 0.1"
    return as_number(value, argument, caller, -HIGHEST_COST, HIGHEST_COST, fix=fix)


def _as_cell(value: Any, argument: str, caller: str) -> float | Expression:
    """Return one cost: a number, or an expression if it depends on columns."""
    if isinstance(value, str):
        value = Expression.parse(value, argument, caller)
        if not value.columns:
            return float(value.evaluate({}, 1, caller)[0])
    return value if isinstance(value, Expression) else as_cost(value, argument, caller)


def _as_cost_row(value: Any, n_classes: int, caller: str) -> NDArray[Any]:
    """Return the cost of one action in each class, from one cell or one per class."""
    if isinstance(value, str | Expression) or not hasattr(value, "__len__"):
        return np.array([_as_cell(value, "cost", caller)] * n_classes)
    row = _as_cells([[one] for one in value], "cost", caller)[:, 0]
    if row.shape != (n_classes,):
        rule, fix = "must be one number, or one per class", f"Pass {n_classes} numbers"
        raise BadValueError("cost", caller, rule, f"shape {row.shape}", fix)
    return row


def _as_cells(value: Any, argument: str, caller: str) -> NDArray[Any]:
    """Return a copy of a cost table: of floats, or of objects where it holds expressions."""
    is_plain = isinstance(value, np.ndarray) and value.dtype.kind in "fiu"
    try:
        cells: NDArray[Any] = np.empty(0) if is_plain else np.array(value, dtype=object)
    except Exception:  # as_floats says what is wrong with it
        cells = np.empty(0)
    has_text = any(isinstance(one, str | Expression) for one in cells.flat)
    if not has_text:
        cells = as_floats(value, argument, caller).astype(np.float64, order="C")
    rule, fix = "must have shape (actions, classes)", "Pass one row per action"
    if cells.ndim != 2 or not cells.size:
        raise BadValueError(argument, caller, rule, f"shape {cells.shape}", fix)
    if not has_text:
        as_finite(cells, argument, caller, "Give a cost for every action in every class")
        rule, fix = f"must be at most {HIGHEST_COST:g} in size", "Use another unit"
        require_everywhere(np.abs(cells) <= HIGHEST_COST, cells, argument, caller, rule, fix)
        return cells
    for row, column in np.ndindex(cells.shape):
        try:
            cells[row, column] = _as_cell(cells[row, column], argument, caller)
        except BadValueError as error:
            raise error.moved(argument=argument, row=row, column=column) from error
    return cells if _has_expression(cells).any() else cells.astype(np.float64)


def _has_expression(cells: NDArray[Any]) -> BoolArray:
    """Return which cells hold an expression."""
    if cells.dtype.kind == "f":
        return np.zeros(cells.shape, np.bool_)
    flat = [isinstance(one, Expression) for one in cells.flat]
    return np.array(flat, np.bool_).reshape(cells.shape)


def _as_action_names(
    names: Any, n_actions: int, classes: tuple[ClassName, ...] | None
) -> tuple[str, ...]:
    """Return the names of the actions: by default those of the classes, or numbers."""
    if names is None:
        is_square = classes is not None and len(classes) == n_actions
        names = [str(name) for name in (classes if is_square else range(n_actions)) or ()]
    fix = "Name each action, such as ['approve', 'deny']"
    checked = as_names(names, n_actions, "actions", "action", "CostMatrix", fix)
    return tuple(str(name) for name in checked)


def _reject_index(reject: Any, actions: tuple[str, ...]) -> int | None:
    """Return the index of the action that rejects, or None."""
    if reject is None:
        return actions.index("reject") if "reject" in actions else None
    if reject not in actions:
        rule, fix = f"must be one of the actions {actions}", f"Use reject={actions[-1]!r}"
        raise BadValueError("reject", "CostMatrix", rule, repr(reject), fix)
    return actions.index(reject)


def _checked_reviews(
    reviews: tuple[Answerer, ...], actions: tuple[str, ...], n_classes: int
) -> tuple[Answerer, ...]:
    """Return who is asked by some of the actions, if each is of an action and of the classes."""
    names = [one.name for one in reviews]
    for one in reviews:
        if one.name not in actions or names.count(one.name) > 1:
            rule, fix = "must be of distinct actions", "Use costs.with_review(...)"
            raise BadValueError("reviews", "CostMatrix", rule, repr(one.name), fix)
        if one.n_classes != n_classes:
            rule, fix = f"must be of {n_classes} classes", "Give an error rate, or one per class"
            raise BadValueError("reviews", "CostMatrix", rule, f"{one.n_classes}", fix)
    return reviews


def _read_cost_table(path: str | PathLike[str]) -> tuple[list[list[Any]], list[str], list[str]]:
    """Return costs, actions and classes from a CSV file whose corner says `action` or `truth`."""
    table, decimal = read_cells(path)
    corner = table[0][0].lower() if table else ""
    if corner not in ("action", "truth"):
        rule = "its first header cell must be `action` or `truth` (what the rows are)"
        fix = "Use a header such as action,healthy,ill"
        raise BadFileError(fspath(path), f"{rule}, got {corner!r}", fix)
    columns, rows = table[0][1:], [line[0] for line in table[1:]]
    costs = [_cells_of(line, path, decimal) for line in table[1:]]
    if not rows or not columns:
        fix = "Add one row of numbers per action below the names"
        raise BadFileError(fspath(path), "it holds no costs", fix)
    if corner == "action":
        return costs, rows, columns
    return [list(column) for column in zip(*costs, strict=True)], columns, rows


def read_cells(path: str | PathLike[str]) -> tuple[list[list[str]], str]:
    """Return the cells of a CSV file of costs, without blank lines, and its decimal separator.

    The first row and the first column hold names.
    """
    lines = read_text(path).splitlines()
    try:
        separator = separator_of(lines)
        rows_read = csv.reader(lines, delimiter=separator)
        table = [[cell.strip() for cell in line] for line in rows_read if any(map(str.strip, line))]
    except csv.Error as error:
        fix = "Write one row of costs per line"
        raise BadFileError(fspath(path), f"it is not CSV ({error})", fix) from error
    for line in table[1:]:
        if len(line) != len(table[0]):
            problem = f"row {line[0]!r} has {quantity(len(line), 'cell')}"
            problem += f" instead of {len(table[0])}"
            raise BadFileError(fspath(path), problem, "Give one cell per column")
    cells = {} if separator == "," else {"costs": [one for line in table[1:] for one in line[1:]]}
    return table, decimal_separator(cells, fspath(path))


def _cells_of(line: list[str], path: str | PathLike[str], decimal: str) -> list[float | Expression]:
    """Return the costs of a row, whose first cell is its name."""
    name, *cells = line
    try:
        return [_as_cell(number_or_text(cell, decimal), "", "") for cell in cells]
    except BadValueError as error:
        problem = f"in row {name!r}, a cost {error.rule}, got {error.got}"
        raise BadFileError(fspath(path), problem, error.fix) from error


def number_or_text(cell: str, decimal: str) -> float | str:
    """Return a cell of a file as a number if it is one."""
    try:
        return float(cell.replace(decimal, "."))
    except ValueError:
        return cell


def read_json(path: str | PathLike[str], fix: str) -> Any:
    """Return the content of a JSON file, not yet checked."""
    text = read_text(path)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFileError(fspath(path), f"it is not JSON ({error})", fix) from error
