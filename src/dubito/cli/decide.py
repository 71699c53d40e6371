"""`dubito decide POLICY FILES...`: actions for new predictions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.cli.columns import NOT_OF_CLASSES, Given, with_columns
from dubito.cli.reading import Reader

if TYPE_CHECKING:
    from dubito.decide import Policy


@with_columns("label", "weight", "group", *NOT_OF_CLASSES)
def decide(
    policy: Annotated[Path, typer.Argument(help="Policy file written by `dubito fit`.")],
    files: Annotated[
        list[str],
        typer.Argument(help="New predictions: one or more files, directories, globs or URLs."),
    ],
    given: Given,
    reader: Reader,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="A file, or a directory/ or URL, where an interrupted run resumes.",
        ),
    ] = "decisions.parquet",
    review: Annotated[
        Path | None,
        typer.Option(help="CSV of rejected rows for human review, highest review value first."),
    ] = None,
    bad_rows: Annotated[
        Path | None, typer.Option(help="CSV to set invalid rows aside in, instead of stopping.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Choose an action for each row of new predictions.

    Example: dubito decide policy.json new.csv -o decisions.parquet --review review.csv
    """
    from dubito.cli.decision_run import Run
    from dubito.cli.printing import say, say_json
    from dubito.cli.reading import require_places
    from dubito.decide import Policy

    places = {"--output": output, "--review": review, "--bad-rows": bad_rows}
    require_places(places, [policy, *files], tables=("--review", "--bad-rows"))
    loaded = Policy.load(policy)
    if review is not None:
        _require_reject(loaded, policy)
    run = Run.of(loaded, policy, files, given, bad_rows, reader)
    is_folder = output.endswith("/") or Path(output).is_dir() or not PurePath(output).suffix
    parts = run.to_folder(output) if is_folder else run.to_file(output)
    counts = {"rows": sum(parts.values()), "files": len(run.columns)}
    if review is not None:
        counts["for_review"] = _write_review(list(parts), review, loaded)
    if run.bad_rows is not None:
        counts["bad_rows"] = len(run.bad_rows)
    if as_json:
        say_json({**counts, "output": output})
        return
    said = f"{counts['files']:,} files" if len(run.columns) > 1 else files[0]
    say(f"{counts['rows']:,} rows of {said} decided, in {output}.")
    if review is not None:
        say(f"{counts['for_review']:,} rows for a person, the most worth a look first: {review}.")
    if bad_rows is not None:
        say(f"{counts['bad_rows']:,} bad rows: {bad_rows}.")


def _require_reject(policy: Policy, file: Path) -> None:
    """Raise where a policy hands nothing over, so that there is nothing to review."""
    from dubito.errors import BadValueError

    if policy.costs.reject is None:
        rule, fix = "left out, as the policy hands no row over", "dubito fit with --reject-cost"
        raise BadValueError("--review", str(file), rule, "it", fix)


def _write_review(decided: list[str], review: Path, policy: Policy) -> int:
    """Write the rows that are handed over, those first where a look is worth most."""
    import numpy as np

    from dubito.data.tables import rows_where

    assert policy.costs.reject is not None
    name = policy.costs.actions[policy.costs.reject]
    parts = [rows_where(path, "action", name) for path in decided]
    columns = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    order = np.argsort(-columns["review_value"].astype(np.float64), kind="stable")
    _write_table({key: values[order] for key, values in columns.items() if key != "action"}, review)
    return int(order.size)


def _write_table(columns: Mapping[str, Any], path: Path) -> None:
    """Write columns to a file."""
    from dubito.data import Sink

    with Sink(path) as sink:
        sink.write(columns)
