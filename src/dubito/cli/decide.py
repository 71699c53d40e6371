"""`dubito decide POLICY FILES...`: actions for new predictions."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.cli.columns import ColumnOptions
from dubito.cli.options import command
from dubito.cli.printing import say, say_bad_rows, say_json, say_rearranged
from dubito.cli.reading import Reader, policy_first, require_output_paths
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dubito.data import Batch
    from dubito.decide.policy.loading import AnyPolicy

MAX_ACTIONS = 6  # whose numbers of rows are printed


@command("label", "weight", "uncertain", "correct")
def decide(
    policy: Path,
    files: list[str],
    *,
    options: ColumnOptions,
    output: str = "decisions.parquet",
    columns: str | None = None,
    has_probabilities: Annotated[
        bool | None, typer.Option("--all-probabilities/--no-probabilities", show_default=False)
    ] = None,
    review: Path | None = None,
    bad_rows: Path | None = None,
    reader: Reader,
) -> None:
    """Choose an action for each row of new predictions, written beside the input columns.

    Results: action, class (the most probable one), probability_CLASS, ...
    For several labels per row: action, decision_LABEL, probability_LABEL, ...
    For a regression: action, value, low, high, expected_cost, reason, review_value.
    For scores of answers: action, p_correct, p_correct_low, p_correct_high, reason, ...
    An input column with the name of a result is written as input_NAME.

    Example: dubito decide policy.json new.csv -o done.csv --review review.csv

    Options
    -------
    group
        Column of groups of scores, such as subjects. Default: that of the fit.
    id
        Column of row identifiers, written as `id`. Default: id, or else the row number.
    files
        New predictions: one or more files, directories, globs or URLs.
    output
        Output file; or a directory (ending in /) or URL, for resumable runs.
    columns
        Comma-separated input columns to keep, or '' for none. Default: all, except lists and
        more than 20 logits, probabilities or features.
    has_probabilities
        Write the calibrated probability of each class. Default: up to 20 classes.
    review
        CSV or TSV of rejected rows for human review, highest review value first, with empty
        columns `label` and `comment` to fill in. Text that a spreadsheet would evaluate gets a
        leading single quote, in every CSV and TSV.

    Scored answers (e.g. of a language model)
    -----------------------------------------
    confidence
        Column of confidences in answers, as for the fit.
    """
    from dubito.cli.writing import RowRun, bad_rows_remedy, is_directory
    from dubito.data.sources.opening import TEXTS
    from dubito.data.table_queries import value_counts
    from dubito.decide import load_policy
    from dubito.decide.policy.table import decision_columns, decision_names
    from dubito.formatting import quantity

    paths = {"--output": output, "--review": review, "--bad-rows": bad_rows}
    require_output_paths(paths, [policy, *files], {"--review": TEXTS, "--bad-rows": TEXTS})
    with policy_first("dubito decide", policy, files):
        loaded = load_policy(policy)
    if review is not None:
        _require_reviews(loaded, policy)
    is_directory(output)  # raises for a file of an unknown kind, before any file is opened

    def columns_of(batch: Batch, source: str | None) -> dict[str, Any]:
        return decision_columns(loaded, batch, source, has_probabilities)

    with bad_rows_remedy(bad_rows):
        predictions = options.open_for(loaded, policy, *dict.fromkeys(files))
        run = RowRun(
            columns_of,
            predictions,
            output,
            reader,
            verb="deciding",
            results=decision_names(loaded, has_probabilities),
            settings={
                "policy": sha256(policy.read_bytes()).hexdigest(),
                "columns": options.given,
                "probabilities": has_probabilities,
            },
            id_column=options.id,
            wanted=columns,
            bad_rows_file=bad_rows,
        )
        parts = run.write()
        n_rearranged = run.count_rearranged()
    taken = value_counts(list(parts), "action", loaded.action_names)
    counts: dict[str, Any] = {"rows": sum(parts.values()), "actions": taken}
    counts["files"] = len(predictions)
    if review is not None:
        counts["for_review"] = _write_review(list(parts), review, loaded)
    if run.bad_rows is not None:
        counts["bad_rows"] = len(run.bad_rows)
    if n_rearranged:
        counts["rearranged"] = n_rearranged
    say_json({**counts, "output": output})
    where = f"{counts['files']:,} files" if counts["files"] > 1 else files[0]
    say(f"{quantity(counts['rows'])} of {where}: {_in_words(taken)}.")
    say_rearranged(n_rearranged)
    say(f"The decisions are in {output}.")
    if review is not None:
        n_rows = quantity(counts["for_review"])
        say(f"{n_rows} for review, highest review value first: {review}.")
    if bad_rows is not None:
        say_bad_rows(counts["bad_rows"], bad_rows)


def _require_reviews(policy: AnyPolicy, path: Path) -> None:
    """Raise if a policy sends nothing to review."""
    if not policy.has_reviews:
        need, option, _ = _REVIEWS[type(policy).__name__]
        rule, fix = f"needs a policy with {need}", f"Run dubito fit with {option}"
        raise BadValueError("", "--review", rule, f"{path} without one", fix)


def _in_words(taken: dict[str, int]) -> str:
    """Return how often actions are taken, the most frequent ones of many.

    >>> _in_words({"pass": 3500, "review": 380, "block": 120})
    'pass 3,500, review 380, block 120'
    """
    from dubito.formatting import by_action

    shown = sorted(taken, key=lambda name: -taken[name])[:MAX_ACTIONS]
    counts = {name: f"{taken[name]:,}" for name in taken if name in shown}
    rest = sum(taken.values()) - sum(taken[name] for name in shown)
    return by_action(counts | ({"others": f"{rest:,}"} if rest else {}))


def _write_review(decided: Sequence[str], review: Path, policy: AnyPolicy) -> int:
    """Write the rows to review, highest review value first, and columns to fill in.

    Return how many rows there are.
    """
    import numpy as np

    from dubito.cli.writing import DIGITS
    from dubito.data import EncodedLabels, Sink

    *_, layout = _REVIEWS[type(policy).__name__]
    found, values, ours, blanks = layout(decided, policy)
    inputs = {
        f"input_{name}" if name in blanks else name: column
        for name, column in found.items()
        if name not in ours
    }
    n_rows = len(found["action"])
    empty = EncodedLabels(np.full(n_rows, -1), ())
    with Sink(review, DIGITS) as sink:
        sink.write({**inputs, **values, **dict.fromkeys(blanks, empty)})
    return n_rows


# Rows to review, what is written of their results, all results, and the columns to fill in.
_Layout = tuple[dict[str, Any], dict[str, Any], set[str], tuple[str, ...]]


def _floats(found: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return columns as numbers."""
    import numpy as np

    return {name: np.array(found[name].to_pylist(), dtype=np.float64) for name in names}


def _class_review(decided: Sequence[str], policy: Any) -> _Layout:
    """Return the rejected rows of a policy of classes; of many, the most probable are named."""
    import numpy as np

    from dubito.data import EncodedLabels
    from dubito.data.table_queries import rows_where
    from dubito.decide.policy.decide import REASONS
    from dubito.decide.policy.explanation import REASON_CLAUSES
    from dubito.decide.policy.table import N_TOP, top_classes

    actions = [policy.costs.actions[k] for k in policy.costs.rejecting]
    found = rows_where(decided, "action", actions, by="review_value")
    known = {f"probability_{name}" for name in policy.classes}
    by_class = [name for name in found if name in known]
    p = _floats(found, by_class)
    if p and len(policy.classes) > N_TOP:
        matrix = np.column_stack([p[f"probability_{name}"] for name in policy.classes])
        found["top_classes"], p = top_classes(matrix, policy.classes), {}
    numbers = ["probability", *p]
    shown = ["reason", "class", *numbers, "top_classes"]
    shown += ["fallback_action", "fallback_cost", "review_value"]
    values: dict[str, Any] = {name: found[name] for name in shown if name in found}
    values |= _floats(values, {*numbers, "fallback_cost", "review_value"} & {*values})
    codes = {reason: code for code, reason in enumerate(REASONS)}
    reasons = np.array([codes[reason] for reason in found["reason"].to_pylist()], np.int64)
    values["reason"] = EncodedLabels(reasons, REASON_CLAUSES)
    return found, values, {*shown, *by_class, "action", "expected_cost"}, ("label", "comment")


def _value_review(decided: Sequence[str], policy: Any) -> _Layout:
    """Return the rows to review of a regression."""
    from dubito.data.table_queries import rows_where
    from dubito.decide.policy.table import decision_names
    from dubito.decide.regression.value_decisions import ACTIONS, REVIEW

    found = rows_where(decided, "action", [ACTIONS[REVIEW]], by="review_value")
    numbers = [one for one in ("value", "low", "high", "review_value") if one in found]
    values = {"reason": found["reason"], **_floats(found, numbers)}
    return found, values, {*decision_names(policy)}, ("label", "comment")


def _label_review(decided: Sequence[str], policy: Any) -> _Layout:
    """Return the rows with a review of some or all labels.

    `to_review` names the labels; a column `label_NAME` for each is to be filled in.
    """
    import numpy as np

    from dubito.data.table_queries import rows_where
    from dubito.decide.multilabel.label_decisions import ACTIONS, REVIEW, ROW_ACTIONS
    from dubito.decide.policy.table import decision_names

    found = rows_where(decided, "action", ROW_ACTIONS[1:], by="review_value")
    names = [str(name) for name in policy.label_names]
    is_sent = [np.array(found[f"decision_{name}"].to_pylist()) == ACTIONS[REVIEW] for name in names]
    to_review = [", ".join(np.array(names)[row]) for row in np.stack(is_sent, axis=1)]
    known = {*decision_names(policy, has_probabilities=True)}
    numbers = [one for one in found if one in known and one.startswith("probability_")]
    values = {"action": found["action"], "to_review": np.array(to_review, dtype=object)}
    values |= _floats(found, [*numbers, "review_value"])
    return found, values, known, (*(f"label_{name}" for name in names), "comment")


_REVIEWS = {  # what reviews a kind of policy needs, the options of a fit, and the layout
    "Policy": ("a reject action", "--reject-cost 0.3", _class_review),
    "MultiLabelPolicy": ("reviews", "--review-label or --review-row", _label_review),
    "RegressionPolicy": ("reviews", "--review-cost 5", _value_review),
}
