"""Columns found in a table, and how a piece of it becomes a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa

from dubito.arrays import FloatArray, freeze
from dubito.data import spelling
from dubito.data.batch import Batch
from dubito.data.cells import Cells, whole
from dubito.data.codes import codes_of, codes_of_values, names_of
from dubito.data.truth import Labels
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import (
    BaseClassOutputs,
    BaseOutputs,
    ClassName,
    Logits,
    Normal,
    Probabilities,
    TopLabel,
)

__all__ = ["BoundColumns"]

# What a batch calls them, and what they are called here.
ROLES = {
    "y_true": "label",
    "sample_weight": "weight",
    "ids": "id",
    "groups": "group",
    "amounts": "amount",
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class BoundColumns:
    """Columns found in a table: what to read, and how to make a batch of a piece of it.

    `found` holds the columns that play each role, `widths` how long the lists of a column are;
    `has_types` is False where text such as NA may stand for a gap.
    """

    where: str
    kind: str
    found: Mapping[str, Sequence[str]]
    classes: tuple[ClassName, ...] | None
    widths: Mapping[str, int] = field(default_factory=dict)
    has_types: bool = True

    @property
    def needed(self) -> list[str]:
        """All columns to read, each once."""
        return list(dict.fromkeys(name for columns in self.found.values() for name in columns))

    @property
    def n_entries(self) -> int:
        """How many values a row has in these columns."""
        return sum(self.widths.get(name, 1) for name in self.needed)

    @property
    def texts(self) -> list[str]:
        """The columns that may hold text."""
        roles = ["correct", "group", "id"]
        if self.kind != "mean" and len(self.found.get("label", ())) == 1:
            roles.append("label")
        return [name for role in roles for name in self.found.get(role, ())]

    def batch(self, piece: pa.Table, first_row: int = 0) -> Batch:
        """Make a batch; an error names the file, the column and the row counted from its start."""
        try:
            outputs = self.outputs(piece)
            has = self.found.__contains__
            return Batch.of(
                self.truth(piece, outputs),
                outputs,
                sample_weight=self.cells(piece, "weight").numbers() if has("weight") else None,
                features=self.matrix(piece, "features") if has("features") else None,
                ids=self.cells(piece, "id").values() if has("id") else None,
                groups=self.cells(piece, "group").values() if has("group") else None,
                amounts=self.cells(piece, "amount").numbers() if has("amount") else None,
                first_row=first_row,
            )
        except (BadValueError, BadTypeError) as error:
            raise self.located(error, first_row) from error

    def outputs(self, piece: pa.Table) -> BaseOutputs:
        """Wrap the declared outputs of a piece."""
        if self.kind == "logits":
            return Logits(self.matrix(piece, "logits"), self.classes)
        if self.kind == "probabilities":
            return Probabilities(self.matrix(piece, "probabilities"), self.classes)
        if self.kind == "confidence":
            confidence, correct = self.cells(piece, "confidence"), self.cells(piece, "correct")
            return TopLabel(confidence.numbers(), correct.shares())
        return Normal(self.cells(piece, "mean").numbers(), self.cells(piece, "std").numbers())

    def truth(self, piece: pa.Table, outputs: BaseOutputs) -> Any:
        """Return labels or targets of a piece; labels are looked up a different one at a time."""
        if "label" not in self.found:
            return None
        if len(self.found["label"]) > 1:
            return self.matrix(piece, "label", has_gaps=True)
        label = self.cells(piece, "label")
        if not isinstance(outputs, BaseClassOutputs):
            return label.numbers(has_gaps=True)
        if label.is_list:
            return label.matrix(outputs.n_classes, has_gaps=True)
        if label.is_whole_numbers and names_of(outputs) == tuple(range(outputs.n_classes)):
            numbers = label.numbers()
            return Labels(freeze(codes_of(numbers, outputs, label.name, self.where)))
        values, positions = label.different()
        gaps = frozenset() if self.has_types else spelling.GAPS
        values = spelling.labels(values, names_of(outputs), gaps)
        return Labels(freeze(codes_of_values(values, positions, outputs, label.name, self.where)))

    def cells(self, piece: pa.Table, role: str) -> Cells:
        """Return the cells of the one column that plays a role."""
        return Cells.of(piece, self.found[role][0], self.where)

    def matrix(self, piece: pa.Table, role: str, has_gaps: bool = False) -> FloatArray:
        """Return columns of numbers, or one column of lists, side by side."""
        columns = self.found[role]
        if columns[0] in self.widths:
            return self.cells(piece, role).matrix(self.widths[columns[0]])
        try:  # all at once, if they are plain numbers without gaps
            arrays = [whole(piece.column(name)) for name in columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
            return np.asarray(batch.to_tensor().to_numpy())
        except pa.ArrowException:
            cells = (Cells.of(piece, name, self.where) for name in columns)
            return np.stack([column.numbers(has_gaps=has_gaps) for column in cells], axis=1)

    def located(
        self, error: BadValueError | BadTypeError, first_row: int
    ) -> BadValueError | BadTypeError:
        """Return an error in terms of the file: its column names, its rows."""
        argument, column = error.argument, error.column
        if error.caller != self.where:
            argument, column = self.place(argument, column)
        row = None if error.row is None else error.row + first_row
        return type(error)(argument, self.where, error.rule, error.got, error.fix, row, column)

    def place(self, argument: str, column: str | int | None) -> tuple[str, str | int | None]:
        """Return which column an argument of a wrapper or batch is, and which entry of its list."""
        columns = self.found.get({**ROLES, "array": self.kind}.get(argument, argument), ())
        if not columns:
            return argument, column
        if len(columns) == 1:
            return columns[0], column if columns[0] in self.widths else None
        if isinstance(column, int):
            return columns[column], None
        return f"{columns[0]}, ..., {columns[-1]}", None
