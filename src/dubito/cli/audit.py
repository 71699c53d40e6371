"""`dubito audit FILE`: how far is the confidence in a file of predictions from truth?"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from dubito.cli.columns import Given, with_columns
from dubito.cli.reading import Reader

if TYPE_CHECKING:
    from dubito.data import Shards
    from dubito.decide import CostMatrix, CostReport
    from dubito.measure import Audit, RegressionAudit

__all__ = ["audit"]

MOST_ROWS = 100_000  # of more, costs are those of a seeded sample


@with_columns()
def audit(
    file: Annotated[
        str, typer.Argument(help="Parquet, CSV, Arrow, NPZ: a file, folder, pattern or URL.")
    ],
    given: Given,
    reader: Reader,
    bins: Annotated[int, typer.Option(min=1, max=100_000, help="Bins of confidence.")] = 15,
    costs: Annotated[
        Path | None, typer.Option(help="CSV or JSON of costs: what deciding by it costs.")
    ] = None,
    reject_action: Annotated[
        str | None, typer.Option(help="The action of --costs that hands rows over, say ask.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write a report: report.html.")
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help="End with 1 if a figure is so, say 'ece>0.03'.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Tell how far the confidence in a file of predictions is from truth.

    Example: dubito audit predictions.csv --label y --probabilities 'p_*' -o report.html
    """
    from dubito.cli.failing import findings
    from dubito.cli.places import require_places
    from dubito.cli.printing import passes, say, say_json, typed
    from dubito.cli.tables import costs_of
    from dubito.measure import Audit, RegressionAudit
    from dubito.report import Report

    require_places({"--output": output}, [file])
    [columns] = given.columns(file, has_features=output is not None)
    with passes():
        rows = reader.rows(file, columns)
        result = RegressionAudit.of(rows) if given.is_regression else Audit.of(rows, n_bins=bins)
        told = findings(fail_on or [], figures_of(result))
        table = None
        if costs is not None:
            table = costs_of(costs, next(rows.batches()).outputs, None, reject_action)
        paid = None if table is None else cost_of(rows, table)
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


def figures_of(result: Audit | RegressionAudit) -> dict[str, float]:
    """Return the figures that rules are about; a log loss may be infinite."""
    loss = getattr(result, "log_loss", None)
    return result.figures if loss is None else {**result.figures, "log_loss": loss}


def cost_of(rows: Shards, costs: CostMatrix) -> CostReport:
    """Return what deciding by the outputs as they are costs."""
    from dubito.data.sampling import sample_rows
    from dubito.decide import cost_report

    batch = sample_rows(rows, MOST_ROWS, is_labeled=True)
    return cost_report(
        batch.truth,
        batch.outputs,
        costs,
        batch.amounts,
        sample_weight=batch.weight,
    )
