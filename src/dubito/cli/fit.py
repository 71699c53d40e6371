"""`dubito fit FILE`: a policy from predictions and costs."""

from pathlib import Path, PurePath
from typing import Annotated

import typer

from dubito.cli.columns import NOT_OF_CLASSES, Given, with_columns
from dubito.cli.reading import Reader


@with_columns("id", *NOT_OF_CLASSES)
def fit(
    file: Annotated[
        str,
        typer.Argument(
            help="Labeled predictions on held-out rows: a file, directory, glob or URL."
        ),
    ],
    given: Given,
    reader: Reader,
    costs: Annotated[
        Path | None,
        typer.Option(
            help="Cost matrix: CSV (corner cell `action` or `truth`) or JSON. Default: 0-1."
        ),
    ] = None,
    reject_cost: Annotated[
        float | None, typer.Option(help="Cost of rejecting a row, i.e. of a human review.", min=0)
    ] = None,
    reject_action: Annotated[
        str | None, typer.Option(help="The reject action in --costs, e.g. ask.")
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(help="Upper bound on the error rate of the rows decided automatically."),
    ] = None,
    deploy_prior: Annotated[
        Path | None, typer.Option(help="CSV of class,prior for the deployment population.")
    ] = None,
    risk_delta: Annotated[
        float, typer.Option(help="Probability that the --max-risk bound fails.")
    ] = 0.05,
    ood_alpha: Annotated[
        float, typer.Option(help="False positive rate of out-of-distribution detection.")
    ] = 0.01,
    calibrator: Annotated[
        str, typer.Option(help="auto, or a name: TemperatureScaling, VectorScaling, ...")
    ] = "auto",
    evaluate_on: Annotated[
        str | None, typer.Option(help="Predictions to evaluate on. Default: cross-validation.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the policy here.")] = Path(
        "policy.json"
    ),
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fit a policy: a calibrator, costs, and a rule for rejecting rows to human review.

    Example: dubito fit predictions.csv --label y --logits 'logit_*' --reject-cost 0.3
    """
    from dubito.calibrate.inputs import as_class_outputs
    from dubito.cli.printing import passes, say, say_json
    from dubito.cli.reading import require_places
    from dubito.cli.tables import calibrator_named, costs_of, prior_of, read_costs
    from dubito.decide import OODGate, Policy, RiskBound

    others = (costs, deploy_prior, evaluate_on)
    inputs = [file, *(one for one in others if one is not None)]
    require_places({"--output": output}, inputs)
    is_handing = reject_cost is not None or (
        costs is not None and read_costs(costs, reject_action).reject is not None
    )
    if not is_handing:
        _require_no_need("--max-risk", max_risk)
        _require_no_need("--features", given.features)
    [columns] = given.columns(file, has_features=is_handing)
    with passes():
        rows = reader.rows(file, columns)
        first = next(rows.batches())
        outputs = as_class_outputs(first.outputs, "dubito fit")
        policy = Policy.fit(
            rows,
            costs=costs_of(costs, outputs, reject_cost, reject_action),
            calibrator=calibrator_named(calibrator),
            deploy_prior=None if deploy_prior is None else prior_of(deploy_prior, outputs),
            ood=None if first.features is None else OODGate(alpha=ood_alpha),
            risk=None if max_risk is None else RiskBound(max_risk, risk_delta),
            evaluate_on="cross-fit" if evaluate_on is None else reader.rows(evaluate_on, columns),
            random_state=seed,
        )
    policy.save(output)
    if as_json:
        told = {"report": policy.report.to_dict(), "provenance": policy.provenance}
        say_json({**told, "output": str(output)})
        return
    say(str(policy))
    say(f"\nWritten to {output}. Next:")
    say(f"  dubito decide {output} NEW{PurePath(file).suffix} -o decisions.parquet")


def _require_no_need(option: str, value: object) -> None:
    """Raise where an option hands rows over, and nobody takes them."""
    from dubito.errors import BadValueError

    if value is not None:
        rule = "beside --reject-cost or --reject-action, as it hands rows over"
        raise BadValueError(option, "dubito fit", rule, f"{value} alone", "--reject-cost 0.3")
