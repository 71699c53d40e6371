"""`dubito policy`: look at a policy file, or seal it after an edit by hand."""

from pathlib import Path
from typing import Annotated

import typer

from dubito.cli.columns import NOT_OF_CLASSES, Given, with_columns

policy = typer.Typer(help="Look at a policy file, or seal it after an edit.", no_args_is_help=True)
File = Annotated[Path, typer.Argument(help="What `dubito fit` wrote.")]


@policy.command()
def show(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Say what a policy does, and what it did on rows it did not learn from.

    Example: dubito policy show policy.json
    """
    from dubito.cli.printing import say, say_json
    from dubito.decide import Policy

    loaded = Policy.load(file)
    if as_json:
        say_json({"report": loaded.report.to_dict(), "provenance": loaded.provenance})
        return
    say(str(loaded))
    made = loaded.provenance
    say(f"Fitted {made['created']} on {made['n_rows']:,} rows by dubito {made['dubito']}.")


@policy.command()
@with_columns("label", "weight", "group", *NOT_OF_CLASSES)
def explain(
    file: File,
    rows: Annotated[str, typer.Argument(help="Predictions, one row of which is explained.")],
    given: Given,
    row: Annotated[int, typer.Option(help="Its number, counted from 0.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the words as JSON.")] = False,
) -> None:
    """Say in words what a policy does with one row, and why.

    Example: dubito policy explain policy.json new.csv --row 17
    """
    from dubito.cli.printing import say, say_json
    from dubito.data import read
    from dubito.decide import Policy

    loaded = Policy.load(file)
    has_features = loaded.gate is not None and loaded.gate.needs_features
    [columns] = given.columns(
        rows, label="unused", has_features=has_features, classes=loaded.costs.classes
    )
    batch = read(rows, columns)
    words = loaded.explain(batch.outputs, batch.features, batch.amounts, row=row)
    if as_json:
        say_json({"row": row, "words": words})
        return
    say(words)


@policy.command()
def seal(
    file: File,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Check a policy that was edited by hand, and seal it again.

    Example: dubito policy seal policy.json
    """
    from dubito.cli.printing import say, say_json
    from dubito.decide import Policy

    Policy.seal(file)
    if as_json:
        say_json({"sealed": str(file)})
    else:
        say(f"{file} is sealed.")
