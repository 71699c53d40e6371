"""Column names: patterns with one `*`, natural order, and the class names they carry."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches

from dubito.errors import BadValueError
from dubito.outputs import ClassName

Wanted = str | Sequence[str]  # a name, a pattern with one `*`, or a list of names
NUMERAL = re.compile(r"(.*?)(\d*\.\d+|\d+)(%?)")  # at the end of a name


def matching(wanted: Wanted, names: Sequence[str], role: str, where: str) -> list[str]:
    """Return the columns that a name, pattern or list selects.

    Columns of a pattern come in natural order, columns of a list in its order.

    >>> matching("logit_*", ["logit_10", "y", "logit_2"], "logits", "f.csv")
    ['logit_2', 'logit_10']
    """
    patterns = [wanted] if isinstance(wanted, str) else list(wanted)
    found = [name for pattern in patterns for name in _matches(pattern, names, role, where)]
    if len(set(found)) != len(found):
        twice = next(name for name in found if found.count(name) > 1)
        if list(names).count(twice) > 1:
            raise BadValueError(
                "", where, f"has two columns named {twice!r}", "", "Rename one of them"
            )
        rule, fix = "must have distinct column names", "Rename one of the columns"
        raise BadValueError(role, where, rule, f"{twice!r} twice", fix)
    return found


def _matches(pattern: str, names: Sequence[str], role: str, where: str) -> list[str]:
    """Return the columns that one name or pattern matches, in natural order."""
    if not isinstance(pattern, str) or pattern.count("*") > 1:
        rule, fix = "must be a name, or a pattern with one *", "Use a pattern such as 'logit_*'"
        raise BadValueError(role, where, rule, repr(pattern), fix)
    found = [name for name in names if _matched_part(pattern, name) is not None]
    if not found:
        raise missing_column(pattern, names, role, where)
    return sorted(found, key=natural_order)


def missing_column(
    wanted: str, names: Sequence[str], role: str, where: str, fix: str | None = None
) -> BadValueError:
    """Return the error for a column that a file lacks, with the nearest of those it has.

    `role` is the argument, or the flag on the command line, that names the column.

    >>> print(missing_column("regoin", ["region", "p"], "--group", "f.csv"))  # doctest: +ELLIPSIS
    f.csv has no column 'regoin' (--group). Pass --group region, or another of its columns: ...
    """
    what = f"columns that match {wanted!r}" if "*" in wanted else f"column {wanted!r}"
    near = get_close_matches(wanted.replace("*", "0"), list(names), n=1, cutoff=0.5)
    near = [_like(wanted, one) for one in near]
    if role == "row_costs":
        fix, role = f"Add the column {wanted!r}", "used by the costs"
        near = get_close_matches(wanted, near, cutoff=0.7)  # `abc` does not mean `label`
        fix += f", rename {near[0]!r} to it" if near else ""
        fix += ", or correct the costs"
    if fix is None:
        shown = [f" {shlex.quote(one)}" if role[:2] == "--" else f"={one!r}" for one in near]
        fix = f"Pass {role}{shown[0]}, or another" if near else f"Pass {role} with one"
        fix += f" of its columns: {_shown(names)}"
    else:
        fix = f"{fix}; its columns are {_shown(names)}"
    return BadValueError("", where, f"has no {what} ({role})", "", fix)


def _like(pattern: str, name: str) -> str:
    """Return a column, or for a pattern the pattern that matches it and its family.

    >>> _like("qq_*", "q_0.9"), _like("prob", "proba")
    ('q_*', 'proba')
    """
    if "*" not in pattern:
        return name
    numbered = NUMERAL.fullmatch(name)
    family = numbered[1] if numbered else name.rpartition("_")[0] + "_" * ("_" in name)
    return f"{family}*" if family else name


def likely_family(column: str, names: Sequence[str]) -> str | None:
    """Return the pattern of a column and others, if several names begin as it does.

    >>> likely_family("logit_2", ["logit_0", "logit_2", "y"])
    'logit_*'
    """
    pattern = _like("*", column)
    several = sum(_matched_part(pattern, name) is not None for name in names) > 1
    return pattern if several and pattern != column else None


def _shown(names: Sequence[str]) -> str:
    """Return the columns that exist, those of large families last."""
    families = Counter(name.rpartition("_")[0] for name in names if "_" in name)
    names = sorted(names, key=lambda name: families[name.rpartition("_")[0]] > 2)
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return f"{', '.join(names[:8])}{more}"


def _matched_part(pattern: str, name: str) -> str | None:
    """Return the part of a name that `*` matches (the whole name without a `*`), or None."""
    before, star, after = pattern.partition("*")
    if not star:
        return name if name == pattern else None
    is_long_enough = len(name) > len(before) + len(after)
    if is_long_enough and name.startswith(before) and name.endswith(after):
        return name[len(before) : len(name) - len(after)]
    return None


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts `logit_2` before `logit_10`."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def is_several(wanted: Wanted) -> bool:
    """Whether columns are selected by a pattern or list, and so named after classes."""
    return not isinstance(wanted, str) or "*" in wanted


def class_names(wanted: Wanted, columns: Sequence[str]) -> tuple[ClassName, ...]:
    """Return the classes that columns are named after: integers if all are, otherwise text.

    >>> class_names("p_*", ["p_cat", "p_dog"])
    ('cat', 'dog')
    """
    pattern = wanted if isinstance(wanted, str) else "*"
    names = [_matched_part(pattern, column) or column for column in columns]
    if all(re.fullmatch(r"-?\d+", name) for name in names):
        numbers = tuple(int(name) for name in names)
        if len(set(numbers)) == len(numbers):
            return numbers
    return tuple(names)


def levels_of(wanted: Wanted, columns: Sequence[str], where: str) -> tuple[float, ...]:
    """Return the levels that columns of quantiles are named after, or raise if that is unclear.

    Names end in fractions (q_0.05), percentages (q_5, q_97.5) or the digits of fractions (q05,
    q025); names that can be read in two ways are an error.

    >>> levels_of("q_*", ["q_5", "q_50", "q_95"], "f.csv")
    (0.05, 0.5, 0.95)
    """
    pattern = wanted if isinstance(wanted, str) else "*"
    found = [NUMERAL.fullmatch(_matched_part(pattern, name) or name) for name in columns]
    matches = [match for match in found if match is not None]
    starts = {match[1] for match in matches}
    readings: list[tuple[float, ...]] = []
    if len(matches) == len(columns) and len(starts) == 1 and not min(starts).endswith(("-", ".")):
        is_percent = {match[3] == "%" for match in matches}
        texts = [match[2] for match in matches]
        readings = _percentages(texts) if is_percent == {True} else _readings(texts)
    if len(readings) == 1:
        return readings[0]
    choices = ["levels=[" + ",".join(f"{one:g}" for one in levels) + "]" for levels in readings]
    rule = "must have columns that are named after their levels, such as q_0.05 and q_0.95"
    got, fix = _few([repr(name) for name in columns]), "Pass levels=[0.05,0.5,0.95], one per column"
    if choices:
        got, fix = f"{got}, which have two meanings", f"Pass {' or '.join(choices)}"
    raise BadValueError("quantiles", where, rule, got, fix)


def _readings(texts: Sequence[str]) -> list[tuple[float, ...]]:
    """Return the levels that numbers in names can mean: fractions, percentages, or both.

    >>> _readings(["05", "50"]), _readings(["1", "2"])
    ([(0.05, 0.5)], [(0.01, 0.02), (0.1, 0.2)])
    """
    fractions = tuple(float(text) for text in texts)
    if any("." in text for text in texts):
        is_fraction = all("." in text for text in texts) and max(fractions) < 1
        return [fractions] if is_fraction else _percentages(texts)
    readings = [] if any(len(text) > 2 for text in texts) else _percentages(texts)
    digits = tuple(float(f"0.{text}") for text in texts)
    # Digits after the point have one length, or no zeros at the end.
    n_zeros = sum(text.endswith("0") for text in texts)
    is_usual = n_zeros == 0 or (len({*map(len, texts)}) == 1 and n_zeros < len(texts))
    is_new = digits not in readings and len(set(digits)) == len(digits)
    are_percent = readings and len(set(readings[0])) < len(texts)  # one level twice: say so
    if is_usual and is_new and min(digits) > 0 and not are_percent:
        readings.append(digits)
    return readings


def _percentages(texts: Sequence[str]) -> list[tuple[float, ...]]:
    """Return percentages as fractions, if all are between 1 and 100."""
    numbers = [float(text) for text in texts]
    is_fine = all(1 <= one < 100 for one in numbers)
    return [tuple(round(one / 100, 12) for one in numbers)] if is_fine else []


def in_order_of(
    classes: tuple[ClassName, ...] | None,
    wanted: Wanted,
    columns: list[str],
    where: str,
    noun: str = "class",
    *,
    is_part: bool = False,
) -> list[str]:
    """Return columns of labels in the order of the classes or labels they are named after.

    With `is_part` there may be columns of others.
    """
    if classes is None:
        rule, fix = "must be one column if the classes have no names", "Pass classes=[...]"
        raise BadValueError("label", where, rule, f"{len(columns)} columns", fix)
    what = "labels" if noun == "label" else "label probabilities"
    found = named_columns(classes, wanted, columns, where, what)
    more = [name for name in columns if name not in found]
    if more and not is_part:
        rule, got = f"must have one column per {noun}", f"{_few(more)} as well"
        fix = "Leave them out, or add outputs of the same names"
        raise BadValueError("label", where, rule, got, fix)
    return found


def named_columns(
    names: Sequence[ClassName], wanted: Wanted, columns: Sequence[str], where: str, what: str
) -> list[str]:
    """Return the columns that are named after classes or labels, or raise for missing ones.

    >>> named_columns(["dog"], "p_*", ["p_cat", "p_dog"], "f.csv", "outputs")
    ['p_dog']
    """
    by_name = dict(zip(map(str, class_names(wanted, columns)), columns, strict=True))
    missing = [str(name) for name in names if str(name) not in by_name]
    if missing:
        pattern = wanted if isinstance(wanted, str) else "*"
        rule, got = f"has no column of {what} for {_few(missing)}", f"columns {_few(columns)}"
        fix = f"Add {pattern.replace('*', missing[0])}"
        if what == "labels":
            fix += ", or pass only_labels=[...] with the names that have some"
        raise BadValueError("", where, rule, got, fix)
    return [by_name[str(name)] for name in names]


def _few(names: Sequence[str]) -> str:
    """Return some of many names."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
