"""`dubito demo`: audit, calibrate and decide on bundled predictions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubito.cli.ahead import compile_ahead
from dubito.cli.options import command
from dubito.cli.printing import has_json, say, say_json, show_table
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito import Logits
    from dubito.data import Batch, FashionMNISTSample
    from dubito.decide import Policy


OOD_SETS = {
    "bags and boots (unseen classes)": "unseen_classes",
    "handwritten digits": "digits",
    "corrupted clothes": "corrupted",
}
REJECT_COST, OOD_ALPHA = 0.2, 0.02
PAYMENT_COSTS = "action,legit,fraud\npass,0,100\nreview,2,2\nblock,5,0\n"
LABELS = "--multilabel 'p_*' --label 'y_*' --uncertain ignore"
DECIDE = "decide policy.json new.csv -o decisions.csv --review review.csv"
STORIES = {  # introductions, and the commands that lead from files to results
    "binary": (
        "A model gives each card payment a probability of fraud. A fraud that passes costs 100, a "
        "legitimate payment that is blocked 5, and a review by an analyst 2. Is the probability "
        "right, and what should be done with each payment?",
        "audit payments.csv --positive fraud --group region",
        "fit payments.csv --positive fraud --costs costs.csv --reject-action review "
        "--current-threshold 0.5 -o policy.json --report report.html",
        DECIDE,
    ),
    "multilabel": (
        "A model gives each chest X-ray a probability of each of eight findings. Radiologists "
        "marked some as uncertain (u) and did not mention others. Which of the probabilities are "
        "right, and at which site?",
        f"audit findings.csv {LABELS} --group site",
        f"calibrate findings.csv {LABELS} -o calibrator.json",
        f"fit findings.csv {LABELS} --false-negative 4 --review-label 0.6 --review-row 3 "
        "-o policy.json",
        DECIDE,
    ),
    "forecasts": (
        "Each week a model forecasts the admissions to five hospitals, up to three weeks ahead, "
        "with intervals of 90 %. Do they cover 90 %, and how wide should they be?",
        "forecast admissions.csv --time date --series hospital --horizon horizon "
        "--quantiles 'q_*' --label admissions --state state.json -o intervals.csv "
        "--report report.html",
    ),
    "cascade": (
        "Two language models answer the same questions. The large one is right more often and "
        "costs about 12 cents a question, the small one a fifth of a cent. A wrong answer costs 1, "
        "a human review 0.3. When is it worth paying for the larger model?",
        "cascade fit questions.csv --model small=conf_small:ok_small:0.002 "
        "--model large=conf_large:ok_large:cost_large --review-cost 0.3 --review-error-rate 0.02 "
        "-o cascade.json",
        "cascade decide cascade.json new.csv --id id -o next.csv",
    ),
}
ENDINGS = (".csv", ".json", ".html")  # of the words of these commands that are files


@command()
def demo(
    *,
    folder: Path = Path("dubito-demo"),
    is_binary: bool = False,
    is_multilabel: bool = False,
    is_forecasts: bool = False,
    is_cascade: bool = False,
) -> None:
    """Audit, calibrate and decide on the bundled predictions of an over-confident network.

    Writes files that the examples of other commands use, and prints each command.

    Example: dubito demo --binary

    Options
    -------
    folder
        Directory for the report, policy and decisions.
    is_binary
        A fraud model instead: one probability per payment.
    is_multilabel
        A model of chest X-rays instead: several findings per image.
    is_forecasts
        Weekly forecasts instead: intervals over time.
    is_cascade
        Two language models instead: when to pay for which.
    """
    is_given = (is_binary, is_multilabel, is_forecasts, is_cascade)
    chosen = list(compress(STORIES, is_given))
    if len(chosen) > 1:
        rule, fix = f"cannot be combined with --{chosen[1]}", "Leave one of them out"
        raise BadValueError("", f"--{chosen[0]}", rule, "both", fix)
    folder.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        _write_inputs(name, folder)
        _run_commands(*STORIES[name], folder=folder)
        return
    from dubito import audit
    from dubito.data import load_fashion_mnist
    from dubito.decide import CostMatrix, OODGate, Policy
    from dubito.doubt import MahalanobisDistance

    sample = load_fashion_mnist()
    logits = _logits_of(sample, "test")
    compile_ahead(logits)
    found = audit(_labels_of(sample, "test"), logits)
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
    _write_results(policy, sample, folder)
    figures: dict[str, dict[str, Any]] = {
        "before and after": _before_and_after(policy, sample),
        "decisions": _decision_costs(policy, sample),
        "out-of-distribution": _ood_results(policy, sample),
    }
    say_json({"audit": found.to_dict(), **figures, "folder": str(folder)})
    _print_results(figures, policy, folder)


def _write_inputs(name: str, folder: Path) -> None:
    """Write the files that the commands of a story read."""
    from dubito.data import load_payments, make_findings, make_forecasts, make_questions

    if name == "binary":
        payments = load_payments()
        unlabeled = {one: column for one, column in payments.new.items() if one != "label"}
        _write_tables(folder, {"payments.csv": payments.labeled, "new.csv": unlabeled})
        (folder / "costs.csv").write_text(PAYMENT_COSTS)
    elif name == "multilabel":
        findings = make_findings()
        _write_tables(folder, {"findings.csv": findings.labeled, "new.csv": findings.new})
    elif name == "forecasts":
        _write_tables(folder, {"admissions.csv": make_forecasts()})
        (folder / "state.json").unlink(missing_ok=True)
    else:
        files = ("questions.csv", "new.csv", "large.csv")
        _write_tables(folder, dict(zip(files, make_questions(), strict=True)))


def _write_tables(folder: Path, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Write tables by the names of their files."""
    from dubito.data import Sink

    for name, columns in tables.items():
        with Sink(folder / name) as sink:
            sink.write(columns)


def _run_commands(story: str, *commands: str, folder: Path) -> None:
    """Run the commands that lead from files to results."""
    import json
    from contextlib import redirect_stdout
    from io import StringIO
    from shlex import join, split

    from dubito.cli.commands import app

    say(story)
    results: dict[str, Any] = {}
    for words in map(split, commands):
        typed = [str(folder / word) if word.endswith(ENDINGS) else word for word in words]
        say(f"\n$ dubito {join(typed)}\n")
        if not has_json():
            app(typed, standalone_mode=False)
            continue
        printed = StringIO()
        with redirect_stdout(printed):
            app([*typed, "--json"], standalone_mode=False)
        results[words[0]] = json.loads(printed.getvalue())
    say_json({**results, "folder": str(folder)})


def _write_results(policy: Policy, sample: FashionMNISTSample, folder: Path) -> None:
    """Write the policy, its decisions for test and out-of-distribution images, and the report."""
    from dubito.data import ArrayShards, Sink
    from dubito.decide import write_decisions
    from dubito.report import make_report

    policy.save(folder / "policy.json")
    with Sink(folder / "decisions.parquet") as sink:
        for field in ("test", *OOD_SETS.values()):
            shards = ArrayShards(_unlabeled(sample, field))
            write_decisions(policy, shards, sink, source=field)
    report = make_report(
        _labels_of(sample, "test"),
        _logits_of(sample, "test"),
        features=sample.test_features,
        ood=_unlabeled(sample, "digits"),
        policy=policy,
        title="Eight kinds of clothes",
        command="dubito demo",
    )
    report.save(folder / "report.html")


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
        "error rate of decided images": float(
            np.mean(found.predicted_class[is_open] != truth[is_open])
        ),
    }


def _ood_results(policy: Policy, sample: FashionMNISTSample) -> dict[str, dict[str, float]]:
    """Return mean confidence and rejections for images unlike the training data."""
    from dubito.decide.policy.decide import OUT_OF_DISTRIBUTION

    results = {}
    for name, field in OOD_SETS.items():
        batch = _unlabeled(sample, field)
        found = policy.decide(batch.outputs, batch.features)
        results[name] = {
            "confidence": float(batch.rows.confidence.mean()),
            "rejected": float(found.is_rejected.mean()),
            "detected as OOD": float((found.reason == OUT_OF_DISTRIBUTION).mean()),
        }
    return results


def _print_results(figures: dict[str, dict[str, Any]], policy: Policy, folder: Path) -> None:
    """Print what the demo found."""
    from dubito.formatting import percent

    say("\nCalibration, on the test images:\n")
    before_after = figures["before and after"].items()
    lines = [(f"  {name}", f"{was:.4f}", f"{now:.4f}") for name, (was, now) in before_after]
    show_table(("  ", "uncalibrated", "calibrated"), lines)
    costs = figures["decisions"]
    say(f"\n  Calibrator: {policy.provenance['calibrator']}.")
    say(f"\nCost per image, where an error costs 1 and a review {REJECT_COST}:\n")
    for name in list(costs)[:3]:
        say(f"  {name:<32} {costs[name]:.4f} per image")
    say(
        f"\n  The policy sends {percent(costs['fraction rejected'])} of the images to review. Of "
        f"the rest, {percent(costs['error rate of decided images'])} are wrong, compared with "
        f"{percent(costs['error rate of the network'])} for the network alone."
    )
    say("\nOut-of-distribution images, and how many of them are sent to review:\n")
    found = figures["out-of-distribution"].items()
    rows = [(f"  {name}", *map(percent, one.values())) for name, one in found]
    show_table(("  ", "mean confidence", "rejected", "detected as OOD"), rows)
    say(f"\nWritten to {folder}: report.html (open it), policy.json, decisions.parquet.")
    say("\nTry it on your own predictions:")
    say("  dubito audit FILE --label y --logits 'logit_*' -o report.html")
    say("  dubito fit FILE --label y --logits 'logit_*' --reject-cost 0.2 -o policy.json")
    say("  dubito decide policy.json NEW -o decisions.parquet --review review.csv")


def _logits_of(sample: FashionMNISTSample, field: str) -> Logits:
    """Return the logits of a part of the sample."""
    from dubito import Logits

    return Logits(getattr(sample, f"{field}_logits"), sample.classes)


def _unlabeled(sample: FashionMNISTSample, field: str) -> Batch:
    """Return the logits and features of a part of the sample."""
    from dubito.data import Batch

    features = getattr(sample, f"{field}_features")
    return Batch.of(None, _logits_of(sample, field), features=features)


def _labels_of(sample: FashionMNISTSample, field: str) -> list[str]:
    """Return the names of the true classes of a part of the sample."""
    return [sample.classes[label] for label in getattr(sample, f"{field}_labels")]
