"""`dubito audit FILE`: is the confidence in a file of predictions calibrated?"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from dubito.cli.columns import Given, with_columns
from dubito.cli.reading import Reader
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.data import Shards
    from dubito.decide import CostMatrix, CostReport
    from dubito.measure import Audit, RegressionAudit


SHORT = {
    "ece": "expected_calibration_error",
    "mce": "maximum_calibration_error",
    "brier": "brier_score",
    "nll": "negative_log_likelihood",
    "aurc": "area_under_risk_coverage",
    "augrc": "area_under_generalized_risk_coverage",
}
RULE = re.compile(r"\s*([\w/]+)\s*(<=|>=|<|>)\s*([-+.\deE]+)\s*")


def _findings(rules: list[str], figures: Mapping[str, float]) -> list[str]:
    """Return in words which rules are met by the figures: what should not be.

    >>> _findings(["ece>0.03"], {"expected_calibration_error": 0.05})
    ['expected_calibration_error is 0.05, which is > 0.03']
    """
    told = []
    for rule in rules:
        name, sign, limit = _parsed(rule)
        if name not in figures:
            [near] = get_close_matches(name, [*figures, *SHORT], 1, 0) or ["ece"]
            rule, fix = "about a figure that --json shows", f"'{near}{sign}{limit:g}'"
            raise BadValueError("--fail-on", "dubito", rule, name, fix)
        value = figures[name]
        is_beyond = value > limit if ">" in sign else value < limit
        if is_beyond or ("=" in sign and value == limit):
            told.append(f"{name} is {value:.6g}, which is {sign} {limit:g}")
    return told


def _parsed(rule: str) -> tuple[str, str, float]:
    """Return the figure, the sign and the number of a rule."""
    match = RULE.fullmatch(rule)
    try:
        if match is not None:
            return SHORT.get(match[1], match[1]), match[2], float(match[3])
    except ValueError:
        pass
    form = "a figure, one of < <= > >=, and a number"
    raise BadValueError("--fail-on", "dubito", form, repr(rule), "'ece>0.03'")


MOST_ROWS = 100_000  # of more, costs are those of a seeded sample


@with_columns()
def audit(
    file: Annotated[
        str,
        typer.Argument(
            help="Predictions: a Parquet, CSV, Arrow or NPZ file, directory, glob or URL."
        ),
    ],
    given: Given,
    reader: Reader,
    bins: Annotated[int, typer.Option(min=1, max=100_000, help="Number of confidence bins.")] = 15,
    costs: Annotated[
        Path | None, typer.Option(help="Cost matrix (CSV or JSON); adds the cost of the decisions.")
    ] = None,
    reject_action: Annotated[
        str | None, typer.Option(help="The reject action in --costs, e.g. ask.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write an HTML report, e.g. report.html.")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(help="Exit with code 1 if a metric crosses a limit, e.g. 'ece>0.03'."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure the calibration, accuracy and error detection of a file of predictions.

    Example: dubito audit predictions.csv --label y --probabilities 'p_*' -o report.html
    """
    from dubito.cli.printing import passes, say, say_json, typed
    from dubito.cli.reading import require_places
    from dubito.cli.tables import costs_of
    from dubito.measure import Audit, RegressionAudit
    from dubito.report import Report

    require_places({"--output": output}, [file])
    [columns] = given.columns(file, has_features=output is not None)
    with passes():
        rows = reader.rows(file, columns)
        result = RegressionAudit.of(rows) if given.is_regression else Audit.of(rows, n_bins=bins)
        told = _findings(fail_on or [], _figures_of(result))
        table = None
        if costs is not None:
            table = costs_of(costs, next(rows.batches()).outputs, None, reject_action)
        paid = None if table is None else _cost_of(rows, table)
        if output is not None:
            title = PurePath(file).name
            Report.of(rows, costs=table, title=title, command=typed()).save(output)
    if as_json:
        cost = {} if paid is None else {"cost": asdict(paid)}
        say_json({**result.to_dict(), **cost, "findings": told})
    else:
        say(str(result) if paid is None else f"{result}\n\n{paid}")
        if output is not None:
            say(f"\nThe report is in {output}.")
        if not given.is_regression and given.confidence is None:
            say("\nNext, a policy that knows when to ask a person:")
            asked = "" if costs is None else f" --costs {costs}"
            asked += "" if reject_action is None else f" --reject-action {reject_action}"
            if table is None or table.reject is None:
                asked += " --reject-cost 0.3"
            say(f"  dubito fit {quote(file)} {given}{asked}".replace("  --", " --"))
    if told:
        print("\n".join(f"dubito: {one}" for one in told), file=sys.stderr)
        raise typer.Exit(1)


def _figures_of(result: Audit | RegressionAudit) -> dict[str, float]:
    """Return the figures that rules are about; a log loss may be infinite."""
    loss = getattr(result, "log_loss", None)
    return result.figures if loss is None else {**result.figures, "log_loss": loss}


def _cost_of(rows: Shards, costs: CostMatrix) -> CostReport:
    """Return what deciding by the outputs as they are costs."""
    from dubito.data.shards import sample_rows
    from dubito.decide import cost_report

    batch = sample_rows(rows, MOST_ROWS, is_labeled=True)
    return cost_report(
        batch.labels,
        batch.outputs,
        costs,
        batch.row_costs,
        sample_weight=batch.weight,
    )
