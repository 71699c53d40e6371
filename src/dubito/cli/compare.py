"""`dubito compare A B...`: models on the same rows."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer

from dubito.cli.columns import ColumnOptions, with_columns
from dubito.cli.reading import Reader

if TYPE_CHECKING:
    from dubito.data import Batch, Shards


@with_columns("features", "group")
def compare(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Predictions for the same rows: one file, directory or glob per model."
        ),
    ],
    options: ColumnOptions,
    reader: Reader,
    costs: Annotated[
        Path | None, typer.Option(help="Cost matrix (CSV or JSON); adds the cost of the decisions.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write an HTML report, e.g. compare.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Compare models on the same rows, with confidence intervals; the first is the baseline.

    Example: dubito compare old.csv new.csv --label y --logits 'logit_*' --id id
    """
    from dubito.cli.printing import passes, say, say_json, typed
    from dubito.cli.reading import read_costs, require_output_paths
    from dubito.monitor import compare as compared

    require_output_paths({"--output": output}, files)
    names = _names_of_models(files)
    predictions = options.open(*files)
    with passes():
        rows = list(map(reader.rows, predictions))
        if options.id is not None:
            rows = _by_ids(files, _drawn(files, rows))
        found = compared(
            None,
            dict(zip(names, rows, strict=True)),
            costs=None if costs is None else read_costs(costs, next(rows[0].batches()).outputs),
        )
    if output is not None:
        from dubito.report import comparison_report

        comparison_report(found, command=typed()).save(output)
    if as_json:
        say_json(found.to_dict())
        return
    say(str(found))
    if output is not None:
        say(f"\nThe report is in {output}.")


def _names_of_models(files: list[str]) -> list[str]:
    """Return what models are called: their files, by as little as tells them apart."""
    from dubito.cli.reading import resolved
    from dubito.errors import BadValueError

    if len(set(map(resolved, files))) < max(len(files), 2):
        rule, got = "two or more, none of them twice", ", ".join(files)
        raise BadValueError("FILES", "dubito compare", rule, got, "dubito compare old.csv new.csv")
    short = [PurePath(file).stem for file in files]
    return short if len(set(short)) == len(files) else files


def _drawn(files: list[str], rows: list[Shards]) -> list[Batch]:
    """Return all rows of each model, or those of a sample of the first where rows are streamed."""
    import numpy as np

    from dubito.data import ArrayShards
    from dubito.data.shards import SAMPLE_ROWS, joined, sample_rows
    from dubito.errors import BadValueError

    held = [one.batch for one in rows if isinstance(one, ArrayShards)]
    if len(held) == len(rows):
        return held
    sizes = [one.sum(len) for one in rows]
    for file, size in zip(files, sizes, strict=True):
        if size != sizes[0]:
            rule, got = f"the same ids as in {files[0]}", f"{size:,} rows beside {sizes[0]:,}"
            raise BadValueError("--id", file, rule, got, "files of the same rows")
    first = sample_rows(rows[0], SAMPLE_ROWS)
    wanted = np.asarray(first.ids).astype(str)

    def among(_: int, batch: Batch) -> Batch:
        return batch.take(np.flatnonzero(np.isin(np.asarray(batch.ids).astype(str), wanted)))

    return [first, *(joined(list(one.apply(among))) for one in rows[1:])]


def _by_ids(files: list[str], batches: list[Batch]) -> list[Shards]:
    """Return the rows of each file in the order of the first, by their ids, which are the same."""
    import numpy as np

    from dubito.data import ArrayShards
    from dubito.errors import BadValueError

    keys = [np.asarray(batch.ids).astype(str) for batch in batches]
    orders = [np.argsort(ids, kind="stable") for ids in keys]
    wanted = keys[0][orders[0]]
    back = np.argsort(orders[0])
    for file, ids, order in zip(files, keys, orders, strict=True):
        rows = ids[order]
        is_twice = rows[1:] == rows[:-1]
        if is_twice.any():
            rule, got = "different in every row", f"{rows[1:][is_twice][0]} twice"
            raise BadValueError("--id", file, rule, got, "a column that tells rows apart")
        odd = np.setxor1d(rows, wanted)
        if odd.size:
            rule, got = f"the same ids as in {files[0]}", f"{odd[0]} in one of them only"
            raise BadValueError("--id", file, rule, got, "files of the same rows")
    return [
        ArrayShards(batch.take(order[back])) for batch, order in zip(batches, orders, strict=True)
    ]
