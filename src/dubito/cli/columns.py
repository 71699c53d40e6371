"""Which columns of a file mean what: options that many commands share."""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Literal, final

import typer

from dubito.cli.reading import ENGINE_OPTIONS, Reader

if TYPE_CHECKING:
    from dubito.data import Columns
    from dubito.outputs import ClassName

__all__ = ["Given", "NOT_OF_CLASSES", "with_columns"]

HELP = {
    "label": "Column of the true class or value; label, y or target are found by name.",
    "logits": "Columns of logits, say 'z_*', or one of lists; logit_* are found by name.",
    "probabilities": "Columns of probabilities, or one of lists; p_*, prob_* are found.",
    "column": "One column of probabilities: of the positive class, or lists.",
    "confidence": "Column of the top confidence, with --correct.",
    "correct": "Column of 0 and 1: was it right?",
    "mean": "Column of the predicted mean, with --std (regression).",
    "std": "Column of the standard deviation.",
    "positive": "Name of the positive class, where one column is of it.",
    "classes": "Names of the classes, with commas, for a column of lists.",
    "features": "Columns of features, or one of lists; feature_* are found by name.",
    "weight": "Column of row weights.",
    "group": "Column of groups to tell apart.",
    "id": "Column of ids, by which rows are named.",
    "amount": "Column of amounts that costs grow with.",
}
OUTPUTS = ("logits", "probabilities", "column", "confidence", "mean")
NOT_OF_CLASSES = ("confidence", "correct", "mean", "std")


@final
@dataclass(frozen=True, slots=True)
class Given:
    """The options as they came; None for what was not said."""

    label: str | None = None
    logits: str | None = None
    probabilities: str | None = None
    column: str | None = None
    confidence: str | None = None
    correct: str | None = None
    mean: str | None = None
    std: str | None = None
    positive: str | None = None
    classes: str | None = None
    features: str | None = None
    weight: str | None = None
    group: str | None = None
    id: str | None = None
    amount: str | None = None

    @property
    def is_regression(self) -> bool:
        """Whether a mean and a standard deviation are what the model says."""
        return self.mean is not None

    @property
    def said(self) -> dict[str, str]:
        """The options that were given."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        words = [word for name, value in self.said.items() for word in (f"--{name}", value)]
        return shlex.join(words)

    def columns(
        self,
        *files: str | PathLike[str],
        label: Literal["needed", "welcome", "unused"] = "needed",
        has_features: bool = False,
        classes: Sequence[ClassName] | None = None,
    ) -> list[Columns]:
        """Return the columns of each file; those not named are found where that is safe, and told.

        A label that is welcome may be missing, one that is named from all files but the first;
        features are looked for where they are of use, and `classes` are those of one column where
        they are known already.
        """
        from dubito.data.sources import open_source

        result: list[Columns] = []
        told: list[str] = []
        for file in files:
            names = open_source(file).schema.names
            found, said = self.found(names, file, label, has_features), self.said
            told += [f"{role} in {where}" for role, where in found.items()]
            if label == "welcome" and result and said.get("label", names[0]) not in names:
                print(f"No {said.pop('label')} in {file}: no labels there.", file=sys.stderr)
            result.append(as_columns({**said, **found}, file, label, classes))
        if told:
            print(f"Found by name: {', '.join(dict.fromkeys(told))}.", file=sys.stderr)
        return result

    def found(
        self, names: Sequence[str], file: str | PathLike[str], label: str, has_features: bool
    ) -> dict[str, str]:
        """Return what was not said and is found by name."""
        from dubito.cli.finding import found_features, found_label, found_outputs

        found: dict[str, str] = {}
        if label != "unused" and self.label is None and self.confidence is None:
            found |= found_label(names, file, is_needed=label == "needed")
        if not any(kind in self.said for kind in OUTPUTS):
            found |= found_outputs(names, file)
        if has_features and self.features is None:
            found |= found_features(names)
        return found


def as_columns(
    values: dict[str, Any],
    file: str | PathLike[str],
    label: str,
    classes: Sequence[ClassName] | None,
) -> Columns:
    """Return options as the columns of a file."""
    from dubito.cli.finding import two_classes
    from dubito.data import Columns

    if label == "unused":
        values.pop("label", None)
    positive, named = values.pop("positive", None), values.pop("classes", None)
    single = [values[kind] for kind in OUTPUTS[:3] if "*" not in values.get(kind, "*")]
    if named is not None:
        values["classes"] = tuple(name.strip() for name in named.split(","))
    elif classes is not None and single:
        values["classes"] = tuple(classes)
    elif positive is not None or "column" in values:
        values["classes"] = two_classes(file, values.get("label"), positive)
    if "column" in values:
        values["probabilities"] = values.pop("column")
    return Columns(**values)


def with_columns(*unused: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `Given`, but for unused ones; it takes them as `given`.

    One that takes a `reader` has options of where rows are read, and the reader is closed after it.
    """
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[str | None, typer.Option(help=text)],
        )
        for name, text in HELP.items()
        if name not in unused
    ]

    def wrapped(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True).parameters
        places = ENGINE_OPTIONS if "reader" in own else []

        @wraps(command)
        def run(*arguments: Any, **values: Any) -> None:
            said = {one.name: values.pop(one.name, None) for one in options}
            values["given"] = Given(**said)
            if not places:
                command(*arguments, **values)
                return
            with Reader(*(values.pop(one.name) for one in places)) as reader:
                command(*arguments, reader=reader, **values)

        asked = [one for one in own.values() if one.name not in ("given", "reader")]
        first = [one for one in asked if one.default is one.empty]
        rest = [one for one in asked if one.default is not one.empty]
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in rest]
        run.__signature__ = inspect.Signature([*first, *options, *keywords, *places])  # type: ignore[attr-defined]
        return run

    return wrapped
