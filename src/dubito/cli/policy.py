"""`dubito policy`: show, explain or seal a policy file, or print the schema of such files."""

from pathlib import Path

import typer

from dubito.cli.columns import ColumnOptions
from dubito.cli.cost_options import cost_table
from dubito.cli.options import command
from dubito.cli.printing import put, say, say_json
from dubito.cli.reading import policy_first
from dubito.errors import BadValueError

policy = typer.Typer(
    name="policy",
    help="Show, explain or seal a policy file, or print the schema of such files.",
    no_args_is_help=True,
)
MAX_SHOWN = 10  # actions and classes whose costs are shown


@policy.command()
@command()
def show(file: Path) -> None:
    """Show what a policy or a cascade does, and its out-of-sample results.

    Example: dubito policy show policy.json

    Options
    -------
    file
        Policy file written by `dubito fit`.
    """
    from dubito.decide import Cascade, MultiLabelPolicy, Policy
    from dubito.decide.policy.loading import load_policy_or_cascade

    loaded = load_policy_or_cascade(file)
    say_json({"report": loaded.report.to_dict(), "provenance": loaded.provenance})
    say(str(loaded))
    if isinstance(loaded, Cascade):
        say(f"Costs: {', '.join(f'{name} {cost:.4g}' for name, cost in loaded.costs.items())}.")
    elif isinstance(loaded, MultiLabelPolicy):
        say(f"Costs: {loaded.costs}.")
    elif isinstance(loaded, Policy) and max(loaded.costs.array.shape) <= MAX_SHOWN:
        put(cost_table(loaded.costs, [str(name) for name in loaded.classes]))
    origin = loaded.provenance
    say(f"Fitted {origin['created']} on {origin['n_rows']:,} rows by dubito {origin['dubito']}.")


@policy.command()
@command(*("label", "weight", "uncertain", "correct"))
def explain(
    file: Path,
    rows: str,
    *,
    options: ColumnOptions,
    row: int = 0,
) -> None:
    """Explain which action a policy takes for one row, and why.

    Example: dubito policy explain policy.json new.csv --row 17

    Options
    -------
    group
        Column of groups of scores, such as subjects. Default: that of the fit.
    file
        Policy file written by `dubito fit`.
    rows
        Predictions that contain the row to explain.
    row
        Row number, counted from 0.
    as_json
        Print the explanation as JSON.

    Scored answers (e.g. of a language model)
    -----------------------------------------
    confidence
        Column of confidences in answers, as for the fit.
    """
    from dubito.data import read
    from dubito.decide import load_policy

    with policy_first("dubito policy explain", file, [rows]):
        loaded = load_policy(file)
    [predictions] = options.open_for(loaded, file, rows)
    batch = read(predictions.source, predictions.columns)
    if not 0 <= row < len(batch):
        rule, fix = f"must be between 0 and {len(batch) - 1}", f"Pass a row of {rows}"
        raise BadValueError("", "--row", rule, str(row), fix)
    explanation = loaded.explain_batch(batch, row)
    say_json({"row": row, "explanation": explanation})
    say(explanation)


@policy.command()
@command()
def seal(file: Path) -> None:
    """Validate a policy that was edited by hand and update its checksum.

    Example: dubito policy seal policy.json

    Options
    -------
    file
        Policy file written by `dubito fit`.
    as_json
        Print the result as JSON.
    """
    from dubito.decide.policy.loading import seal_policy

    seal_policy(file)
    say_json({"sealed": str(file)})
    say(f"Updated the checksum of {file}.")


@policy.command()
def schema() -> None:
    """Print the JSON schema of policy files, for programs in other languages.

    Example: dubito policy schema > policy.schema.json
    """
    from dubito.decide.policy.loading import policy_schema
    from dubito.serialization.schema import schema_text

    typer.echo(schema_text(policy_schema()))
