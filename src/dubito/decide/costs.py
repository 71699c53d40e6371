"""What each action costs in each class: a matrix, actions x classes, named.

Texts write losses as truth x decision. Here rows are actions and columns are classes, like the
columns of outputs; whatever comes the other way round says so, as a shape cannot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, final

import numpy as np

from dubito.arrays import FloatArray, as_list
from dubito.decide.cost_checks import (
    as_action_names,
    as_class_names,
    as_cost_row,
    as_cost_table,
    as_number,
    as_rate,
    number_of_reject,
)
from dubito.decide.cost_files import read_cost_json, read_cost_table
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import ClassName

__all__ = ["CostMatrix", "as_costs"]

FORMAT = 1  # of `to_dict`; goes up when what older versions wrote can no longer be read as it is
KEYS = ("kind", "format", "actions", "classes", "costs", "rate", "reject")

Names = Iterable[ClassName] | None


@final
@dataclass(frozen=True, slots=True, eq=False)
class CostMatrix:
    """Costs of actions in classes, named; a gain is a cost below 0.

    `rate`, of the same shape, is what is added for each unit of a row's amount. Without `actions`
    they are the classes, one each. `reject` names the action that hands a row over, which wins
    ties; without it that is the action called "reject", if there is one.

    >>> costs = CostMatrix([[0, 10], [1, 0]], actions=["send home", "treat"])
    >>> costs.with_reject(0.5, name="ask a doctor").actions
    ('send home', 'treat', 'ask a doctor')
    """

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
        array = as_cost_table(costs, "costs", "CostMatrix")
        columns = as_class_names(classes, array.shape[1])
        names = as_action_names(actions, array.shape[0], columns)
        fields = {
            "array": array,
            "rate": None if rate is None else as_rate(rate, array.shape),
            "actions": names,
            "classes": columns,
            "reject": number_of_reject(reject, names),
        }
        for name, value in fields.items():
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
        table = as_cost_table(loss, "loss", "CostMatrix.from_loss")
        grows = None if rate is None else as_cost_table(rate, "rate", "CostMatrix.from_loss")
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
            as_number(true_negative, "true_negative", caller),
            as_number(true_positive, "true_positive", caller),
        ]
        wrong = [
            as_number(false_negative, "false_negative", caller),
            as_number(false_positive, "false_positive", caller),
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
        table = as_cost_table(utilities, "utilities", caller)
        grows = None if rate is None else 0.0 - as_cost_table(rate, "rate", caller)
        return cls(0.0 - table, actions, classes, rate=grows, reject=reject)

    @classmethod
    def from_csv(cls, path: str | PathLike[str], *, reject: str | None = None) -> CostMatrix:
        """Return the costs of a CSV file; its corner cell says what rows are: `action` or `truth`.

        The first row and the first column hold names, all else numbers.
        """
        table = read_cost_table(path)
        return cls(table.costs, table.actions, table.classes, reject=reject)

    @classmethod
    def from_json(cls, path: str | PathLike[str]) -> CostMatrix:
        """Return the costs of a JSON file that holds what `to_dict` gives."""
        return cls.from_dict(read_cost_json(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CostMatrix:
        """Return the costs that `to_dict` gave; all of it is checked."""
        caller = "CostMatrix.from_dict"
        if not isinstance(values, Mapping) or values.get("kind") != "CostMatrix":
            rule, fix = "what `to_dict` gave", "`costs.to_dict()`"
            raise BadTypeError("values", caller, rule, f"a {type(values).__name__}", fix)
        if values.get("format") != FORMAT or isinstance(values.get("format"), bool):
            fix = "the version of dubito that wrote it"
            got = f"format {values.get('format')!r}"
            raise BadValueError("values", caller, f"of format {FORMAT}", got, fix)
        odd = sorted({str(key) for key in values} ^ set(KEYS))
        if odd:
            rule, fix = f"a dict with the keys {', '.join(KEYS)}", "`costs.to_dict()`"
            raise BadValueError("values", caller, rule, f"{odd[0]!r} missing or unknown", fix)
        return cls(
            values["costs"],
            values["actions"],
            values["classes"],
            rate=values["rate"],
            reject=values["reject"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the costs as plain numbers and names, ready for JSON."""
        return {
            "kind": "CostMatrix",
            "format": FORMAT,
            "actions": list(self.actions),
            "classes": None if self.classes is None else list(self.classes),
            "costs": self.array.tolist(),
            "rate": None if self.rate is None else self.rate.tolist(),
            "reject": None if self.reject is None else self.actions[self.reject],
        }

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
        row = as_cost_row(cost, self.n_classes, caller)
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
