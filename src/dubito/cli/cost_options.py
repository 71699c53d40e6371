"""The cost options of a command: of classes, of several labels per row, and of a regression."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple, final

from dubito.cli.options import OptionGroup, flag, join_choices, numbers_in
from dubito.cli.printing import put
from dubito.cli.reading import is_number_text, nearest_first
from dubito.errors import BadFileError, BadValueError

if TYPE_CHECKING:
    from dubito.decide import CostMatrix, ErrorCosts, FBeta, LabelCosts
    from dubito.outputs import BaseClassOutputs, BaseOutputs

EVERY = "*"
SPELLINGS = {"0": 0, "0.0": 0, "false": 0, "1": 1, "1.0": 1, "true": 1}
REVIEWS = {"review", "manual review", "human", "escalate", "abstain", "refer", "defer"}


class CostCell(NamedTuple):
    """What one `--cost` option gives: a cost for an action in a class, or in every class."""

    action: str
    class_: str
    cost: str


@final
@dataclass(frozen=True, eq=False)
class CostOptions:
    """The options of a command that define its costs."""

    file: Path | None = None
    cells: tuple[str, ...] = ()
    reject_cost: str | None = None
    reject_action: str | None = None

    @property
    def is_given(self) -> bool:
        """Whether there are costs other than 0-1 costs."""
        return self.file is not None or bool(self.cells)

    def __str__(self) -> str:
        pairs = [("--costs", self.file), *(("--cost", one) for one in self.cells)]
        pairs += [("--reject-cost", self.reject_cost), ("--reject-action", self.reject_action)]
        return " ".join(f"{name} {quote(str(one))}" for name, one in pairs if one is not None)

    @cached_property
    def matrix(self) -> CostMatrix | None:
        """The cost matrix of the file, if there is one."""
        if self.file is None:
            return None
        from dubito.decide import CostMatrix  # only now: it takes as long as an audit

        is_json = self.file.suffix.lower() == ".json"
        return CostMatrix.from_json(self.file) if is_json else CostMatrix.from_csv(self.file)

    @cached_property
    def parsed(self) -> list[CostCell]:
        """The single cells."""
        return [_parse_cell(text) for text in self.cells]

    @property
    def can_reject(self) -> bool:
        """Whether there will be a reject action."""
        if self.reject_cost is not None or self.reject_action is not None:
            return True
        of_file = None if self.matrix is None else self.matrix.reject
        return of_file is not None or any(cell.action == "reject" for cell in self.parsed)

    @property
    def expressions(self) -> tuple[str, ...]:
        """The expressions of columns, which decide on the columns to read."""
        from dubito.data.expressions import Expression

        texts = [("--cost", cell.cost) for cell in self.parsed]
        texts += [] if self.reject_cost is None else [("--reject-cost", self.reject_cost)]
        for option, text in texts:
            if is_number_text(text) and not isfinite(float(text)):
                example = "0.3" if option == "--reject-cost" else "'pass,fraud=5'"
                rule, fix = "must be finite", f"Pass e.g. {option} {example}"
                raise BadValueError("", option, rule, text, fix)
        known = [] if self.matrix is None else list(self.matrix.expressions)
        known += [Expression.parse(text, option, "dubito") for option, text in texts]
        return tuple(dict.fromkeys(str(one) for one in known if one.columns))

    def read(self, outputs: BaseOutputs) -> CostMatrix:
        """Return the cost matrix for the classes of outputs; with single cells it is printed."""
        from dubito.data.labels import names_of
        from dubito.decide import CostMatrix
        from dubito.outputs import BaseClassOutputs, Scores

        if not isinstance(outputs, BaseClassOutputs):
            rule, got = "needs outputs over classes", type(outputs).__name__
            raise BadValueError("", "--costs", rule, got, "Pass --logits or --probabilities")
        adds_reject = self.reject_cost is not None
        if not self.is_given and self.reject_action is not None and not adds_reject:
            rule, fix = "requires --costs", "Pass --costs, or --reject-cost 0.3 as well"
            got = f"{self.reject_action} alone"
            raise BadValueError("", "--reject-action", rule, got, fix)
        names, costs = names_of(outputs), self.matrix
        if costs is None and self.cells:
            actions = dict.fromkeys(cell.action for cell in self.parsed)
            costs = CostMatrix([[0.0] * len(names)] * len(actions), actions, names)
        elif costs is None:
            is_scores = isinstance(outputs, Scores)
            costs = CostMatrix.for_answers() if is_scores else CostMatrix.zero_one(names)
        if costs.classes is not None:
            costs = self._in_order_of(outputs, costs)
        reject = self.reject_action or costs.reject_name
        is_known = reject is not None and reject in costs.actions
        if reject is not None and not (is_known or adds_reject):
            rule = f"must be one of the actions ({', '.join(costs.actions)})"
            fix = f"Pass --reject-action {nearest_first(reject, costs.actions[::-1])[0]}"
            raise BadValueError("", "--reject-action", rule, repr(reject), fix)
        if adds_reject and is_known:
            rule = f"cannot be added to costs that reject with '{reject}'"
            fix = f"Drop --reject-cost, or remove '{reject}' from the costs"
            raise BadValueError("", "--reject-cost", rule, f"{self.reject_cost}", fix)
        classes = [str(name) for name in costs.classes or names]
        table: list[list[Any]] = costs.texts
        for cell in self.parsed:
            row = _position(cell.action, costs.actions, "action", self.file)
            if cell.class_ == EVERY:
                table[row] = [cell.cost] * len(classes)
            else:
                table[row][_position(cell.class_, classes, "class", None)] = cell.cost
        known = reject if is_known else None
        costs = CostMatrix(table, costs.actions, costs.classes, reject=known, reviews=costs.reviews)
        if self.reject_cost is not None:
            costs = costs.with_reject(_as_reject_cost(self.reject_cost), reject or "reject")
        if self.cells:
            put(cost_table(costs, classes), is_error=True)
        return costs

    def _in_order_of(self, outputs: BaseClassOutputs, costs: CostMatrix) -> CostMatrix:
        """Return costs with columns in the order of the outputs, matched by name, or raise.

        Outputs without names are of the classes 0, 1, ...; never matched by position.
        """
        from dubito.data.labels import names_of
        from dubito.decide import CostMatrix
        from dubito.decide.costs import class_order

        names = tuple(names_of(outputs))
        found = costs.classes or ()
        if outputs.classes is None and len(found) == 2:
            found = tuple(SPELLINGS.get(str(name).lower(), name) for name in found)
        if class_order(found, names) is None:
            whose = "labels" if outputs.classes is None else "outputs"
            wanted, got = (", ".join(map(str, one[:8])) for one in (names, costs.classes or ()))
            rule = f"must have the classes {wanted} (those of the {whose})"
            fix = f"Name the classes as in the {whose}"
            if len(found) != len(names):
                fix = "Write one column per class (with `truth` in the first header cell, one row)"
            raise BadValueError("", f"--costs {self.file}", rule, got, fix)
        renamed = CostMatrix(
            costs.cells, costs.actions, found, reject=costs.reject_name, reviews=costs.reviews
        )
        return renamed.for_classes(names, len(names))


def _parse_cell(text: str) -> CostCell:
    """Return the parts of ACTION,CLASS=COST; names with commas are in double quotes.

    >>> _parse_cell("block, legit = 2 * fee")
    CostCell(action='block', class_='legit', cost='2 * fee')
    """
    names, sign, cost = text.partition("=")
    cells = next(csv.reader([names.strip()], skipinitialspace=True), [])
    if not sign or len(cells) != 2 or not all(cell.strip() for cell in cells):
        rule, fix = "must be ACTION,CLASS=COST", "Pass e.g. --cost 'pass,fraud=amount'"
        raise BadValueError("", "--cost", rule, repr(text), fix)
    action, class_ = cells
    return CostCell(action.strip(), class_.strip(), cost.strip())


def _position(name: str, names: Any, kind: str, file: Path | None) -> int:
    """Return the position of an action or a class among those that are known."""
    if name not in names:
        where = "" if file is None else f" in {file}"
        rule = f"must name an {kind}{where}" if kind == "action" else f"must name a {kind}"
        fix = f"Use one of {', '.join(names[:8])}"
        raise BadValueError("", "--cost", rule, repr(name), fix)
    return int(list(names).index(name))


def _as_reject_cost(text: str) -> float | str:
    """Return the cost of rejecting: a number of at least 0, or an expression."""
    try:
        cost = float(text)
    except ValueError:
        return text
    if not cost >= 0:
        rule, fix = "must be at least 0", "Pass --reject-cost 0.3"
        raise BadValueError("", "--reject-cost", rule, text, fix)
    return cost


def review_hint(costs: CostMatrix) -> str | None:
    """Return which option is missing if an action sounds like a review and none rejects.

    >>> from dubito.decide import CostMatrix
    >>> review_hint(CostMatrix([[0, 9], [2, 2]], ["pass", "review"])).partition(" if ")[0]
    "'review' is treated as an automatic decision; pass --reject-action review"
    """
    found = [name for name in costs.actions if name.strip().lower() in REVIEWS]
    if costs.reject is not None or not found:
        return None
    return (
        f"'{found[0]}' is treated as an automatic decision; pass --reject-action {quote(found[0])} "
        "if it sends rows to human review."
    )


def cost_table(costs: CostMatrix, classes: list[str]) -> str:
    """Return a cost matrix as a table of text.

    >>> from dubito.decide import CostMatrix
    >>> costs = CostMatrix([[0, "amount"], ["fee", 0]], ["pass", "block"])
    >>> print(cost_table(costs, ["legit", "fraud"]))
    Costs by action and class:
             legit   fraud
      pass       0  amount
      block    fee       0
    """
    from dubito.formatting import align_table

    table = [["", *classes]]
    for name, row in zip(costs.actions, costs.texts, strict=True):
        table.append([name, *(one if isinstance(one, str) else f"{one:g}" for one in row)])
    lines = [line.rstrip() for line in align_table(table)]
    return "\n  ".join(["Costs by action and class:", *lines])


LABEL_COSTS = ("false_positive", "false_negative", "review_label", "review_row")


@final
@dataclass(frozen=True, slots=True)
class LabelOptions(OptionGroup):
    """The options that only several labels per row have; None for those that were not given.

    Several labels per row
    ----------------------
    false_positive
        Cost of a false positive. Default: 1.
    false_negative
        Cost of a false negative. Default: 1.
    review_label
        Cost of reviewing one label.
    review_row
        Cost of reviewing a row with all of its labels.
    f_beta
        Maximize F-beta instead, e.g. 1 for F1.
    average
        What --f-beta averages: macro, micro or samples. Default: macro.
    """

    false_positive: float | None = None
    false_negative: float | None = None
    review_label: float | None = None
    review_row: float | None = None
    f_beta: float | None = None
    average: str | None = None

    def read(self, file: Path | None) -> dict[str, LabelCosts | FBeta]:
        """Return the costs, or the score, as arguments of a fit; `file` has costs by label."""
        from dubito.decide import FBeta, LabelCosts
        from dubito.decide.multilabel.label_costs import AVERAGES

        costs = {name: value for name, value in self.given.items() if name in LABEL_COSTS}
        for name, value in costs.items():
            if not 0 < value < float("inf"):
                fix = f"Pass {flag(name)} 0.5"
                raise BadValueError("", flag(name), "must be above 0", f"{value:g}", fix)
        if self.average is not None and self.average not in AVERAGES:
            rule, fix = f"must be {join_choices(AVERAGES)}", "Pass --average macro"
            raise BadValueError("", "--average", rule, self.average, fix)
        if self.f_beta is None:
            if self.average is not None:
                rule, fix = "requires --f-beta", "Pass --f-beta 1"
                raise BadValueError("", "--average", rule, f"{self.average} alone", fix)
            given = {name.removesuffix("_label"): value for name, value in costs.items()}
            found = LabelCosts(**given) if file is None else LabelCosts.from_csv(file, **given)
            return {"costs": found}
        others = [*map(flag, costs), *["--costs"] * (file is not None)]
        if others:
            rule, fix = "cannot be combined with costs", f"Leave out {' and '.join(others)}"
            raise BadValueError("", "--f-beta", rule, " and ".join(others), fix)
        return {"f_beta": FBeta(self.f_beta, self.average or "macro")}


@final
@dataclass(frozen=True, slots=True)
class ValueOptions(OptionGroup):
    """The options that only policies of a regression have; None for those that were not given.

    Regression
    ----------
    cost_under
        Cost per unit of deciding below the true value (newsvendor: underage, a lost sale).
    cost_over
        Cost per unit of deciding above the true value (newsvendor: overage, a leftover).
    cost_squared
        Cost of a squared error of 1, instead of costs per unit: the mean is optimal.
    values
        The only values that may be decided, e.g. 0,12,24 for boxes of 12.
    review_cost
        Cost of a human review (assumed to be correct).
    max_width
        Review rows whose interval is wider than this.
    max_relative_width
        Review rows whose interval is wider than this multiple of the prediction.
    interval
        Coverage of the prediction intervals. Default: 0.9.
    """

    cost_under: float | None = None
    cost_over: float | None = None
    cost_squared: float | None = None
    values: str | None = None
    review_cost: float | None = None
    max_width: float | None = None
    max_relative_width: float | None = None
    interval: float | None = None

    def read(self, file: Path | None) -> dict[str, Any]:
        """Return the costs and limits as arguments of a fit; `file` has costs by error."""
        numbers = {name: value for name, value in self.given.items() if name != "values"}
        limits = {name: one for name, one in numbers.items() if not name.startswith("cost_")}
        for name, value in numbers.items():
            rule, highest, example = "must be above 0", float("inf"), "1"
            if name == "interval":
                rule, highest, example = "must be between 0 and 1", 1.0, "0.9"
            if not 0 < value < highest:
                fix = f"Pass {flag(name)} {example}"
                raise BadValueError("", flag(name), rule, f"{value:g}", fix)
        for limit in ("max_width", "max_relative_width"):
            if limit in limits and self.review_cost is None:
                rule, fix = "requires --review-cost", "Pass --review-cost 5, the cost of a review"
                raise BadValueError("", flag(limit), rule, f"{limits[limit]:g} alone", fix)
        return {"costs": self._costs(file), **limits}

    def _costs(self, file: Path | None) -> ErrorCosts:
        """Return the costs of errors, of a file or of the options."""
        from dubito.decide import ErrorCosts

        pair = [name for name in ("cost_under", "cost_over") if name in self.given]
        kinds = pair[:1] + ["cost_squared"] * (self.cost_squared is not None)
        kinds += ["costs"] * (file is not None)
        if len(kinds) > 1:
            rule, fix = f"cannot be combined with {flag(kinds[0])}", "Leave one of them out"
            got = f"{file}" if kinds[-1] == "costs" else f"{self.cost_squared:g}"
            raise BadValueError("", flag(kinds[-1]), rule, got, fix)
        values = None
        if self.values is not None:
            values = sorted({*numbers_in(self.values, "--values", "0,12,24")})
        if file is not None:
            return replace(_read_error_costs(file), values=values)
        if self.cost_squared is not None:
            return ErrorCosts.squared(self.cost_squared, values)
        if self.cost_under is None or self.cost_over is None:
            rule = "needs the costs per unit below and above the true value"
            got = " alone".join([*map(flag, pair), ""]) or "none"
            fix = "Pass --cost-under 4 --cost-over 1, --cost-squared 1, or --costs FILE"
            raise BadValueError("", "dubito fit for a regression", rule, got, fix)
        return ErrorCosts.linear(self.cost_under, self.cost_over, values)


def _read_error_costs(path: Path) -> ErrorCosts:
    """Return piecewise linear costs from lines of `error,cost`; a header line is optional."""
    from dubito.decide import ErrorCosts
    from dubito.serialization.documents import read_text

    fix = "Write three or more lines of error,cost, such as -1,4 and 0,0 and 1,1"
    try:
        lines = [line for line in csv.reader(read_text(path).splitlines()) if line]
        has_header = bool(lines) and lines[0][0].strip().lower() == "error"
        pairs = [(float(error), float(cost)) for error, cost in lines[has_header:]]
    except (csv.Error, ValueError) as error:
        raise BadFileError(str(path), "each line must be an error and its cost", fix) from error
    pairs.sort()
    try:
        return ErrorCosts([error for error, _ in pairs], [cost for _, cost in pairs])
    except BadValueError as error:
        problem = f"its {error.argument} {error.rule}, got {error.got}"
        raise BadFileError(str(path), problem, fix) from error


def require_unused(values: Mapping[str, Any], kind: str = "with --multilabel") -> None:
    """Raise for an option that has no meaning for one kind of outputs."""
    for name, value in values.items():
        if value not in (None, [], ()):
            shown = ", ".join(value) if isinstance(value, list | tuple) else f"{value}"
            rule, fix = f"cannot be used {kind}", "Leave it out"
            raise BadValueError("", name, rule, shown, fix)
