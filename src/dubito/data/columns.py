"""Which columns of a table mean what, and how a piece of it becomes a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dubito.arrays import FloatArray, freeze
from dubito.data import cells, patterns
from dubito.data.batch import Batch
from dubito.data.truth import Labels, codes_of_names
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import AbstractOutputs, ClassName, Logits, Normal, Probabilities, TopLabel

__all__ = ["BoundColumns", "Columns"]


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns mean what. What the numbers are is declared, never guessed.

    Exactly one of: `logits`; `probabilities`; `confidence` with `correct`; `mean` with `std`. The
    first two name one column (of lists, or the positive class) or a pattern with one `*`, whose
    columns come in natural order and whose matched part names the class. `label` may be such a
    pattern too, of label probabilities; so may `features`. `classes` names the entries of a column
    of lists.

    >>> Columns(label="y", logits="logit_*").bind(["y", "logit_10", "logit_9"], "f.csv").classes
    (9, 10)
    """

    label: str | None = None
    logits: str | None = None
    probabilities: str | None = None
    confidence: str | None = None
    correct: str | None = None
    mean: str | None = None
    std: str | None = None
    weight: str | None = None
    features: str | None = None
    group: str | None = None
    id: str | None = None
    classes: Sequence[ClassName] | None = None

    def bind(self, names: Sequence[str], where: str) -> BoundColumns:
        """Find these columns among those a table has; raise with what it has for one it lacks."""
        kind = self.kind(where)
        pattern = getattr(self, kind)
        outputs = patterns.matching(pattern, names, kind, where)
        second = {"confidence": self.correct, "mean": self.std}.get(kind)
        if second is not None:
            outputs += patterns.matching(second, names, kind, where)
        classes = tuple(self.classes) if self.classes is not None else None
        if kind in ("logits", "probabilities") and "*" in pattern:
            classes = patterns.class_names(pattern, outputs)
        labels = [] if self.label is None else patterns.matching(self.label, names, "label", where)
        if self.label is not None and "*" in self.label:
            labels = patterns.in_order_of(classes, self.label, labels, where)
        singles = {
            name: patterns.matching(column, names, name, where)[0]
            for name in ("weight", "group", "id")
            if (column := getattr(self, name)) is not None
        }
        features = (
            []
            if self.features is None
            else patterns.matching(self.features, names, "features", where)
        )
        return BoundColumns(where, kind, outputs, classes, labels, features, singles)

    def kind(self, where: str) -> str:
        """Return which kind of outputs is declared."""
        given = [k for k in ("logits", "probabilities", "confidence", "mean") if getattr(self, k)]
        partners = (self.confidence is None) == (self.correct is None)
        partners = partners and (self.mean is None) == (self.std is None)
        if len(given) != 1 or not partners:
            raise BadValueError(
                "columns",
                where,
                "exactly one of logits, probabilities, confidence with correct, mean with std",
                " and ".join(given) or "none of them",
                "logits='logit_*' or probabilities='p_*'",
            )
        return given[0]


@final
@dataclass(frozen=True, slots=True, eq=False)
class BoundColumns:
    """Columns found in a table: what to read, and how to make a batch of a piece of it."""

    where: str
    kind: str
    outputs: list[str]
    classes: tuple[ClassName, ...] | None
    labels: list[str]
    features: list[str]
    singles: dict[str, str]

    @property
    def needed(self) -> list[str]:
        """All columns to read, each once."""
        wanted = [*self.outputs, *self.labels, *self.features, *self.singles.values()]
        return list(dict.fromkeys(wanted))

    @property
    def texts(self) -> list[str]:
        """The columns that may hold text."""
        labels = self.labels if len(self.labels) == 1 and self.kind != "mean" else []
        return [*labels, *(self.singles[k] for k in ("group", "id") if k in self.singles)]

    def batch(
        self, piece: pa.Table | pa.RecordBatch, widths: Mapping[str, int], first_row: int = 0
    ) -> Batch:
        """Make a batch; an error names the file, the column and the row counted from its start.

        `widths` says how long the lists of a column of lists must be.
        """
        try:
            for name in set(widths).intersection(self.needed):
                cells.require_width(cells.column_of(piece, name), widths[name], name, self.where)
            outputs = self.outputs_of(piece)
            return Batch.of(
                self.truth_of(piece, outputs),
                outputs,
                sample_weight=self.single(piece, "weight", is_text=False),
                features=self.matrix(piece, self.features) if self.features else None,
                ids=self.single(piece, "id", is_text=True),
                groups=self.single(piece, "group", is_text=True),
                caller=self.where,
            )
        except (BadValueError, BadTypeError) as error:
            raise self.located(error, first_row) from error

    def outputs_of(self, piece: pa.Table | pa.RecordBatch) -> AbstractOutputs:
        """Wrap the declared outputs of a piece."""
        if self.kind in ("logits", "probabilities"):
            wrapper = Logits if self.kind == "logits" else Probabilities
            return wrapper(self.matrix(piece, self.outputs), self.classes)
        first, second = (self.matrix(piece, [name])[:, 0] for name in self.outputs)
        return TopLabel(first, second) if self.kind == "confidence" else Normal(first, second)

    def truth_of(self, piece: pa.Table | pa.RecordBatch, outputs: AbstractOutputs) -> Any:
        """Return labels or targets of a piece; text is looked up a different value at a time."""
        if not self.labels:
            return None
        if len(self.labels) > 1:
            return self.matrix(piece, self.labels, has_missing=True)
        column = cells.column_of(piece, self.labels[0])
        if cells.is_list(column):
            return self.matrix(piece, self.labels)
        if not cells.is_text(column):
            return cells.numbers_or_missing(column)
        values, positions = cells.different_values(column)
        classes = getattr(outputs, "classes", None)
        if classes is None and not isinstance(outputs, Normal):
            classes = tuple(range(getattr(outputs, "n_classes", 0)))
        if classes is None:
            return cells.numbers(column, self.labels[0], self.where)
        if all(isinstance(name, int) for name in classes):
            values = [cells.whole_number(value) for value in values]
        codes = codes_of_names([*values, None], positions, classes, "y_true", self.where)
        return Labels(freeze(codes))

    def matrix(
        self, piece: pa.Table | pa.RecordBatch, names: list[str], has_missing: bool = False
    ) -> FloatArray:
        """Return columns of numbers, or one column of lists, side by side."""
        if len(names) == 1 and cells.is_list(column := cells.column_of(piece, names[0])):
            return cells.list_matrix(column, names[0], self.where)
        columns = [
            cells.numbers(cells.column_of(piece, name), name, self.where, has_missing)
            for name in names
        ]
        matrix = np.empty((piece.num_rows, len(names)), dtype=np.result_type(*columns))
        for k, values in enumerate(columns):
            matrix[:, k] = values
        return matrix

    def single(
        self, piece: pa.Table | pa.RecordBatch, role: str, *, is_text: bool
    ) -> NDArray[Any] | None:
        """Return the one column that plays a role, or None."""
        if role not in self.singles:
            return None
        name = self.singles[role]
        column = cells.column_of(piece, name)
        if is_text:
            return np.asarray(column.to_numpy(zero_copy_only=False))
        return cells.numbers(column, name, self.where)

    def located(
        self, error: BadValueError | BadTypeError, first_row: int
    ) -> BadValueError | BadTypeError:
        """Return the error in terms of the file: its column names, its rows."""
        wide = {"array": self.outputs, "features": self.features, "y_true": self.labels}
        narrow = {"confidence": 0, "mean": 0, "correct": 1, "std": 1}
        argument, column = error.argument, error.column
        if argument in wide and len(wide[argument]) == 1:
            argument = wide[argument][0]
        elif argument in wide and isinstance(column, int) and wide[argument]:
            argument, column = wide[argument][column], None
        elif argument in narrow and len(self.outputs) == 2:
            argument = self.outputs[narrow[argument]]
        elif argument == "sample_weight":
            argument = self.singles["weight"]
        elif wide.get(argument):
            argument = f"{wide[argument][0]}, ..., {wide[argument][-1]}"
        row = None if error.row is None else error.row + first_row
        return type(error)(argument, self.where, error.rule, error.got, error.fix, row, column)
