"""Columns found by their names, where that is safe: what numbers mean is never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from dubito.data.tables import distinct_values
from dubito.errors import BadValueError

__all__ = ["found_features", "found_label", "found_outputs", "two_classes"]

File = str | PathLike[str]
LABELS = ("label", "y", "target")
PREFIXES = {"logit_": "logits", "p_": "probabilities", "prob_": "probabilities"}
FEATURES = "feature_"
NUMBERS = {"0", "1", "0.0", "1.0", "True", "False", "true", "false"}


def found_label(names: Sequence[str], file: File, *, is_needed: bool) -> dict[str, str]:
    """Return the one column that is called like a label; none, or too many, raise if needed.

    >>> found_label(["id", "y"], "f.csv", is_needed=True)
    {'label': 'y'}
    """
    found = [name for name in names if name in LABELS]
    if len(found) == 1:
        return {"label": found[0]}
    if not is_needed:
        return {}
    rule = f"named, unless one column is called {', '.join(LABELS[:-1])} or {LABELS[-1]}"
    got = " and ".join(found) or some(names)
    raise BadValueError("--label", str(file), rule, got, f"--label {found[0] if found else 'NAME'}")


def found_outputs(names: Sequence[str], file: File) -> dict[str, str]:
    """Return the one kind of outputs whose columns are called so, or raise.

    >>> found_outputs(["logit_cat", "logit_dog", "y"], "f.csv")
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
    got = " and ".join(f"{prefix}*" for prefix in found) or some(names)
    raise BadValueError("outputs", str(file), rule, got, "--logits 'z_*' or --probabilities 'z_*'")


def found_features(names: Sequence[str]) -> dict[str, str]:
    """Return the columns that are called features, if there are any.

    >>> found_features(["feature_0", "feature_1", "y"])
    {'features': 'feature_*'}
    """
    has_some = any(name.startswith(FEATURES) and name != FEATURES for name in names)
    return {"features": f"{FEATURES}*"} if has_some else {}


def two_classes(file: File, label: str | None, positive: str | None) -> tuple[str, str] | None:
    """Return the classes of one column of probabilities, the positive one last.

    The other is what else stands among the labels. None is for labels that are 0 and 1.
    """
    if label is None:
        return None if positive is None else (f"not {positive}", positive)
    values = distinct_values(file, label)
    if positive is None:
        if NUMBERS.issuperset(values):
            return None
        rule, fix = f"named, as `{label}` is neither 0 nor 1", f"--positive {values[0]}"
        raise BadValueError("--positive", str(file), rule, some(values), fix)
    others = [name for name in values if name != positive]
    if len(others) != 1:
        rule, got = f"one of two classes in `{label}`", f"{positive}, beside {some(others)}"
        fix = f"--positive {others[0]}" if len(others) == 2 else "one column a class"
        raise BadValueError("--positive", str(file), rule, got, fix)
    return others[0], positive


def some(names: Sequence[str]) -> str:
    """Return the first few of many names."""
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "") or "nothing else"
