"""The roles of the columns of a table: declared, matched, and turned into a batch."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, final

import numpy as np
import pyarrow as pa

from dubito.arrays import FloatArray, as_numbers, freeze, require_everywhere
from dubito.data import parsing, patterns
from dubito.data.batch import Batch
from dubito.data.cells import FIX, OTHER_COLUMN, Cells, is_text, whole
from dubito.data.expressions import Expression, quoted_name
from dubito.data.labels import (
    Labels,
    UncertainPolicy,
    codes_of,
    codes_of_values,
    make_label_matrix,
    names_of,
    require_policy,
)
from dubito.data.patterns import Wanted
from dubito.errors import BadTypeError, BadValueError
from dubito.formatting import join_words
from dubito.outputs import (
    BaseClassOutputs,
    BaseOutputs,
    ClassName,
    Logits,
    MultiLabel,
    Normal,
    Probabilities,
    Quantiles,
    RegressionMembers,
    Samples,
    Scores,
    TopLabel,
)

# The roles of columns by the arguments of `Batch.of`.
VALUES = {"ids": "id", "groups": "group", "current_actions": "current_action"}  # of any type
ROLES = {"y_true": "label", "sample_weight": "weight", **VALUES}


@final
@dataclass(frozen=True, slots=True, eq=False)
class BoundColumns:
    """The columns of a table by role, and how to make a batch of them.

    `found` holds the columns of each role, `widths` the lengths of list columns; `has_types` is
    False where text such as NA denotes a missing value, and `decimal` is the point or comma of
    numbers there. A row in which one of the `expressions` is undefined is a bad row. `levels` are
    those of quantiles.
    """

    declared: Columns
    where: str
    kind: str
    found: Mapping[str, Sequence[str]]
    classes: tuple[ClassName, ...] | None
    expressions: tuple[Expression, ...] = ()
    levels: tuple[float, ...] = ()
    widths: Mapping[str, int] = field(default_factory=dict)
    has_types: bool = True
    decimal: str = "."

    @property
    def keep(self) -> Mapping[str, pa.DataType | None]:
        """The further columns that batches hold, with their types."""
        return self.declared.keep

    @property
    def needed(self) -> list[str]:
        """All columns with a role, each once."""
        return list(dict.fromkeys(name for columns in self.found.values() for name in columns))

    @property
    def n_entries(self) -> int:
        """The number of values per row in these columns."""
        return sum(self.widths.get(name, 1) for name in self.needed)

    @property
    def texts(self) -> list[str]:
        """The columns that may hold text."""
        roles = ["correct", "group", "id", "current_action"]
        if self.kind not in REGRESSION:
            roles.append("label")
        texts = [name for role in roles for name in self.found.get(role, ())]
        has_role = set(self.needed)
        kept = {name for name, kind in self.keep.items() if kind is None or is_text(kind)}
        return texts + sorted(kept - has_role)

    def batch(self, piece: pa.Table, first_row: int = 0) -> Batch:
        """Return a batch; errors name the file, the column and the row within the file."""
        try:
            outputs = self.outputs(piece)
            values = {
                argument: self.cells(piece, role).values()
                for argument, role in VALUES.items()
                if role in self.found
            }
            if isinstance(outputs, Scores):  # which hold their groups
                values.pop("groups", None)
            batch = Batch.of(
                self.labels(piece, outputs),
                outputs,
                sample_weight=self.weights(piece),
                features=self.matrix(piece, "features") if "features" in self.found else None,
                row_costs=self.row_costs(piece) if "row_costs" in self.found else None,
                **values,
            )
            return replace(batch, kept=self.kept(piece) if self.keep else None, first_row=first_row)
        except (BadValueError, BadTypeError) as error:
            raise self.located(error, first_row) from error

    def weights(self, piece: pa.Table) -> FloatArray | None:
        """Return the weights of rows, 0 where it is not known whether a top label is correct."""
        weight = self.cells(piece, "weight").numbers() if "weight" in self.found else None
        if self.kind != "confidence":
            return weight
        is_blank = self.cells(piece, "correct").is_blank
        if not is_blank.any():
            return weight
        return np.where(is_blank, 0.0, 1.0 if weight is None else weight)

    def kept(self, piece: pa.Table) -> pa.Table:
        """Return the columns to keep; what a text file has as numbers is parsed if need be."""
        texts = set(self.texts)

        def column(name: str) -> Any:
            cells = piece.column(name)
            if self.has_types or name in texts or not is_text(cells.type):
                return cells
            return self.column(piece, name).parsed_numbers().cast(self.keep[name] or pa.float64())

        return pa.table({name: column(name) for name in self.keep})

    def outputs(self, piece: pa.Table) -> BaseOutputs:
        """Return the declared outputs of a piece."""
        if self.kind == "scores":
            return self.scores(piece)
        if self.kind == "confidence":
            confidence, correct = self.cells(piece, "confidence"), self.cells(piece, "correct")
            hits = correct.fractions(has_gaps=True)  # rows without have no weight
            return TopLabel(self.fractions(confidence.numbers()), np.nan_to_num(hits, nan=0.0))
        if self.kind == "mean":
            if len(self.found["mean"]) == 1 and self.found["mean"][0] not in self.widths:
                moments = (self.cells(piece, role).numbers() for role in ("mean", "std"))
                return Normal(*moments)
            # Validated as rows x members, so that errors name the row.
            members = Normal(self.matrix(piece, "mean"), self.matrix(piece, "std"))
            return RegressionMembers(members.mean.T, members.std.T)
        matrix = freeze(self.matrix(piece, self.kind))
        if self.kind == "probabilities":
            normalize = self.declared.normalize
            return Probabilities(self.fractions(matrix), self.classes, normalize=normalize)
        if self.kind == "quantiles":
            return Quantiles(matrix, self.levels, self.declared.rearrange)
        if self.kind == "samples":
            return Samples(matrix)
        names, columns = self.classes, tuple(self.found[self.kind])
        if names is None and self.kind in MULTI and not self.widths.keys() & set(columns):
            names = tuple(PREFIX.sub("", name) or name for name in columns)  # a single label
        if self.kind == "multilabel":
            return MultiLabel(self.fractions(matrix), names)
        make = MultiLabel.from_logits if self.kind == "multilabel_logits" else Logits
        return make(matrix, names)

    def scores(self, piece: pa.Table) -> Scores:
        """Return scores of answers, with their groups: these are pooled, and not left out whole."""
        names = list(self.found["scores"])
        [confidence] = self.found.get("confidence", (None,))
        matrix = self.matrix(piece, "scores", has_gaps=len(names) > 1).astype(np.float64)
        if confidence is not None:
            place = names.index(confidence)
            matrix[:, place] = self.fractions(matrix[:, place])
        for name, column in zip(names, matrix.T, strict=True):
            is_missing, is_fraction = np.isnan(column), (column >= 0) & (column <= 1)
            if name in self.declared.known_scores:
                rule, fix = "was never missing during fit", "Leave the row out"
                require_everywhere(~is_missing, column, name, self.where, rule, fix)
            if name in self.declared.fraction_scores and name != confidence:
                rule = "must be between 0 and 1, as during fit"
                fix, is_fine = "Write fractions, as for the fit", is_missing | is_fraction
                require_everywhere(is_fine, column, name, self.where, rule, fix)
        groups = self.cells(piece, "group").values() if "group" in self.found else None
        return Scores(freeze(matrix), names, groups, confidence)

    def row_costs(self, piece: pa.Table) -> dict[str, FloatArray]:
        """Return the columns that costs depend on, for which all expressions are defined."""
        names = self.found["row_costs"]
        found = {name: self.column(piece, name).numbers() for name in names}
        columns = {name: as_numbers(values, name, self.where) for name, values in found.items()}
        for one in self.expressions:
            one.evaluate(columns, piece.num_rows, "")
        return columns

    def fractions(self, numbers: FloatArray) -> FloatArray:
        """Return percentages as fractions, and fractions unchanged."""
        return freeze(numbers / 100) if self.declared.percent else numbers

    def labels(self, piece: pa.Table, outputs: BaseOutputs) -> Any:
        """Return the labels or targets of a piece; each distinct label is looked up once."""
        if isinstance(outputs, Scores) and "correct" in self.found:
            return self.cells(piece, "correct").fractions(has_gaps=True)
        if "label" not in self.found:
            return None
        if isinstance(outputs, MultiLabel):
            marks = self.label_marks(piece, outputs.n_labels)
            return make_label_matrix(marks, outputs, "y_true", "", self.declared.uncertain)
        if len(self.found["label"]) > 1:
            try:
                return self.matrix(piece, "label", has_gaps=True)
            except BadValueError as error:
                if error.rule != "must be numbers":
                    raise
                fix = "Pass multilabel='p_*' if several labels may apply to a row"
                raise error.moved(fix=f"{fix}, or one label column") from error
        label = self.cells(piece, "label")
        if not isinstance(outputs, BaseClassOutputs):
            return label.numbers(has_gaps=True)
        if label.is_list:
            return label.matrix(outputs.n_classes, has_gaps=True)
        if label.is_whole_numbers and names_of(outputs) == tuple(range(outputs.n_classes)):
            return Labels(freeze(codes_of(label.numbers(), outputs, label.name, self.where)))
        values, positions = label.distinct()
        gaps = frozenset() if self.has_types else parsing.GAPS
        values = parsing.labels(values, names_of(outputs), gaps)
        return Labels(freeze(codes_of_values(values, positions, outputs, label.name, self.where)))

    def label_marks(self, piece: pa.Table, n_labels: int) -> FloatArray:
        """Return several labels per row, NaN where unknown and -1 where uncertain."""
        if self.found["label"][0] in self.widths:
            return self.cells(piece, "label").matrix(n_labels, has_gaps=True)
        names = self.found["label"]
        if len(names) == 1 < n_labels:
            rule, fix = f"must be one column for each of {n_labels} labels", "Pass label='y_*'"
            raise BadValueError("label", self.where, rule, f"{names[0]!r} alone", fix)
        is_allowed = self.declared.uncertain is not None
        columns = (self.column(piece, one) for one in names)
        return np.stack([one.marks(can_be_uncertain=is_allowed) for one in columns], axis=1)

    def cells(self, piece: pa.Table, role: str) -> Cells:
        """Return the cells of the column of a role."""
        return self.column(piece, self.found[role][0])

    def column(self, piece: pa.Table, name: str) -> Cells:
        """Return the cells of a column."""
        return Cells.of(piece, name, self.where, self.decimal)

    def matrix(self, piece: pa.Table, role: str, has_gaps: bool = False) -> FloatArray:
        """Return columns of numbers, or one column of lists, as a matrix."""
        columns = self.found[role]
        if columns[0] in self.widths:
            return self.cells(piece, role).matrix(self.widths[columns[0]])
        try:  # all at once, if they are numbers without nulls
            arrays = [whole(piece.column(name)) for name in columns]
            batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
            return np.asarray(batch.to_tensor().to_numpy())
        except pa.ArrowException:
            cells = (self.column(piece, name) for name in columns)
            return np.stack([one.numbers(has_gaps=has_gaps) for one in cells], axis=1)

    def located(
        self, error: BadValueError | BadTypeError, first_row: int
    ) -> BadValueError | BadTypeError:
        """Return an error in terms of the file, its columns and its rows."""
        argument, column = error.argument, error.column
        if error.caller != self.where:
            argument, column = self.place(argument, column)
        row = None if error.row is None else error.row + first_row
        # What helps with an array is no option of a command.
        fix = FIX if error.fix.startswith("Set a floor") else error.fix
        return error.moved(argument=argument, caller=self.where, row=row, column=column, fix=fix)

    def of_text(self, error: BadValueError) -> BadValueError:
        """Return the error for a column of text in terms of its role, and others unchanged."""
        roles = [role for role, names in self.found.items() if error.argument in names]
        if error.fix != OTHER_COLUMN or not roles:
            return error
        role = roles[0]
        what, fix = role, f"Pass {role} with a column of numbers"
        if role == "row_costs":
            what, fix = "used by the costs", "Name a column of numbers in the costs"
        where = f"{error.caller}, column `{error.argument}` ({what})"
        return BadValueError("", where, f"holds text such as {error.got}, not numbers", "", fix)

    def place(self, argument: str, column: str | int | None) -> tuple[str, str | int | None]:
        """Return the column of an argument of outputs or a batch, and the entry of its list."""
        roles = {**ROLES, "array": self.kind, "logits": self.kind}
        if self.kind == "scores":
            roles["y_true"] = "correct"
        columns = self.found.get(roles.get(argument, argument), ())
        if not columns:
            return argument, column
        if len(columns) == 1:
            return columns[0], column if columns[0] in self.widths else None
        if isinstance(column, int):
            return columns[column], None
        return f"{columns[0]}, ..., {columns[-1]}", None


PREFIX = re.compile(r"^(p|prob|z|logit)_")  # of a column that is named after its label
MULTI = ("multilabel", "multilabel_logits")
REGRESSION = ("mean", "quantiles", "samples")
KINDS = ("logits", "probabilities", *MULTI, "confidence", "scores", *REGRESSION)
# Options of some kinds of outputs, and what these are called.
OPTIONS = (
    ("normalize", ("probabilities",), "probabilities"),
    ("rearrange", ("quantiles",), "quantiles"),
    ("levels", ("quantiles",), "quantiles"),
    ("uncertain", MULTI, "multilabel outputs"),
    (
        "percent",
        ("probabilities", "multilabel", "confidence"),
        "probabilities, multilabel or confidence",
    ),
)
PARTNERS = {"confidence": "correct", "correct": "confidence", "mean": "std", "std": "mean"}
# Roles of one or more columns, and of one each.
SEVERAL = ("logits", "probabilities", *MULTI, "scores", *REGRESSION, "std", "label", "features")
SINGLE = ("confidence", "correct", "weight", "group", "id", "current_action")


@final
@dataclass(frozen=True, slots=True)
class Columns:
    """The roles of the columns of a table. What the numbers are is declared, never guessed.

    Exactly one of `logits`, `probabilities`, `multilabel`, `multilabel_logits`, `confidence` with
    `correct`, `scores`, `mean` with `std`, `quantiles` and `samples` is required.

    Parameters
    ----------
    label : str or list of str, optional
        Labels or targets; a pattern or list selects label probabilities, or several labels per row
        of the same names as `multilabel`: 0, 1, a probability, blank where unknown, u or -1 where
        uncertain.
    logits, probabilities : str or list of str, optional
        One column (of lists, or of the positive class), a pattern with one `*`, whose columns come
        in natural order, or a list of columns. Classes are named by what `*` matches, or by the
        listed columns.
    multilabel, multilabel_logits : str or list of str, optional
        Probabilities or log odds of several labels per row, selected in the same way.
    only_labels : sequence of str, optional
        The labels to read, in this order, of those that `multilabel` selects. Default: all.
    uncertain : {"ignore", "zeros", "ones", "multi-class"} or float, optional
        How uncertain labels are treated, as in `LabelMatrix.of`; None raises an error.
    confidence, correct : str, optional
        The confidence in the predicted class, and whether it was correct: 0, 1, true, false or a
        fraction. With `scores`, the confidence is the one of them that is a probability, and
        `correct` may be blank, or None for new rows.
    scores : str or list of str, optional
        Scores of any range that tell how likely an answer is correct, selected like `logits`. Of
        several, cells may be blank. `group` is then what `ConfidenceCalibrator` pools partially.
    known_scores, fraction_scores : sequence of str, optional
        Scores that must not be blank, and those that must be between 0 and 1, as during a fit.
    mean, std : str or list of str, optional
        Mean and standard deviation of a regression; several of each (patterns, lists of columns,
        or columns of lists) are the members of an ensemble.
    quantiles : str or list of str, optional
        Quantiles of a regression: a pattern, a list of columns, or one column of lists.
    levels : sequence of float, optional
        The levels of the quantiles, in the order of the columns of the file, of a list, or of the
        entries of lists. Default: from the names of the columns (`q_0.05`, `q05`, `q_5`, ...).
    rearrange : bool, default=False
        Sort the quantiles of rows in which they cross.
    samples : str or list of str, optional
        Draws from the predictive distribution of a regression, selected like `quantiles`.
    weight, group, id : str, optional
        Frequency weights, groups and identifiers.
    features : str or list of str, optional
        Features, for out-of-distribution scores.
    row_costs : str or list of str, optional
        Columns that costs depend on, or the expressions of these columns in the costs: a row in
        which one of them is undefined counts as a bad row.
    current_action : str, optional
        The action that was taken, to compare a policy with.
    classes : sequence of str or number, optional
        The names of the classes of a single column.
    normalize : bool, default=False
        Divide each row of `probabilities` by its sum, if they were rounded.
    percent : bool, default=False
        `probabilities` or `confidence` are percentages, from 0 to 100.
    keep : mapping of str to pyarrow.DataType, optional
        Further columns that each batch holds as they are (`Batch.kept`), to be written beside
        results, by the type they are cast to; None leaves the type of the file.

    Examples
    --------
    >>> from dubito.data import Columns
    >>> Columns(label="y", logits="logit_*").bind(["y", "logit_10", "logit_9"], "f.csv").classes
    (9, 10)
    """

    label: Wanted | None = None
    logits: Wanted | None = None
    probabilities: Wanted | None = None
    multilabel: Wanted | None = None
    multilabel_logits: Wanted | None = None
    only_labels: Sequence[ClassName] | None = None
    uncertain: UncertainPolicy | None = None
    confidence: str | None = None
    correct: str | None = None
    scores: Wanted | None = None
    known_scores: Sequence[str] = ()
    fraction_scores: Sequence[str] = ()
    mean: Wanted | None = None
    std: Wanted | None = None
    quantiles: Wanted | None = None
    levels: Sequence[float] | None = None
    rearrange: bool = False
    samples: Wanted | None = None
    weight: str | None = None
    features: Wanted | None = None
    group: str | None = None
    id: str | None = None
    row_costs: Wanted | None = None
    current_action: str | None = None
    classes: Sequence[ClassName] | None = None
    normalize: bool = False
    percent: bool = False
    keep: Mapping[str, pa.DataType | None] = field(default_factory=dict)

    def bind(self, names: Sequence[str], where: str = "the table") -> BoundColumns:
        """Return these columns found among the names of a table.

        Parameters
        ----------
        names : sequence of str
            The columns of the table.
        where : str, default="the table"
            The name of the table, such as a file.

        Returns
        -------
        BoundColumns
            The columns of each role by name, ready to decode tables with.
        """
        kind = self._kind(where)
        found = {
            role: patterns.matching(wanted, names, role, where)
            for role in SEVERAL + SINGLE
            if (wanted := getattr(self, role)) is not None
        }
        if kind == "scores":
            found[kind] = list(dict.fromkeys([*found.get("confidence", ()), *found[kind]]))
        given = [self.row_costs] if isinstance(self.row_costs, str) else self.row_costs or ()
        # The name of a column stands for itself.
        texts = [quoted_name(one) if one in names else str(one) for one in given]
        expressions = tuple(Expression.parse(one, "row_costs", where) for one in texts)
        if self.row_costs is not None:
            needed = list(dict.fromkeys(name for one in expressions for name in one.columns))
            found["row_costs"] = patterns.matching(needed, names, "row_costs", where)
        _require_apart(found, kind, where)
        if self.only_labels is not None:
            found[kind] = self._selected(kind, found[kind], where)
        levels: tuple[float, ...] = ()
        if kind == "quantiles":
            found[kind], levels = self._leveled(found[kind], names, where)
        if kind == "mean" and len(found["mean"]) + len(found["std"]) > 2:
            found["std"] = self._paired_stds(found["mean"], found["std"], where)
        classes = self._class_names(kind, found[kind], where)
        if kind in REGRESSION and len(found.get("label", ())) > 1:
            rule, got = "must be one column for a regression", ", ".join(found["label"][:4])
            raise BadValueError("label", where, rule, got, "Pass one column of targets")
        if self.label is not None and patterns.is_several(self.label) and kind not in REGRESSION:
            noun = "label" if kind in MULTI else "class"
            labels, is_part = found["label"], self.only_labels is not None
            found["label"] = patterns.in_order_of(
                classes, self.label, labels, where, noun, is_part=is_part
            )
        for name in self.keep:
            if name not in names:
                patterns.matching(name, names, "keep", where)  # raises, and names the nearest
        return BoundColumns(self, where, kind, found, classes, expressions, levels)

    def _leveled(
        self, columns: list[str], names: Sequence[str], where: str
    ) -> tuple[list[str], tuple[float, ...]]:
        """Return the columns of quantiles by increasing level, and the levels."""
        wanted = self.quantiles
        assert wanted is not None
        if isinstance(wanted, str):
            columns = sorted(columns, key=list(names).index)
        if self.levels is None:
            if not patterns.is_several(wanted):
                rule, got = "must be given for a single column", "None"
                fix = "Pass a pattern such as 'q_*', or levels=[0.05,0.5,0.95] for lists"
                raise BadValueError("levels", where, rule, got, fix)
            levels = patterns.levels_of(wanted, columns, where)
        else:
            levels = tuple(float(one) for one in self.levels)
        if not patterns.is_several(wanted):
            return columns, levels
        if len(levels) != len(columns):
            rule, got = f"must be {len(columns)} numbers, one per column", f"{len(levels)}"
            fix = f"Pass levels=[...] for {', '.join(columns[:4])}{', ...' * (len(columns) > 4)}"
            raise BadValueError("levels", where, rule, got, fix)
        for level, column in zip(levels, columns, strict=True):
            if not 0 < level < 1:
                rule, got = "must be between 0 and 1", f"{level:g} for {column!r}"
                fix = "Pass fractions, e.g. levels=[0.05,0.5,0.95]"
                raise BadValueError("levels", where, rule, got, fix)
        pairs = sorted(zip(levels, columns, strict=True), key=lambda pair: pair[0])
        for (one, first), (other, second) in pairwise(pairs):
            if one == other:
                rule, got = "must be different", f"{one:g} for {first!r} and {second!r}"
                fix = "Leave one of the columns out, or pass levels=[...] in their order"
                raise BadValueError("levels", where, rule, got, fix)
        return [column for _, column in pairs], tuple(level for level, _ in pairs)

    def _paired_stds(self, means: list[str], stds: list[str], where: str) -> list[str]:
        """Return the columns of standard deviations in the order of the means of members."""
        assert self.mean is not None
        assert self.std is not None
        ordered = stds
        if all(isinstance(one, str) and "*" in one for one in (self.mean, self.std)):
            members = patterns.class_names(self.mean, means)
            ordered = patterns.named_columns(members, self.std, stds, where, "standard deviations")
        if len(means) != len(stds):
            rule, got = f"must have one column for each of {len(means)} means", f"{len(stds)}"
            fix = "Pass columns of the same members, such as mean='mean_*', std='std_*'"
            raise BadValueError("std", where, rule, got, fix)
        return ordered

    def _selected(self, kind: str, columns: list[str], where: str) -> list[str]:
        """Return the columns of the labels to read."""
        wanted = getattr(self, kind)
        if kind not in MULTI or not patterns.is_several(wanted):
            rule, fix = "requires several columns of multilabel outputs", "Leave it out"
            raise BadValueError("only_labels", where, rule, f"{kind}={wanted!r}", fix)
        return patterns.named_columns(self.only_labels or (), wanted, columns, where, "outputs")

    def _kind(self, where: str) -> str:
        """Return the declared kind of outputs, one of `KINDS`."""
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        alone = [
            f"{one} without {other}"
            for one, other in PARTNERS.items()
            if getattr(self, one) is not None and getattr(self, other) is None
        ]
        if self.scores is not None:  # the confidence is one of them, and new rows have no `correct`
            given = [kind for kind in given if kind != "confidence"]
            alone = [one for one in alone if not one.startswith(("confidence", "correct"))]
        if len(given) != 1 or alone:
            rule = (
                "must have exactly one of logits, probabilities, multilabel, multilabel_logits, "
                "confidence with correct, scores, mean with std, quantiles, and samples"
            )
            got = " and ".join(alone or given) or "none of them"
            fix = "Pass logits='logit_*' or probabilities='p_*'"
            raise BadValueError("columns", where, rule, got, fix)
        [kind] = given
        if self.uncertain is not None:
            require_policy(self.uncertain, where)
        for option, kinds, what in OPTIONS:
            is_set = all(getattr(self, option) is not unset for unset in (None, False))
            has_confidence = option == "percent" and self.confidence is not None
            if is_set and kind not in kinds and not has_confidence:
                got = f"{self.uncertain} with {kind}" if option == "uncertain" else kind
                raise BadValueError(option, where, f"requires {what}", got, "Leave it out")
        if kind in ("confidence", "scores") and self.label is not None:
            rule, fix = f"cannot be combined with {kind}", "Use `correct` only"
            raise BadValueError("label", where, rule, repr(self.label), fix)
        return kind

    def _class_names(
        self, kind: str, outputs: list[str], where: str
    ) -> tuple[ClassName, ...] | None:
        """Return the names of the classes, from their columns or from `classes`."""
        wanted = getattr(self, kind)
        if kind in REGRESSION and self.classes is not None:
            rule, got = "cannot be used for a regression", repr(list(self.classes))
            raise BadValueError("classes", where, rule, got, "Leave it out")
        if kind in (*REGRESSION, "confidence", "scores") or not patterns.is_several(wanted):
            if isinstance(self.classes, str) or not isinstance(self.classes, Sequence | None):
                rule, fix = "must be a list of names", "Pass classes=['cat', 'dog']"
                raise BadTypeError("classes", where, rule, repr(self.classes), fix)
            return None if self.classes is None else tuple(self.classes)
        if self.classes is not None:
            rule = "applies to a single list column; the names of "
            rule += f"{join_words(outputs, 4)} already state the classes"
            raise BadValueError("classes", where, rule, "", "Leave out `classes`")
        if len(outputs) == 1 and kind not in MULTI:
            rule, got = "must match at least 2 columns", f"{outputs[0]!r} only"
            fix = f"Pass {kind}={outputs[0]!r} if it holds the positive class, or lists"
            raise BadValueError(kind, where, rule, got, fix)
        return patterns.class_names(wanted, outputs)


def _require_apart(found: dict[str, list[str]], kind: str, where: str) -> None:
    """Raise unless single roles have one column each, and outputs have no other role."""
    for role, columns in found.items():
        if role in SINGLE and len(columns) > 1:
            rule, fix = "must be one column", "Name one of them"
            raise BadValueError(role, where, rule, ", ".join(columns), fix)
        is_own = role in (kind, "row_costs") or (kind == "scores" and role == "confidence")
        shared = set() if is_own else set(columns).intersection(found[kind])
        if shared:
            rule = f"must not be one of the columns of {kind}"
            fix = f"Use a pattern or list for {kind} that excludes it"
            raise BadValueError(role, where, rule, repr(min(shared)), fix)
