"""The cost of each action in each class: a named matrix, from arrays or files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar, Literal, final

import numpy as np

from dubito.arrays import FloatArray, as_finite, as_floats, as_list, freeze, require_everywhere
from dubito.data.batch import Batch
from dubito.data.parsing import decimal_separator
from dubito.data.sources.text_files import separator_of
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.outputs import ClassName, as_names
from dubito.serialization.array_fields import array
from dubito.serialization.documents import read_text
from dubito.serialization.fields import (
    Check,
    Entry,
    Omittable,
    class_names,
    declare,
    list_of,
    optional,
    scalar,
    text,
)
from dubito.serialization.objects import Record

HIGHEST_COST = 1e100  # in size: a row cost as large times such a rate is still a finite number

Names = Iterable[ClassName] | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class CostMatrix(Record):
    """The cost of each action in each class: a named matrix, actions x classes.

    A gain is a negative cost. The cost of action a for row i of class k is
    ``costs[a, k] + rate[a, k] * row_costs[i]``.

    Parameters
    ----------
    costs : array, actions x classes
        Use `from_loss` for a matrix in the orientation of textbooks, truth x decision.
    actions : list of str, optional
        By default one action per class, with the same name.
    classes : list of str or number, optional
        The classes of the columns. Outputs with class names are matched by name.
    rate : array, actions x classes, optional
        What is added per unit of a row's cost, such as the amount of a transaction.
    reject : str, optional
        The action that rejects a row (abstains, or sends it to review). It wins ties. By default
        the action called "reject", if there is one.
    pos_label : str or number, optional
        For two columns without `classes`: the class of the second one. It is found among the class
        names that the costs are applied to.

    Attributes
    ----------
    array, rate : array of float
        Read-only copies.
    actions : tuple of str
    classes : tuple or None
    reject : int or None
        The index of the reject action.
    pos_label : str, number or None
        The class of the second of two columns, until the costs are applied to classes.

    References
    ----------
    Elkan, "The foundations of cost-sensitive learning", 2001.

    Examples
    --------
    >>> costs = CostMatrix([[0, 10], [1, 0]], actions=["send home", "treat"])
    >>> costs.with_reject(0.5, name="ask a doctor").actions
    ('send home', 'treat', 'ask a doctor')
    """

    fields: ClassVar[Mapping[str, Check]] = declare(
        actions=list_of(text),
        classes=class_names(),
        array=array(None, None, low=-HIGHEST_COST, high=HIGHEST_COST),
        rate=optional(array(None, None, low=-HIGHEST_COST, high=HIGHEST_COST)),
        reject=optional(text),
        pos_label=Omittable(scalar),
    )

    array: FloatArray
    rate: FloatArray | None
    actions: tuple[str, ...]
    classes: tuple[ClassName, ...] | None
    reject: int | None
    pos_label: ClassName | None

    def __init__(
        self,
        costs: Any,
        actions: Names = None,
        classes: Names = None,
        *,
        rate: Any = None,
        reject: str | None = None,
        pos_label: ClassName | None = None,
    ) -> None:
        table = _as_cost_table(costs, "costs", "CostMatrix")
        grows = None if rate is None else _as_cost_table(rate, "rate", "CostMatrix")
        if grows is not None and grows.shape != table.shape:
            rule = f"must have the shape of the costs, {table.shape}"
            fix = "Use 0 for a constant cost"
            raise BadValueError("rate", "CostMatrix", rule, f"shape {grows.shape}", fix)
        columns = None
        if classes is not None:
            fix = "Name each class once"
            columns = as_names(classes, table.shape[1], "classes", "class", "CostMatrix", fix)
        names = _as_action_names(actions, table.shape[0], columns)
        object.__setattr__(self, "array", table)
        object.__setattr__(self, "rate", grows)
        object.__setattr__(self, "actions", names)
        object.__setattr__(self, "classes", columns)
        object.__setattr__(self, "reject", _reject_index(reject, names))
        if pos_label is not None and (columns is not None or table.shape[1] != 2):
            rule, fix = "must be None with classes, or with other than 2 columns", "Leave it out"
            raise BadValueError("pos_label", "CostMatrix", rule, repr(pos_label), fix)
        object.__setattr__(self, "pos_label", pos_label)

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
    def from_loss(
        cls,
        loss: Any,
        *,
        rows: Literal["truth", "actions"],
        actions: Names = None,
        classes: Names = None,
        rate: Any = None,
        reject: str | None = None,
    ) -> CostMatrix:
        """Return costs from a loss matrix in either orientation.

        Parameters
        ----------
        loss : array
            The loss matrix.
        rows : "truth" or "actions"
            What its rows are: textbooks print truth x decision.
        actions, classes, rate, reject
            As for `CostMatrix`; `rate` has the orientation of `loss`.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> loss = [[0, 1000], [1, 0]]  # ill, well
        >>> CostMatrix.from_loss(loss, rows="truth").array.tolist()
        [[0.0, 1.0], [1000.0, 0.0]]
        """
        if rows not in ("truth", "actions"):
            rule, fix = "must be 'truth' or 'actions'", "Use rows='truth' for a textbook's matrix"
            raise BadValueError("rows", "CostMatrix.from_loss", rule, repr(rows), fix)
        table = _as_cost_table(loss, "loss", "CostMatrix.from_loss")
        grows = None if rate is None else _as_cost_table(rate, "rate", "CostMatrix.from_loss")
        if rows == "truth":
            table, grows = table.T, None if grows is None else grows.T
        return cls(table, actions, classes, rate=grows, reject=reject)

    @classmethod
    def from_errors(
        cls,
        *,
        false_positive: float,
        false_negative: float,
        true_positive: float = 0.0,
        true_negative: float = 0.0,
        actions: Names = None,
        classes: Names = None,
        pos_label: ClassName = 1,
    ) -> CostMatrix:
        """Return the costs of two classes, of which `pos_label` is the positive one.

        Parameters
        ----------
        false_positive, false_negative : float
            The cost of each kind of error.
        true_positive, true_negative : float, default 0
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
        >>> CostMatrix.from_errors(false_positive=1, false_negative=5).array.tolist()
        [[0.0, 5.0], [1.0, 0.0]]
        >>> costs = CostMatrix.from_errors(false_positive=5, false_negative=100, pos_label="churn")
        >>> costs.for_classes(("churn", "stay"), 2).array.tolist()
        [[100.0, 0.0], [0.0, 5.0]]
        """
        caller = "CostMatrix.from_errors"
        fp = as_cost(false_positive, "false_positive", caller)
        fn = as_cost(false_negative, "false_negative", caller)
        tp = as_cost(true_positive, "true_positive", caller)
        tn = as_cost(true_negative, "true_negative", caller)
        costs = cls([[tn, fn], [fp, tp]], actions, pos_label=pos_label)
        if classes is None:
            return costs
        names = cls(costs.array, None, classes).classes or ()
        return costs.for_classes(names, len(names))

    @classmethod
    def from_utilities(
        cls,
        utilities: Any,
        actions: Names = None,
        classes: Names = None,
        *,
        rate: Any = None,
        reject: str | None = None,
    ) -> CostMatrix:
        """Return costs from utilities: a gain of 3 is a cost of -3.

        Parameters
        ----------
        utilities : array, actions x classes
            The gain of each action in each class.
        actions, classes, rate, reject
            As for `CostMatrix`; `rate` is a gain, too.

        Returns
        -------
        CostMatrix
        """
        caller = "CostMatrix.from_utilities"
        table = _as_cost_table(utilities, "utilities", caller)
        grows = None if rate is None else 0.0 - _as_cost_table(rate, "rate", caller)
        return cls(0.0 - table, actions, classes, rate=grows, reject=reject)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, reject: str | None = None) -> CostMatrix:
        """Return the costs of a CSV file.

        Parameters
        ----------
        path : str or path
            The first row and the first column hold names; the corner cell says what the rows
            are, `action` or `truth`.
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
        return cls.from_dict(_read_cost_json(path))

    def __repr__(self) -> str:
        parts = [f"{self.n_actions} actions x {self.n_classes} classes"]
        parts += [] if self.rate is None else ["with a rate"]
        parts += [] if self.reject is None else [f"reject={self.reject_name!r}"]
        parts += [] if self.pos_label is None else [f"pos_label={self.pos_label!r}"]
        return f"CostMatrix({', '.join(parts)})"

    def _values(self) -> dict[str, Any]:
        values = {**super(CostMatrix, self)._values(), "reject": self.reject_name}
        if self.pos_label is None:
            del values["pos_label"]
        return values

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> CostMatrix:
        return cls(values.pop("array"), **values)

    @property
    def reject_name(self) -> str | None:
        """The name of the reject action."""
        return None if self.reject is None else self.actions[self.reject]

    @property
    def n_actions(self) -> int:
        """The number of actions, reject included."""
        return int(self.array.shape[0])

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.array.shape[1])

    def with_reject(self, cost: Any, name: str = "reject") -> CostMatrix:
        """Return the same costs with one more action, which rejects the row.

        Parameters
        ----------
        cost : float or array
            The cost of rejecting, in all classes or in each. Its rate is 0.
        name : str, default "reject"
            The name of the action.

        Returns
        -------
        CostMatrix

        Examples
        --------
        >>> CostMatrix.zero_one(2).with_reject(0.25).array.tolist()
        [[0.0, 1.0], [1.0, 0.0], [0.25, 0.25]]
        """
        caller = "CostMatrix.with_reject"
        if self.reject is not None:
            rule = "needs a cost matrix without a reject action"
            got = f"one that already has {self.reject_name!r}"
            fix = "Change the costs of that action, or leave it out"
            raise BadValueError("", caller, rule, got, fix)
        array = np.vstack([self.array, _as_cost_row(cost, self.n_classes, caller)])
        rate = None if self.rate is None else np.pad(self.rate, ((0, 1), (0, 0)))
        names = (*self.actions, name)
        return CostMatrix(
            array, names, self.classes, rate=rate, reject=name, pos_label=self.pos_label
        )

    def for_classes(self, classes: tuple[ClassName, ...] | None, n_classes: int) -> CostMatrix:
        """Return the same costs with columns in the order of a model's classes.

        Where either side has no names, the columns stay in place.
        """
        if n_classes != self.n_classes:
            rule, got = f"has {self.n_classes} classes", f"outputs with {n_classes}"
            fix = "Add one cost column per class"
            raise BadValueError("", "The cost matrix", rule, got, fix)
        if self.pos_label is not None:
            return self._with_positive(classes, self.pos_label)
        if classes is None or self.classes is None or classes == self.classes:
            return self
        order = class_order(self.classes, classes)
        if order is None:
            rule, fix = f"must be {self.classes}", "Use the same class names in both"
            raise BadValueError("classes", "CostMatrix.for_classes", rule, f"{classes}", fix)
        rate, reject = None if self.rate is None else self.rate[:, order], self.reject_name
        return CostMatrix(self.array[:, order], self.actions, classes, rate=rate, reject=reject)

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
            rule, fix = f"must be one of the classes {known}", f"Pass {choices}"
            fix = fix if classes else f"{fix}, or name the classes of the outputs"
            raise BadValueError("pos_label", "CostMatrix", rule, repr(pos_label), fix)
        at = found[0]
        order, actions = [int(column == at) for column in (0, 1)], list(self.actions)
        if classes is not None and actions[:2] == ["0", "1"]:
            actions[:2] = [names[1 - at], names[at]]
        rate, reject = None if self.rate is None else self.rate[:, order], self.reject_name
        return CostMatrix(self.array[:, order], actions, classes, rate=rate, reject=reject)

    def decide_rows(self, batch: Batch, pos_column: int | None) -> tuple[FloatArray, FloatArray]:
        """Return whether each row's action is that of the positive class, and its realized cost.

        The action of the positive class is the one of lowest cost in it. For `audit`.
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
    plain = value.item() if isinstance(value, np.number) else value
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    if not is_number or not abs(plain) <= HIGHEST_COST:
        rule = f"must be a number of at most {HIGHEST_COST:g} in size"
        raise BadValueError(argument, caller, rule, repr(value), "Pass a cost such as 0.1")
    return float(plain)


def _as_cost_row(value: Any, n_classes: int, caller: str) -> FloatArray:
    """Return the cost of one action in each class, from one number or one per class."""
    if isinstance(value, str) or not hasattr(value, "__len__"):
        return np.full(n_classes, as_cost(value, "cost", caller))
    row = as_finite(as_floats(value, "cost", caller), "cost", caller)
    if row.shape != (n_classes,):
        rule, fix = "must be one number, or one per class", f"Pass {n_classes} numbers"
        raise BadValueError("cost", caller, rule, f"shape {row.shape}", fix)
    return row.astype(np.float64)


def _as_cost_table(value: Any, argument: str, caller: str) -> FloatArray:
    """Return a read-only float64 copy of a cost table."""
    table = as_floats(value, argument, caller).astype(np.float64, order="C")
    rule, fix = "must have shape (actions, classes)", "Pass one row per action"
    if table.ndim != 2 or not table.size:
        raise BadValueError(argument, caller, rule, f"shape {table.shape}", fix)
    as_finite(table, argument, caller, "Give a cost for every action in every class")
    rule, fix = f"must be at most {HIGHEST_COST:g} in size", "Use another unit"
    require_everywhere(np.abs(table) <= HIGHEST_COST, table, argument, caller, rule, fix)
    return freeze(table)


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


def _read_cost_table(path: str | PathLike[str]) -> tuple[list[list[float]], list[str], list[str]]:
    """Return costs, actions and classes from a CSV file whose corner says `action` or `truth`."""
    lines = read_text(path).splitlines()
    try:
        separator = separator_of(lines)
        rows_read = csv.reader(lines, delimiter=separator)
        table = [[cell.strip() for cell in line] for line in rows_read if any(map(str.strip, line))]
    except csv.Error as error:
        fix = "Write one row of costs per line"
        raise BadFileError(fspath(path), f"it is not CSV ({error})", fix) from error
    corner = table[0][0].lower() if table else ""
    if corner not in ("action", "truth"):
        rule = "its first header cell must be `action` or `truth` (what the rows are)"
        fix = "Use a header such as action,healthy,ill"
        raise BadFileError(fspath(path), f"{rule}, got {corner!r}", fix)
    columns, rows = table[0][1:], [line[0] for line in table[1:]]
    cells = {} if separator == "," else {"costs": [one for line in table[1:] for one in line[1:]]}
    decimal = decimal_separator(cells, fspath(path))
    costs = [_numbers_of(line, len(columns), path, decimal) for line in table[1:]]
    if not rows or not columns:
        fix = "Add one row of numbers per action below the names"
        raise BadFileError(fspath(path), "it holds no costs", fix)
    if corner == "action":
        return costs, rows, columns
    return [list(column) for column in zip(*costs, strict=True)], columns, rows


def _numbers_of(
    line: list[str], n_columns: int, path: str | PathLike[str], decimal: str
) -> list[float]:
    """Return the costs of a row, whose first cell is its name."""
    name, *cells = line
    if len(cells) != n_columns:
        problem = f"row {name!r} has {len(cells)} costs instead of {n_columns}"
        raise BadFileError(fspath(path), problem, "Give one cost per column")
    try:
        return [float(cell.replace(decimal, ".")) for cell in cells]
    except ValueError as error:
        problem = f"row {name!r} holds a value that is not a number ({error})"
        raise BadFileError(fspath(path), problem, "Use numbers such as 0.5") from error


def _read_cost_json(path: str | PathLike[str]) -> Any:
    """Return the content of a JSON file, not yet checked."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        fix = "Write the file with json.dumps(costs.to_dict())"
        raise BadFileError(fspath(path), f"it is not JSON ({error})", fix) from error
