"""Column options shared by many commands, and columns recognized by their names."""

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
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.data import Columns
    from dubito.outputs import ClassName


File = str | PathLike[str]
LABELS = ("label", "y", "target")
PREFIXES = {"logit_": "logits", "p_": "probabilities", "prob_": "probabilities"}
FEATURES = "feature_"
NUMBERS = {"0", "1", "0.0", "1.0", "True", "False", "true", "false"}


def _found_label(names: Sequence[str], file: File, *, is_needed: bool) -> dict[str, str]:
    """Return the one column that is called like a label; none, or too many, raise if needed.

    >>> _found_label(["id", "y"], "f.csv", is_needed=True)
    {'label': 'y'}
    """
    found = [name for name in names if name in LABELS]
    if len(found) == 1:
        return {"label": found[0]}
    if not is_needed:
        return {}
    rule = f"named, unless one column is called {', '.join(LABELS[:-1])} or {LABELS[-1]}"
    got = " and ".join(found) or _some(names)
    raise BadValueError("--label", str(file), rule, got, f"--label {found[0] if found else 'NAME'}")


def _found_outputs(names: Sequence[str], file: File) -> dict[str, str]:
    """Return the one kind of outputs whose columns are called so, or raise.

    >>> _found_outputs(["logit_cat", "logit_dog", "y"], "f.csv")
    {'logits': 'logit_*'}
    """
    found = {
        prefix: kind
        for prefix, kind in PREFIXES.items()
        if sum(name.startswith(prefix) for name in names) > 1
    }
    if len(found) == 1:
        [(prefix, kind)] = found.items()
        return {kind: f"{prefix}*"}
    first, *rest = (f"{prefix}*" for prefix in PREFIXES)
    rule = f"named, unless columns are called {first} or else {' or '.join(rest)}"
    got = " and ".join(f"{prefix}*" for prefix in found) or _some(names)
    raise BadValueError("outputs", str(file), rule, got, "--logits 'z_*' or --probabilities 'z_*'")


def _found_features(names: Sequence[str]) -> dict[str, str]:
    """Return the columns that are called features, if there are any.

    >>> _found_features(["feature_0", "feature_1", "y"])
    {'features': 'feature_*'}
    """
    has_some = any(name.startswith(FEATURES) and name != FEATURES for name in names)
    return {"features": f"{FEATURES}*"} if has_some else {}


def _two_classes(file: File, label: str | None, positive: str | None) -> tuple[str, str] | None:
    """Return the classes of one column of probabilities, the positive one last.

    The other is what else stands among the labels. None is for labels that are 0 and 1.
    """
    if label is None:
        return None if positive is None else (f"not {positive}", positive)
    from dubito.data.tables import distinct_values

    values = distinct_values(file, label)
    if positive is None:
        if NUMBERS.issuperset(values):
            return None
        rule, fix = f"named, as `{label}` is neither 0 nor 1", f"--positive {values[0]}"
        raise BadValueError("--positive", str(file), rule, _some(values), fix)
    others = [name for name in values if name != positive]
    if len(others) != 1:
        rule, got = f"one of two classes in `{label}`", f"{positive}, beside {_some(others)}"
        fix = f"--positive {others[0]}" if len(others) == 2 else "one column a class"
        raise BadValueError("--positive", str(file), rule, got, fix)
    return others[0], positive


def _some(names: Sequence[str]) -> str:
    """Return the first few of many names."""
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") or "nothing else"


HELP = {
    "label": "Column of true labels. Found by name: label, y, target.",
    "logits": "Columns of logits, e.g. 'z_*', or one list column. Found by name: logit_*.",
    "probabilities": "Columns of class probabilities, or one list column. Found: p_*, prob_*.",
    "probability": "Single column: the probability of the positive class.",
    "confidence": "Column of top-label confidences; requires --correct.",
    "correct": "Column of 0 and 1: whether the top label is correct.",
    "mean": "Column of predicted means (regression); requires --std.",
    "std": "Column of predicted standard deviations (regression).",
    "positive": "Positive class, for single-column probabilities.",
    "classes": "Comma-separated class names, for a list column.",
    "features": "Feature columns, or one list column. Found by name: feature_*.",
    "weight": "Column of sample weights.",
    "group": "Column of groups to report separately.",
    "id": "Column of row identifiers.",
    "cost": "Column of per-row costs, for cost matrices with a rate.",
}
OUTPUTS = ("logits", "probabilities", "probability", "confidence", "mean")
NOT_OF_CLASSES = ("confidence", "correct", "mean", "std")


@final
@dataclass(frozen=True, slots=True)
class Given:
    """The options as they came; None for what was not said."""

    label: str | None = None
    logits: str | None = None
    probabilities: str | None = None
    probability: str | None = None
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
    cost: str | None = None

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
            result.append(_as_columns({**said, **found}, file, label, classes))
        if told:
            print(f"Found by name: {', '.join(dict.fromkeys(told))}.", file=sys.stderr)
        return result

    def found(
        self, names: Sequence[str], file: str | PathLike[str], label: str, has_features: bool
    ) -> dict[str, str]:
        """Return what was not said and is found by name."""
        found: dict[str, str] = {}
        if label != "unused" and self.label is None and self.confidence is None:
            found |= _found_label(names, file, is_needed=label == "needed")
        if not any(kind in self.said for kind in OUTPUTS):
            found |= _found_outputs(names, file)
        if has_features and self.features is None:
            found |= _found_features(names)
        return found


def _as_columns(
    values: dict[str, Any],
    file: str | PathLike[str],
    label: str,
    classes: Sequence[ClassName] | None,
) -> Columns:
    """Return options as the columns of a file."""
    from dubito.data import Columns

    if label == "unused":
        values.pop("label", None)
    positive, named = values.pop("positive", None), values.pop("classes", None)
    single = [values[kind] for kind in OUTPUTS[:3] if "*" not in values.get(kind, "*")]
    if named is not None:
        values["classes"] = tuple(name.strip() for name in named.split(","))
    elif classes is not None and single:
        values["classes"] = tuple(classes)
    elif positive is not None or "probability" in values:
        values["classes"] = _two_classes(file, values.get("label"), positive)
    if "probability" in values:
        values["probabilities"] = values.pop("probability")
    if "cost" in values:
        values["amount"] = values.pop("cost")
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
