"""Every error and warning dubito raises.

    Exception
    └── DubitoError
        ├── BadValueError   (ValueError)    a value breaks a rule; knows its row and column
        │   └── TooLargeError               there is more of it than is allowed
        ├── BadTypeError    (TypeError)     something of the wrong kind altogether
        ├── BadFileError    (ValueError)    a file that cannot be read
        ├── EmptyStateError (ValueError)    a metric of no rows at all
        ├── StateMismatchError (ValueError) two states that do not measure the same thing
        ├── UnfittedError (ValueError, AttributeError) something was asked of it before `fit`
        └── MissingExtraError (ImportError) an optional dependency is not installed

    UserWarning
    └── DubitoWarning
        ├── BoundWarning                    a fit ended at a bound: no finite value is best
        ├── InfiniteLossWarning             a class that was given probability 0 happened
        └── MissingLabelsWarning            rows without a label were left out

Messages follow one form: "`argument` of caller must be rule. Got value. Try fix."
"""

from typing import Any

__all__ = [
    "BadFileError",
    "BadTypeError",
    "BadValueError",
    "BoundWarning",
    "DubitoError",
    "DubitoWarning",
    "EmptyStateError",
    "InfiniteLossWarning",
    "MissingExtraError",
    "MissingLabelsWarning",
    "StateMismatchError",
    "TooLargeError",
    "UnfittedError",
]


_VERBS = ("must ", "cannot ", "supports ", "needs ", "accepts ", "has ", "is ")


class DubitoError(Exception):
    """Any error that dubito raises on purpose."""


class BaseRuleError(DubitoError):
    """A value that breaks a rule.

    The message is two sentences: "{caller}: `{argument}` {rule}, got {got} in row R, column C. {fix}."
    `rule` is a verb phrase ("must be finite", "must have 2 columns"), `fix` an imperative sentence
    ("Use OneVsRest(PlattScaling())"). An empty `argument` makes the caller the subject: "PlattScaling
    supports exactly 2 classes, got 3. Use OneVsRest(PlattScaling())." Row and column are kept apart, so that an error found in a
    batch can be told by its place in a file.
    """

    def __init__(
        self,
        argument: str,
        caller: str,
        rule: str,
        got: str,
        fix: str,
        row: int | None = None,
        column: str | int | None = None,
    ) -> None:
        # All of it goes to `args`, so that the error survives a trip between processes.
        super().__init__(argument, caller, rule, got, fix, row, column)
        self.argument, self.caller, self.rule, self.got, self.fix = argument, caller, rule, got, fix
        self.row, self.column = row, column

    def __str__(self) -> str:
        where = [f"column {self.column}"] if self.column is not None else []
        if self.row is not None:
            where.insert(0, f"row {self.row}")
        place = " in " + ", ".join(where) if where else ""
        if self.rule.startswith(_VERBS):
            subject = f"{self.caller}: `{self.argument}`" if self.argument else self.caller
            return f"{subject} {self.rule}, got {self.got}{place}. {self.fix}."
        return (  # the older form, until every site is rewritten
            f"`{self.argument}` of {self.caller} must be {self.rule}. "
            f"Got {self.got}{place}. Try {self.fix}."
        )


class BadValueError(BaseRuleError, ValueError):
    """A value that breaks a rule. Rows count from 0."""


class TooLargeError(BadValueError):
    """There is more of something than is allowed."""


class BadTypeError(BaseRuleError, TypeError):
    """Something of the wrong kind altogether."""


class BadFileError(DubitoError, ValueError):
    """A file that cannot be read."""

    def __init__(self, path: str, problem: str, fix: str) -> None:
        super().__init__(path, problem, fix)
        self.path, self.problem, self.fix = path, problem, fix

    def __str__(self) -> str:
        fix = self.fix if self.fix[:1].isupper() else f"Try {self.fix}"
        return f"{self.path} cannot be read: {self.problem}. {fix}."


class EmptyStateError(DubitoError, ValueError):
    """A metric was asked of no rows at all."""

    def __init__(self, what: str, is_labeled: bool = True) -> None:
        super().__init__(what, is_labeled)
        self.what, self.is_labeled = what, is_labeled

    def __str__(self) -> str:
        if not self.is_labeled:
            return (
                f"{self.what} needs at least 1 row of positive weight. Got 0. "
                "Try rows whose weights are not all 0."
            )
        return (
            f"{self.what} needs at least 1 labeled row of positive weight. Got 0. "
            "Try rows whose labels are not all missing and whose weights are not all 0."
        )


class StateMismatchError(DubitoError, ValueError):
    """Two states that do not measure the same thing were added."""

    def __init__(self, what: str, left: Any, right: Any) -> None:
        super().__init__(what, left, right)
        self.what, self.left, self.right = what, left, right

    def __str__(self) -> str:
        return (
            f"States can be added only when their {self.what} are the same. "
            f"Got {self.left} and {self.right}. Try making both with the same settings."
        )


class UnfittedError(DubitoError, ValueError, AttributeError):
    """Something was asked of an object before it learned anything."""

    def __init__(self, kind: str, method: str) -> None:
        super().__init__(kind, method)
        self.kind, self.method = kind, method

    def __str__(self) -> str:
        return f"{self.method} of {self.kind} needs a fit first. Try `.fit(...)`."


class MissingExtraError(DubitoError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(feature, extra)
        self.feature, self.extra = feature, extra

    def __str__(self) -> str:
        return f"{self.feature} needs an optional part. Try `pip install 'dubito[{self.extra}]'`."


class DubitoWarning(UserWarning):
    """Any warning that dubito gives."""


class BoundWarning(DubitoWarning):
    """A fit ended at a bound, because no finite value is best."""


class InfiniteLossWarning(DubitoWarning):
    """A class that the model gave probability 0 happened, so that log loss is infinite."""


class MissingLabelsWarning(DubitoWarning):
    """Rows without a label were left out."""
