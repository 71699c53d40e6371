"""`dubito demo`: audit, calibrate and decide on bundled predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito import Logits
    from dubito.arrays import FloatArray
    from dubito.data import FashionMNISTSample
    from dubito.decide import Policy


OOD_SETS = {
    "bags and boots (unseen classes)": "unseen_classes",
    "handwritten digits": "digits",
    "corrupted clothes": "corrupted",
}
REJECT_COST, OOD_ALPHA = 0.2, 0.02
PAYMENT_COSTS = "action,legit,fraud\npass,0,100\nreview,2,2\nblock,5,0\n"
BINARY_STORY = (
    "A model gives each card payment a probability of fraud. A fraud that passes costs 100, a "
    "good payment that is blocked 5, a look by an analyst 2. Is the probability right, and what "
    "should be done with each payment?"
)
BINARY_COMMANDS: list[tuple[list[str], set[str]]] = [  # with the words that are files
    (["audit", "payments.csv", "--positive", "fraud", "--group", "region"], {"payments.csv"}),
    (
        [
            *("fit", "payments.csv", "--positive", "fraud", "--costs", "costs.csv"),
            *("--reject-action", "review", "--current-threshold", "0.5"),
            *("-o", "policy.json", "--report", "report.html"),
        ],
        {"payments.csv", "costs.csv", "policy.json", "report.html"},
    ),
    (
        ["decide", "policy.json", "new.csv", "-o", "decisions.csv", "--review", "review.csv"],
        {"policy.json", "new.csv", "decisions.csv", "review.csv"},
    ),
]


LABELS_STORY = (
    "A model gives each chest X-ray a probability of each of eight findings. Readers marked some "
    "as uncertain (u), and did not mention others. Which of the probabilities are right, and at "
    "which site?"
)
LABELS = ["--multilabel", "p_*", "--label", "y_*", "--uncertain", "ignore"]
LABELS_COMMANDS: list[tuple[list[str], set[str]]] = [
    (["audit", "findings.csv", *LABELS, "--group", "site"], {"findings.csv"}),
    (
        ["calibrate", "findings.csv", *LABELS, "-o", "calibrator.json"],
        {"findings.csv", "calibrator.json"},
    ),
    (
        [
            *("fit", "findings.csv", *LABELS, "--false-negative", "4", "--review", "0.6"),
            *("--review-row", "3", "-o", "policy.json"),
        ],
        {"findings.csv", "policy.json"},
    ),
    (
        ["decide", "policy.json", "new.csv", "-o", "decisions.csv", "--review", "review.csv"],
        {"policy.json", "new.csv", "decisions.csv", "review.csv"},
    ),
]


FORECASTS_STORY = (
    "Each week a model forecasts the admissions to five hospitals, up to three weeks ahead, with "
    "intervals of 90 %. Do they cover 90 %, and what do they have to be?"
)
FORECASTS_COMMANDS: list[tuple[list[str], set[str]]] = [
    (
        [
            *("forecast", "admissions.csv", "--time", "date", "--series", "hospital"),
            *("--horizon", "horizon", "--quantiles", "q_*", "--label", "admissions"),
            *("--state", "state.json", "-o", "intervals.csv", "--report", "report.html"),
        ],
        {"admissions.csv", "state.json", "intervals.csv", "report.html"},
    ),
]


QUESTIONS_STORY = (
    "Two language models answer the same questions. The large one is right more often and costs "
    "about 12 cents a question, the small one a fifth of a cent. A wrong answer costs 1, a person "
    "0.3. When is it worth paying for the larger model?"
)
QUESTIONS_COMMANDS: list[tuple[list[str], set[str]]] = [
    (
        [
            *("cascade", "fit", "questions.csv", "--model", "small=conf_small:ok_small:0.002"),
            *("--model", "large=conf_large:ok_large:cost_large"),
            *("--review-cost", "0.3", "--review-error-rate", "0.02", "-o", "cascade.json"),
        ],
        {"questions.csv", "cascade.json"},
    ),
    (
        ["cascade", "decide", "cascade.json", "new.csv", "--id", "id", "-o", "next.csv"],
        {"cascade.json", "new.csv", "next.csv"},
    ),
]


def demo(
    folder: Annotated[
        Path, typer.Option(help="Directory for the report, policy and decisions.")
    ] = Path("dubito-demo"),
    is_binary: Annotated[
        bool, typer.Option("--binary", help="A fraud model instead: one probability per payment.")
    ] = False,
    is_multilabel: Annotated[
        bool,
        typer.Option("--multilabel", help="A model of chest X-rays instead: several findings."),
    ] = False,
    is_forecasts: Annotated[
        bool, typer.Option("--forecasts", help="Weekly forecasts instead: intervals over time.")
    ] = False,
    is_cascade: Annotated[
        bool, typer.Option("--cascade", help="Two language models instead: when to pay for which.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Audit, calibrate and decide on the bundled predictions of an over-confident network.

    Writes files that the examples of other commands use, and prints each command.

    Example: dubito demo --binary
    """
    chosen = {"--binary": is_binary, "--multilabel": is_multilabel}
    chosen |= {"--forecasts": is_forecasts, "--cascade": is_cascade}
    first, *others = [*(name for name, is_given in chosen.items() if is_given), ""]
    if others and others[0]:
        rule, fix = f"cannot be combined with {others[0]}", "Leave one of them out"
        raise BadValueError("", first, rule, "both", fix)
    folder.mkdir(parents=True, exist_ok=True)
    if is_binary:
        _write_payments(folder)
        _run_commands(BINARY_STORY, BINARY_COMMANDS, folder, as_json)
        return
    if is_multilabel:
        _write_findings(folder)
        _run_commands(LABELS_STORY, LABELS_COMMANDS, folder, as_json)
        return
    if is_forecasts:
        from dubito.data import make_forecasts

        _write_tables(folder, {"admissions.csv": make_forecasts()})
        (folder / "state.json").unlink(missing_ok=True)
        _run_commands(FORECASTS_STORY, FORECASTS_COMMANDS, folder, as_json)
        return
    if is_cascade:
        from dubito.data import make_questions

        files = ("questions.csv", "new.csv", "large.csv")
        _write_tables(folder, dict(zip(files, make_questions(), strict=True)))
        _run_commands(QUESTIONS_STORY, QUESTIONS_COMMANDS, folder, as_json)
        return
    from dubito import audit
    from dubito.cli.ahead import compile_ahead
    from dubito.cli.printing import say, say_json
    from dubito.data import load_fashion_mnist
    from dubito.decide import CostMatrix, OODGate, Policy
    from dubito.doubt import MahalanobisDistance

    sample = load_fashion_mnist()
    logits = _logits_of(sample, "test")
    compile_ahead(logits)
    found = audit(_labels_of(sample, "test"), logits)
    if not as_json:
        say("A small network classifies eight kinds of clothes. Is its confidence calibrated?")
        say(f"\n{found}\n")
        say("Fitting a policy on 4,000 validation images, which takes a moment ...")
    policy = Policy.fit(
        _logits_of(sample, "validation"),
        _labels_of(sample, "validation"),
        costs=CostMatrix.zero_one(sample.classes).with_reject(REJECT_COST, "review"),
        features=sample.validation_features,
        ood=OODGate(MahalanobisDistance(normalize=True), alpha=OOD_ALPHA),
    )
    policy.save(folder / "policy.json")
    _write_all_decisions(policy, sample, folder / "decisions.parquet")
    _write_demo_report(policy, sample, folder / "report.html")
    figures: dict[str, dict[str, Any]] = {
        "before and after": _before_and_after(policy, sample),
        "decisions": _decision_costs(policy, sample),
        "out-of-distribution": _ood_results(policy, sample),
    }
    if as_json:
        say_json({"audit": found.to_dict(), **figures, "folder": str(folder)})
        return
    _print_results(figures, policy, folder)


def _write_payments(folder: Path) -> None:
    """Write payments whose outcome is known, new ones, and costs."""
    from dubito.data import load_payments

    sample = load_payments()
    unlabeled = {name: column for name, column in sample.new.items() if name != "label"}
    _write_tables(folder, {"payments.csv": sample.labeled, "new.csv": unlabeled})
    (folder / "costs.csv").write_text(PAYMENT_COSTS)


def _write_findings(folder: Path) -> None:
    """Write X-rays with findings, and new ones."""
    from dubito.data import make_findings

    sample = make_findings()
    _write_tables(folder, {"findings.csv": sample.labeled, "new.csv": sample.new})


def _write_tables(folder: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Write tables by the names of their files."""
    from dubito.data import Sink

    for name, columns in tables.items():
        with Sink(folder / name) as sink:
            sink.write(columns)


def _run_commands(
    story: str, commands: Sequence[tuple[list[str], set[str]]], folder: Path, as_json: bool
) -> None:
    """Run the commands that lead from files to results."""
    import json
    from contextlib import redirect_stdout
    from io import StringIO
    from shlex import join

    from dubito.cli.commands import app
    from dubito.cli.printing import say, say_json

    if not as_json:
        say(story)
    results: dict[str, Any] = {}
    for words, files in commands:
        typed = [str(folder / word) if word in files else word for word in words]
        if not as_json:
            say(f"\n$ dubito {join(typed)}\n")
            app(typed, standalone_mode=False)
            continue
        printed = StringIO()
        with redirect_stdout(printed):
            app([*typed, "--json"], standalone_mode=False)
        results[words[0]] = json.loads(printed.getvalue())
    if as_json:
        say_json({**results, "folder": str(folder)})


def _write_all_decisions(policy: Policy, sample: FashionMNISTSample, path: Path) -> None:
    """Write the decisions for the test images and the out-of-distribution sets."""
    from dubito.data import ArrayShards, Batch, Sink
    from dubito.decide import write_decisions

    with Sink(path) as sink:
        for field in ("test", *OOD_SETS.values()):
            batch = Batch.of(None, _logits_of(sample, field), features=_features_of(sample, field))
            write_decisions(policy, ArrayShards(batch), sink, source=field)


def _write_demo_report(policy: Policy, sample: FashionMNISTSample, path: Path) -> None:
    """Write the report on the test images."""
    from dubito.data import Batch
    from dubito.report import make_report

    make_report(
        _labels_of(sample, "test"),
        _logits_of(sample, "test"),
        features=sample.test_features,
        ood=Batch.of(None, _logits_of(sample, "digits"), features=sample.digits_features),
        policy=policy,
        title="Eight kinds of clothes",
        command="dubito demo",
    ).save(path)


def _before_and_after(policy: Policy, sample: FashionMNISTSample) -> dict[str, list[float]]:
    """Return metrics of the test images, uncalibrated and calibrated."""
    from dubito import audit

    before, names = _logits_of(sample, "test"), _labels_of(sample, "test")
    after = policy.calibrator.transform(before)
    reports = [audit(names, one, n_resamples=0) for one in (before, after)]
    figures = {
        "mean confidence": "confidence",
        "accuracy": "accuracy",
        "log loss": "log_loss",
        "Brier score": "brier_score",
        "ECE (15 uniform bins)": "expected_calibration_error",
        "  expected if calibrated": "expected_if_calibrated",
    }
    return {name: [getattr(one, key) for one in reports] for name, key in figures.items()}


def _decision_costs(policy: Policy, sample: FashionMNISTSample) -> dict[str, float]:
    """Return the cost per test image of the policy and of the network alone."""
    import numpy as np

    from dubito.decide import optimal_actions, realized_cost

    outputs, truth = _logits_of(sample, "test"), sample.test_labels
    found = policy.decide(outputs, sample.test_features)
    is_open = ~found.is_rejected
    argmax = sample.test_logits.argmax(axis=1)
    raw = optimal_actions(outputs, policy.costs)
    return {
        "always the most probable class": realized_cost(truth, argmax, policy.costs),
        "uncalibrated probabilities": realized_cost(truth, raw, policy.costs),
        "the policy": realized_cost(truth, found.action, policy.costs),
        "fraction rejected": float(1 - is_open.mean()),
        "error rate of the network": float(np.mean(argmax != truth)),
        "error rate of decided images": float(np.mean(found.class_[is_open] != truth[is_open])),
    }


def _ood_results(policy: Policy, sample: FashionMNISTSample) -> dict[str, dict[str, float]]:
    """Return mean confidence and rejections for images unlike the training data."""
    from dubito.data import Batch
    from dubito.decide.policy.decide import OUT_OF_DISTRIBUTION

    results = {}
    for name, field in OOD_SETS.items():
        outputs = _logits_of(sample, field)
        found = policy.decide(outputs, _features_of(sample, field))
        results[name] = {
            "confidence": float(Batch.of(None, outputs).rows.confidence.mean()),
            "rejected": float(found.is_rejected.mean()),
            "detected as OOD": float((found.reason == OUT_OF_DISTRIBUTION).mean()),
        }
    return results


def _print_results(figures: dict[str, dict[str, Any]], policy: Policy, folder: Path) -> None:
    """Print what the demo found."""
    from dubito.cli.printing import say, show_table
    from dubito.formatting import percent

    say("\nCalibration, on the test images:\n")
    show_table(
        ("  ", "uncalibrated", "calibrated"),
        [
            (f"  {name}", f"{was:.4f}", f"{now:.4f}")
            for name, (was, now) in figures["before and after"].items()
        ],
    )
    costs = figures["decisions"]
    say(f"\n  Calibrator: {policy.provenance['calibrator']}.")
    say(f"\nCost per image, where an error costs 1 and a review {REJECT_COST}:\n")
    for name in list(costs)[:3]:
        say(f"  {name:<32} {costs[name]:.4f} per image")
    say(
        f"\n  The policy sends {percent(costs['fraction rejected'])} of the images to review. Of "
        f"the rest {percent(costs['error rate of decided images'])} are wrong, compared with "
        f"{percent(costs['error rate of the network'])} for the network alone."
    )
    say("\nOut-of-distribution images, and how many of them are sent to review:\n")
    show_table(
        ("  ", "mean confidence", "rejected", "detected as OOD"),
        [
            (f"  {name}", *(f"{percent(value)}" for value in one.values()))
            for name, one in figures["out-of-distribution"].items()
        ],
    )
    say(f"\nWritten to {folder}: report.html (open it), policy.json, decisions.parquet.")
    say("\nTry it on your own predictions:")
    say("  dubito audit FILE --label y --logits 'logit_*' -o report.html")
    say("  dubito fit FILE --label y --logits 'logit_*' --reject-cost 0.2 -o policy.json")
    say("  dubito decide policy.json NEW -o decisions.parquet --review review.csv")


def _logits_of(sample: FashionMNISTSample, field: str) -> Logits:
    """Return the logits of a part of the sample."""
    from dubito import Logits

    return Logits(getattr(sample, f"{field}_logits"), sample.classes)


def _labels_of(sample: FashionMNISTSample, field: str) -> list[str]:
    """Return the names of the true classes of a part of the sample."""
    return [sample.classes[label] for label in getattr(sample, f"{field}_labels")]


def _features_of(sample: FashionMNISTSample, field: str) -> FloatArray:
    """Return the features of a part of the sample."""
    features: FloatArray = getattr(sample, f"{field}_features")
    return features
