"""Regression on the command line: means with deviations, quantiles, draws and ensembles."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from dubito import Normal, Quantiles, Samples, audit
from dubito.calibrate import QuantileRecalibration, VarianceScaling, cross_validate_calibrator
from dubito.calibrate.regression import BaseRegressionCalibrator
from dubito.data import Batch
from dubito.decide import ErrorCosts, RegressionPolicy
from dubito.monitor import compare, detect_drift
from dubito.outputs import RegressionMembers
from tests.cli.conftest import Run, assert_same

LEVELS = [0.05, 0.25, 0.5, 0.75, 0.95]
KINDS = {
    "normal": ["--mean", "m", "--std", "s"],
    "quantiles": ["--quantiles", "q_*"],
    "samples": ["--samples", "s_*"],
    "members": ["--mean", "mean_*", "--std", "std_*"],
}


def sales(n_rows: int = 400, *, bias: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """Return over-confident predictions of a demand, in every form."""
    rng = np.random.default_rng(seed)
    mean, std = rng.uniform(0, 30, n_rows), rng.uniform(1, 3, n_rows)
    columns: dict[str, Any] = {
        "id": [f"d{k}" for k in range(n_rows)],
        "region": np.where(mean > 15, "north", "south"),
        "demand": mean + bias + 1.6 * std * rng.normal(size=n_rows),
        "m": mean,
        "s": std,
    }
    columns |= {f"q_{level}": mean + std * norm.ppf(level) for level in reversed(LEVELS)}
    columns |= {f"s_{k}": mean + std * rng.normal(size=n_rows) for k in range(25)}
    for k in range(3):
        columns[f"mean_{k}"] = mean + rng.normal(size=n_rows) / 2
        columns[f"std_{k}"] = std * (1 + k / 10)
    return pd.DataFrame(columns)


def outputs_of(frame: pd.DataFrame, kind: str) -> Any:
    """Return the outputs of a frame as the Python functions take them."""
    if kind == "normal":
        return Normal(frame["m"].to_numpy(), frame["s"].to_numpy())
    if kind == "quantiles":
        return Quantiles(frame[[f"q_{level}" for level in LEVELS]].to_numpy(), LEVELS)
    if kind == "samples":
        return Samples(frame[[f"s_{k}" for k in range(25)]].to_numpy())
    both = (frame[[f"{name}_{k}" for k in range(3)]].to_numpy().T for name in ("mean", "std"))
    return RegressionMembers(*both)


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the same rows in several formats."""
    folder, frame = tmp_path_factory.mktemp("regression"), sales()
    frame.to_csv(folder / "sales.csv", index=False)
    frame.to_parquet(folder / "sales.parquet")
    frame.to_feather(folder / "sales.arrow")
    arrays = {name: frame[name].to_numpy() for name in ("demand", "m", "s")}
    arrays["q"], arrays["d"] = (outputs_of(frame, one).array for one in ("quantiles", "samples"))
    members = outputs_of(frame, "members")
    np.savez(folder / "sales.npz", means=members.means.T, stds=members.stds.T, **arrays)
    sales(seed=1).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["csv", "parquet", "arrow", "npz", "streamed"])
def test_an_audit_equals_the_api(run: Run, stored: Path, kind: str, form: str) -> None:
    words = [*KINDS[kind], "--label", "demand"]
    if form == "npz":
        stated = ["--quantiles", "q", "--levels", "0.05,0.25,0.5,0.75,0.95"]
        lists = {"quantiles": stated, "samples": ["--samples", "d"]}
        lists["members"] = ["--mean", "means", "--std", "stds"]
        words = [*lists.get(kind, KINDS[kind]), "--label", "demand"]
    if form == "streamed":
        words += ["--max-memory", "1KB"]
    file = stored / ("sales.csv" if form == "streamed" else f"sales.{form}")
    groups = {} if form == "npz" else {"groups": (frame := sales())["region"].to_numpy()}
    words += ["--group", "region"] if groups else []
    done = run("audit", file, *words, "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    frame = sales()
    expected = audit(frame["demand"].to_numpy(), outputs_of(frame, kind), **groups).to_dict()
    assert (printed.pop("findings"), printed.pop("streamed")) == ([], form == "streamed")
    numbers = {name: value for name, value in expected.items() if name not in ("groups", "verdict")}
    for name, value in numbers.items():
        assert printed[name] == (value if value is None else pytest.approx(value, rel=1e-9)), name
    assert printed["verdict"] == expected["verdict"]
    assert set(printed["groups"]) == set(expected["groups"])


def test_an_audit_says_which_levels_and_what_is_sorted(run: Run, stored: Path) -> None:
    frame = sales()
    frame.loc[[17, 40], "q_0.5"] += 100
    frame.to_csv("crossed.csv", index=False)
    words = ("audit", "crossed.csv", *KINDS["quantiles"], "--label", "demand")
    done = run(*words)
    assert done.exit_code == 2
    first, fix = done.stderr.splitlines()[1:]
    assert (
        "crossed.csv: `q_0.75` has crossing quantiles in 2 of 400 rows, first in row 17:" in first
    )
    assert "in row 17" in first
    assert fix.startswith("Pass --rearrange to sort them, or --bad-rows bad.csv")
    aside = run(*words, "--bad-rows", "crossed_rows.csv")
    assert "2 invalid rows were set aside in crossed_rows.csv." in aside.stdout
    assert "398 rows" in aside.stdout
    assert pd.read_csv("crossed_rows.csv")["row"].tolist() == [17, 40]
    done = run(*words, "--rearrange")
    assert done.exit_code == 0
    assert done.stderr == "Detected columns: levels = 0.05, 0.25, 0.5, 0.75, 0.95.\n"
    assert "400 rows; 2 rows with crossing quantiles sorted" in done.stdout


def test_limits_apply_to_coverage_and_scores(run: Run, stored: Path) -> None:
    words = ("audit", stored / "sales.csv", *KINDS["quantiles"], "--label", "demand")
    done = run(*words, "--group", "region", "--fail-on", "group.*.coverage.0.9<0.8")
    assert done.exit_code == 1
    assert done.stderr.count("coverage.0.9 is 0.") == 2
    assert run(*words, "--fail-on", "interval_score.0.9>1000").exit_code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--mean", "m"], "--mean requires --std, got m alone"),
        (["--quantiles", "q_*", "--samples", "s_*"], "needs one kind of outputs, got --quantiles"),
        (["--quantiles", "q_*", "--levels", "a,b"], "--levels must be numbers separated by commas"),
        (["--quantiles", "q_*", "--levels", "0.1,0.9"], "--levels 0.1,0.9 must be 5 numbers"),
        (["--samples", "s_*", "--rearrange"], "`rearrange` requires quantiles, got samples"),
        (["--quantiles", "q_*", "--positive", "a"], "--positive cannot be used for a regression"),
        (["--quantiles", "q_*", "--bins", "5"], "--bins cannot be used for a regression"),
        (["--quantiles", "q_*", "--cost", "a,b=1"], "--cost cannot be used for a regression"),
    ],
)
def test_options_that_do_not_fit_exit_with_2(
    run: Run, stored: Path, words: list[str], message: str
) -> None:
    done = run("audit", stored / "sales.csv", "--label", "demand", *words)
    assert done.exit_code == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("column", "value", "words", "message"),
    [
        ("q_0.5", "NaN", "quantiles", "column `q_0.5`, row 3: the value is missing."),
        ("q_0.5", "high", "quantiles", "column `q_0.5`, row 3: 'high' is not a number."),
        ("q_0.5", "inf", "quantiles", "column `q_0.5`, row 3: inf is not finite."),
        ("s", "0", "normal", "column `s`, row 3: must be positive, got 0.0."),
        ("s", "-1", "normal", "column `s`, row 3: must be positive, got -1.0."),
        ("std_1", "0", "members", "column `std_1`, row 3: must be positive, got 0.0."),
        ("s_2", "", "samples", "column `s_2`, row 3: the value is missing."),
        ("demand", "inf", "samples", "column `demand`, row 3: inf is not finite."),
        ("demand", "many", "samples", "column `demand`, row 3: 'many' is not a number."),
    ],
)
def test_a_bad_cell_is_named(run: Run, column: str, value: str, words: str, message: str) -> None:
    frame = sales(30).astype(object)
    frame.loc[3, column] = value
    frame.to_csv("bad.csv", index=False)
    done = run("audit", "bad.csv", *KINDS[words], "--label", "demand")
    assert done.exit_code == 2
    problem, fix = done.stderr.splitlines()[-2:]
    assert problem.startswith("dubito: bad.csv")
    assert message in problem
    assert fix[0].isupper()


def test_a_missing_column_is_named(run: Run, stored: Path) -> None:
    done = run("audit", stored / "sales.csv", "--quantiles", "q_*")
    assert "has no column named label, y or target; its columns are id" in done.stderr
    done = run("audit", stored / "sales.csv", "--quantiles", "quant_*", "--label", "demand")
    assert "has no columns that match 'quant_*' (--quantiles)" in done.stderr
    done = run("audit", stored / "sales.csv", "--label", "demand")
    assert "Pass --quantiles 'q_*', or --mean NAME --std NAME for a regression." in done.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_a_calibrator_equals_the_api_and_is_applied(run: Run, stored: Path, kind: str) -> None:
    words = [*KINDS[kind], "--label", "demand", "-o", "c.json"]
    done = run("calibrate", stored / "sales.csv", *words, "--json")
    assert done.exit_code == 0, done.output
    frame, printed = sales(), json.loads(done.stdout)
    outputs, y = outputs_of(frame, kind), frame["demand"].to_numpy()
    outputs = outputs.normal if kind == "members" else outputs
    levels = [0.025, *(k / 20 for k in range(1, 20)), 0.975]
    calibrator: Any = QuantileRecalibration(levels) if kind == "samples" else VarianceScaling()
    evidence = cross_validate_calibrator(calibrator, outputs, y)
    assert printed["chosen"] == type(calibrator).__name__
    for period in ("before", "after"):
        expected = getattr(evidence, period).to_dict()
        for name in ("coverage", "width", "continuous_ranked_probability_score"):
            assert printed["evidence"][period][name] == pytest.approx(expected[name])
    saved = BaseRegressionCalibrator.from_dict(json.loads(Path("c.json").read_text()))
    new = sales(seed=1)
    found = outputs_of(new, kind)
    expected = saved.transform(found.normal if kind == "members" else found)
    done = run("calibrate", "--apply", "c.json", stored / "new.csv", *KINDS[kind], "-o", "c.csv")
    assert done.exit_code == 0, done.output
    written = pd.read_csv("c.csv").filter(like="calibrated_")
    if isinstance(expected, Normal):
        names = {"normal": ["m", "s"], "members": ["mean", "std"]}[kind]
        columns = np.stack([expected.mean, expected.std], axis=1)
    else:
        names = [f"q_{level:g}" for level in (levels if kind == "samples" else LEVELS)]
        columns = expected.array
    assert list(written) == [f"calibrated_{name}" for name in names]
    assert np.allclose(written.to_numpy(), columns, rtol=1e-7)


def test_the_text_of_a_calibration(run: Run, stored: Path) -> None:
    done = run("calibrate", stored / "sales.csv", *KINDS["quantiles"], "--label", "demand")
    assert_same(done.stdout, "calibrate_regression")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (KINDS["normal"], "c.json calibrates Quantiles, got columns of mean."),
        (["--quantiles", "q_0.05,q_0.95"], "calibrates the levels 0.05, 0.25, 0.5, 0.75, 0.95"),
    ],
)
def test_a_calibrator_of_other_outputs_exits_with_2(
    run: Run, stored: Path, words: list[str], message: str
) -> None:
    fitted = [*KINDS["quantiles"], "--label", "demand", "-o", "c.json"]
    run("calibrate", stored / "sales.csv", *fitted, "--calibrator", "QuantileRecalibration")
    done = run("calibrate", "--apply", "c.json", stored / "new.csv", *words, "-o", "c.csv")
    assert done.exit_code == 2
    assert message in done.stderr


def test_calibrators_of_classes_exit_with_2(run: Run, stored: Path) -> None:
    words = [*KINDS["quantiles"], "--label", "demand", "--calibrator", "TemperatureScaling"]
    done = run("calibrate", stored / "sales.csv", *words)
    assert "--calibrator must be auto, VarianceScaling or QuantileRecalibration" in done.stderr
    one = run("calibrate", stored / "sales.csv", "--quantiles", "q_0.5,", "--label", "demand")
    assert one.exit_code == 2
    words = ["--quantiles", "q_0.5", "--levels", "0.5", "--label", "demand"]
    done = run("calibrate", stored / "sales.csv", *words)
    assert "must have at least 2 levels per row" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_comparisons_and_drift_equal_the_api(run: Run, stored: Path, kind: str) -> None:
    better = sales()
    for name in [*better.filter(like="q_"), *better.filter(like="mean_"), "m"]:
        better[name] += 0.3
    better.to_csv("better.csv", index=False)
    words = [*KINDS[kind], "--label", "demand"]
    done = run("compare", stored / "sales.csv", "better.csv", *words, "--json")
    assert done.exit_code == 0, done.output
    frame = sales()
    y, models = frame["demand"], {"sales": outputs_of(frame, kind)}
    expected = compare(y.to_numpy(), {**models, "better": outputs_of(better, kind)}).to_dict()
    printed = json.loads(done.stdout)
    assert printed.pop("findings") == []
    assert printed["verdict"] == expected["verdict"]
    is_part = kind == "quantiles"
    name = "crps_from_quantiles" if is_part else "continuous_ranked_probability_score"
    assert printed["best_by"] == name
    for one, other in zip(printed["differences"], expected["differences"], strict=True):
        assert one["interval"] == pytest.approx(other["interval"])
    later = sales(seed=1, bias=2.0)
    later.to_csv("later.csv", index=False)
    done = run("drift", stored / "sales.csv", "later.csv", *words, "--json", "--fail-on-drift")
    assert done.exit_code == 1
    found = detect_drift(
        outputs_of(frame, kind), outputs_of(later, kind), y_reference=y, y_current=later["demand"]
    )
    printed = json.loads(done.stdout)
    assert printed["verdict"] == found.verdict
    assert printed["shifted"] == list(found.shifted)
    assert "bias" in found.shifted


def test_the_text_of_drift(run: Run, stored: Path) -> None:
    sales(seed=1, bias=2.0).to_csv("later.csv", index=False)
    words = [*KINDS["quantiles"], "--label", "demand", "-o", "drift.html"]
    done = run("drift", stored / "sales.csv", "later.csv", *words)
    assert_same(done.stdout, "drift_regression")
    assert Path("drift.html").read_text().count("<svg") == 1
    done = run("drift", stored / "sales.csv", stored / "new.csv", *KINDS["quantiles"])
    assert "No sign of drift between 400 and 400 rows." in done.stdout


def test_costs_are_for_classes(run: Run, stored: Path) -> None:
    words = [stored / "sales.csv", stored / "new.csv", *KINDS["normal"], "--label", "demand"]
    done = run("compare", *words, "--cost", "a,b=1")
    assert "--cost cannot be used for a regression, got a,b=1." in done.stderr


COSTS = ["--cost-under", "4", "--cost-over", "1"]
REVIEW = ["--review-cost", "5", "--max-width", "12"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_equals_the_api_and_decides(run: Run, stored: Path, kind: str) -> None:
    words = [*KINDS[kind], "--label", "demand", *COSTS, *REVIEW]
    done = run("fit", stored / "sales.csv", *words, "--calibrator", "VarianceScaling", "--json")
    assert done.exit_code == 0, done.output
    frame = sales()
    expected = RegressionPolicy.fit(
        outputs_of(frame, kind),
        frame["demand"].to_numpy(),
        costs=ErrorCosts.linear(under=4, over=1),
        calibrator=VarianceScaling(),
        review_cost=5,
        max_width=12,
    )
    printed = json.loads(done.stdout)["report"]
    assert printed["cost"] == pytest.approx(expected.report.to_dict()["cost"])
    assert printed["review_rate"] == pytest.approx(expected.report.to_dict()["review_rate"])
    assert printed["coverage"] == pytest.approx(expected.report.to_dict()["coverage"])
    # The columns of the fit are found again.
    done = run("decide", "policy.json", stored / "new.csv", "-o", "d.csv", "--review", "r.csv")
    assert done.exit_code == 0, done.output
    assert f"{KINDS[kind][0][2:]} = {KINDS[kind][1]}" in done.stderr
    found = expected.decide(outputs_of(sales(seed=1), kind))
    written = pd.read_csv("d.csv")
    assert written["action"].tolist() == found.columns()["action"].tolist()
    assert written["reason"].tolist() == found.columns()["reason"].tolist()
    for name in ("value", "low", "high"):
        assert np.allclose(written[name], found.columns()[name], rtol=1e-7)
    reviewed = pd.read_csv("r.csv")
    assert reviewed["id"].tolist() == written["id"].iloc[found.review_order].tolist()
    assert reviewed["label"].isna().all()
    lines = run("policy", "explain", "policy.json", stored / "new.csv", "--row", "2").stdout
    assert " ".join(lines.split()) == " ".join(
        expected.explain(outputs_of(sales(seed=1), kind), row=2).split()
    )


@pytest.mark.slow
def test_the_text_of_a_policy(run: Run, stored: Path) -> None:
    words = [*KINDS["quantiles"], "--label", "demand", *COSTS, *REVIEW, "--group", "region"]
    done = run("fit", stored / "sales.csv", *words, "--calibrator", "VarianceScaling")
    assert_same(done.stdout, "fit_regression")
    assert "Decision: the calibrated 80 % quantile" in run("policy", "show", "policy.json").stdout


def test_costs_by_error_come_from_a_file(run: Run, stored: Path) -> None:
    Path("costs.csv").write_text("error,cost\n-10,50\n-1,4\n0,0\n5,1\n")
    words = [*KINDS["normal"], "--label", "demand", "--calibrator", "none"]
    done = run("fit", stored / "sales.csv", *words, "--costs", "costs.csv")
    assert done.exit_code == 0, done.output
    policy = RegressionPolicy.load("policy.json")
    assert policy.costs == ErrorCosts([-10, -1, 0, 5], [50, 4, 0, 1])
    assert policy.calibrator is None


@pytest.mark.parametrize(
    ("words", "costs"),
    [
        (["--cost-squared", "2"], ErrorCosts.squared(2)),
        (["--cost-squared", "1", "--values", "24,0,12"], ErrorCosts.squared(1, [0, 12, 24])),
        ([*COSTS, "--values", "0,12,24"], ErrorCosts.linear(4, 1, [0, 12, 24])),
        (["--costs", "c.csv", "--values", "9"], ErrorCosts([-1, 0, 5], [4, 0, 1], [9])),
    ],
)
def test_squared_costs_and_allowed_values(
    run: Run, stored: Path, words: list[str], costs: ErrorCosts
) -> None:
    Path("c.csv").write_text("-1,4\n0,0\n5,1\n")
    base = [*KINDS["normal"], "--label", "demand", "--calibrator", "none"]
    done = run("fit", stored / "sales.csv", *base, *words)
    assert done.exit_code == 0, done.output
    assert RegressionPolicy.load("policy.json").costs == costs
    run("decide", "policy.json", stored / "new.csv", "-o", "d.csv")
    decided, frame = pd.read_csv("d.csv"), sales(seed=1)
    if costs.values is None:  # the mean
        assert decided["value"].to_numpy() == pytest.approx(frame[KINDS["normal"][1]].to_numpy())
    else:
        assert set(decided["value"]) <= set(costs.values)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs the costs per unit below and above the true value, got none"),
        (["--cost-under", "2"], "got --cost-under alone"),
        ([*COSTS, "--costs", "costs.csv"], "--costs cannot be combined with --cost-under"),
        ([*COSTS, "--cost-squared", "2"], "--cost-squared cannot be combined with --cost-under"),
        (["--cost-squared", "0"], "--cost-squared must be above 0, got 0"),
        (
            [*COSTS, "--values", "1,many"],
            "--values must be numbers separated by commas, got 1,many",
        ),
        ([*COSTS, "--values", "nan"], "--values must be numbers separated by commas, got nan"),
        (["--costs", "costs.csv"], "each line must be an error and its cost"),
        (["--costs", "rising.csv"], "rising.csv cannot be read: its costs must"),
        (["--cost-under", "-1", "--cost-over", "1"], "--cost-under must be above 0, got -1"),
        ([*COSTS, "--max-width", "3"], "--max-width requires --review-cost, got 3 alone"),
        ([*COSTS, "--interval", "90"], "--interval must be between 0 and 1, got 90"),
        ([*COSTS, "--reject-cost", "1"], "got 1.\nPass --review-cost 1.\n"),
        ([*COSTS, "--positive", "a"], "--positive cannot be used for a regression, got a"),
        ([*COSTS, "--review-label", "1"], "--review-label requires --multilabel"),
        ([*COSTS, "--ood-alpha", "0.1"], "--ood-alpha requires a reject action"),
        ([*COSTS, "--calibrator", "simple"], "--calibrator must be auto, VarianceScaling or"),
    ],
)
def test_a_policy_that_cannot_be_fitted(
    run: Run, stored: Path, words: list[str], message: str
) -> None:
    Path("costs.csv").write_text("error,cost\n-1,many\n")
    Path("rising.csv").write_text("-1,1\n0,2\n1,3\n")
    done = run("fit", stored / "sales.csv", *KINDS["normal"], "--label", "demand", *words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 2


def test_an_interval_without_its_quantiles_names_those_there_are(run: Run, stored: Path) -> None:
    words = ["--quantiles", "q_0.25,q_0.5,q_0.75", "--label", "demand"]
    sales(60).to_csv("few.csv", index=False)
    done = run("fit", "few.csv", *words, *COSTS)
    assert "--interval 0.9 needs the quantiles 0.05 and 0.95, got 0.25, 0.5, 0.75." in done.stderr
    assert "Pass --interval 0.5." in done.stderr
    assert run("fit", "few.csv", *words, *COSTS, "--interval", "0.5").exit_code == 0


def test_a_policy_is_evaluated_on_another_file(run: Run, stored: Path) -> None:
    base = [*KINDS["quantiles"], "--label", "demand", *COSTS, "--calibrator", "VarianceScaling"]
    words = [*base, "--evaluate-on", stored / "new.csv", "--report", "r.html"]
    done = run("fit", stored / "sales.csv", *words)
    assert done.exit_code == 0, done.output
    assert "400 rows, an evaluation set; 95 % intervals in parentheses." in done.stdout
    assert "400, an evaluation set" in Path("r.html").read_text()
    frame, others = sales(), sales(seed=1)
    expected = RegressionPolicy.fit(
        outputs_of(frame, "quantiles"),
        frame["demand"].to_numpy(),
        costs=ErrorCosts.linear(under=4, over=1),
        calibrator=VarianceScaling(),
        evaluate_on=Batch.of(others["demand"].to_numpy(), outputs_of(others, "quantiles")),
    )
    found = RegressionPolicy.load("policy.json").report
    assert found.to_dict()["cost"] == pytest.approx(expected.report.to_dict()["cost"])
    others.drop(columns="q_0.25").to_csv("few.csv", index=False)
    done = run("fit", stored / "sales.csv", *base, "--evaluate-on", "few.csv")
    assert done.exit_code == 2
    assert "few.csv must have the levels 0.05, 0.25, 0.5, 0.75, 0.95" in done.stderr
    assert f"Pass --evaluate-on a labeled file with the columns of {stored}" in done.stderr
    others.assign(demand="").to_csv("unlabeled.csv", index=False)
    done = run("fit", stored / "sales.csv", *base, "--evaluate-on", "unlabeled.csv")
    assert "unlabeled.csv must have at least 1 labeled row, got 0." in done.stderr


@pytest.mark.slow
def test_options_of_a_regression_need_one(run: Run, made: Path, stored: Path) -> None:
    done = run("fit", made / "sure.csv", "--cost-under", "2")
    assert "--cost-under requires a regression, got 2 alone." in done.stderr
    words = [*KINDS["normal"], "--label", "demand", *COSTS]
    run("fit", stored / "sales.csv", *words, "--calibrator", "VarianceScaling")
    done = run("decide", "policy.json", stored / "new.csv", *KINDS["samples"], "-o", "d.csv")
    assert (
        "policy.json decides on means and standard deviations, got columns of samples."
        in done.stderr
    )
    assert "Pass --mean and --std, as for the fit." in done.stderr
    done = run("decide", made / "policy.json", stored / "new.csv", *KINDS["samples"], "-o", "d.csv")
    assert "decides on classes, got columns of samples." in done.stderr
    done = run("decide", "policy.json", stored / "new.csv", "-o", "d.csv", "--review", "r.csv")
    assert "Run dubito fit with --review-cost 5." in done.stderr


@pytest.mark.slow
def test_reports_of_an_ensemble_have_both_parts_of_the_variance(run: Run, stored: Path) -> None:
    words = [*KINDS["members"], "--label", "demand"]
    done = run("audit", stored / "sales.csv", *words, "-o", "audit.html")
    assert done.exit_code == 0, done.output
    page = Path("audit.html").read_text()
    result = audit(sales()["demand"].to_numpy(), outputs_of(sales(), "members"))
    assert f"{result.aleatoric_std:.4f}" in page
    assert f"{result.epistemic_std:.4f}" in page
    done = run("fit", stored / "sales.csv", *words, *COSTS, "--report", "policy.html", "--json")
    assert done.exit_code == 0, done.output
    cost = json.loads(done.stdout)["report"]["cost"][0]
    assert f"Decisions cost {cost:.4f} per row." in Path("policy.html").read_text()


@pytest.mark.slow
def test_a_report_counts_sorted_rows(run: Run) -> None:
    frame = sales()
    frame.loc[[17, 40], "q_0.5"] += 100
    frame.to_csv("crossed.csv", index=False)
    words = [*KINDS["quantiles"], "--label", "demand", "--rearrange", "-o", "audit.html"]
    assert run("audit", "crossed.csv", *words).exit_code == 0
    assert "2 rows had quantiles that cross, which were sorted." in Path("audit.html").read_text()


def test_a_policy_sorts_crossing_quantiles_if_its_fit_did(run: Run) -> None:
    frame = sales()
    frame.loc[[17, 40], "q_0.5"] += 100
    frame.to_csv("crossed.csv", index=False)
    words = [*KINDS["quantiles"], "--label", "demand", *COSTS, "--calibrator", "VarianceScaling"]
    words += ["--interval", "0.9", "-o", "sorting.json"]
    assert run("fit", "crossed.csv", *words, "--rearrange").exit_code == 0
    done = run("decide", "sorting.json", "crossed.csv", "-o", "d.csv")
    assert done.exit_code == 0, done.output
    assert "2 rows with crossing quantiles sorted." in done.stdout
    expected = RegressionPolicy.load("sorting.json")
    assert expected.rearrange
    columns = [name for name in frame if name.startswith("q_")]
    outputs = Quantiles(frame[columns].to_numpy(), expected.levels, rearrange=True)
    assert np.allclose(pd.read_csv("d.csv")["value"], expected.decide(outputs).value, rtol=1e-7)
    document = json.loads(Path("sorting.json").read_text())
    document["rearrange"] = False
    Path("other.json").write_text(json.dumps(document))
    done = run("policy", "seal", "other.json")
    done = run("decide", "other.json", "crossed.csv", "-o", "d.csv")
    assert "Pass --rearrange to sort them, or --bad-rows bad.csv" in done.stderr
    assert run("decide", "other.json", "crossed.csv", "-o", "d.csv", "--rearrange").exit_code == 0


@pytest.mark.slow
def test_help_has_a_panel_of_regression(run: Run) -> None:
    panels = {}
    commands = ["audit", "calibrate", "fit", "decide", "compare", "drift", "policy explain"]
    for command in commands:
        text = run(*command.split(), "--help").stdout
        panels[command] = text.split("─ Regression ")[1].split("╰")[0].partition("\n")[2]
        for option in ("--mean", "--std", "--quantiles", "--levels", "--samples", "--rearrange"):
            assert option in panels[command], command
    assert_same(panels["fit"], "help_regression")


def test_every_command_counts_the_rows_that_it_sorts(run: Run) -> None:
    frame = sales(120)
    frame.loc[[17, 40], "q_0.5"] += 100
    frame.to_csv("crossed.csv", index=False)
    words = [*KINDS["quantiles"], "--label", "demand", "--rearrange"]
    more = ["--calibrator", "VarianceScaling"]
    fit = run("calibrate", "crossed.csv", *words, *more, "-o", "counted.json")
    applied = run("calibrate", "--apply", "counted.json", "crossed.csv", "-o", "counted.csv")
    policy = run("fit", "crossed.csv", *words, *more, *COSTS, "-o", "counted_policy.json")
    for done in (fit, applied, policy):
        assert "2 rows with crossing quantiles sorted." in done.stdout, done.output
    drift = json.loads(run("drift", "crossed.csv", "crossed.csv", *words, "--json").stdout)
    assert drift["rearranged"] == 4


def test_a_calibrator_remembers_the_columns_of_its_fit(run: Run, stored: Path) -> None:
    words = [*KINDS["normal"], "--label", "demand", "-o", "remembers.json"]
    run("calibrate", stored / "sales.csv", *words)
    done = run("calibrate", "--apply", "remembers.json", stored / "sales.csv", "-o", "r.csv")
    assert done.exit_code == 0, done.output
    assert {"calibrated_m", "calibrated_s"} <= {*pd.read_csv("r.csv")}
    VarianceScaling.from_dict(json.loads(Path("remembers.json").read_text()))
    sales(20)[["id", "q_0.5", "q_0.95"]].to_csv("other.csv", index=False)
    wrong = run("calibrate", "--apply", "remembers.json", "other.csv", "-o", "r.csv")
    assert "calibrates Normal" in wrong.stderr
    assert "Pass --mean and --std" in wrong.stderr


def test_large_values_keep_their_decimals_in_text_files(run: Run) -> None:
    frame = sales(100)
    numbers = [name for name in frame if name not in ("id", "region")]
    frame[numbers] *= 1e8
    frame.to_csv("large.csv", index=False)
    words = [*KINDS["normal"], "--label", "demand"]
    run("calibrate", "large.csv", *words, "-o", "large.json")
    for ending in ("csv", "parquet"):
        run("calibrate", "--apply", "large.json", "large.csv", "-o", f"large_out.{ending}")
    text, exact = pd.read_csv("large_out.csv"), pd.read_parquet("large_out.parquet")
    assert text["calibrated_s"].to_numpy() == pytest.approx(exact["calibrated_s"], abs=6e-4, rel=0)


@pytest.mark.slow
def test_the_report_of_a_policy_selects_its_calibrator(run: Run, stored: Path) -> None:
    words = [*KINDS["members"], "--label", "demand", *COSTS, *REVIEW]
    for name in ("QuantileRecalibration", "none"):
        done = run("fit", stored / "sales.csv", *words, "--calibrator", name, "--report", "r.html")
        assert done.exit_code == 0, done.output
        text = re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", Path("r.html").read_text()))
        selected = text.partition("largest coverage gap")[2].partition("Which rows")[0]
        rows = re.split("(?=uncalibrated|VarianceScaling|QuantileRecalibration)", selected)
        [chosen] = [one.split()[0] for one in rows if "selected" in one]
        assert chosen == ("uncalibrated" if name == "none" else name)
        assert "aleatoric std of the members" in text
        assert "otherwise the cost, otherwise the width" in text
    assert json.loads(Path("policy.json").read_text())["provenance"]["outputs"] == "normal"


def test_a_chosen_calibrator_and_one_that_does_not_help_are_stated(run: Run, stored: Path) -> None:
    words = [*KINDS["quantiles"], "--label", "demand"]
    done = run("fit", stored / "sales.csv", *words, *COSTS)
    assert "chosen by the cost of held-out decisions" in " ".join(done.stdout.split())
    sales(3, seed=13).to_csv("three.csv", index=False)
    done = run("calibrate", "three.csv", *words, "-o", "c.json")
    assert "did not help on held-out rows" in " ".join(done.stderr.split())


def test_a_standard_deviation_that_is_not_positive_has_a_remedy(run: Run, stored: Path) -> None:
    frame = sales()
    frame.loc[3, "s"] = 0.0
    frame.to_csv("zero.csv", index=False)
    done = run("calibrate", "zero.csv", *KINDS["normal"], "--label", "demand", "-o", "c.json")
    text = " ".join(done.stderr.split())
    assert "column `s`, row 3: must be positive, got 0.0. Fix the cell, or" in text


def test_help_texts_mention_regressions(run: Run) -> None:
    text = " ".join(run("decide", "--help").stdout.split())
    assert "For a regression: action, value, low, high, expected_cost, reason" in text
    assert "the CRPS of a regression" in " ".join(run("calibrate", "--help").stdout.split())
