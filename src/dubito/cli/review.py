"""`dubito review plan`: who of a team reviews which rejected row, within capacity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.cli.options import command
from dubito.cli.printing import say, say_json
from dubito.cli.reading import require_output_paths
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.arrays import FloatArray
    from dubito.decide import Policy

review = typer.Typer(
    name="review",
    help="Plan who reviews which rejected row, within their capacity.",
    no_args_is_help=True,
)
CALLER = "dubito review plan"


@review.command()
@command()
def plan(
    policy: Path,
    decisions: str,
    *,
    team: Path,
    ids: Annotated[str, typer.Option("--id")] = "id",
    exact: bool = False,
    output: Path | None = None,
    save_team: Path | None = None,
) -> None:
    """Plan who reviews which rejected row, and state what one more hour of each would save.

    Example: dubito review plan policy.json done.csv --team team.csv -o plan.csv

    Options
    -------
    decisions
        Decisions written by `dubito decide`.
    team
        Reviewers: a CSV file with the columns name, capacity_per_day or capacity_per_hour,
        error_rate, cost and skills, or JSON.
    exact
        Solve the linear program exactly: slower.
    output
        Write the plan, e.g. plan.csv.
    save_team
        Write the team with its shadow prices, e.g. team.json.
    """
    import numpy as np

    from dubito.data import Sink
    from dubito.decide import CostMatrix, Policy, ReviewTeam, load_policy
    from dubito.outputs import Probabilities

    paths = {"--output": output, "--save-team": save_team}
    require_output_paths(paths, [policy, decisions, team], {"--save-team": (".json",)})
    loaded = load_policy(policy)
    if not isinstance(loaded, Policy) or loaded.costs.reject is None:
        rule, fix = "needs a policy of classes with a reject action", "Fit with --reject-cost 0.3"
        raise BadValueError("POLICY", CALLER, rule, str(policy), fix)
    reviewers = ReviewTeam.load(team)
    prices = CostMatrix([[one.cost] for one in reviewers.reviewers], reviewers.names)
    needed = list(dict.fromkeys([*loaded.costs.columns, *prices.columns]))
    keys, p, columns = _rejected(decisions, loaded, ids, needed)
    outputs = Probabilities(p, loaded.classes)
    method: Any = "exact" if exact else "prices"
    found = reviewers.plan(outputs, loaded.costs, columns or None, method=method)
    if output is not None:
        order = np.lexsort((-found.value, found.reviewer, found.reviewer < 0))
        values = {ids: keys, **found.columns()}
        with Sink(output) as sink:
            sink.write({name: np.asarray(column)[order] for name, column in values.items()})
    if save_team is not None:
        found.team.save(save_team)
    figures = zip(found.team.reviewers, found.used, found.hour_savings.tolist(), strict=True)
    each = [
        {
            "name": one.name,
            "rows": int(n),
            "capacity": one.capacity,
            "row_saves": one.shadow_price,
            "hour_saves": None if one.rows_per_hour is None else hour,
        }
        for one, n, hour in figures
    ]
    cost = float(found.expected_cost.sum())
    counts = {"rows": len(found), "cost_without_review": cost, "saving": found.saving}
    say_json({**counts, "reviewers": each})
    say(str(found))
    if output is not None:
        say(f"Who reviews which row is in {output}, the most valuable rows of each first.")
    if save_team is not None:
        say(f"The team with its shadow prices is in {save_team}.")


def _rejected(
    decisions: str, policy: Policy, ids: str, columns: list[str]
) -> tuple[Any, FloatArray, dict[str, FloatArray]]:
    """Return ids, probabilities and cost columns of the rows that a policy rejected.

    For out-of-distribution rows, only the class frequencies are known.
    """
    import numpy as np

    from dubito.calibrate import ConfidenceCalibrator
    from dubito.data.files import read_cells
    from dubito.decide.policy.decide import OUT_OF_DISTRIBUTION, REASONS

    texts = ["action", "reason", ids]
    is_of_answers = isinstance(policy.calibrator, ConfidenceCalibrator)  # of scores of answers
    known = ["p_correct"] if is_of_answers else [f"probability_{name}" for name in policy.classes]
    try:
        cells = read_cells(decisions, [*texts, *known, *columns], texts)
    except BadValueError as error:
        if "'action'" in error.rule or "'p_correct'" in error.rule:
            fix = f"Run dubito decide POLICY {decisions} -o decisions.csv first, and plan these"
        elif "probability_" in error.rule:
            fix = "Run dubito decide with --all-probabilities"
        else:
            raise
        raise BadValueError("", decisions, error.rule, error.got, fix) from error
    action = np.array([str(one) for one in cells["action"].values()])
    rejecting = [str(policy.costs.actions[k]) for k in policy.costs.rejecting]
    rows = np.flatnonzero(np.isin(action, rejecting))
    if not rows.size:
        rule, fix = f"has no row with the action {' or '.join(rejecting)}", "Nothing is to review"
        raise BadValueError("", decisions, rule, f"{action.size} rows", fix)
    p = np.column_stack([cells[name].numbers() for name in known])[rows]
    if is_of_answers:
        p = np.column_stack([p if name == "correct" else 1 - p for name in policy.classes])
    p /= p.sum(axis=1, keepdims=True)
    reason = np.array([str(one) for one in cells["reason"].values()])[rows]
    p[reason == REASONS[OUT_OF_DISTRIBUTION]] = policy.rule.frequencies
    keys = np.array(cells[ids].values())[rows]
    return keys, p, {name: cells[name].numbers()[rows] for name in columns}
