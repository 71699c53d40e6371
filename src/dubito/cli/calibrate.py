"""`dubito calibrate FILE`: what is the calibrated probability?"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from dubito.cli.columns import (
    FOLD_GROUPS,
    NOT_CLASSIFICATION,
    ColumnOptions,
    require_positive,
    with_columns,
)
from dubito.cli.reading import Reader

Z = 1.96  # standard errors to each side of a 95 % interval


class Choice(StrEnum):
    """What to choose among the candidates."""

    auto = "auto"
    simple = "simple"


@with_columns("id", "cost", "features", *NOT_CLASSIFICATION, group=FOLD_GROUPS)
def calibrate(
    file: Annotated[
        str,
        typer.Argument(
            help="Predictions: a Parquet, CSV, Arrow or NPZ file, directory, glob or URL."
        ),
    ],
    options: ColumnOptions,
    reader: Reader,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Write the calibrator here.")
    ] = Path("calibrator.json"),
    calibrator: Annotated[
        Choice,
        typer.Option(help="auto mixes up to three calibrators; simple takes the best single one."),
    ] = Choice.auto,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fit the calibrator with the best cross-validated log loss and save it.

    Example: dubito calibrate predictions.csv --label y --logits 'logit_*' -o calibrator.json
    """
    import json

    from dubito.calibrate import AutoCalibrator
    from dubito.cli.printing import passes, say, say_json, show_table
    from dubito.cli.reading import require_output_paths
    from dubito.data.sink import write_atomic
    from dubito.formatting import percent

    require_output_paths({"--output": output}, [file])
    [predictions] = options.open(file)
    with passes():
        max_parts = 1 if calibrator == Choice.simple else 3
        rows = reader.rows(predictions)
        require_positive(options.positive, next(rows.batches()).outputs, file)
        fitted = AutoCalibrator(max_parts=max_parts).fit(rows)
    write_atomic(output, json.dumps(fitted.to_dict(), allow_nan=False))
    leaderboard = [_with_interval(line) for line in fitted.leaderboard_]
    if as_json:
        chosen = {"chosen": fitted.chosen_, "reason": fitted.reason_}
        say_json({**chosen, "leaderboard": leaderboard, "output": str(output)})
        return
    summary = f"{fitted.summary()}; {fitted.evidence_}"
    say(f"{summary[0].upper()}{summary[1:]}.\n")
    show_table(
        ("calibrator", "log loss", "95 % interval", "weight"),
        [
            (
                line["name"],
                f"{line['log_loss']:.4f}",
                f"{line['low']:.4f} to {line['high']:.4f}",
                "" if line["weight"] is None else f"{percent(line['weight'])}",
            )
            for line in leaderboard
        ],
    )
    say("\nLog loss is cross-validated.")
    say(f"Written to {output}. In Python:")
    say("  import json\n  from dubito.calibrate import BaseCalibrator")
    say(f"  BaseCalibrator.from_dict(json.load(open({str(output)!r})))")


def _with_interval(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of the leaderboard with the 95 % interval of its log loss."""
    reach = Z * line["standard_error"]
    return {**line, "low": line["log_loss"] - reach, "high": line["log_loss"] + reach}
