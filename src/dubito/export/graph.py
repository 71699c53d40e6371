"""A small graph of array operations: what a fitted policy computes, whatever will compute it.

Calibrators, scores and policies are described once, in `calibration_graph` and `decision_graph`.
ONNX operators, PyTorch operations and NumPy source text are three ways to write a graph down. Every
value is a matrix of rows x columns: one column for what a row has one of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

TINY = 1e-37  # a positive number that float32 can hold
FARTHEST = 1e30  # in size: a score or a log probability that stands for infinity

Kind = Literal["float", "int", "bool"]
Form = Literal["matrix", "column", "cube"]  # of an input: rows x columns, rows, rows x a x b


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

    def __add__(self, other: Any) -> Value:
        return self._binary("add", other)

    def __radd__(self, other: Any) -> Value:
        return self.graph.constant(other)._binary("add", self)

    def __sub__(self, other: Any) -> Value:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self.graph.constant(other)._binary("sub", self)

    def __mul__(self, other: Any) -> Value:
        return self._binary("mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self._binary("div", other)

    def __matmul__(self, other: Any) -> Value:
        return self._binary("matmul", np.ascontiguousarray(other))

    def __neg__(self) -> Value:
        return self._unary("neg")

    def __lt__(self, other: Any) -> Value:
        return self._binary("less", other, "bool")

    def __le__(self, other: Any) -> Value:
        return self._binary("less_equal", other, "bool")

    def __gt__(self, other: Any) -> Value:
        return self.graph.as_value(other)._binary("less", self, "bool")

    def __ge__(self, other: Any) -> Value:
        return self.graph.as_value(other)._binary("less_equal", self, "bool")

    def __and__(self, other: Value) -> Value:
        return self._binary("and", other, "bool")

    def __or__(self, other: Value) -> Value:
        return self._binary("or", other, "bool")

    def __invert__(self) -> Value:
        return self._unary("not")

    def equals(self, other: Any) -> Value:
        """Return where two values are equal."""
        return self._binary("equal", other, "bool")

    def minimum(self, other: Any) -> Value:
        """Return the smaller of two values."""
        return self._binary("minimum", other)

    def maximum(self, other: Any) -> Value:
        """Return the larger of two values."""
        return self._binary("maximum", other)

    def clip(self, low: Any, high: Any) -> Value:
        """Return the value between two limits that is nearest."""
        return self.maximum(low).minimum(high)

    def exp(self) -> Value:
        """Return the exponential."""
        return self._unary("exp")

    def log(self) -> Value:
        """Return the natural logarithm."""
        return self._unary("log")

    def abs(self) -> Value:
        """Return the absolute value."""
        return self._unary("abs")

    def sqrt(self) -> Value:
        """Return the square root."""
        return self._unary("sqrt")

    def sigmoid(self) -> Value:
        """Return 1 / (1 + exp(-x))."""
        return self._unary("sigmoid")

    def rounded(self) -> Value:
        """Return the value rounded to float32."""
        return self._unary("rounded")

    def as_float(self) -> Value:
        """Return booleans or integers as floats."""
        return self.graph.add("as_float", (self,), "float")

    def as_int(self) -> Value:
        """Return booleans as 0 and 1."""
        return self.graph.add("as_int", (self,), "int")

    def sum(self) -> Value:
        """Return the sum of each row."""
        return self._unary("sum")

    def max(self) -> Value:
        """Return the largest entry of each row."""
        return self._unary("max")

    def min(self) -> Value:
        """Return the smallest entry of each row."""
        return self._unary("min")

    def argmax(self) -> Value:
        """Return the column of the first largest entry of each row."""
        return self.graph.add("argmax", (self,), "int")

    def softmax(self) -> Value:
        """Return the softmax of each row."""
        return self._unary("softmax")

    def log_softmax(self) -> Value:
        """Return the log of the softmax of each row."""
        return self._unary("log_softmax")

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

    def _unary(self, op: str) -> Value:
        return self.graph.add(op, (self,), self.kind)

    def _binary(self, op: str, other: Any, kind: Kind | None = None) -> Value:
        second = self.graph.as_value(other)
        return self.graph.add(op, (self, second), kind or self.kind)


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
        kind: Kind = "int" if array.dtype.kind in "iu" else "float"
        return self.add(
            "constant", (), kind, array=array.astype(np.int64 if kind == "int" else np.float64)
        )

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
