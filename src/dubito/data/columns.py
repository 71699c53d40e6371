"""Which columns of a table mean what: declared, found in the table, and turned into a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pyarrow as pa

from dubito.arrays import FloatArray, freeze
from dubito.data import parsing as spelling
from dubito.data import patterns
from dubito.data.batch import Batch
from dubito.data.cells import Cells, whole
from dubito.data.labels import Labels, codes_of, codes_of_values, names_of
from dubito.data.patterns import Wanted
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

# What a batch calls them, and what they are called here.
ROLES = {
    "y_true": "label",
    "sample_weight": "weight",
    "ids": "id",
    "groups": "group",
    "row_costs": "amount",
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
                self.labels(piece, outputs),
                outputs,
                sample_weight=self.cells(piece, "weight").numbers() if has("weight") else None,
                features=self.matrix(piece, "features") if has("features") else None,
                ids=self.cells(piece, "id").values() if has("id") else None,
                groups=self.cells(piece, "group").values() if has("group") else None,
                row_costs=self.cells(piece, "amount").numbers() if has("amount") else None,
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

    def labels(self, piece: pa.Table, outputs: BaseOutputs) -> Any:
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


KINDS = ("logits", "probabilities", "confidence", "mean")
PARTNERS = {"confidence": "correct", "correct": "confidence", "mean": "std", "std": "mean"}
SEVERAL = ("logits", "probabilities", "label", "features")  # roles that many columns may play
SINGLE = ("confidence", "correct", "mean", "std", "weight", "group", "id", "amount")


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns mean what. What the numbers are is declared, never guessed.

    Exactly one of: `logits`; `probabilities`; `confidence` with `correct`; `mean` with `std`. The
    first two are one column (of lists, or of the positive class), a pattern with one `*`, whose
    columns come in natural order, or a list of columns. Classes are named by what `*` stands for,
    by the listed columns, or else by `classes`. `label` may be such a pattern too, of label
    probabilities; so may `features`. `amount` is what costs may grow with, such as a price.

    >>> Columns(label="y", logits="logit_*").bind(["y", "logit_10", "logit_9"], "f.csv").classes
    (9, 10)
    """

    label: Wanted | None = None
    logits: Wanted | None = None
    probabilities: Wanted | None = None
    confidence: str | None = None
    correct: str | None = None
    mean: str | None = None
    std: str | None = None
    weight: str | None = None
    features: Wanted | None = None
    group: str | None = None
    id: str | None = None
    amount: str | None = None
    classes: Sequence[ClassName] | None = None

    def bind(self, names: Sequence[str], where: str) -> BoundColumns:
        """Find these columns among those a table has; raise with what it has for one it lacks."""
        kind = self.kind(where)
        found = {
            role: patterns.matching(wanted, names, role, where)
            for role in SEVERAL + SINGLE
            if (wanted := getattr(self, role)) is not None
        }
        _require_apart(found, kind, where)
        classes = self.class_names(kind, found[kind], where)
        if self.label is not None and patterns.is_several(self.label):
            found["label"] = patterns.in_order_of(classes, self.label, found["label"], where)
        return BoundColumns(where, kind, found, classes)

    def kind(self, where: str) -> str:
        """Return which kind of outputs is declared."""
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        alone = [
            f"{one} without {other}"
            for one, other in PARTNERS.items()
            if getattr(self, one) is not None and getattr(self, other) is None
        ]
        if len(given) != 1 or alone:
            rule = "exactly one of logits, probabilities, confidence with correct, mean with std"
            got = " and ".join(alone or given) or "none of them"
            fix = "logits='logit_*' or probabilities='p_*'"
            raise BadValueError("columns", where, rule, got, fix)
        if given == ["confidence"] and self.label is not None:
            rule, fix = "left out beside confidence", "`correct` alone, which says what was right"
            raise BadValueError("label", where, rule, repr(self.label), fix)
        return given[0]

    def class_names(
        self, kind: str, outputs: list[str], where: str
    ) -> tuple[ClassName, ...] | None:
        """Return what the classes are called, by their columns or by `classes`."""
        wanted = getattr(self, kind)
        if kind in PARTNERS or not patterns.is_several(wanted):
            return _as_names(self.classes, where)
        if self.classes is not None:
            rule = "left out where columns are named after classes"
            got, fix = repr(list(self.classes)), "`classes` for a column of lists only"
            raise BadValueError("classes", where, rule, got, fix)
        if len(outputs) == 1:
            rule, got = "two columns or more", f"{outputs[0]!r} alone"
            fix = f"{kind}={outputs[0]!r} if it is of the positive class, or of lists"
            raise BadValueError(kind, where, rule, got, fix)
        return patterns.class_names(wanted, outputs)


def _as_names(classes: Any, where: str) -> tuple[ClassName, ...] | None:
    """Return the names of the entries of a column of lists."""
    if classes is None:
        return None
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        rule, fix = "a list of names", "classes=['cat', 'dog']"
        raise BadTypeError("classes", where, rule, repr(classes), fix)
    return tuple(classes)


def _require_apart(found: dict[str, list[str]], kind: str, where: str) -> None:
    """Raise unless single roles have one column each, and no output is anything else as well."""
    for role, columns in found.items():
        if role in SINGLE and len(columns) > 1:
            rule, fix = "one column", "the name of one of them"
            raise BadValueError(role, where, rule, ", ".join(columns), fix)
        shared = set(columns).intersection(found[kind]) if role != kind else set()
        if shared:
            rule = f"of other columns than the {kind}"
            fix = f"a pattern or list of {kind} that leaves it out"
            raise BadValueError(role, where, rule, repr(min(shared)), fix)
