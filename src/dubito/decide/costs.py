"""The cost of each action in each class: a named matrix, actions x classes, from arrays or files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any, ClassVar, Literal, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    as_finite,
    as_floats,
    as_list,
    freeze,
    require_dimensions,
    require_everywhere,
)
from dubito.errors import BadFileError, BadTypeError, BadValueError
from dubito.outputs import ClassName
from dubito.serialization.arrays import array
from dubito.serialization.documents import read_text
from dubito.serialization.fields import Check, Entry, class_names, declare, list_of, optional, text
from dubito.serialization.objects import Record

HIGHEST_COST = 1e100  # in size: an amount as large times such a rate is still a finite number


def _as_number(value: Any, argument: str, caller: str) -> float:
    """Return one cost."""
    plain = value.item() if isinstance(value, np.number) else value
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    if not is_number or not abs(plain) <= HIGHEST_COST:
        rule = f"a number of size {HIGHEST_COST:g} at most"
        raise BadValueError(argument, caller, rule, repr(value), "a cost such as 0.1")
    return float(plain)


def _as_cost_row(value: Any, n_classes: int, caller: str) -> FloatArray:
    """Return the costs of one action, one a class, from as many numbers or a single one."""
    if not isinstance(value, list | tuple) and not hasattr(value, "__len__"):
        return np.full(n_classes, _as_number(value, "cost", caller))
    row = as_finite(as_floats(value, "cost", caller), "cost", caller)
    if row.shape != (n_classes,):
        rule, fix = "one number, or one a class", f"{n_classes} numbers"
        raise BadValueError("cost", caller, rule, f"shape {row.shape}", fix)
    return row.astype(np.float64)


def _as_cost_table(value: Any, argument: str, caller: str) -> FloatArray:
    """Return a float64 table of costs of its own, read-only."""
    array = as_floats(value, argument, caller).astype(np.float64, order="C")
    require_dimensions(
        array, (2,), argument, caller, "actions x classes", "Pass a table of numbers"
    )
    if not array.size:
        rule, fix = "1 action or more", "one row of costs an action"
        raise BadValueError(argument, caller, rule, f"shape {array.shape}", fix)
    as_finite(array, argument, caller, "Give a cost for every action in every class")
    rule, fix = f"of size {HIGHEST_COST:g} at most", "other units"
    require_everywhere(np.abs(array) <= HIGHEST_COST, array, argument, caller, rule, fix)
    return freeze(array)


def _as_rate(value: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return what is added a unit of the amount, or raise where it is not shaped as the costs."""
    rate = _as_cost_table(value, "rate", "CostMatrix")
    if rate.shape != shape:
        rule, fix = f"shaped as the costs, {shape}", "0 where a cost does not grow"
        raise BadValueError("rate", "CostMatrix", rule, f"shape {rate.shape}", fix)
    return rate


def _as_class_names(names: Any, n_classes: int) -> tuple[ClassName, ...] | None:
    """Return the names of the classes, text or numbers, or None."""
    if names is None:
        return None
    fix = "one different name a class, such as ['cat', 'dog']"
    return _as_names(names, n_classes, "classes", "a class", ("text or numbers", fix))


def _as_action_names(
    names: Any, n_actions: int, classes: tuple[ClassName, ...] | None
) -> tuple[str, ...]:
    """Return the names of the actions: those of the classes where there are none but as many."""
    if names is None:
        is_square = classes is not None and len(classes) == n_actions
        names = [str(name) for name in (classes if is_square else range(n_actions)) or ()]
    fix = "one different name an action, such as ['approve', 'deny']"
    checked = _as_names(names, n_actions, "actions", "an action", ("texts", fix))
    for name in checked:
        if not isinstance(name, str):
            got = f"a {type(name).__name__}"
            raise BadTypeError("actions", "CostMatrix", "texts", got, fix)
    return tuple(str(name) for name in checked)


def _as_names(
    names: Any, n_names: int, argument: str, of_what: str, words: tuple[str, str]
) -> tuple[ClassName, ...]:
    """Return different names as plain Python values; `words` are what they must be, and a fix."""
    (kinds, fix), caller = words, "CostMatrix"
    rule = f"a list of {kinds}, one {of_what}"
    if isinstance(names, str | set | frozenset):
        raise BadTypeError(argument, caller, rule, repr(names), fix)
    listed = as_list(names, argument, caller, rule, fix)
    plain = tuple(name.item() if isinstance(name, np.generic) else name for name in listed)
    for name in plain:
        if not isinstance(name, str | int | float | bool):
            raise BadTypeError(argument, caller, kinds, f"a {type(name).__name__}", fix)
    if len(plain) != n_names:
        rule = f"{n_names} names, one {of_what}"
        raise BadValueError(argument, caller, rule, f"{len(plain)}", fix)
    if len(set(plain)) != len(plain):
        twice = next(name for name in plain if plain.count(name) > 1)
        raise BadValueError(argument, caller, "all different", f"{twice!r} twice", fix)
    return plain


def _number_of_reject(reject: Any, actions: tuple[str, ...]) -> int | None:
    """Return which action hands a row over, or None."""
    if reject is None:
        return actions.index("reject") if "reject" in actions else None
    if reject not in actions:
        rule, fix = f"one of the actions {actions}", f"reject={actions[-1]!r}"
        raise BadValueError("reject", "CostMatrix", rule, repr(reject), fix)
    return actions.index(reject)


@final
@dataclass(frozen=True, slots=True)
class CostTable:
    """Costs as a file holds them, turned to actions x classes."""

    costs: list[list[float]]
    actions: list[str]
    classes: list[str]


def _read_cost_table(path: str | PathLike[str]) -> CostTable:
    """Return the table of a CSV file whose corner cell says what rows are: `action` or `truth`."""
    lines = csv.reader(read_text(path).splitlines())
    try:
        table = [[cell.strip() for cell in line] for line in lines if any(map(str.strip, line))]
    except csv.Error as error:
        raise BadFileError(fspath(path), f"it is no CSV ({error})", "one row a line") from error
    corner = table[0][0].lower() if table else ""
    if corner not in ("action", "truth"):
        problem = f"its corner cell must be `action` or `truth`, what rows are, and is {corner!r}"
        fix = "a first line such as action,well,ill"
        raise BadFileError(fspath(path), problem, fix)
    columns, rows = table[0][1:], [line[0] for line in table[1:]]
    costs = [_numbers_of(line, len(columns), path) for line in table[1:]]
    if not rows or not columns:
        problem = "it holds no costs"
        raise BadFileError(fspath(path), problem, "one row of numbers below the names")
    if corner == "action":
        return CostTable(costs, rows, columns)
    return CostTable([list(column) for column in zip(*costs, strict=True)], columns, rows)


def _numbers_of(line: list[str], n_columns: int, path: str | PathLike[str]) -> list[float]:
    """Return the costs of a row, whose first cell is its name."""
    name, *cells = line
    if len(cells) != n_columns:
        problem = f"row {name!r} has {len(cells)} costs instead of {n_columns}"
        raise BadFileError(fspath(path), problem, "one cost a column")
    try:
        return [float(cell) for cell in cells]
    except ValueError as error:
        problem = f"row {name!r} holds what is no number ({error})"
        raise BadFileError(fspath(path), problem, "numbers such as 0.5") from error


def _read_cost_json(path: str | PathLike[str]) -> Any:
    """Return what a JSON file holds, not yet checked."""
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        problem = f"it is no JSON ({error})"
        raise BadFileError(fspath(path), problem, "a file with what `to_dict` gave") from error


Names = Iterable[ClassName] | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class CostMatrix(Record):
    """Costs of actions in classes, named; a gain is a cost below 0.

    `rate`, of the same shape, is what is added for each unit of a row's amount. Without `actions`
    they are the classes, one each. `reject` names the action that hands a row over, which wins
    ties; without it that is the action called "reject", if there is one.

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
    )

    array: FloatArray
    rate: FloatArray | None
    actions: tuple[str, ...]
    classes: tuple[ClassName, ...] | None
    reject: int | None

    def __init__(
        self,
        costs: Any,
        actions: Names = None,
        classes: Names = None,
        *,
        rate: Any = None,
        reject: str | None = None,
    ) -> None:
        table = _as_cost_table(costs, "costs", "CostMatrix")
        columns = _as_class_names(classes, table.shape[1])
        names = _as_action_names(actions, table.shape[0], columns)
        values = {
            "array": table,
            "rate": None if rate is None else _as_rate(rate, table.shape),
            "actions": names,
            "classes": columns,
            "reject": _number_of_reject(reject, names),
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @classmethod
    def zero_one(cls, classes: int | np.integer[Any] | Iterable[ClassName]) -> CostMatrix:
        """Return a cost of 1 for each wrong class: the least of it is the least error.

        >>> CostMatrix.zero_one(2).array.tolist()
        [[0.0, 1.0], [1.0, 0.0]]
        """
        if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
            if not 1 <= classes <= 1_000_000:
                rule, fix = "1 class or more", "the number of columns of the outputs"
                raise BadValueError("classes", "CostMatrix.zero_one", rule, str(classes), fix)
            return cls(1.0 - np.eye(int(classes)))
        rule, fix = "a number of classes, or their names", "CostMatrix.zero_one(3)"
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
        """Return costs from a loss matrix whose rows are "truth", as in texts, or "actions".

        >>> loss = [[0, 1000], [1, 0]]  # ill, well
        >>> CostMatrix.from_loss(loss, rows="truth").array.tolist()
        [[0.0, 1.0], [1000.0, 0.0]]
        """
        if rows not in ("truth", "actions"):
            rule, fix = "'truth' or 'actions'", "rows='truth' for a matrix as texts print it"
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
    ) -> CostMatrix:
        """Return the costs of two classes, of which the second is the positive one.

        >>> CostMatrix.from_errors(false_positive=1, false_negative=5).array.tolist()
        [[0.0, 5.0], [1.0, 0.0]]
        """
        caller = "CostMatrix.from_errors"
        right = [
            _as_number(true_negative, "true_negative", caller),
            _as_number(true_positive, "true_positive", caller),
        ]
        wrong = [
            _as_number(false_negative, "false_negative", caller),
            _as_number(false_positive, "false_positive", caller),
        ]
        return cls([[right[0], wrong[0]], [wrong[1], right[1]]], actions, classes)

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
        """Return costs from gains, actions x classes: a gain of 3 is a cost of -3."""
        caller = "CostMatrix.from_utilities"
        table = _as_cost_table(utilities, "utilities", caller)
        grows = None if rate is None else 0.0 - _as_cost_table(rate, "rate", caller)
        return cls(0.0 - table, actions, classes, rate=grows, reject=reject)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, reject: str | None = None) -> CostMatrix:
        """Return the costs of a CSV file; its corner cell says what rows are: `action` or `truth`.

        The first row and the first column hold names, all else numbers.
        """
        table = _read_cost_table(path)
        return cls(table.costs, table.actions, table.classes, reject=reject)

    @classmethod
    def from_json(cls, path: str | PathLike[str]) -> CostMatrix:
        """Return the costs of a JSON file that holds what `to_dict` gives."""
        return cls.from_dict(_read_cost_json(path))

    def _values(self) -> dict[str, Any]:
        reject = None if self.reject is None else self.actions[self.reject]
        return {**super(CostMatrix, self)._values(), "reject": reject}

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> CostMatrix:
        return cls(values.pop("array"), **values)

    @property
    def n_actions(self) -> int:
        """How many actions there are, reject included."""
        return int(self.array.shape[0])

    @property
    def n_classes(self) -> int:
        """How many classes there are."""
        return int(self.array.shape[1])

    def with_reject(self, cost: Any, name: str = "reject") -> CostMatrix:
        """Return the same costs with one more action, which hands the row over to someone.

        `cost` is one number, or one a class. It does not grow with the amount of a row.

        >>> CostMatrix.zero_one(2).with_reject(0.25).array.tolist()
        [[0.0, 1.0], [1.0, 0.0], [0.25, 0.25]]
        """
        caller = "CostMatrix.with_reject"
        if self.reject is not None:
            got = f"{self.actions[self.reject]!r} already"
            fix = "giving its row other costs, or leaving it out"
            raise BadValueError("name", caller, "the only reject action", got, fix)
        row = _as_cost_row(cost, self.n_classes, caller)
        array = np.vstack([self.array, row])
        rate = None if self.rate is None else np.vstack([self.rate, np.zeros((1, self.n_classes))])
        return CostMatrix(array, (*self.actions, name), self.classes, rate=rate, reject=name)

    def for_classes(self, classes: tuple[ClassName, ...] | None, n_classes: int) -> CostMatrix:
        """Return the same costs with columns in the order of a model's classes, found by name.

        Names are the same if they read the same: files know only text. Without names on either
        side columns stay where they are.
        """
        if n_classes != self.n_classes:
            rule, fix = (
                f"of {self.n_classes} classes, like the costs",
                "one column of costs a class",
            )
            raise BadValueError("outputs", "a decision", rule, f"{n_classes} columns", fix)
        if classes is None or self.classes is None or classes == self.classes:
            return self
        mine = [str(name) for name in self.classes]
        theirs = [str(name) for name in classes]
        if sorted(mine) != sorted(theirs) or len(set(mine)) != len(mine):
            rule, fix = f"of the classes {self.classes}, like the costs", "the same names in both"
            raise BadValueError("outputs", "a decision", rule, f"{classes}", fix)
        order = [mine.index(name) for name in theirs]
        rate = None if self.rate is None else self.rate[:, order]
        reject = None if self.reject is None else self.actions[self.reject]
        return CostMatrix(self.array[:, order], self.actions, classes, rate=rate, reject=reject)

    def __reduce__(self) -> tuple[Any, ...]:
        return CostMatrix.from_dict, (self.to_dict(),)


def as_costs(costs: Any, argument: str, caller: str) -> CostMatrix:
    """Return a cost matrix as it is; what may be actions x classes or the reverse is refused."""
    if not isinstance(costs, CostMatrix):
        fix = "CostMatrix(costs), or CostMatrix.from_loss(loss, rows='truth')"
        raise BadTypeError(argument, caller, "a CostMatrix", type(costs).__name__, fix)
    return costs
