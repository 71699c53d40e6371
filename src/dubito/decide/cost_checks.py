"""What a table of costs must be: finite numbers of bounded size, and names that differ."""

from __future__ import annotations

from typing import Any

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
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import ClassName

__all__ = [
    "HIGHEST_COST",
    "as_action_names",
    "as_class_names",
    "as_cost_row",
    "as_cost_table",
    "as_number",
    "as_rate",
    "number_of_reject",
]

HIGHEST_COST = 1e100  # in size: an amount as large times such a rate is still a finite number


def as_number(value: Any, argument: str, caller: str) -> float:
    """Return one cost."""
    plain = value.item() if isinstance(value, np.number) else value
    is_number = isinstance(plain, int | float) and not isinstance(plain, bool)
    if not is_number or not abs(plain) <= HIGHEST_COST:
        rule = f"a number of size {HIGHEST_COST:g} at most"
        raise BadValueError(argument, caller, rule, repr(value), "a cost such as 0.1")
    return float(plain)


def as_cost_row(value: Any, n_classes: int, caller: str) -> FloatArray:
    """Return the costs of one action, one a class, from as many numbers or a single one."""
    if not isinstance(value, list | tuple) and not hasattr(value, "__len__"):
        return np.full(n_classes, as_number(value, "cost", caller))
    row = as_finite(as_floats(value, "cost", caller), "cost", caller)
    if row.shape != (n_classes,):
        rule, fix = "one number, or one a class", f"{n_classes} numbers"
        raise BadValueError("cost", caller, rule, f"shape {row.shape}", fix)
    return row.astype(np.float64)


def as_cost_table(value: Any, argument: str, caller: str) -> FloatArray:
    """Return a float64 table of costs of its own, read-only."""
    array = as_floats(value, argument, caller).astype(np.float64, order="C")
    require_dimensions(array, (2,), argument, caller, "actions x classes", "a table of numbers")
    if not array.size:
        rule, fix = "1 action or more", "one row of costs an action"
        raise BadValueError(argument, caller, rule, f"shape {array.shape}", fix)
    as_finite(array, argument, caller, "a cost for every action in every class")
    rule, fix = f"of size {HIGHEST_COST:g} at most", "other units"
    require_everywhere(np.abs(array) <= HIGHEST_COST, array, argument, caller, rule, fix)
    return freeze(array)


def as_rate(value: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return what is added a unit of the amount, or raise where it is not shaped as the costs."""
    rate = as_cost_table(value, "rate", "CostMatrix")
    if rate.shape != shape:
        rule, fix = f"shaped as the costs, {shape}", "0 where a cost does not grow"
        raise BadValueError("rate", "CostMatrix", rule, f"shape {rate.shape}", fix)
    return rate


def as_class_names(names: Any, n_classes: int) -> tuple[ClassName, ...] | None:
    """Return the names of the classes, text or numbers, or None."""
    if names is None:
        return None
    fix = "one different name a class, such as ['cat', 'dog']"
    return as_names(names, n_classes, "classes", "a class", ("text or numbers", fix))


def as_action_names(
    names: Any, n_actions: int, classes: tuple[ClassName, ...] | None
) -> tuple[str, ...]:
    """Return the names of the actions: those of the classes where there are none but as many."""
    if names is None:
        is_square = classes is not None and len(classes) == n_actions
        names = [str(name) for name in (classes if is_square else range(n_actions)) or ()]
    fix = "one different name an action, such as ['approve', 'deny']"
    checked = as_names(names, n_actions, "actions", "an action", ("texts", fix))
    for name in checked:
        if not isinstance(name, str):
            got = f"a {type(name).__name__}"
            raise BadTypeError("actions", "CostMatrix", "texts", got, fix)
    return tuple(str(name) for name in checked)


def as_names(
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


def number_of_reject(reject: Any, actions: tuple[str, ...]) -> int | None:
    """Return which action hands a row over, or None."""
    if reject is None:
        return actions.index("reject") if "reject" in actions else None
    if reject not in actions:
        rule, fix = f"one of the actions {actions}", f"reject={actions[-1]!r}"
        raise BadValueError("reject", "CostMatrix", rule, repr(reject), fix)
    return actions.index(reject)
