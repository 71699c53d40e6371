"""Expressions of columns, compared with Python's own parser, and nasty texts."""

import ast
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubito.data.expressions import MAX_DEPTH, MAX_LENGTH, Expression, quoted_name
from dubito.errors import BadValueError

COLUMNS = {"a": np.array([2.0, -3.5, 0.25]), "b": np.array([1.0, 4.0, -7.0]), "x1": np.ones(3) / 3}
BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: lambda one, other: one + other,
    ast.Sub: lambda one, other: one - other,
    ast.Mult: lambda one, other: one * other,
    ast.Div: lambda one, other: one / other,
}


def parse(text: str) -> Expression:
    return Expression.parse(text, "cost", "test")


def by_python(text: str, row: int) -> float:
    """Evaluate the syntax tree that Python makes of the same text, for one row."""

    def value(node: Any) -> float:
        if isinstance(node, ast.BinOp):
            return float(BINARY[type(node.op)](value(node.left), value(node.right)))
        if isinstance(node, ast.UnaryOp):
            return -value(node.operand)
        if isinstance(node, ast.Call):
            return {"min": min, "max": max}[node.func.id](map(value, node.args))  # type: ignore[attr-defined]
        return float(COLUMNS[node.id][row] if isinstance(node, ast.Name) else node.value)

    return value(ast.parse(text, mode="eval").body)


numbers = st.floats(0, 1e6).map(repr) | st.integers(0, 99).map(str)
atoms = numbers | st.sampled_from(sorted(COLUMNS))


def larger(inner: Any) -> Any:
    return (
        st.tuples(inner, st.sampled_from(["+", " - ", "*", " /"]), inner).map("".join)
        | inner.map("({})".format)
        | inner.map("-{}".format)
        | st.tuples(st.sampled_from(["min", "max"]), st.lists(inner, min_size=2, max_size=3)).map(
            lambda pair: f"{pair[0]}({', '.join(pair[1])})"
        )
    )


@pytest.mark.slow
@settings(max_examples=150)
@given(st.recursive(atoms, larger, max_leaves=12))
def test_expressions_are_those_of_python(text: str) -> None:
    expression = parse(text)
    canonical = str(expression)
    assert parse(canonical) == expression
    assert str(parse(canonical)) == canonical
    assert set(expression.columns) <= {*COLUMNS}
    try:
        expected = [by_python(text, row) for row in range(3)]
        is_finite = bool(np.isfinite(expected).all()) and bool(np.abs(expected).max() <= 1e100)
    except (ZeroDivisionError, OverflowError):
        is_finite = False
    if is_finite:
        try:
            assert expression.evaluate(COLUMNS, 3, "test").tolist() == expected
        except BadValueError as error:  # Python lets min(inf, 1) pass
            assert "overflow" in error.got  # noqa: PT017
        return
    with pytest.raises(BadValueError, match="must give a finite cost"):
        expression.evaluate(COLUMNS, 3, "test")


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "an empty text"),
        (" ", "an empty text"),
        ("a +", "'a +', which ends too early"),
        ("a b", "'a b' with an unexpected 'b' after 'a'"),
        ("min(a)", "'min(a)' with an unexpected ')' after 'min(a'"),
        ("min(a,)", "'min(a,)' with an unexpected ')' after 'min(a,'"),
        ("max", "'max', which ends too early"),
        ("(a", "'(a', which ends too early"),
        ("*a", "'*a' with an unexpected '*a' at its start"),
        ("a ** 2", "'a ** 2' with an unexpected '*' after 'a *'"),
        ("a; b", "'a; b' with an unexpected ';' after 'a'"),
        ("a.__class__()", "'a.__class__()' with an unexpected '()' after 'a.__class__'"),
        ("__import__('os')", "with an unexpected \"('os')\" after '__import__'"),
        ("a if b else c", "'a if b else c' with an unexpected 'if' after 'a'"),
        ("a[0]", "with an unexpected '[0]' after 'a'"),
        ("`a", "'`a' with an unexpected '`a' at its start"),
        ("``", "with an unexpected '``' at its start"),
        ("0x10", "with an unexpected 'x10' after '0'"),
        ("a = b", "with an unexpected '=' after 'a'"),
        ("a\x00b", "unexpected"),
        ("max(a, b", "which ends too early"),
    ],
)
def test_a_malformed_expression_is_shown_with_its_fault(text: str, got: str) -> None:
    with pytest.raises(BadValueError) as caught:
        parse(text)
    assert got in str(caught.value)
    assert str(caught.value).startswith("test: `cost` must be a number or an expression, got ")


def test_texts_are_bounded() -> None:
    assert parse("(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH).columns == ("a",)
    with pytest.raises(BadValueError, match="at most 50 nested parentheses"):
        parse("(" * (MAX_DEPTH + 1) + "a" + ")" * (MAX_DEPTH + 1))
    long = "+".join(["a"] * (MAX_LENGTH // 4))
    assert parse(str(parse(long))) == parse(long)
    for text in ("a" * (MAX_LENGTH + 1), "+".join(["a"] * (MAX_LENGTH // 3))):  # once it is spaced
        with pytest.raises(BadValueError, match="at most 1000 characters"):
            parse(text)
    assert parse("-" * 900 + "a").evaluate(COLUMNS, 3, "test").tolist() == COLUMNS["a"].tolist()


def test_a_number_that_is_too_large_is_said_to_be() -> None:
    with pytest.raises(
        BadValueError, match=r"must not hold numbers above 1e\+100, got '2 \* 1e999'"
    ):
        parse("2 * 1e999")


@given(st.text(max_size=30))
def test_any_text_is_parsed_or_raises(text: str) -> None:
    try:
        expression = parse(text)
    except BadValueError:
        return
    assert parse(str(expression)) == expression


@given(st.text(min_size=1, max_size=10))
def test_any_column_can_be_named(name: str) -> None:
    expression = parse(f"2 * {quoted_name(name)}")
    assert expression.columns == (name,)
    assert parse(str(expression)) == expression
    in_quotes = '"' + name.replace('"', '""') + '"'
    assert parse(in_quotes).columns == (name,)
    assert pickle.loads(pickle.dumps(expression)) == expression


def test_values_are_those_of_each_row_or_an_error_names_it() -> None:
    values = parse("min(5, 0.1 * a) - b / 2").evaluate(COLUMNS, 3, "test")
    assert values == pytest.approx([0.2 - 0.5, -0.35 - 2, 0.025 + 3.5])
    assert parse("7").evaluate({}, 2, "test").tolist() == [7, 7]
    for text, got in (
        ("1 / (b - 4)", "a division by 0 in row 1"),
        ("min(1, 1 / (b - 4))", "a division by 0 in row 1"),
        ("1e60 * 1e60 * a", "a size above 1e+100 in row 0"),
        ("1e99 * 1e99 * 1e99 * 1e99 - b", "an overflow in row 0"),
    ):
        with pytest.raises(BadValueError) as caught:
            parse(text).evaluate(COLUMNS, 3, "test", "block,ok=")
        assert got in str(caught.value)
        assert f"`block,ok={parse(text)}`" in str(caught.value)
    with pytest.raises(BadValueError, match="no number in column 'a' in row 1"):
        parse("a").evaluate({"a": np.array([1.0, np.nan])}, 2, "test")
