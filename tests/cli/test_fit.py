import json
import re
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.calibrate import TemperatureScaling
from dubito.cli.fit import _read_prior
from dubito.decide import Policy
from dubito.doubt import MahalanobisDistance
from dubito.errors import BadFileError, BadValueError, DubitoWarning
from dubito.outputs import Probabilities
from tests.cli.conftest import Run, assert_same

OUTPUTS = Probabilities([[0.5, 0.5]], ["well", "ill"])


def test_a_policy_is_fitted_printed_and_saved(run: Run, made: Path) -> None:
    done = run(
        "fit", made / "sure.csv", "--costs", made / "costs.csv", "--reject-cost", "0.3",
        "--deploy-prior", made / "prior.csv", "--ood-alpha", "0.05",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    message = "Detected columns: label = label, logits = logit_*, features = feature_*.\n"
    assert done.stderr == message
    assert "\nCalibrator: TemperatureScaling() (T = " in done.stdout
    assert_same(done.stdout[: done.stdout.index("\nCalibrator")], "fit")
    policy = Policy.load("policy.json")
    assert policy.costs.array[0].tolist() == [0, 5, 1]
    assert policy.costs.actions == ("cat", "dog", "fox", "reject")
    assert policy.deploy_prior is not None
    assert policy.deploy_prior.tolist() == pytest.approx([0.6, 0.2, 0.2])
    assert policy.ood is not None
    assert policy.ood.needs_features


def test_a_policy_is_compared_with_a_threshold_or_a_column_of_actions(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud", "--json"]
    rows = pd.read_csv(made / "fraud.csv")
    is_fraud = rows["y"] == "fraud"
    rows["done"] = np.where(rows["chance"] >= 0.2, "fraud", "ok")
    rows.to_csv("done.csv", index=False)
    found = [
        json.loads(run("fit", "done.csv", *words, *more).stdout)["report"]
        for more in (["--current-threshold", "0.2"], ["--current-action", "done"])
    ]
    assert found[0]["current"] == "a threshold of 0.2 on the uncalibrated P(fraud)"
    assert found[1]["current"] == "what was done (the current actions)"
    wrong = (is_fraud != (rows["done"] == "fraud")).mean()
    for one in found:
        assert one["current_cost"] == pytest.approx(wrong)
        assert one["current_saved"] == found[0]["current_saved"]
    for more, message in [
        (["--current-threshold", "2"], "--current-threshold must be between 0 and 1"),
        (["--current-threshold", "0.2", "--current-action", "done"], "cannot be combined"),
        (["--max-review-rate", "0.1"], "--max-review-rate requires a reject action"),
        (["--current-action", "other"], "other"),
        (["--current-action", "y", "--reject-cost", "0.1"], ""),
    ]:
        done = run("fit", "done.csv", *words, *more)
        assert (done.exit_code == 0) is (message == "")
        assert message in done.stderr
    more = ["--reject-cost", "0.01", "--max-review-rate", "0.1"]
    with warnings.catch_warnings():
        warnings.simplefilter("always", DubitoWarning)  # the command prints it
        done = run("fit", "done.csv", *words[:-1], *more)
    assert " ".join(done.output.split()).count("above the limit of 10.0 %") == 1


def test_the_report_has_the_figures_of_the_policy(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud", "--calibrator", "PlattScaling"]
    done = run("fit", made / "fraud.csv", *words, "--reject-cost", "0.2", "--report", "fit.html")
    assert done.exit_code == 0, done.output
    assert "policy.json, and the report to fit.html" in done.stdout.replace("\n", " ")
    page = Path("fit.html").read_text("utf-8").replace("\u00a0", " ")
    report = Policy.load("policy.json").report
    assert f"Mean cost per row: {report.cost}, " in page
    assert f"the policy saves {report.current_saved}" in page
    assert "400 rows, cross-fitted in 5 folds" in page
    assert "Predict fraud at calibrated P(fraud) \u2265 0.8 (uncalibrated " in page
    assert "Rows behind the decisions</dt><dd>400<" in re.sub(r">\s+<", "><", page)
    other = run("fit", made / "fraud.csv", *words, "--report", "fit.pdf")
    assert "--report must end in .html, got fit.pdf" in other.stderr


def test_groups_are_compared_by_the_decisions_of_the_policy(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p, amount = rng.beta(1, 3, 300).round(4), rng.integers(1, 9, 300)
    y = (rng.random(300) < p).astype(int)
    lines = [f"p{k},{p[k]},{y[k]},{'ab'[k % 2]},{amount[k]}" for k in range(300)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["id,p,label,region,amount", *lines]))
    words = ["--group", "region", "--cost", "pass,1=amount", "--cost", "block,0=1"]
    words += ["--calibrator", "IdentityCalibrator", "--report", "fit.html"]
    done = run("fit", file, *words)
    assert done.exit_code == 0, done.output
    # Without calibration, `block` costs 1 - p and `pass` amount p.
    is_blocked, is_b = 1 - p < amount * p, np.arange(300) % 2 == 1
    rate = (is_blocked & is_b & (y == 0)).sum() / (is_b & (y == 0)).sum()
    page = re.sub(r"<[^>]+>", " ", Path("fit.html").read_text("utf-8").replace("\u00a0", " "))
    for text in (done.stdout, page[page.index("Figures per group") :]):
        assert f"{100 * rate:.1f} %" in text
    median = np.median(amount)
    assert f"At the median amount {median:g}: block at calibrated P(1) \u2265 " in page
    assert f"{1 / (1 + median):.3g} (uncalibrated {1 / (1 + median):.3g}), pass below." in page
    assert re.search(r"\bp\d+\s+[01]\s+[01]\s", page)  # rows to inspect have their ids
    precision = y[is_blocked].mean()
    assert f"{100 * precision:.2f} %" in page[page.index("Actions of the policy") :][:400]


def test_a_policy_knows_the_columns_it_was_fitted_to(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud", "--calibrator", "PlattScaling"]
    assert run("fit", made / "fraud.csv", *words).exit_code == 0
    assert Policy.load("policy.json").provenance["columns"] == {"probability": "chance"}
    for command in (["decide", "policy.json"], ["policy", "explain", "policy.json"]):
        done = run(*command, made / "fraud.csv")
        assert done.exit_code == 0, done.output
        assert "Detected columns: probability = chance." in done.stderr
    renamed = pd.read_csv(made / "fraud.csv").rename(columns={"chance": "score"})
    renamed.to_csv("renamed.csv", index=False)
    assert "--probability" in run("decide", "policy.json", "renamed.csv").stderr
    renamed.rename(columns={"score": "p"}).to_csv("renamed.csv", index=False)
    assert run("decide", "policy.json", "renamed.csv").exit_code == 0


def test_without_a_reject_action_there_is_no_ood_gate(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud", "-o", "fraud.json", "--json"]
    done = run("fit", made / "fraud.csv", *words)
    printed = json.loads(done.stdout)
    assert printed["output"] == "fraud.json"
    assert printed["provenance"]["n_rows"] == 400
    policy = Policy.load("fraud.json")
    assert policy.ood is None
    assert policy.classes == ("ok", "fraud")


@pytest.mark.parametrize(
    ("words", "got"),
    [
        (["--max-risk", "0.1"], "--max-risk requires a reject action, got 0.1"),
        (["--max-cost", "0.1"], "--max-cost requires a reject action, got 0.1"),
        (["--features", "feature_*"], "--features requires a reject action"),
        (["--ood-score", "entropy"], "--ood-score requires a reject action"),
        (["--ood-alpha", "0.1"], "--ood-alpha requires a reject action"),
    ],
)
def test_options_that_reject_need_a_reject_action(
    run: Run, made: Path, words: list[str], got: str
) -> None:
    done = run("fit", made / "sure.csv", *words)
    assert done.exit_code == 2
    assert got in done.stderr
    assert done.stderr.endswith("\nAdd --reject-cost 0.3.\n")
    assert not Path("policy.json").exists()


@pytest.mark.slow
def test_a_gate_combines_the_scores_that_are_named(run: Run, made: Path) -> None:
    words = ["--reject-cost", "0.3", "--ood-alpha", "0.05", "--calibrator", "TemperatureScaling"]
    scores = ["mahalanobis-relative", "neighbors", "energy"]
    named = [word for score in scores for word in ("--ood-score", score)]
    done = run("fit", made / "sure.csv", *words, *named)
    assert done.exit_code == 0, done.output
    policy = Policy.load("policy.json")
    assert policy.ood is not None
    assert policy.ood.name == "MahalanobisDistance + NearestNeighborDistance + energy"
    assert isinstance(policy.ood.score_, list)
    assert isinstance(policy.ood.score_[0], MahalanobisDistance)
    assert policy.ood.score_[0].relative
    assert f"OOD gate {policy.ood.name} alpha=0.05" in repr(policy)
    done = run("decide", "policy.json", made / "sure.csv")
    assert done.exit_code == 0, done.output
    done = run("policy", "explain", "policy.json", made / "sure.csv", "--row", "0")
    assert "3 OOD scores (MahalanobisDistance + " in done.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["sure.csv", "--ood-score", "surprise"], "must be one of mahalanobis, .*got surprise"),
        (["fraud.csv", "--ood-score", "neighbors"], "requires features, .*Pass --features 'feat"),
        (["fraud.csv", "--ood-score", "energy"], "requires logits, .*Pass --logits 'logit_"),
    ],
)
def test_an_ood_score_that_cannot_be_used_exits_with_2(
    run: Run, made: Path, words: list[str], message: str
) -> None:
    file, *options = words
    if file == "fraud.csv":
        options += ["--probability", "chance", "--positive", "fraud"]
    done = run("fit", made / file, "--reject-cost", "0.3", *options)
    assert done.exit_code == 2
    assert re.search(f"--ood-score {message}", done.stderr.replace("\n", " "))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--risk-delta", "0.1"], "--risk-delta requires .*, got 0.1 alone. Add --max-risk 0.05"),
        (["--ood-alpha", "0.1"], "--ood-alpha requires features .*, got 0.1 alone. Add --features"),
    ],
)
def test_an_option_without_its_partner_exits_with_2(
    run: Run, made: Path, words: list[str], message: str
) -> None:
    options = ["--probability", "chance", "--positive", "fraud", "--reject-cost", "0.3"]
    done = run("fit", made / "fraud.csv", *options, *words)
    assert done.exit_code == 2
    assert re.search(message, done.stderr.replace("\n", " "))


def test_a_risk_is_between_0_and_1(run: Run, made: Path) -> None:
    done = run("fit", made / "sure.csv", "--reject-cost", "0.3", "--max-risk", "1.5")
    assert done.exit_code == 2
    assert "--max-risk must be between 0 and 1, got 1.5.\nPass --max-risk 0.015." in done.stderr


def test_a_regression_needs_costs_of_its_errors(run: Run, made: Path) -> None:
    done = run("fit", made / "regression.csv", "--mean", "m")
    assert done.exit_code == 2
    assert "costs per unit below and above the true value" in done.stderr
    assert "Pass --cost-under 4 --cost-over 1" in done.stderr


def test_a_reject_action_of_the_costs(run: Run, made: Path, tmp_path: Path) -> None:
    table = "action,cat,dog,fox\ncat,0,1,1\ndog,1,0,1\nfox,1,1,0\nask,0.3,0.3,0.3\n"
    (tmp_path / "costs.csv").write_text(table)
    options = ("--costs", tmp_path / "costs.csv", "--calibrator", "TemperatureScaling")
    done = run("fit", made / "sure.csv", *options, "--reject-action", "ask", "--max-risk", "0.3")
    assert done.exit_code == 0, done.output
    policy = Policy.load("policy.json")
    assert policy.costs.actions[policy.costs.reject or 0] == "ask"
    assert isinstance(policy.calibrator, TemperatureScaling)
    assert policy.risk is not None


def test_evaluation_on_other_rows(run: Run, made: Path) -> None:
    options = ("--calibrator", "VectorScaling", "--evaluate-on", made / "calm.csv", "--seed", "3")
    done = run("fit", made / "sure.csv", *options)
    assert done.exit_code == 0, done.output
    policy = Policy.load("policy.json")
    assert policy.report.evaluation == "an evaluation set"
    assert policy.provenance["random_state"] == 3


@pytest.mark.parametrize("name", ["OneVsRest", "BaseCalibrator", "audit", "decompose_loss"])
def test_an_unknown_calibrator_exits_with_2(run: Run, made: Path, name: str) -> None:
    done = run("fit", made / "sure.csv", "--calibrator", name)
    assert done.exit_code == 2
    assert f"must be auto, simple or the name of a calibrator, got '{name}'." in done.stderr


@pytest.mark.parametrize("header", ["", "class,prior\n"])
def test_a_prior_has_one_line_per_class(tmp_path: Path, header: str) -> None:
    path = tmp_path / "prior.csv"
    path.write_text(f"{header}ill,0.25\n\n well ,0.75\n")
    assert _read_prior(path, OUTPUTS) == {"ill": 0.25, "well": 0.75}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "class,prior\nwell,0.5\nwolf,0.5\n",
            "must be a class and its prior, for the classes well, ill",
        ),
        ("well,much\nill,0.5\n", "must be a class and its prior, for the classes well, ill"),
        ("well,0.5,1\nill,0.5\n", "must be a class and its prior, for the classes well, ill"),
        ("well,0.5\nwell,0.5\n", "a class occurs twice"),
        ("well,1\n", "it has no prior for ill"),
    ],
)
def test_a_malformed_prior_raises(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "prior.csv"
    path.write_text(text)
    with pytest.raises(BadFileError, match=words) as caught:
        _read_prior(path, OUTPUTS)
    assert str(caught.value).endswith("one line per class, such as cat,0.25.")


def test_an_unreadable_prior_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match=r"^--deploy-prior .*none\.csv: there is no such file"):
        _read_prior(tmp_path / "none.csv", OUTPUTS)
    (tmp_path / "prior.csv").write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(BadFileError, match="it is not UTF-8"):
        _read_prior(tmp_path / "prior.csv", OUTPUTS)


def test_a_bound_on_the_mean_cost(run: Run, made: Path) -> None:
    words = ["--reject-cost", "0.3", "--max-cost", "0.4", "--calibrator", "TemperatureScaling"]
    done = run("fit", made / "sure.csv", *words, "-o", "bound.json")
    assert done.exit_code == 0, done.output
    assert "mean cost" in done.stdout
    assert "at most 0.4 with 95 % confidence." in " ".join(done.stdout.split())
    risk = Policy.load("bound.json").risk
    assert risk is not None
    assert (risk.max_risk, risk.max_cost, risk.delta) == (None, 0.4, 0.05)
    both = run("fit", made / "sure.csv", *words, "--max-risk", "0.1")
    assert both.exit_code == 2
    assert "--max-cost cannot be combined with --max-risk, got 0.4.\nPass one" in both.stderr


def test_the_next_step_names_the_columns(run: Run) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(300)
    label = np.where(rng.random(300) < p, "spam", "ham")
    lines = ["p,label", *(f"{one:.6f},{name}" for one, name in zip(p, label, strict=True))]
    Path("mail.csv").write_text("\n".join(lines))
    columns = ["--probability", "p", "--positive", "spam"]
    done = run("fit", "mail.csv", *columns, "--calibrator", "PlattScaling", "-o", "mail.json")
    assert done.exit_code == 0, done.output
    step = " ".join(done.stdout.partition("Next:")[2].split())
    expected = "dubito decide mail.json NEW.csv --probability p --positive spam"
    assert step == f"{expected} -o decisions.parquet"
    again = run(*step.replace("NEW.csv", "mail.csv").split()[1:])
    assert again.exit_code == 0, again.output


def test_a_fit_needs_two_classes_and_costs_that_are_known_later(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    path.write_text("p,label\n0.1,0\n0.2,0\n")
    result = run("fit", path)
    assert result.exit_code == 2
    assert "must hold labels of two classes or more, got '0' in every row" in result.stderr
    result = run("fit", path, "--cost", "pass,1=3*label", "--cost", "block,0=5")
    assert result.exit_code == 2
    assert "must not depend on `label`, the label" in result.stderr
    result = run("fit", path, "--current-threshold", "50")
    assert "Pass --current-threshold 0.5." in result.stderr


@pytest.mark.slow
def test_what_is_saved_per_day_stands_in_the_policy(run: Run, tmp_path: Path) -> None:
    path, rng = tmp_path / "p.csv", np.random.default_rng(0)
    p = rng.beta(1, 4, 400)
    frame = pd.DataFrame({"p": p, "label": (rng.random(400) < p).astype(int)})
    frame.to_csv(path, index=False)
    words = ["--cost", "pass,1=20", "--cost", "block,0=5", "--calibrator", "TemperatureScaling"]
    done = run("fit", path, *words, "--rows-per-day", "20000", "--report", "page.html")
    assert "At 20,000 rows per day, the policy saves" in Path("page.html").read_text("utf-8")
    saved = Policy.load("policy.json").report.current_saved
    numbers = [f"{20000 * one:,.0f}" for one in (saved.value, saved.low, saved.high)]
    said = "At 20,000 rows per day, the policy saves {} ({} to {}) per day over".format(*numbers)
    shown = run("policy", "show", "policy.json").stdout
    for text in (done.stdout, shown):
        assert said in " ".join(text.split())
    assert "Costs by action and class:\n         0   1\n  pass   0  20\n  block  5   0\n" in shown
    assert "must be above 0" in run("fit", path, "--rows-per-day", "0").stderr


def test_a_current_threshold_is_for_two_classes(run: Run, made: Path) -> None:
    done = run("fit", made / "sure.csv", "--reject-cost", 0.2, "--current-threshold", 0.5)
    assert done.exit_code == 2
    assert (
        "--current-threshold must be left out with three or more classes, got 0.5." in done.stderr
    )
    assert "Pass --current-action with" in done.stderr
