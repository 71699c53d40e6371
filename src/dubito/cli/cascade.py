"""`dubito cascade fit|decide`: which model to call for a row, and when to stop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.arrays import FloatArray
    from dubito.decide import Cascade

cascade = typer.Typer(
    help="Call a larger model only where its answer is worth the price.", no_args_is_help=True
)
FIT, DECIDE = "dubito cascade fit", "dubito cascade decide"
COST = " cost"  # follows the name of a model in the columns that a policy file keeps
EXAMPLE = "small=conf_small:ok_small:0.002"


@cascade.command()
def fit(
    file: Annotated[str, typer.Argument(help="Rows for which all models were called.")],
    model: Annotated[
        list[str],
        typer.Option(
            help="NAME=CONFIDENCE:CORRECT:COST, or with :SECONDS: columns of the confidence and of "
            "whether the answer was correct, and the cost and latency of a call, a column or a "
            "number. Once per model."
        ),
    ],
    error_cost: Annotated[float, typer.Option(help="Cost of a wrong answer.")] = 1.0,
    abstain_cost: Annotated[float | None, typer.Option(help="Cost of no answer.")] = None,
    review_cost: Annotated[float | None, typer.Option(help="Cost of asking a person.")] = None,
    review_error_rate: Annotated[float, typer.Option(help="How often the person is wrong.")] = 0.0,
    cost_per_second: Annotated[float, typer.Option(help="Cost of waiting a second.")] = 0.0,
    max_calls: Annotated[int, typer.Option(help="Largest number of models to call.")] = 3,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the cascade, e.g. cascade.json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Choose which models to call, in which order, and when to stop, by expected cost.

    Example: dubito cascade fit questions.csv --model small=conf_small:ok_small:0.002
    --model large=conf_large:ok_large:0.05 --abstain-cost 0.3 -o cascade.json
    """
    from dataclasses import replace

    from dubito import Cascade, TopLabel
    from dubito.cli.printing import say, say_json
    from dubito.cli.reading import require_output_paths

    require_output_paths({"--output": output}, [file], {"--output": (".json",)})
    table = _Table(file, [_Model.of(one, FIT, 3) for one in model], FIT)
    outputs = {
        one.name: TopLabel(
            table.columns[one.confidence].numbers(), table.columns[one.correct].shares()
        )
        for one in table.models
    }
    latencies = {one.name: table.amount(one.seconds) for one in table.models}
    fitted = Cascade.fit(
        outputs,
        costs={one.name: table.amount(one.cost) for one in table.models},
        error_cost=error_cost,
        abstain_cost=abstain_cost,
        review_cost=review_cost,
        review_error_rate=review_error_rate,
        latencies=latencies,
        cost_per_second=cost_per_second,
        max_calls=max_calls,
        random_state=seed,
    )
    columns = {one.name: one.confidence for one in table.models}
    columns |= {f"{one.name}{COST}": one.cost for one in table.models if one.cost in table.columns}
    fitted = replace(fitted, provenance={**fitted.provenance, "columns": columns})
    if output is not None:
        fitted.save(output)
    if as_json:
        say_json({"tiers": list(fitted.tiers), **fitted.report.to_dict()})
        return
    say(str(fitted))
    if output is not None:
        say(f"\nThe cascade is in {output}. Next: dubito cascade decide {output} NEW.csv")


@cascade.command()
def decide(
    file: Annotated[Path, typer.Argument(help="Cascade written by `dubito cascade fit`.")],
    rows: Annotated[
        str,
        typer.Argument(help="Rows, with blank cells for models that have not been called."),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=CONFIDENCE or NAME=CONFIDENCE:COST, where columns differ from the fit."
        ),
    ] = None,
    ids: Annotated[str | None, typer.Option("--id", help="Column of row ids.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the decisions, e.g. next.csv.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Decide for each row: call a model next, take its answer, abstain or ask a person.

    Example: dubito cascade decide cascade.json new.csv --id id -o next.csv
    """
    import numpy as np

    from dubito import Cascade
    from dubito.cli.printing import say, say_json
    from dubito.cli.reading import policy_first, require_output_paths
    from dubito.data import Sink
    from dubito.formatting import plain

    require_output_paths({"--output": output}, [file, rows])
    with policy_first(DECIDE, file, [rows]):
        loaded = Cascade.load(file)
    table = _Table(rows, _models_of(loaded, model or []), DECIDE, ids, is_partial=True)
    known = {loaded.models[0]: np.full(table.n_rows, np.nan)}  # also if no output is known yet
    for one in table.models:
        if (column := table.known(one.confidence)) is not None:
            known[one.name] = column
    decisions = loaded.decide(
        known,
        costs={
            one.name: table.amount(one.cost)
            for one in table.models
            if one.cost and one.cost not in table.missing
        },
    )
    notes = []
    for one in table.models:
        if one.cost in table.missing:
            price = plain(float(loaded.call_costs[loaded.tiers.index(one.name)]))
            mean = f"a call of {one.name} counts as {price}, the mean of the fit"
            notes.append(f"{rows} has no column {one.cost}: {mean}.")
    counts = {
        name: int(np.count_nonzero(decisions.action == k))
        for k, name in enumerate(decisions.actions)
    }
    if output is not None:
        key = {ids: table.columns[ids].values()} if ids else {"row": np.arange(len(decisions))}
        with Sink(output) as sink:
            sink.write({**key, **decisions.columns()})
    if as_json:
        say_json({"n_rows": len(decisions), "actions": counts, "notes": notes})
        return
    say(_next_step(counts))
    say(str(decisions))
    for note in notes:
        say(note)
    if output is not None:
        say(f"The action of each row is in {output}.")


def _next_step(counts: dict[str, int]) -> str:
    """Return which models to call next.

    >>> _next_step({"call large": 1200, "answer small": 9})
    'Next: call large for 1,200 rows.'
    >>> _next_step({"call large": 0, "answer small": 9})
    'No further calls: every row is decided.'
    """
    from dubito.formatting import join_words, quantity

    calls = [f"{k} for {quantity(n)}" for k, n in counts.items() if n and k.startswith("call ")]
    return f"Next: {join_words(calls)}." if calls else "No further calls: every row is decided."


class _Model(NamedTuple):
    """The columns of a model; a cost and latency may be numbers, "" without any."""

    name: str
    confidence: str
    correct: str = ""
    cost: str = ""
    seconds: str = ""
    is_given: bool = False  # with --model, not remembered from the fit

    @classmethod
    def of(cls, text: str, caller: str, least: int) -> _Model:
        """Return the parts of NAME=CONFIDENCE:CORRECT:COST:SECONDS."""
        name, sign, columns = text.partition("=")
        parts = columns.split(":")
        if not (name and sign and least <= len(parts) <= 4 and all(parts)):
            rule = "must be NAME=CONFIDENCE:CORRECT:COST"
            raise BadValueError("--model", caller, rule, repr(text), f"Pass --model {EXAMPLE}")
        confidence, correct, cost, seconds = (*parts, "", "", "")[:4]
        return cls(name, confidence, correct, cost, seconds)


def _models_of(loaded: Cascade, given: list[str]) -> list[_Model]:
    """Return the columns of the models of a cascade: those of the fit, or others."""
    columns: dict[str, str] = loaded.provenance.get("columns", {})
    found = {
        name: _Model(name, columns[name], cost=columns.get(f"{name}{COST}", ""))
        for name in loaded.models
        if name in columns
    }
    for text in given:
        name, sign, parts = text.partition("=")
        confidence, _, cost = parts.partition(":")
        if not (sign and confidence and name in loaded.models):
            rule = f"must be NAME=CONFIDENCE of one of {', '.join(loaded.models)}"
            fix = f"Pass --model {loaded.models[0]}=conf_{loaded.models[0]}"
            raise BadValueError("--model", DECIDE, rule, repr(text), fix)
        found[name] = _Model(name, confidence, cost=cost, is_given=True)
    if not found:
        fix = f"Pass --model {loaded.models[0]}=conf_{loaded.models[0]}"
        raise BadValueError("", DECIDE, "needs the columns of models", "none", fix)
    return [one for one in found.values() if one.name in loaded.tiers]


class _Table:
    """The columns of a file that models name; those of models not called yet may be missing."""

    def __init__(
        self,
        file: str,
        models: list[_Model],
        caller: str,
        ids: str | None = None,
        *,
        is_partial: bool = False,
    ) -> None:
        from dubito.data.files import read_cells
        from dubito.data.sources import open_source

        names = [one.name for one in models]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            rule, fix = "must name each model once", "Give each model its own name"
            raise BadValueError("--model", caller, rule, f"{twice} twice", fix)
        wanted = [ids] if ids else []
        self.missing: set[str] = set()
        for one in models:
            parts = one[1:5]
            wanted += [part for part in parts if part and not _is_number(part)]
        if is_partial:
            present = open_source(file).schema.names
            of_fit = {one.cost for one in models if not one.is_given}
            missing = ({one.confidence for one in models} | of_fit) - {*present}
            self.missing = missing.intersection(wanted)
            wanted = [name for name in wanted if name not in missing]
            if not wanted:  # any column says how many rows there are
                ids = present[0]
                wanted = [ids]
        texts = [one.correct for one in models] + [ids or ""]
        self.models, self.file, self.caller = models, file, caller
        self.columns = read_cells(file, wanted, texts)
        self.n_rows = len(next(iter(self.columns.values())).values())

    def known(self, name: str) -> FloatArray | None:
        """Return confidences, NaN for blank cells; None if there is no such column."""
        if name not in self.columns:
            return None
        return self.columns[name].numbers(has_gaps=True)

    def amount(self, name: str) -> Any:
        """Return a number, or a column of numbers; 0 for neither."""
        return self.columns[name].numbers() if name in self.columns else float(name or 0)


def _is_number(text: str) -> bool:
    """Whether a text is a number, not the name of a column."""
    try:
        float(text)
    except ValueError:
        return False
    return True
