"""Every public name is documented: summary, parameters, returned values, attributes."""

import ast
import builtins
import doctest
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import pytest

numpydoc = pytest.importorskip("numpydoc.docscrape")

PACKAGES: list[Any] = [
    "dubito", "dubito.calibrate", "dubito.data", "dubito.decide", "dubito.doubt", "dubito.errors",
    "dubito.measure", "dubito.monitor", "dubito.outputs", "dubito.report",
    *(pytest.param(name, marks=pytest.mark.torch) for name in ("dubito.export", "dubito.learn")),
]  # fmt: skip
NOT_NAMED = {"self", "cls"}
NO_VALUE = {None, "None", "NoReturn", inspect.Signature.empty}


def public_names(package: str) -> dict[str, Any]:
    """Return the public classes and functions of a package by their full name."""
    module = importlib.import_module(package)
    found = {f"{package}.{name}": getattr(module, name) for name in module.__all__}
    return {
        name: value
        for name, value in found.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }


def own_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that dubito defines."""
    for name in dir(kind):
        home = next((base for base in kind.__mro__ if name in vars(base)), object)
        value = vars(home).get(name)
        is_documented = callable(value) or isinstance(
            value, property | cached_property | classmethod | staticmethod
        )
        if is_documented and not name.startswith("_") and home.__module__.startswith("dubito"):
            yield name, value


def text_of(kind: type, name: str) -> str:
    """Return the docstring of a member, or of what it overrides."""
    for base in kind.__mro__:
        value = vars(base).get(name)
        text = getattr(getattr(value, "__func__", value), "__doc__", None)
        if text:
            return inspect.cleandoc(text)
    return ""


def problems_of(name: str, value: Any) -> list[str]:
    """Return what is missing in the docstrings of a class or function and of its members."""
    if not inspect.isclass(value):
        return problems_of_function(name, value, inspect.cleandoc(value.__doc__ or ""))
    problems = problems_of_class(name, value)
    for member, found in own_members(value):
        text, full = text_of(value, member), f"{name}.{member}"
        if isinstance(found, property | cached_property):
            problems += problems_of_summary(full, text)
        elif not inspect.isclass(found):
            function = getattr(found, "__func__", found)
            problems += problems_of_function(full, function, text)
    return problems


def problems_of_summary(name: str, text: str) -> list[str]:
    if not text:
        return [f"{name}: no docstring"]
    problems = [f"{name}: example does not import {one}" for one in unknown_names(text)]
    summary = text.split("\n\n")[0]
    if not summary.rstrip().endswith((".", "?")):
        problems.append(f"{name}: no period in the summary")
    return problems


def unknown_names(text: str) -> list[str]:
    """Return the names that an example uses but neither imports nor defines."""
    examples = doctest.DocTestParser().get_examples(text)
    nodes = list(ast.walk(ast.parse("".join(one.source for one in examples))))
    known = {*dir(builtins), "__file__"}
    used: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            known |= {(one.asname or one.name).split(".")[0] for one in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else known).add(node.id)
    return sorted(used - known)


def problems_of_function(name: str, function: Callable[..., Any], text: str) -> list[str]:
    problems = problems_of_summary(name, text)
    if not text:
        return problems
    signature = inspect.signature(function)
    parsed = numpydoc.NumpyDocString(text)
    sections = [*parsed["Parameters"], *parsed["Other Parameters"]]
    problems += problems_of_entries(name, sections)
    expected = [one for one in signature.parameters if one not in NOT_NAMED]
    problems += difference(name, "parameter", expected, names_of(sections))
    is_empty = signature.return_annotation in NO_VALUE
    has_returns = bool(parsed["Returns"] or parsed["Yields"])
    if has_returns == is_empty:
        problems.append(f"{name}: {'returns nothing' if is_empty else 'no Returns section'}")
    return problems


def problems_of_class(name: str, kind: type) -> list[str]:
    text = inspect.cleandoc(kind.__doc__ or "")
    problems = problems_of_summary(name, text)
    if not text:
        return problems
    parsed = numpydoc.NumpyDocString(text)
    sections = [*parsed["Parameters"], *parsed["Attributes"]]
    problems += problems_of_entries(name, sections)
    expected: list[str] = []
    if "__init__" in {name for base in kind.__mro__[:-1] for name in vars(base)}:
        home = next(base for base in kind.__mro__ if "__init__" in vars(base))
        if home.__module__.startswith("dubito"):
            signature = inspect.signature(home.__init__)  # type: ignore[misc]
            expected = [one.lstrip("*") for one in signature.parameters if one not in NOT_NAMED]
    documented = names_of(sections)
    missing = [one for one in expected if one not in documented and not one.startswith("_")]
    problems += [f"{name}: parameter {one} is not documented" for one in missing]
    unknown = [one for one in names_of(parsed["Parameters"]) if one not in expected]
    problems += [f"{name}: parameter {one} does not exist" for one in unknown]
    known = attributes_of(kind)
    for one in names_of(parsed["Attributes"]):
        if one not in known and one not in expected and one not in set_by_methods(kind):
            problems.append(f"{name}: attribute {one} does not exist")
    inherited = [
        one
        for base in kind.__mro__[1:]
        if base.__module__.startswith("dubito") and base.__doc__
        for one in names_of(numpydoc.NumpyDocString(inspect.cleandoc(base.__doc__))["Attributes"])
    ]
    for one in known:
        is_learned = one.endswith("_") and not one.startswith("_")
        if is_learned and one not in documented and one not in inherited:
            problems.append(f"{name}: attribute {one} is not documented")
    return problems


def attributes_of(kind: type) -> list[str]:
    """Return the fields, annotated attributes and properties of a class, and what methods set."""
    names: list[str] = []
    for base in kind.__mro__:
        if base.__module__.startswith("dubito"):
            names += [*vars(base).get("__annotations__", {}), *vars(base)]
    return list(dict.fromkeys(names))


def set_by_methods(kind: type) -> set[str]:
    """Return the names of attributes in the code of the methods of a class."""
    methods = [one for base in kind.__mro__ for one in vars(base).values()]
    return {name for one in methods if inspect.isfunction(one) for name in one.__code__.co_names}


def names_of(sections: Any) -> list[str]:
    """Return the names in entries such as `a, b : float`."""
    return [name.strip().lstrip("*") for entry in sections for name in entry.name.split(",")]


def problems_of_entries(name: str, sections: Any) -> list[str]:
    """Return the entries without a type or a description."""
    problems = [f"{name}: {one.name} has no type" for one in sections if not one.type]
    blank = [one for one in sections if not "".join(one.desc).strip()]
    return problems + [f"{name}: {one.name} has no description" for one in blank]


def difference(name: str, what: str, expected: list[str], documented: list[str]) -> list[str]:
    expected = [one for one in expected if not re.match("_+$", one)]
    missing = [one for one in expected if one not in documented]
    unknown = [one for one in documented if one not in expected]
    problems = [f"{name}: {what} {one} is not documented" for one in missing]
    return problems + [f"{name}: {what} {one} does not exist" for one in unknown]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_is_documented(package: str) -> None:
    names = public_names(package)
    assert names
    assert [line for name in names for line in problems_of(name, names[name])] == []


def test_the_linter_finds_what_is_missing() -> None:
    def undocumented(rows: int, scale: float) -> int:  # noqa: D417
        """Return something.

        Parameters
        ----------
        rows : int
            The rows.
        columns : int
            The columns.

        Examples
        --------
        >>> undocumented(2, math.pi)
        6
        """
        return int(rows * scale)

    assert problems_of("f", undocumented) == [
        "f: example does not import math",
        "f: example does not import undocumented",
        "f: parameter scale is not documented",
        "f: parameter columns does not exist",
        "f: no Returns section",
    ]
