"""`dubito drift REFERENCE CURRENT`: has the data or the model drifted?"""

from pathlib import Path, PurePath
from typing import Annotated

import typer

from dubito.cli.columns import MULTILABEL, ColumnOptions, with_columns
from dubito.cli.reading import Reader


@with_columns("mean", "std", "weight", "group", "id", "cost", "uncertain", hidden=MULTILABEL)
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
    fail_on_drift: Annotated[
        bool, typer.Option("--fail-on-drift", help="Exit with code 1 if drift is detected.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Test whether confidence, classes, uncertainty or features drifted between two periods.

    Labels are optional. Example: dubito drift may.csv june.csv --logits 'z_*'
    """
    from dubito.cli.printing import passes, say, say_json, typed
    from dubito.cli.reading import require_output_paths
    from dubito.monitor import detect_drift

    files = [reference, current]
    options.require_single_label("drift")
    require_output_paths({"--output": output}, files, {"--output": (".html",)})
    predictions = options.open(*files, label="optional", has_features=True)
    with passes():
        result = detect_drift(*map(reader.rows, predictions))
    if output is not None:
        from dubito.report import drift_report

        title = f"{PurePath(reference).name} and {PurePath(current).name}"
        drift_report(result, title=title, command=typed()).save(output)
    if as_json:
        say_json(result.to_dict())
    else:
        say(str(result))
        if output is not None:
            say(f"\nThe report is in {output}.")
    if fail_on_drift and result.has_drifted:
        raise typer.Exit(1)
