"""`dubito cascade fit|decide`: which model to call for a row, and when to stop."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dubito.cli.options import command, first_few
from dubito.cli.printing import say, say_json, say_note
from dubito.cli.reading import (
    is_number_text,
    nearest_first,
    open_input,
    policy_first,
    require_output_paths,
)
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.arrays import BoolArray, FloatArray
    from dubito.decide import Cascade

cascade = typer.Typer(
    name="cascade",
    help="Call a larger model only where its answer is worth the price.",
    no_args_is_help=True,
)
FIT, DECIDE = "dubito cascade fit", "dubito cascade decide"
UNIT, PERCENT = "unit", "percent"
COST = " cost"  # follows the name of a model in the columns that a policy file keeps
EXAMPLE = "small=conf_small:ok_small:0.002"


@cascade.command()
@command()
def fit(
    file: str,
    *,
    model: list[str],
    error_cost: float = 1.0,
    abstain_cost: float | None = None,
    review_cost: float | None = None,
    review_error_rate: Annotated[float, typer.Option(min=0, max=1)] = 0.0,
    cost_per_second: float = 0.0,
    max_calls: int = 3,
    percent: bool = False,
    seed: int = 0,
    output: Path | None = None,
) -> None:
    """Choose which models to call, in which order, and when to stop, by expected cost.

    Example: dubito cascade fit questions.csv --model small=conf_small:ok_small:0.002
    --model large=conf_large:ok_large:0.05 --abstain-cost 0.3 -o cascade.json

    Options
    -------
    file
        Rows for which all models were called.
    model
        NAME=CONFIDENCE:CORRECT:COST, or with :SECONDS: columns of the confidence and of whether
        the answer was correct, and the cost and latency of a call, a column or a number. Once
        per model.
    error_cost
        Cost of a wrong answer.
    abstain_cost
        Cost of giving no answer.
    review_cost
        Cost of asking a person.
    review_error_rate
        How often the person is wrong, from 0 to 1.
    cost_per_second
        Cost of waiting a second.
    max_calls
        Maximum number of models to call.
    percent
        Confidences are percentages, from 0 to 100.
    output
        Write the cascade, e.g. cascade.json.
    """
    from dataclasses import replace

    from dubito import Cascade, TopLabel
    from dubito.formatting import quantity

    require_output_paths({"--output": output}, [file], {"--output": (".json",)})
    models = [_Model.of(one) for one in model]
    has_seconds = any(one.seconds for one in models)
    if review_error_rate and review_cost is None:
        rule, fix = "needs a person to ask", "Pass --review-cost 0.3"
        raise BadValueError("", "--review-error-rate", rule, "no --review-cost", fix)
    if cost_per_second and not has_seconds:
        rule, fix = "needs the latency of models", f"Pass --model {EXAMPLE}:1.5"
        raise BadValueError("", "--cost-per-second", rule, "none", fix)
    table = _Table(file, models, FIT, percent=percent)
    is_known, n_unknown = table.known_answers()
    outputs, latencies = {}, {}
    for one in models:
        is_correct = table.columns[one.correct].fractions(has_gaps=True)
        outputs[one.name] = TopLabel(
            table.confidences(one.confidence)[is_known], is_correct[is_known]
        )
        latencies[one.name] = table.amount(one.seconds, is_known)
    fitted = Cascade.fit(
        outputs,
        costs={one.name: table.amount(one.cost, is_known) for one in models},
        error_cost=error_cost,
        abstain_cost=abstain_cost,
        review_cost=review_cost,
        review_error_rate=review_error_rate,
        latencies=latencies if has_seconds else None,
        cost_per_second=cost_per_second,
        max_calls=max_calls,
        random_state=seed,
    )
    columns = {one.name: one.confidence for one in models}
    columns |= {f"{one.name}{COST}": one.cost for one in models if one.cost in table.columns}
    columns |= {UNIT: PERCENT} if percent else {}
    fitted = replace(fitted, provenance={**fitted.provenance, "columns": columns})
    if output is not None:
        fitted.save(output)
    unlabeled = {"n_unlabeled": n_unknown} if n_unknown else {}
    say_json({"tiers": list(fitted.tiers), **fitted.report.to_dict(), **unlabeled})
    say(str(fitted))
    if n_unknown:
        left_out = quantity(n_unknown)
        say(f"Left out: {left_out} in which it is not known whether answers are correct.")
    if output is not None:
        say(f"\nThe cascade is in {output}. Next: dubito cascade decide {output} NEW.csv")


@cascade.command()
@command()
def decide(
    file: Path,
    rows: str,
    *,
    model: list[str] | None = None,
    percent: Annotated[bool | None, typer.Option("--percent/--no-percent")] = None,
    ids: Annotated[str | None, typer.Option("--id")] = None,
    output: Path | None = None,
) -> None:
    """Decide for each row: call a model next, take its answer, abstain or ask a person.

    Example: dubito cascade decide cascade.json new.csv --id id -o next.csv

    Options
    -------
    file
        Cascade written by `dubito cascade fit`.
    rows
        Rows, with blank cells for models that have not been called.
    model
        NAME=CONFIDENCE or NAME=CONFIDENCE:COST, where columns differ from the fit.
    percent
        Confidences are percentages, from 0 to 100; as for the fit if not given.
    output
        Write the decisions, e.g. next.csv.
    """
    import numpy as np

    from dubito import Cascade
    from dubito.data import Sink
    from dubito.formatting import plain

    require_output_paths({"--output": output}, [file, rows])
    with policy_first(DECIDE, file, [rows]):
        loaded = Cascade.load(file)
    if percent is None:
        percent = loaded.provenance.get("columns", {}).get(UNIT) == PERCENT
    models = _models_of(loaded, model or [])
    table = _Table(rows, models, DECIDE, ids, is_partial=True, percent=percent)
    _require_distinct(table, ids)
    _note_no_columns(table)
    known = {loaded.models[0]: np.full(table.n_rows, np.nan)}  # also if no output is known yet
    costs, notes = {}, []
    for one in models:
        if one.confidence in table.columns:
            known[one.name] = table.confidences(one.confidence, has_gaps=True)
        if one.name not in loaded.tiers or not one.cost:
            continue
        if one.cost not in table.missing:
            costs[one.name] = table.amount(one.cost)
            continue
        price = plain(float(loaded.call_costs[loaded.tiers.index(one.name)]))
        mean = f"a call of {one.name} counts as {price}, the mean of the fit"
        notes.append(f"{rows} has no column {one.cost}: {mean}.")
    decisions = loaded.decide(known, costs=costs)
    taken = np.bincount(decisions.action, minlength=len(decisions.actions)).tolist()
    counts = dict(zip(decisions.actions, taken, strict=True))
    if output is not None:
        key = {ids: table.columns[ids].values()} if ids else {"row": np.arange(len(decisions))}
        found = decisions.columns()
        found["p_correct"] = np.ma.masked_invalid(found["p_correct"])  # blank where unknown
        with Sink(output) as sink:
            sink.write({**key, **found})
    say_json({"n_rows": len(decisions), "actions": counts, "notes": notes})
    say(_next_step(counts))
    say("\n".join([str(decisions), *notes]))
    if output is not None:
        say(f"The action of each row is in {output}.")


def _note_no_columns(table: _Table) -> None:
    """Print a note on a file without any column of the models: it may be another file."""
    wanted = list(dict.fromkeys(part for one in table.models for part in one.columns))
    if table.missing.issuperset(wanted):
        say_note(
            f"{table.file} has none of the columns {first_few(wanted)}, so no model counts as "
            "called. Pass --model NAME=CONFIDENCE if the columns have other names."
        )


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

    @property
    def columns(self) -> list[str]:
        """The columns of a file that are named."""
        return [part for part in self[1:5] if part and not is_number_text(part)]

    @classmethod
    def of(cls, text: str) -> _Model:
        """Return the parts of NAME=CONFIDENCE:CORRECT:COST:SECONDS."""
        name, sign, columns = text.partition("=")
        parts = columns.split(":")
        if not (name and sign and 3 <= len(parts) <= 4 and all(parts)):
            rule = "must be NAME=CONFIDENCE:CORRECT:COST"
            raise BadValueError("", "--model", rule, repr(text), f"Pass --model {EXAMPLE}")
        confidence, correct, cost, *seconds = parts
        return cls(name, confidence, correct, cost, "".join(seconds))


def _models_of(loaded: Cascade, given: list[str]) -> list[_Model]:
    """Return the columns of the models of a cascade: those of the fit, or others."""
    columns: dict[str, str] = loaded.provenance.get("columns", {})
    found = {
        name: _Model(name, columns[name], cost=columns.get(f"{name}{COST}", ""))
        for name in loaded.models
        if name in columns
    }
    fix = f"Pass --model {loaded.models[0]}=conf_{loaded.models[0]}"
    for text in given:
        name, sign, parts = text.partition("=")
        confidence, _, cost = parts.partition(":")
        if not (sign and confidence and name in loaded.models):
            rule = f"must be NAME=CONFIDENCE of one of {', '.join(loaded.models)}"
            raise BadValueError("", "--model", rule, repr(text), fix)
        found[name] = _Model(name, confidence, cost=cost, is_given=True)
    if not found:
        raise BadValueError("", DECIDE, "needs the columns of models", "none", fix)
    return list(found.values())


def _require_columns(model: _Model, present: list[str], file: str, *, is_partial: bool) -> None:
    """Raise unless a file has the columns of a model; those of one not called may be missing."""
    from dubito.data.patterns import missing_column

    needed = [model.cost] * model.is_given if is_partial else model.columns
    for name in (one for one in model.columns if one in needed and one not in present):
        near = nearest_first(name, present)[0]
        if not is_partial and name in model[3:5] and not get_close_matches(name, present):
            near = "0.002"  # a cost or a latency may be a number
        parts = ":".join(near if one == name else one for one in model[1:5] if one)
        fix = f"Pass --model {model.name}={parts}, or other columns"
        raise missing_column(name, present, "--model", file, fix)


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
        percent: bool = False,
    ) -> None:
        from dubito.data.files import read_cells

        names = [one.name for one in models]
        if twice := [name for name in names if names.count(name) > 1]:
            rule, fix = "must name each model once", "Give each model its own name"
            raise BadValueError("", "--model", rule, f"{twice[0]} twice", fix)
        source = open_input(file)
        present = source.schema.names
        for one in models:
            _require_columns(one, present, file, is_partial=is_partial)
        named = [part for one in models for part in one.columns]
        self.missing = {*named}.difference(present)
        if self.missing.issuperset(named):
            ids = ids or present[0]  # any column says how many rows there are
        wanted = [ids] if ids else []
        wanted += [name for name in named if name not in self.missing]
        texts = [one.correct for one in models] + [ids or ""]
        self.models, self.file, self.caller, self.percent = models, file, caller, percent
        self.columns = read_cells(source, wanted, texts, {ids or "": "--id"})
        self.n_rows = len(next(iter(self.columns.values())).values())

    def known_answers(self) -> tuple[BoolArray, int]:
        """Return in which rows it is known of every model whether it is correct, and the others."""
        import numpy as np

        blank = [self.columns[one.correct].is_blank for one in self.models]
        is_known = ~np.any(blank, axis=0)
        if not is_known.any():
            first, fix = self.models[0].correct, "Enter 1 or 0 for each answer"
            raise BadValueError(first, self.file, "must be known in some rows", "none", fix)
        return is_known, int(np.count_nonzero(~is_known))

    def confidences(self, name: str, *, has_gaps: bool = False) -> FloatArray:
        """Return confidences from 0 to 1, NaN for blank cells where these are allowed."""
        import numpy as np

        given = self.columns[name].numbers(has_gaps=has_gaps)
        found = given / 100 if self.percent else given
        is_wrong = (found < 0) | (found > 1)
        if is_wrong.any():
            row, rule = int(np.argmax(is_wrong)), f"must be from 0 to {100 if self.percent else 1}"
            fix = "Fix the cell" if self.percent else "Pass --percent for percentages"
            raise BadValueError(name, self.file, rule, f"{given[row]:g}", fix, row)
        return np.asarray(found)

    def amount(self, name: str, rows: Any = slice(None)) -> Any:
        """Return a number, or a column of numbers in some rows; 0 for neither."""
        import numpy as np

        if name not in self.columns:
            number = float(name or 0)
            if 0 <= number < np.inf:
                return number
            rule, fix = "must have costs and seconds of at least 0", f"Pass --model {EXAMPLE}"
            raise BadValueError("", "--model", rule, name, fix)
        found = self.columns[name].numbers()
        is_wrong = ~((found >= 0) & (found < np.inf))
        if is_wrong.any():
            row, fix = int(np.argmax(is_wrong)), "Fix the cell, or name the column of the costs"
            rule, got = "must be at least 0, as calls cost money or time", f"{found[row]:g}"
            raise BadValueError(name, self.file, rule, got, fix, row)
        return found[rows]


def _require_distinct(table: _Table, ids: str | None) -> None:
    """Raise for two rows with the same id."""
    first: dict[Any, int] = {}
    for row, key in enumerate(table.columns[ids].values() if ids else []):
        if (other := first.setdefault(key, row)) != row:
            rule, fix = "must be different in each row", "Remove the row, or name another --id"
            raise BadValueError(str(ids), table.file, rule, f"{key!r}, as in row {other}", fix, row)
