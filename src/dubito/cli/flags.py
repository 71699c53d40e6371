"""Errors of the library about an argument that an option sets, as errors about this option."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from dubito.errors import BadTypeError, BadValueError


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
def errors_of_options(given: Mapping[str, Any]) -> Iterator[None]:
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
