"""Commands from functions: parameters are options, docstrings their help, errors name them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import fields
from functools import wraps
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

import typer

from dubito.cli.printing import printed_as_json
from dubito.errors import BadTypeError, BadValueError

HEADING = re.compile(r"\n\n([^\n]+)\n-{3,}\n")
DEFAULT = "Options"  # the heading of options that help shows without a panel of their own
COMMON = {  # help of options that several commands have
    "file": "Predictions: a Parquet, CSV, Arrow or NPZ file, directory, glob or URL.",
    "policy": "Policy file written by `dubito fit`.",
    "costs": "Cost matrix (CSV or JSON); adds the cost of the decisions.",
    "cost": "Cost of an action in a class: a number or an expression of columns, e.g. "
    "'pass,fraud=amount'; 'review,*=5' for all classes. Repeatable; overrides --costs.",
    "calibrator": "auto (mixes up to three calibrators), simple (the best single one), or a name: "
    "TemperatureScaling, VectorScaling, ...; for regression, VarianceScaling or "
    "QuantileRecalibration.",
    "database": "Database URL: sqlite:///file, readable by its owner only, or "
    "postgresql+psycopg://user@host/name.",
    "bad_rows": "Write invalid rows to this CSV or TSV and continue.",
    "ids": "Column of row identifiers.",
    "seed": "Random seed.",
    "as_json": "Print the results as JSON.",
}
AS_JSON = inspect.Parameter(
    "as_json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=bool
)


class OptionGroup:
    """Options that a command takes as one argument, an instance of a subclass.

    The parameters of the subclass are the options. Those that may be `repeated`, by these flags,
    are joined by commas.
    """

    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})

    @property
    def given(self) -> dict[str, Any]:
        """The options that were given, by name; switches aside."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        return {name: one for name, one in values.items() if not isinstance(one, bool | None)}

    def require_none(self, needed: str, remedy: str) -> None:
        """Raise if one is given without what it needs."""
        for name, value in self.given.items():
            got = f"{value if isinstance(value, str) else f'{value:g}'} alone"
            fix = f"Pass {remedy}, or leave it out"
            if name.startswith("review"):
                fix = f"Pass --reject-cost {value:g} for one class per row, or {remedy}"
            raise BadValueError("", flag(name), f"requires {needed}", got, fix)


def flag(name: str) -> str:
    """Return an option as it is typed.

    >>> flag("cost_under")
    '--cost-under'
    """
    return f"--{name.replace('_', '-')}"


def join_choices(names: Sequence[str]) -> str:
    """Return names of which one is to be chosen.

    >>> join_choices(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join([", ".join(names[:-1])] * (len(names) > 1) + [*names[-1:]])


def first_few(names: Sequence[str], most: int = 4) -> str:
    """Return the first few of many names.

    >>> first_few(list("abcdef"))
    'a, b, c, d and 2 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more or "none"


def numbers_in(text: str, option: str, example: str) -> list[float]:
    """Return the numbers of an option, which are separated by commas, or raise.

    >>> numbers_in("0.05, 0.95", "--levels", "0.05,0.5,0.95")
    [0.05, 0.95]
    """
    try:
        found = [float(one) for one in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(abs(one) <= 1e15 for one in found):
        rule, fix = "must be numbers separated by commas", f"Pass {option} {example}"
        raise BadValueError("", option, rule, text, fix)
    return found


def command(
    *unused: str, hidden: Iterable[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a command of a function.

    Its positional parameters are arguments, those by keyword are options, and an `OptionGroup`
    stands for all of its options except `unused` ones; `hidden` ones are accepted and not shown. A
    group that is a context manager is closed after the command. Each command has an option `--json`
    besides, with which `say_json` prints and `say` does not.

    The docstring of the function, or else of the group, has the help of each under the heading
    "Options", or under the title of a panel.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        summary, texts = _split_help(function.__doc__ or "")
        parameters: list[inspect.Parameter] = []
        groups: dict[str, tuple[type[OptionGroup], list[inspect.Parameter]]] = {}
        for one in inspect.signature(function, eval_str=True).parameters.values():
            if not (isinstance(one.annotation, type) and issubclass(one.annotation, OptionGroup)):
                parameters.append(_as_typer(one, texts, is_option=one.kind is one.KEYWORD_ONLY))
                continue
            group = one.annotation
            if hasattr(group, "__exit__"):  # the options of a reader come last
                parameters.append(_as_typer(AS_JSON, texts))
            own = inspect.signature(group, eval_str=True).parameters.values()
            known = _split_help(group.__doc__ or "")[1] | texts
            options = [
                _as_typer(each, known, is_hidden=each.name in hidden, flags=group.repeated)
                for each in own
                if each.name not in unused
            ]
            groups[one.name] = group, options
            parameters += options
        if all(one.name != AS_JSON.name for one in parameters):
            parameters.append(_as_typer(AS_JSON, texts))

        @wraps(function)
        def run(*arguments: Any, **values: Any) -> None:
            with ExitStack() as opened:
                opened.enter_context(printed_as_json(values.pop(AS_JSON.name, False)))
                known = dict(values)
                opened.enter_context(_errors_of_options(known))
                for name, (group, options) in groups.items():
                    given = {one.name: values.pop(one.name, one.default) for one in options}
                    repeated = {each: given[each] for each in group.repeated if given.get(each)}
                    given |= {each: ",".join(parts) for each, parts in repeated.items()}
                    known |= given
                    made: Any = group(**given)
                    is_closed = hasattr(made, "__exit__")
                    values[name] = opened.enter_context(made) if is_closed else made
                function(*arguments, **values)

        run.__doc__ = summary
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        return run

    return decorate


def _split_help(text: str) -> tuple[str, dict[str, tuple[str, str | None]]]:
    r"""Return a docstring without its options, and the help and panel of each.

    >>> _split_help("Do it.\n\nOptions\n-------\nseed\n    Random\n    seed.\n")
    ('Do it.', {'seed': ('Random seed.', None)})
    """
    summary, *sections = HEADING.split(inspect.cleandoc(text))
    found = {}
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        for entry in re.split(r"\n+(?=\S)", body.strip()):
            name, _, words = entry.partition("\n")
            found[name] = " ".join(words.split()), None if title == DEFAULT else title
    return summary, found


def _as_typer(
    one: inspect.Parameter,
    texts: Mapping[str, tuple[str, str | None]],
    *,
    is_option: bool = True,
    is_hidden: bool = False,
    flags: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
) -> inspect.Parameter:
    """Return a parameter as typer declares it; a bool is a flag that cannot be negated."""
    kind: Any = one.annotation
    info = None
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
        info = copy(info)
    names = flags.get(one.name, ())
    if names:
        kind = list[str] | None
    elif kind is bool:
        names = (flag(one.name.removeprefix("is_").removeprefix("as_")),)
    elif one.name == "output":
        names = ("--output", "-o")
    if info is None:
        info = typer.Option(*names) if is_option else typer.Argument()
    text, panel = texts[one.name] if one.name in texts else (COMMON[one.name], None)
    info.help, info.rich_help_panel, info.hidden = text, panel, is_hidden
    annotation = Annotated[kind, info]
    return one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=annotation)


class Flag(NamedTuple):
    """An option that sets an argument of the library, and a remedy that can be typed.

    Without a `fix` or `rule`, that of the library holds for the option, too.
    """

    option: str
    fix: str = ""
    rule: str = ""


# What a class or function of the library calls an option.
FLAGS = {
    ("OODGate", "alpha"): Flag("ood_alpha", "Pass --ood-alpha 0.01"),
    ("RiskBound", "delta"): Flag("risk_delta", "Pass --risk-delta 0.05"),
    ("RiskBound", "max_cost"): Flag(
        "max_cost", "Pass a --max-cost in that range, or --max-risk 0.05 instead"
    ),
    ("Policy.fit", "risk"): Flag(
        "max_cost", "Pass --max-risk 0.05 instead", "needs costs that are the same for all rows"
    ),
    ("Policy.fit", "current"): Flag(
        "current_threshold",
        "Pass --current-action with the column of the actions taken, or leave it out",
        "must be left out with three or more classes",
    ),
    ("Policy.fit", "current_actions"): Flag(
        "current_action",
        "{fix} there, or leave out --current-action",
        "must hold names of actions of the costs",
    ),
    ("Policy.fit", "deploy_prior"): Flag("deploy_prior", "{fix}"),
    ("FBeta", "beta"): Flag("f_beta", "Pass --f-beta 1"),
    ("Cascade.fit", "error_cost"): Flag("error_cost", "Pass --error-cost 1"),
    ("Cascade.fit", "abstain_cost"): Flag("abstain_cost", "Pass --abstain-cost 0.2"),
    ("Cascade.fit", "review_cost"): Flag("review_cost", "Pass --review-cost 0.2"),
    ("Cascade.fit", "cost_per_second"): Flag("cost_per_second", "Pass --cost-per-second 0.1"),
    ("Cascade.fit", "max_calls"): Flag("max_calls", "Pass --max-calls 1"),
}
# What is said of the columns of a file, or by several functions.
ANYWHERE = {
    "random_state": Flag(
        "seed", "Pass --seed 0", "must be an integer from 0 to 4294967295 (2**32 - 1)"
    ),
    "classes": Flag("classes", "Leave out --classes"),
    "levels": Flag("levels"),
    "uncertain": Flag("uncertain", "Pass --uncertain ignore"),
}
SUMS = "must have rows that sum to 1"


@contextmanager
def _errors_of_options(given: Mapping[str, Any]) -> Iterator[None]:
    """Report what is wrong with an argument as what is wrong with the option that sets it.

    `given` are the options of the command by name.
    """
    try:
        yield
    except (BadValueError, BadTypeError) as error:
        found = _of_option(error, given)
        if found is error:
            raise
        raise found from error


def _of_option(
    error: BadValueError | BadTypeError, given: Mapping[str, Any]
) -> BadValueError | BadTypeError:
    """Return an error in terms of an option, and the same one if it is not about one."""
    if error.argument.startswith("--"):  # of a module that serves the command line only
        is_file = not error.caller.startswith("dubito")
        option = f"{error.caller}: {error.argument}" if is_file else error.argument
        return error.moved(argument="", caller=option)
    if given.get("percent") and ("percent" in error.fix or error.rule.startswith(SUMS)):
        return error.moved(fix="Leave out --percent, unless the numbers are from 0 to 100")
    if error.caller == given.get("calibrator") and not error.argument:
        fix = "Pass --calibrator auto or --calibrator TemperatureScaling"
        return error.moved(caller=f"--calibrator {error.caller}", fix=fix)
    flag = FLAGS.get((error.caller, error.argument))
    if flag is None and error.row is None:
        flag = ANYWHERE.get(error.argument)
    value = None if flag is None else given.get(flag.option)
    if flag is None or value is None:
        return error
    option, got, shown = f"--{flag.option.replace('_', '-')}", error.got, _shown(value)
    if got in (repr(value), repr(_as_number(value)), shown):
        got = shown
    else:
        option = f"{option} {shown}"
    changes = {"rule": flag.rule or error.rule, "fix": (flag.fix or "{fix}").format(fix=error.fix)}
    return error.moved(argument="", caller=option, got=got, **changes)


def _as_number(value: Any) -> Any:
    """Return text that is a number as this number, and other values unchanged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _shown(value: Any) -> str:
    """Return a value of an option as it is typed.

    >>> _shown(2.0), _shown("a,b"), _shown(["a", "b"])
    ('2', 'a,b', 'a,b')
    """
    if isinstance(value, float):
        return f"{value:g}"
    return ",".join(value) if isinstance(value, list | tuple) else f"{value}"
