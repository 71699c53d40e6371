"""`dubito audit FILE`: how far is the confidence in a file of predictions from truth?"""

import json
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["audit"]


def audit(
    file: Annotated[Path, typer.Argument(help="Parquet, CSV, TSV, Arrow, NPZ or NPY.")],
    label: Annotated[str | None, typer.Option(help="Column of the true class.")] = None,
    logits: Annotated[str | None, typer.Option(help="Columns of logits, say 'logit_*'.")] = None,
    probabilities: Annotated[
        str | None, typer.Option(help="Columns of probabilities, say 'p_*'.")
    ] = None,
    confidence: Annotated[
        str | None, typer.Option(help="Column of the top confidence, with --correct.")
    ] = None,
    correct: Annotated[str | None, typer.Option(help="Column of 0 and 1: was it right?")] = None,
    mean: Annotated[
        str | None, typer.Option(help="Column of the predicted mean, with --std (regression).")
    ] = None,
    std: Annotated[str | None, typer.Option(help="Column of the standard deviation.")] = None,
    weight: Annotated[str | None, typer.Option(help="Column of row weights.")] = None,
    group: Annotated[str | None, typer.Option(help="Column of groups to tell apart.")] = None,
    bins: Annotated[int, typer.Option(help="Bins of confidence.")] = 15,
    as_json: Annotated[bool, typer.Option("--json", help="Print figures as JSON.")] = False,
) -> None:
    """Tell how far the confidence in a file of predictions is from truth.

    Example: dubito audit predictions.csv --label y --probabilities 'p_*'
    """
    from dubito.data import Columns, scan
    from dubito.errors import BadValueError
    from dubito.measure import Audit, RegressionAudit

    if label is None and confidence is None:
        fix = "--label y, or --confidence c --correct h where only that is known"
        raise BadValueError("--label", "dubito audit", "the column of the truth", "nothing", fix)
    columns = Columns(
        label=label,
        logits=logits,
        probabilities=probabilities,
        confidence=confidence,
        correct=correct,
        mean=mean,
        std=std,
        weight=weight,
        group=group,
    )
    shards = scan(file, columns)
    result = RegressionAudit.of(shards) if mean else Audit.of(shards, n_bins=bins)
    print(json.dumps(result.to_dict(), indent=2) if as_json else result)
