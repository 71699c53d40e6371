"""All errors and warnings of dubito.

    Exception
    └── DubitoError
        ├── BadValueError   (ValueError)    an invalid value; knows its row and column
        │   └── TooLargeError               an input that exceeds a size limit
        ├── BadTypeError    (TypeError)     a value of an unsupported type
        ├── BadFileError    (ValueError)    a file that cannot be read
        ├── EmptyStateError (ValueError)    a metric of no rows
        ├── StateMismatchError (ValueError) two states with different settings
        ├── UnfittedError (ValueError, AttributeError) an estimator used before `fit`
        └── MissingExtraError (ImportError) an optional dependency is not installed

    UserWarning
    └── DubitoWarning
        ├── BoundWarning                    a fit ended at a bound: no finite optimum exists
        ├── InfiniteLossWarning             a class with predicted probability 0 occurred
        ├── MissingLabelsWarning            rows without a label were ignored
        └── SingleClassWarning              a fit saw labels of one class only

A message names the problem, the offending value and its place, then the remedy: "Logits: `array`
must be finite, got nan in row 1, column 0. Drop invalid rows, or use -10000 for a masked class."
"""

from typing import Any, Self

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
    "SingleClassWarning",
    "StateMismatchError",
    "TooLargeError",
    "UnfittedError",
]

PACKAGES = {  # that the extras install
    "dask": "Dask",
    "mlflow": "MLflow",
    "plots": "Matplotlib",
    "serve": "a set of web packages (FastAPI and others)",
    "torch": "PyTorch",
}


class DubitoError(Exception):
    """The base class of all errors that dubito raises."""


class BaseRuleError(DubitoError):
    """An invalid argument.

    The message is two sentences: "{caller}: `{argument}` {rule}, got {got} in row R, column C.
    {fix}." Row and column are attributes, so that an error found in a batch can be reported with
    its position in the file.

    Parameters
    ----------
    argument : str
        The name of the argument. If empty, the caller is the subject: "PlattScaling supports
        exactly 2 classes, got 3. Use OneVsRest(PlattScaling())."
    caller : str
        The public function or class, or the file that the value comes from.
    rule : str
        A verb phrase, such as "must be finite" or "must have 2 columns". One that ends in a colon
        states a finding, which place and value follow: "cross in 1 of 9 rows in row 4: 3 below 2".
    got : str
        The offending value; empty if the rule states it.
    fix : str
        The remedy, an imperative sentence without its period.
    row, column : int or str, optional
        The position of the value; rows count from 0.
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
        # Everything goes to `args`, so that the error can be pickled.
        super().__init__(argument, caller, rule, got, fix, row, column)
        self.argument, self.caller, self.rule, self.got, self.fix = argument, caller, rule, got, fix
        self.row, self.column = row, column

    def moved(self, **changes: Any) -> Self:
        """Return the same error with another argument, caller, remedy, row or column.

        Parameters
        ----------
        **changes : any
            New values by parameter name, e.g. `caller="predictions.csv", row=17`.

        Returns
        -------
        BaseRuleError
            A new error of the same class.
        """
        names = ("argument", "caller", "rule", "got", "fix", "row", "column")
        return type(self)(*(changes.get(name, getattr(self, name)) for name in names))

    @property
    def problem(self) -> str:
        """What is wrong and where: the message without its subject and its remedy."""
        where = [f"column {self.column}"] if self.column is not None else []
        if self.row is not None:
            where.insert(0, f"row {self.row}")
        place = " in " + ", ".join(where) if where else ""
        if self.rule.endswith(":"):
            return f"{self.rule[:-1]}{place}: {self.got}"
        got = f", got {self.got}" if self.got else ""
        return f"{self.rule}{got}{place}"

    def __str__(self) -> str:
        subject = f"{self.caller}: `{self.argument}`" if self.argument else self.caller
        return f"{subject} {self.problem}. {self.fix}."


class BadValueError(BaseRuleError, ValueError):
    """An invalid value.

    Parameters
    ----------
    argument : str
        The name of the argument; if empty, the caller is the subject of the sentence.
    caller : str
        The public function or class, or the file that the value comes from.
    rule : str
        A verb phrase, such as "must be finite".
    got : str
        The offending value.
    fix : str
        The remedy, an imperative sentence without its period.
    row, column : int or str, optional
        The position of the value; rows count from 0.
    """


class TooLargeError(BadValueError):
    """An input that exceeds a size limit.

    Parameters
    ----------
    argument : str
        The name of the argument; if empty, the caller is the subject of the sentence.
    caller : str
        The public function or class, or the file that the value comes from.
    rule : str
        A verb phrase, such as "must be finite".
    got : str
        The offending value.
    fix : str
        The remedy, an imperative sentence without its period.
    row, column : int or str, optional
        The position of the value; rows count from 0.
    """


class BadTypeError(BaseRuleError, TypeError):
    """A value of an unsupported type.

    Parameters
    ----------
    argument : str
        The name of the argument; if empty, the caller is the subject of the sentence.
    caller : str
        The public function or class, or the file that the value comes from.
    rule : str
        A verb phrase, such as "must be finite".
    got : str
        The offending value.
    fix : str
        The remedy, an imperative sentence without its period.
    row, column : int or str, optional
        The position of the value; rows count from 0.
    """


class BadFileError(DubitoError, ValueError):
    """A file that cannot be read.

    Parameters
    ----------
    path : str
        The file.
    problem : str
        What is wrong with it.
    fix : str
        The remedy, an imperative sentence without its period.
    """

    def __init__(self, path: str, problem: str, fix: str) -> None:
        super().__init__(path, problem, fix)
        self.path, self.problem, self.fix = path, problem, fix

    def __str__(self) -> str:
        return f"{self.path} cannot be read: {self.problem}. {self.fix}."


class EmptyStateError(DubitoError, ValueError):
    """A metric or fit without any rows.

    Parameters
    ----------
    what : str
        The metric or estimator.
    is_labeled : bool, default=True
        Whether rows count only if they have a label.
    """

    def __init__(self, what: str, is_labeled: bool = True) -> None:
        super().__init__(what, is_labeled)
        self.what, self.is_labeled = what, is_labeled

    def __str__(self) -> str:
        kind = "labeled row" if self.is_labeled else "row"
        return f"{self.what} needs at least 1 {kind} of positive weight, got 0. {self.fix}."

    @property
    def fix(self) -> str:
        """The remedy."""
        kind = "labeled row" if self.is_labeled else "row"
        return f"Pass at least one {kind} with a positive weight"


class StateMismatchError(DubitoError, ValueError):
    """Two states that were made with different settings and cannot be added.

    Parameters
    ----------
    what : str
        The setting, in the plural.
    left, right : object
        Its two values.
    """

    def __init__(self, what: str, left: Any, right: Any) -> None:
        super().__init__(what, left, right)
        self.what, self.left, self.right = what, left, right

    def __str__(self) -> str:
        return (
            f"States can be added only if their {self.what} are equal, got {self.left} and "
            f"{self.right}. Make both with the same settings."
        )


class UnfittedError(DubitoError, ValueError, AttributeError):
    """An estimator that was used before `fit`.

    Parameters
    ----------
    kind : str
        The class of the estimator.
    method : str
        The method that needs a fit.
    first : str, default "fit"
        The method to call before.
    """

    def __init__(self, kind: str, method: str, first: str = "fit") -> None:
        super().__init__(kind, method, first)
        self.kind, self.method, self.first = kind, method, first

    def __str__(self) -> str:
        fix = f"Call `{self.first}` before `{self.method}`"
        return f"This {self.kind} is not fitted yet. {fix}."


class MissingExtraError(DubitoError, ImportError):
    """An optional dependency is not installed.

    Parameters
    ----------
    feature : str
        What needs the dependency, e.g. "dubito serve".
    extra : str
        The extra that installs it: the remedy is `pip install 'dubito[extra]'`.
    package : str, optional
        The dependency. Default: the one that the extra is for.
    """

    def __init__(self, feature: str, extra: str, package: str | None = None) -> None:
        super().__init__(feature, extra, package)
        self.feature, self.extra = feature, extra
        self.package = PACKAGES.get(extra, extra) if package is None else package

    def __str__(self) -> str:
        return f"{self.feature} needs {self.package}, which is not installed. {self.fix}."

    @property
    def fix(self) -> str:
        """The remedy."""
        return f"Run `pip install 'dubito[{self.extra}]'`"


class DubitoWarning(UserWarning):
    """The base class of all warnings of dubito."""


class BoundWarning(DubitoWarning):
    """A fit ended at a bound because no finite optimum exists."""


class InfiniteLossWarning(DubitoWarning):
    """A class with predicted probability 0 occurred, so log loss is infinite."""


class MissingLabelsWarning(DubitoWarning):
    """Rows without a label were ignored."""


class SingleClassWarning(DubitoWarning):
    """All labels of a fit were of one class, so it could not learn about the others."""
