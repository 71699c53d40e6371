"""A small graph of array operations: what a fitted policy computes, whatever will compute it.

Calibrators, scores and policies are described once, in `calibration_graph` and `decision_graph`.
ONNX operators, PyTorch operations and NumPy source text are three ways to write a graph down. Every
value is a matrix of rows x columns: one column for what a row has one of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

TINY = 1e-37  # a positive number that float32 can hold
FARTHEST = 1e30  # in size: a score or a log probability that stands for infinity

Kind = Literal["float", "int", "bool"]
Form = Literal["matrix", "column", "cube"]  # of an input: rows x columns, rows, rows x a x b


def _unary(op: str, doc: str | None = None) -> Callable[[Value], Value]:
    """Return the method of an operation on one value."""

    def method(self: Value) -> Value:
        return self.graph.add(op, (self,), self.kind)

    method.__doc__ = doc
    return method


def _binary(
    op: str, kind: Kind | None = None, doc: str | None = None
) -> Callable[[Value, Any], Value]:
    """Return the method of an operation on two values, of which the other may be numbers."""

    def method(self: Value, other: Any) -> Value:
        return self.graph.add(op, (self, self.graph.as_value(other)), kind or self.kind)

    method.__doc__ = doc
    return method


@final
@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """The result of an operation on other values; the usual operators make further ones."""

    graph: Graph
    number: int
    op: str
    inputs: tuple[Value, ...]
    kind: Kind
    attributes: dict[str, Any]

    __add__ = _binary("add")
    __sub__ = _binary("sub")
    __mul__ = _binary("mul")
    __truediv__ = _binary("div")
    __lt__ = _binary("less", "bool")
    __le__ = _binary("less_equal", "bool")
    __and__ = _binary("and", "bool")
    __or__ = _binary("or", "bool")
    __neg__ = _unary("neg")
    __invert__ = _unary("not")
    equals = _binary("equal", "bool", "Return where two values are equal.")
    minimum = _binary("minimum", doc="Return the smaller of two values.")
    maximum = _binary("maximum", doc="Return the larger of two values.")
    exp = _unary("exp", "Return the exponential.")
    log = _unary("log", "Return the natural logarithm.")
    abs = _unary("abs", "Return the absolute value.")
    sqrt = _unary("sqrt", "Return the square root.")
    sigmoid = _unary("sigmoid", "Return 1 / (1 + exp(-x)).")
    rounded = _unary("rounded", "Return the value rounded to float32.")
    sum = _unary("sum", "Return the sum of each row.")
    max = _unary("max", "Return the largest entry of each row.")
    min = _unary("min", "Return the smallest entry of each row.")
    softmax = _unary("softmax", "Return the softmax of each row.")
    log_softmax = _unary("log_softmax", "Return the log of the softmax of each row.")

    def __radd__(self, other: Any) -> Value:
        return self.graph.constant(other) + self

    def __rsub__(self, other: Any) -> Value:
        return self.graph.constant(other) - self

    def __matmul__(self, other: Any) -> Value:
        matrix = self.graph.constant(np.ascontiguousarray(other))
        return self.graph.add("matmul", (self, matrix), self.kind)

    def __gt__(self, other: Any) -> Value:
        return self.graph.as_value(other) < self

    def __ge__(self, other: Any) -> Value:
        return self.graph.as_value(other) <= self

    def clip(self, low: Any, high: Any) -> Value:
        """Return the value between two limits that is nearest."""
        return self.maximum(low).minimum(high)

    def as_float(self) -> Value:
        """Return booleans or integers as floats."""
        return self.graph.add("as_float", (self,), "float")

    def as_int(self) -> Value:
        """Return booleans as 0 and 1."""
        return self.graph.add("as_int", (self,), "int")

    def argmax(self) -> Value:
        """Return the column of the first largest entry of each row."""
        return self.graph.add("argmax", (self,), "int")

    def log_sum_exp(self) -> Value:
        """Return the log of the sum of exponentials of each row."""
        top = self.max()
        return top + (self - top).exp().sum().log()

    def norm(self) -> Value:
        """Return the length of each row."""
        return (self * self).sum().sqrt()

    def top_k(self, k: int) -> Value:
        """Return the k largest entries of each row, the largest first."""
        return self.graph.add("top_k", (self,), "float", k=k)

    def columns(self, columns: Sequence[int] | NDArray[np.int64]) -> Value:
        """Return some columns."""
        return self.graph.add("columns", (self,), self.kind, columns=[int(k) for k in columns])

    def pick(self, index: Value) -> Value:
        """Return the entries of each row in the columns that `index` has for it."""
        return self.graph.add("pick", (self, index), self.kind)

    def where(self, yes: Any, no: Any) -> Value:
        """Return one value where this one is true, and another elsewhere."""
        first, second = self.graph.as_value(yes), self.graph.as_value(no)
        return self.graph.add("where", (self, first, second), first.kind)

    def named(self, name: str) -> Value:
        """Return the value itself, which source code will call so."""
        self.graph.names.setdefault(self.number, name)
        return self


@final
@dataclass(slots=True, eq=False)
class Graph:
    """Values in the order in which they can be computed.

    Attributes
    ----------
    inputs : dict of Value
        By name. The first is "logits" or "probabilities".
    outputs : dict of Value
        By name. An output in `rows` is one number per row rather than a matrix.
    names, comments : dict of str by int
        What source code calls a value, and what it says above one.
    limits : dict of tuple of str and float by int
        What source code checks of a value: the rule of its error, and the largest size allowed.
    metadata : dict of list of str
        The names of classes, actions and reasons.
    title : str
        What is computed, in a few words.
    log_proba : Value or None
        Calibrated log probabilities of a calibrator of classes.
    """

    values: list[Value] = field(default_factory=list)
    inputs: dict[str, Value] = field(default_factory=dict)
    outputs: dict[str, Value] = field(default_factory=dict)
    rows: set[str] = field(default_factory=set)
    names: dict[int, str] = field(default_factory=dict)
    comments: dict[int, str] = field(default_factory=dict)
    limits: dict[int, tuple[str, float]] = field(default_factory=dict)
    metadata: dict[str, list[str]] = field(default_factory=dict)
    title: str = ""
    log_proba: Value | None = None

    @property
    def takes_one_column(self) -> bool:
        """Whether outputs may be one column: of two classes, that of the second."""
        name, first = next(iter(self.inputs.items()))
        is_of_classes = name != "scores" and "labels" not in self.metadata
        return is_of_classes and first.attributes["sizes"] == (2,)

    def add(self, op: str, inputs: tuple[Value, ...], kind: Kind, **attributes: Any) -> Value:
        """Append the result of an operation."""
        value = Value(self, len(self.values), op, inputs, kind, attributes)
        self.values.append(value)
        return value

    def input(self, name: str, form: Form, *sizes: int) -> Value:
        """Append an input; one number per row becomes a column, a cube a matrix."""
        self.inputs[name] = self.add("input", (), "float", name=name, form=form, sizes=sizes)
        return self.inputs[name]

    def constant(self, value: Any) -> Value:
        """Append a constant: a number, a row or a matrix."""
        array = np.asarray(value)
        if array.dtype.kind in "iu":
            return self.add("constant", (), "int", array=array.astype(np.int64))
        return self.add("constant", (), "float", array=array.astype(np.float64))

    def as_value(self, value: Any) -> Value:
        """Return a value unchanged, and anything else as a constant."""
        return value if isinstance(value, Value) else self.constant(value)

    def concat(self, parts: Sequence[Value]) -> Value:
        """Return several matrices side by side."""
        return parts[0] if len(parts) == 1 else self.add("concat", tuple(parts), parts[0].kind)

    def take(self, table: NDArray[Any], index: Value) -> Value:
        """Return the entries of a list at the places that `index` holds."""
        held = self.constant(table)
        return self.add("take", (held, index), held.kind)

    def take_sum(self, table: NDArray[Any], index: Value) -> Value:
        """Return, for each row, the sum of the rows of a table that `index` holds for it."""
        return self.add("take_sum", (self.constant(table), index), "float")

    def count_below(self, table: NDArray[Any], x: Value, *, or_equal: bool = False) -> Value:
        """Return how many numbers of row k of a table, which rise, are below column k of x."""
        if not table.shape[1]:
            return self.add("as_int", (x < -np.inf,), "int")
        return self.add("count_below", (self.constant(table), x), "int", or_equal=or_equal)

    def comment(self, text: str) -> None:
        """Say something above the next value in source code."""
        self.comments[len(self.values)] = text

    def output(self, name: str, value: Value, *, is_row: bool = False) -> None:
        """Declare an output."""
        self.outputs[name] = value
        if is_row:
            self.rows.add(name)

    def needed(self, *others: Value) -> list[Value]:
        """Return the values that outputs depend on, and others, in order, and all inputs."""
        waiting, found = [*self.outputs.values(), *self.inputs.values(), *others], set()
        while waiting:
            value = waiting.pop()
            if value.number not in found:
                found.add(value.number)
                waiting.extend(value.inputs)
        return [value for value in self.values if value.number in found]
