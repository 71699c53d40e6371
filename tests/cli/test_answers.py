"""Scores of answers on the command line: audit, calibrate, fit, decide, and wrong inputs."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose as close
from scipy.special import expit

from dubito import ConfidenceCalibrator, CostMatrix, Policy, Scores
from tests.cli.conftest import Run

SCORES = ["--scores", "logprob,verbal", "--correct", "ok"]
REJECT = ["--reject-cost", "0.2"]


def answers(n_rows: int, seed: int) -> pd.DataFrame:
    """Return scores of answers of two subjects, and whether they are correct."""
    rng = np.random.default_rng(seed)
    subject = rng.choice(["law", "math"], n_rows)
    odds = rng.normal(1, 2, n_rows) - 2.0 * (subject == "math")
    return pd.DataFrame(
        {
            "id": [f"q{k}" for k in range(n_rows)],
            "subject": subject,
            "c": expit(2 * odds + 1).clip(0.001, 0.999).round(4),
            "logprob": (odds - 4 + rng.normal(0, 1, n_rows)).round(3),
            "verbal": np.clip(70 + 10 * odds + rng.normal(0, 10, n_rows), 0, 100).round(),
            "ok": (rng.random(n_rows) < expit(odds)).astype(int),
        }
    )


@pytest.fixture
def files(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Answers in answers.csv, and new ones without `ok` in new.csv; both are also returned."""
    old, new = answers(200, 0), answers(50, 1).drop(columns="ok")
    old.to_csv("answers.csv", index=False)
    new.to_csv("new.csv", index=False)
    return old, new


Files = tuple[pd.DataFrame, pd.DataFrame]


def scores_of(frame: pd.DataFrame, names: list[str], confidence: str | None = None) -> Scores:
    """Return scores as the command line reads them."""
    return Scores(frame[names], groups=frame["subject"].to_numpy(), confidence=confidence)


@pytest.mark.slow
def test_a_policy_decides_new_rows_without_correct(run: Run, files: Files) -> None:
    old, new = files
    done = run("fit", "answers.csv", *SCORES, "--confidence", "c", *REJECT, "--group", "subject")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("By calibrated P(correct): reject below 0.8, answer from 0.8 on")
    assert "200 rows, cross-fitted in 5 folds" in done.stdout
    assert "a row counts as predicted correct if answering has" in " ".join(done.stdout.split())
    names = ["c", "logprob", "verbal"]
    policy = Policy.load("policy.json")
    fitted = ConfidenceCalibrator().fit(scores_of(old, names, "c"), old["ok"].to_numpy())
    known = scores_of(new, names, "c")
    close(policy.predict_proba(known), fitted.predict_proba(known))
    done = run("decide", "policy.json", "new.csv", "-o", "decisions.csv", "--review", "review.csv")
    assert done.exit_code == 0, done.output
    got = pd.read_csv("decisions.csv")
    close(got["p_correct"], fitted.predict_proba(known)[:, 1], rtol=1e-6)
    close(got[["p_correct_low", "p_correct_high"]], fitted.predict_interval(known), rtol=1e-6)
    assert got["action"].tolist() == np.where(got["p_correct"] > 0.8, "answer", "reject").tolist()
    assert set(got["reason"]) == {"lowest_expected_cost", "reject_costs_less"}
    review = pd.read_csv("review.csv")
    assert review["p_correct"].is_monotonic_increasing
    assert len(review) == (got["action"] == "reject").sum()
    # Without the column of groups, rows are of an average one.
    new.drop(columns="subject").to_csv("plain.csv", index=False)
    done = run("decide", "policy.json", "plain.csv", "-o", "plain_decisions.csv")
    assert "no column subject" in done.stderr
    p = fitted.predict_proba(Scores(new[names], confidence="c"))[:, 1]
    close(pd.read_csv("plain_decisions.csv")["p_correct"], p, rtol=1e-6)
    explained = run("policy", "explain", "policy.json", "new.csv").stdout
    assert f"calibrated, P(correct) = {100 * got['p_correct'][0]:.2f} %" in explained


@pytest.mark.slow
def test_a_risk_bound_and_a_report(run: Run, files: Files) -> None:
    words = ["fit", "answers.csv", "--confidence", "c", "--correct", "ok", *REJECT]
    done = run(*words, "--max-risk", "0.2", "--report", "fit.html", "--current-threshold", "0.9")
    assert done.exit_code == 0, done.output
    assert "A threshold of 0.9 on the uncalibrated P(correct) costs" in " ".join(
        done.stdout.split()
    )
    page = Path("fit.html").read_text()
    assert "of the answers are given" in page
    assert "Which answers to trust?" in page
    assert "The confidence" in page  # beside P(correct)
    assert json.loads(Path("policy.json").read_text())["provenance"]["columns"] == {
        "confidence": "c"
    }
    done = run(*words[:4], "--correct", "ok", "--cost", "answer,wrong=5", "--reject-cost", "1")
    assert done.exit_code == 0, done.output
    assert "reject below 0.8" in done.stdout


@pytest.mark.slow
def test_an_audit_is_about_held_out_p_correct(run: Run, files: Files) -> None:
    done = run(
        "audit",
        "answers.csv",
        "--score",
        "logprob",
        "--score",
        "verbal",
        "--correct",
        "ok",
        "--group",
        "subject",
        "-o",
        "audit.html",
    )
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "groups partially pooled, cross-fitted in 5 folds: no row is in its own fit" in text
    assert "dubito fit answers.csv --scores logprob,verbal --correct ok --group subject" in text
    found = json.loads(run("audit", "answers.csv", *SCORES, "--json").stdout)
    assert found["scores"]["P(correct)"]["value"] > found["scores"]["verbal"]["value"] > 0.6
    assert run("audit", "answers.csv", *SCORES, "--fail-on", "ece>0.0001").exit_code == 1
    page = Path("audit.html").read_text()
    for title in ("Which answers to trust?", "What does each score tell?", "Do groups differ?"):
        assert title in page


def test_a_calibrator_is_applied_to_new_rows(run: Run, files: Files) -> None:
    old, new = files
    done = run("calibrate", "answers.csv", *SCORES, "--group", "subject")
    assert done.exit_code == 0, done.output
    assert "cross-fitted on 200 rows" in " ".join(done.stdout.split())
    assert "base rate" in done.stdout
    words = ["calibrate", "--apply", "calibrator.json", "new.csv", "-o", "c.csv"]
    assert run(*words, "--group", "subject").exit_code == 0
    names = ["logprob", "verbal"]
    fitted = ConfidenceCalibrator().fit(scores_of(old, names), old["ok"].to_numpy())
    got = pd.read_csv("c.csv")
    close(got["p_correct"], fitted.predict_proba(scores_of(new, names))[:, 1], rtol=1e-6)
    assert "group = subject" in run(*words).stderr  # the calibrator remembers it
    Path("calibrator.json").write_text(json.dumps(fitted.to_dict()))
    assert "pass --group NAME" in run(*words).stderr


@pytest.mark.slow
def test_units_and_groups_are_remembered(run: Run, files: Files) -> None:
    old, new = (one.assign(c=100 * one["c"]) for one in files)
    old.to_csv("answers.csv", index=False)
    new.to_csv("new.csv", index=False)
    percent = ["--confidence", "c", "--percent", "--correct", "ok", "--group", "subject"]
    done = run("calibrate", "answers.csv", *percent, "-o", "c.json")
    assert "dubito calibrate --apply c.json NEW.csv -o" in " ".join(done.stdout.split())
    done = run("calibrate", "--apply", "c.json", "new.csv", "-o", "out.csv")
    assert done.exit_code == 0, done.output
    calibrator = ConfidenceCalibrator.from_dict(json.loads(Path("c.json").read_text()))
    groups = new["subject"].to_numpy()
    p = calibrator.predict_proba(new["c"].to_numpy() / 100, groups)[:, 1]
    close(pd.read_csv("out.csv")["p_correct"], p)
    assert run("fit", "answers.csv", *percent, *REJECT, "-o", "p.json").exit_code == 0
    for given in ([], ["--confidence", "c"]):
        done = run("decide", "p.json", "new.csv", *given, "-o", "decided.csv")
        assert done.exit_code == 0, done.output
        close(pd.read_csv("decided.csv")["p_correct"], p)
    new.drop(columns="c").to_csv("new.csv", index=False)
    done = run("decide", "p.json", "new.csv", "-o", "decided.csv")
    assert "new.csv has no column 'c' (a score of the fit)" in " ".join(done.output.split())


def test_one_answer_is_too_few(run: Run) -> None:
    Path("one.csv").write_text("conf,ok\n0.5,1\n")
    done = run("calibrate", "one.csv", "--confidence", "conf", "--correct", "ok")
    assert "must have at least 2 answers" in " ".join(done.output.split())


def test_streamed_rows_give_the_same_calibrator(run: Run, files: Files) -> None:
    assert run("calibrate", "answers.csv", *SCORES, "-o", "a.json").exit_code == 0
    words = ["calibrate", "answers.csv", *SCORES, "-o", "b.json", "--max-memory", "1KB"]
    assert run(*words).exit_code == 0
    assert Path("a.json").read_text() == Path("b.json").read_text()


Change = Callable[[pd.DataFrame], pd.DataFrame]
WRONG: dict[str, tuple[Change, str]] = {
    "yes and no": (
        lambda f: f.assign(ok=np.where(f["ok"] == 1, "yes", "no")),
        "column `ok`, row 0: must be numbers, true or false, got 'no'.\nWrite 1",
    ),
    "grades": (lambda f: f.assign(ok=5 * f["ok"]), "between 0 and 1, got 5"),
    "all correct": (lambda f: f.assign(ok=1), "'correct' in every row.\nCheck --correct"),
    "none known": (lambda f: f.assign(ok=np.nan), "got 0"),
    "no score at all": (
        lambda f: f.assign(verbal=np.nan, logprob=np.nan),
        "must have a score in each row",
    ),
    "infinite": (lambda f: f.assign(logprob=-np.inf), "column `logprob`, row 0: must be finite"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_one_problem_and_one_remedy(run: Run, files: Files, name: str) -> None:
    change, message = WRONG[name]
    change(files[0]).to_csv("answers.csv", index=False)
    done = run("fit", "answers.csv", *SCORES, *REJECT)
    assert done.exit_code == 2, done.output
    assert message in done.stderr
    assert done.stderr.rstrip().endswith(".")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scores", "logprob", *REJECT], "Pass --correct NAME"),
        (["--correct", "ok", *REJECT], "Pass --confidence NAME"),
        (["--scores", "logprob", "--label", "ok", *REJECT], "Pass --correct ok instead"),
        (SCORES, "Add --reject-cost 0.2"),
        (["--confidence", "verbal", "--correct", "ok", *REJECT], "Pass --percent"),
        ([*SCORES, *REJECT, "--calibrator", "PlattScaling"], "--calibrator must be auto"),
        ([*SCORES, *REJECT, "--ood-score", "entropy"], "--ood-score cannot be used with"),
        ([*SCORES, *REJECT, "--current-threshold", "0.9"], "requires --confidence"),
        ([*SCORES, *REJECT, "--logits", "l_*"], "needs one kind of outputs"),
        (["--scores", "logprob,verball", "--correct", "ok", *REJECT], "Pass --scores verbal,"),
    ],
)
def test_wrong_options_name_the_right_ones(
    run: Run, files: Files, words: list[str], message: str
) -> None:
    done = run("fit", "answers.csv", *words)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


@pytest.mark.slow
def test_new_rows_must_be_as_those_of_the_fit(run: Run, files: Files) -> None:
    old, new = files
    scores = scores_of(old, ["c", "logprob"])
    costs = CostMatrix.for_answers().with_reject(0.2)
    Policy.fit(scores, old["ok"].to_numpy(), costs=costs).save("policy.json")
    words = ["decide", "policy.json", "wrong.csv", "--scores", "c,logprob", "-o", "d.csv"]
    new.assign(c=100 * new["c"]).to_csv("wrong.csv", index=False)
    done = run(*words)
    assert (
        "wrong.csv, column `c`, row 0: must be between 0 and 1, as during fit, got 1.04"
        in done.stderr
    )
    assert "Write fractions" in done.stderr
    gaps = new.assign(logprob=new["logprob"].where(new.index != 5))
    gaps.to_csv("wrong.csv", index=False)
    done = run(*words)
    assert "`logprob` was never missing during fit, got nan in row 5" in (done.stderr)
    done = run(*words, "--bad-rows", "bad.csv")
    assert done.exit_code == 0, done.output
    assert pd.read_csv("bad.csv")["row"].tolist() == [5]
    done = run("decide", "policy.json", "new.csv", "--probabilities", "c", "-o", "d.csv")
    assert "policy.json decides on scores of answers, got columns of probabilities" in done.stderr


def test_odd_files_give_notes(run: Run, files: Files) -> None:
    few = files[0].head(20).assign(logprob=-1.0)
    few.assign(ok=few["ok"].where(few.index != 3)).to_csv("answers.csv", index=False)
    done = run("fit", "answers.csv", *SCORES, *REJECT)
    assert done.exit_code == 0, done.output
    stderr = " ".join(done.stderr.split())
    assert "`logprob` is -1 in every row" in stderr
    assert "1 row of answers.csv left out: --correct is blank there" in stderr
    assert "19 answers" in stderr
    assert "Too few rows for reliable costs" in " ".join(done.stdout.split())


def test_answers_of_unknown_truth_are_left_out_of_an_audit(run: Run) -> None:
    frame = answers(200, 0)
    frame[20:].to_csv("known.csv", index=False)
    frame["ok"] = frame["ok"].astype(object)
    frame.loc[:19, "ok"] = ""
    frame.to_csv("gaps.csv", index=False)
    options = ["--confidence", "c", "--correct", "ok", "--json"]
    done = run("audit", "gaps.csv", *options)
    assert done.exit_code == 0, done.output
    assert "20 rows of gaps.csv left out: --correct is blank there." in done.stderr
    found, known = json.loads(done.stdout), json.loads(run("audit", "known.csv", *options).stdout)
    for name in ("n_rows", "accuracy", "confidence", "expected_calibration_error"):
        close(found[name], known[name])
    frame["ok"] = ""
    frame.to_csv("none.csv", index=False)
    rejected = run("audit", "none.csv", *options)
    assert rejected.exit_code == 2
    assert "known in some rows" in rejected.stderr


def test_log_loss_before_calibration_is_infinite_at_probabilities_of_zero(run: Run) -> None:
    frame = answers(200, 0)
    frame.loc[:9, "c"], frame.loc[:9, "ok"] = 1.0, [1, 0] * 5
    frame.to_csv("certain.csv", index=False)
    done = run("calibrate", "certain.csv", "--confidence", "c", "--correct", "ok", "-o", "c.json")
    assert done.exit_code == 0, done.output
    assert "log loss from infinite (5 rows with probability 0) to 0." in " ".join(
        done.stdout.split()
    )
