"""`dubito drift REFERENCE CURRENT`: has anything moved?"""

from pathlib import Path, PurePath
from typing import Annotated

import typer

from dubito.cli.columns import ColumnOptions, with_columns
from dubito.cli.reading import Reader


@with_columns("mean", "std", "weight", "group", "id", "cost")
def drift(
    reference: Annotated[
        str,
        typer.Argument(help="Predictions from the reference period: a file, directory or glob."),
    ],
    current: Annotated[str, typer.Argument(help="Predictions from the period to check.")],
    options: ColumnOptions,
    reader: Reader,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write an HTML report, e.g. drift.html.")
    ] = None,
    is_failing: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with code 1 if drift is detected.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Test whether confidence, classes, uncertainty or features drifted between two periods.

    Labels are optional. Example: dubito drift may.csv june.csv --logits 'z_*'
    """
    from dubito.cli.printing import passes, say, say_json, typed
    from dubito.cli.reading import require_output_paths
    from dubito.monitor import detect_drift as drifted

    files = [reference, current]
    require_output_paths({"--output": output}, files)
    predictions = options.open(*files, label="optional", has_features=True)
    with passes():
        found = drifted(*map(reader.rows, predictions))
    if output is not None:
        from dubito.report import drift_report

        title = f"{PurePath(reference).name} and {PurePath(current).name}"
        drift_report(found, title=title, command=typed()).save(output)
    if as_json:
        say_json(found.to_dict())
    else:
        say(str(found))
        if output is not None:
            say(f"\nThe report is in {output}.")
    if is_failing and found.has_drifted:
        raise typer.Exit(1)
