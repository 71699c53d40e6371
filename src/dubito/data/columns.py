"""Which columns of a table mean what: declared, then found among those a table has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from dubito.data import patterns
from dubito.data.binding import BoundColumns
from dubito.data.patterns import Wanted
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import ClassName

__all__ = ["Columns"]

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
        require_apart(found, kind, where)
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
            return as_names(self.classes, where)
        if self.classes is not None:
            rule = "left out where columns are named after classes"
            got, fix = repr(list(self.classes)), "`classes` for a column of lists only"
            raise BadValueError("classes", where, rule, got, fix)
        if len(outputs) == 1:
            rule, got = "two columns or more", f"{outputs[0]!r} alone"
            fix = f"{kind}={outputs[0]!r} if it is of the positive class, or of lists"
            raise BadValueError(kind, where, rule, got, fix)
        return patterns.class_names(wanted, outputs)


def as_names(classes: Any, where: str) -> tuple[ClassName, ...] | None:
    """Return the names of the entries of a column of lists."""
    if classes is None:
        return None
    if isinstance(classes, str) or not isinstance(classes, Sequence):
        rule, fix = "a list of names", "classes=['cat', 'dog']"
        raise BadTypeError("classes", where, rule, repr(classes), fix)
    return tuple(classes)


def require_apart(found: dict[str, list[str]], kind: str, where: str) -> None:
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
