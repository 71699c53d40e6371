"""Expressions of columns, such as `min(5, 0.1 * amount)`: parsed by hand, never executed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray
from dubito.errors import BadValueError

HIGHEST_COST = 1e100  # in size: sums of such costs times probabilities are finite
MAX_LENGTH, MAX_DEPTH = 1000, 50  # characters, and nested parentheses
TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*(?:\.\w+)*)"
    r"|`(?P<ticks>(?:[^`]|``)+)`|\"(?P<quotes>(?:[^\"]|\"\")+)\"|(?P<sign>[-+*/(),]))"
)
PLAIN_NAME = re.compile(r"[^\W\d]\w*(?:\.\w+)*")
FUNCTIONS: dict[str, Callable[..., Any]] = {"min": np.minimum, "max": np.maximum}
OPERATORS: dict[str, Callable[..., Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, **FUNCTIONS,
}  # fmt: skip
SUM, PRODUCT, NEGATIVE, ATOM = range(4)  # how tightly the parts of an expression are bound
LEVELS = {"+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT}
EXAMPLE = "Use numbers, column names (in backticks if needed), + - * / ( ), min and max"


@final
@dataclass(frozen=True, slots=True)
class Expression:
    """Arithmetic over columns. Made by `Expression.parse`.

    `steps` are in postfix order: a number, a column, or an operator with its number of operands.
    `str` gives the canonical text, which is parsed to the same steps.
    """

    steps: tuple[tuple[str, Any], ...]

    @classmethod
    def parse(cls, text: str, argument: str, caller: str) -> Expression:
        """Return the expression in a text, or raise an error that shows where it is wrong.

        >>> str(Expression.parse("min(5,amount*.1) - (fee)", "cost", "example"))
        'min(5, amount * 0.1) - fee'
        """
        steps = [] if len(text) > MAX_LENGTH else _Parser(text, argument, caller).steps
        found = cls(tuple(steps))
        if not steps or len(str(found)) > MAX_LENGTH:
            rule, got = f"must have at most {MAX_LENGTH} characters", f"{len(text)}"
            raise BadValueError(argument, caller, rule, got, "Compute the column beforehand")
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns, in order of first appearance."""
        return tuple(dict.fromkeys(one for kind, one in self.steps if kind == "column"))

    def __neg__(self) -> Expression:
        return Expression((*self.steps, ("negative", 1)))

    def evaluate(
        self, columns: Mapping[str, FloatArray], n_rows: int, caller: str, cell: str = ""
    ) -> FloatArray:
        """Return the value in each row; `cell` says what it is the cost of, for errors."""
        stack: list[Any] = []
        for kind, one in self.steps:
            if kind == "number":
                stack.append(np.full(n_rows, one))
            elif kind == "column":
                stack.append(np.asarray(columns[one], np.float64))
                self._require(np.isfinite(stack[-1]), f"no number in column {one!r}", cell, caller)
            elif kind == "negative":
                stack.append(-stack.pop())
            else:
                operands = stack[-one:]
                del stack[-one:]
                if kind == "/":
                    self._require(operands[1] != 0, "a division by 0", cell, caller)
                value = operands[0]
                with np.errstate(over="ignore"):
                    for other in operands[1:]:
                        value = OPERATORS[kind](value, other)
                self._require(np.isfinite(value), "an overflow", cell, caller)
                stack.append(value)
        [result] = stack
        too_large = f"a size above {HIGHEST_COST:g}"
        self._require(np.abs(result) <= HIGHEST_COST, too_large, cell, caller)
        return np.asarray(result)

    def _require(self, is_fine: BoolArray, got: str, cell: str, caller: str) -> None:
        """Raise at the first row that is not fine."""
        if not is_fine.all():
            rule = f"must give a finite cost by `{cell}{self}`"
            fix = "Fix the row, or use an expression that is defined there, such as x / max(y, 1)"
            raise BadValueError("row_costs", caller, rule, got, fix, int(np.argmin(is_fine)))

    def __str__(self) -> str:
        stack: list[tuple[str, int]] = []
        for kind, one in self.steps:
            if kind == "number":
                stack.append((repr(one).removesuffix(".0"), ATOM))
            elif kind == "column":
                stack.append((quoted_name(one), ATOM))
            elif kind == "negative":
                text, level = stack.pop()
                stack.append((f"-{text}" if level >= NEGATIVE else f"-({text})", NEGATIVE))
            elif kind in FUNCTIONS:
                inside = ", ".join(text for text, _ in stack[-one:])
                stack[-one:] = [(f"{kind}({inside})", ATOM)]
            else:
                (left, left_level), (right, right_level) = stack[-2:]
                own = LEVELS[kind]
                left = left if left_level >= own else f"({left})"
                right = right if right_level > own else f"({right})"
                stack[-2:] = [(f"{left} {kind} {right}", own)]
        return stack[0][0]


def quoted_name(name: str) -> str:
    """Return the name of a column as it is written in an expression.

    >>> quoted_name("amount"), quoted_name("transaction amount")
    ('amount', '`transaction amount`')
    """
    is_plain = PLAIN_NAME.fullmatch(name) and name not in FUNCTIONS
    return name if is_plain else "`" + name.replace("`", "``") + "`"


@final
class _Parser:
    """A recursive-descent parser of one text; `steps` holds the result."""

    def __init__(self, text: str, argument: str, caller: str) -> None:
        self.text, self.argument, self.caller = text, argument, caller
        self.end = self.depth = 0  # of the tokens read, and of parentheses
        self.steps: list[tuple[str, Any]] = []
        self.token: re.Match[str] | None = None
        self._advance()
        self._sum()
        if self.token is not None:
            raise self._error()

    def _advance(self) -> None:
        """Read the next token, None at the end."""
        if self.token is not None:
            self.end = self.token.end()
        self.token = TOKEN.match(self.text, self.end)
        if self.token is None and self.text[self.end :].strip():
            raise self._error()

    def _error(self) -> BadValueError:
        """Return the error at the next token."""
        before, after = self.text[: self.end].strip(), self.text[self.end :].strip()
        if not before and not after:
            got = "an empty text"
        elif not after:
            got = f"{self.text!r}, which ends too early"
        else:
            at = f"after {before!r}" if before else "at its start"
            got = f"{self.text!r} with an unexpected {after.split()[0]!r} {at}"
        rule = "must be a number or an expression"
        return BadValueError(self.argument, self.caller, rule, got, EXAMPLE)

    def _sign(self, signs: str) -> str | None:
        """Return and skip the next token if it is one of some signs."""
        sign = None if self.token is None else self.token["sign"]
        if sign is None or sign not in signs:
            return None
        self._advance()
        return sign

    def _expect(self, sign: str) -> None:
        """Skip a sign that must come next."""
        if self._sign(sign) is None:
            raise self._error()

    def _sum(self) -> None:
        """Read a sum of products of factors."""
        self._chain("+-", lambda: self._chain("*/", self._factor))

    def _chain(self, signs: str, operand: Callable[[], None]) -> None:
        """Read operands between which one of some signs stands."""
        operand()
        while sign := self._sign(signs):
            operand()
            self.steps.append((sign, 2))

    def _factor(self) -> None:
        """Read a number, a column, a function or an expression in parentheses, and its sign."""
        n_signs = 0
        while self._sign("-"):
            n_signs += 1
        self._atom()
        self.steps += [("negative", 1)] * n_signs

    def _atom(self) -> None:
        """Read what is not an operation of two others."""
        token = self.token
        if token is None:
            raise self._error()
        if self._sign("("):
            self._nested(1, 1)
        elif token["number"] is not None:
            value = float(token["number"])
            if value > HIGHEST_COST:
                rule, fix = f"must not hold numbers above {HIGHEST_COST:g}", "Use another unit"
                raise BadValueError(self.argument, self.caller, rule, repr(self.text), fix)
            self._advance()
            self.steps.append(("number", value))
        elif token["sign"] is None:
            self._advance()
            if token["name"] in FUNCTIONS:
                self._expect("(")
                self.steps.append((token["name"], self._nested(2, MAX_LENGTH)))
            else:
                ticks, quotes = token["ticks"], token["quotes"]
                name = token["name"] or (ticks or "").replace("``", "`")
                self.steps.append(("column", name or quotes.replace('""', '"')))
        else:
            raise self._error()

    def _nested(self, least: int, most: int) -> int:
        """Read expressions separated by commas up to a parenthesis; return their number."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            rule, got = f"must have at most {MAX_DEPTH} nested parentheses", repr(self.text)
            fix = "Compute the column beforehand"
            raise BadValueError(self.argument, self.caller, rule, got, fix)
        n_found = 0
        while n_found < least or (n_found < most and self._sign(",")):
            if 0 < n_found < least:
                self._expect(",")
            self._sum()
            n_found += 1
        self._expect(")")
        self.depth -= 1
        return n_found
