"""Cost files, single cells of the cost matrix, and the reject action."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito import CostMatrix, Policy
from dubito.cli.cost_options import CostCell, CostOptions, _parse_cell, review_hint
from dubito.errors import BadValueError
from dubito.outputs import Normal, Probabilities
from tests.cli.conftest import Run

OUTPUTS = Probabilities([[0.5, 0.5]], ["well", "ill"])


def message_of(*, outputs: object = OUTPUTS, **options: object) -> str:
    with pytest.raises(BadValueError) as caught:
        CostOptions(**options).read(outputs)  # type: ignore[arg-type]
    return str(caught.value)


def test_costs_come_from_csv_or_json(tmp_path: Path) -> None:
    (tmp_path / "costs.csv").write_text('action,well,ill\nhome,0,"min(9, days)"\ntreat,1/4,0\n')
    costs = CostOptions(tmp_path / "costs.csv").read(OUTPUTS)
    assert (costs.actions, costs.columns) == (("home", "treat"), ("days",))
    (tmp_path / "costs.json").write_text(json.dumps(costs.to_dict()))
    again = CostOptions(tmp_path / "costs.json")
    assert again.read(OUTPUTS).texts == [[0, "min(9, days)"], [0.25, 0]]
    assert again.expressions == ("min(9, days)",)


def test_without_a_file_costs_are_zero_one(tmp_path: Path) -> None:
    assert CostOptions().read(OUTPUTS).array.tolist() == [[0, 1], [1, 0]]
    rejects = CostOptions(reject_cost="0.25")
    assert rejects.read(OUTPUTS).actions == ("well", "ill", "reject")
    assert rejects.expressions == ()
    grows = CostOptions(reject_cost="0.1 * days")
    assert grows.read(OUTPUTS).texts[2] == ["0.1 * days"] * 2
    assert (grows.expressions, grows.can_reject) == (("0.1 * days",), True)
    message = message_of(file=tmp_path / "costs.csv", outputs=Normal([0.0], [1.0]))
    assert message.startswith("--costs needs outputs over classes, got Normal")
    assert message_of(reject_cost="-1").startswith("--reject-cost must be at least 0, got -1.")


def test_a_reject_action_is_one_of_the_actions(tmp_path: Path) -> None:
    assert message_of(reject_action="ask") == (
        "--reject-action requires --costs, got ask alone. "
        "Pass --costs, or --reject-cost 0.3 as well."
    )
    path = tmp_path / "costs.csv"
    path.write_text("action,well,ill\nok,0,10\nask,1,1\nstop,2,0\n")
    assert CostOptions(path, reject_action="ask").read(OUTPUTS).reject == 1
    assert message_of(file=path, reject_action="askk") == (
        "--reject-action must be one of the actions (ok, ask, stop), got 'askk'. "
        "Pass --reject-action ask."
    )


def test_a_reject_cost_adds_an_action_of_the_given_name(tmp_path: Path) -> None:
    costs = CostOptions(None, (), "0.3", "Look at").read(OUTPUTS)
    assert (costs.actions, costs.reject_name) == (("well", "ill", "Look at"), "Look at")
    path = tmp_path / "costs.csv"
    path.write_text("action,well,ill\nok,0,10\nreview,1,1\n")
    assert CostOptions(path, (), "2", "ask").read(OUTPUTS).actions == ("ok", "review", "ask")
    assert message_of(file=path, reject_cost="2", reject_action="review") == (
        "--reject-cost cannot be added to costs that reject with 'review', got 2. "
        "Drop --reject-cost, or remove 'review' from the costs."
    )


def test_an_action_that_sounds_like_a_review_gets_a_hint() -> None:
    costs = CostMatrix([[0, 9], [2, 2]], ["pass", "Manual review"])
    assert "pass --reject-action 'Manual review' if" in (review_hint(costs) or "")
    assert review_hint(costs.with_reject(1)) is None
    assert review_hint(CostMatrix([[0, 9], [2, 2]], ["pass", "block"])) is None


def test_columns_of_a_cost_file_are_never_matched_by_position(tmp_path: Path) -> None:
    unnamed, path = Probabilities([[0.5, 0.5]]), tmp_path / "costs.csv"
    for names in ("1,0", "true,False", "1.0,0.0"):
        path.write_text(f"action,{names}\npass,100,0\nblock,0,5\n")
        costs = CostOptions(path).read(unnamed)
        assert (costs.classes, costs.array.tolist()) == ((0, 1), [[0, 100], [5, 0]])
    path.write_text("action,fraud,legit\npass,100,0\nblock,0,5\n")
    assert message_of(file=path, outputs=unnamed) == (
        f"--costs {path} must have the classes 0, 1 (those of the labels), got fraud, "
        "legit. Name the classes as in the labels."
    )
    message = message_of(file=path)
    assert "the classes well, ill (those of the outputs), got fraud, legit" in message
    path.write_text("action,well\npass,100\nblock,0\n")
    assert "(those of the outputs), got well. Write one column per class" in message_of(file=path)


def test_cells_make_a_matrix_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    cells = ("pass,ill=days", "treat , well = 2 * (fee)", "review,*=5")
    options = CostOptions(None, cells, None, "review")
    costs = options.read(OUTPUTS)
    assert (costs.actions, costs.reject_name) == (("pass", "treat", "review"), "review")
    assert costs.texts == [[0, "days"], ["2 * fee", 0], [5, 5]]
    assert options.expressions == ("days", "2 * fee")
    assert options.can_reject
    assert str(options) == (
        "--cost pass,ill=days --cost 'treat , well = 2 * (fee)' --cost 'review,*=5' "
        "--reject-action review"
    )
    assert capsys.readouterr().err == (
        "Costs by action and class:\n"
        "             well   ill\n"
        "  pass          0  days\n"
        "  treat   2 * fee     0\n"
        "  review        5     5\n"
    )


def test_cells_override_those_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("truth,ok,ask\nill,10,1\nwell,0,1\n")
    costs = CostOptions(path, ("ok,ill=days", "ask,*=2")).read(OUTPUTS)
    assert costs.texts == [[0, "days"], [2, 2]]
    assert costs.classes == ("well", "ill")  # in the order of the outputs
    assert message_of(file=path, cells=("go,ill=1",)) == (
        f"--cost must name an action in {path}, got 'go'. Use one of ok, ask."
    )
    assert message_of(file=path, cells=("ok,sick=1",)) == (
        "--cost must name a class, got 'sick'. Use one of well, ill."
    )


def test_names_may_hold_commas_in_quotes() -> None:
    assert _parse_cell('"a, b",c=max(1, x)') == CostCell("a, b", "c", "max(1, x)")
    for text in ("a=1", "a,b", "a,b,c=1", ",b=1", "=1", ""):
        with pytest.raises(BadValueError, match="--cost must be ACTION,CLASS=COST, got"):
            _parse_cell(text)
    with pytest.raises(BadValueError, match="`--cost` must be a number or an expression, got 'x y"):
        _ = CostOptions(None, ("a,b=x y",)).expressions


def payments(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 4, n).round(4)
    is_fraud = rng.random(n) < p
    amount = rng.lognormal(4, 1, n).round(2)
    label = np.where(is_fraud, "fraud", "legit")
    return pd.DataFrame({"y": label, "p": p, "amount": amount, "a fee": 5.0})


@pytest.mark.slow
def test_from_cells_to_decisions(run: Run) -> None:
    frame = payments(600)
    frame[:400].to_csv("old.csv", index=False)
    new = frame[400:].reset_index(drop=True)
    new.drop(columns="y").to_csv("new.csv", index=False)
    words = ["old.csv", "--positive", "fraud", "--cost", "block,legit=`a fee`"]
    words += ["--cost", "pass,fraud=amount", "--cost", "review,*=min(2, 0.1*amount)"]
    words += ["--reject-action", "review"]
    audited = run("audit", *words)
    assert audited.exit_code == 0, audited.output
    assert "Mean cost per row" in audited.stdout
    assert "--cost 'block,legit=`a fee`' --cost pass,fraud=amount" in " ".join(
        audited.stdout.split()
    )
    done = run("fit", *words, "--calibrator", "PlattScaling")
    assert done.exit_code == 0, done.output
    assert "min(2, 0.1 * amount)" in done.stderr
    for options in ([], ["--max-memory", "0"]):
        decided = run("decide", "policy.json", "new.csv", "-o", "d.csv", *options)
        assert decided.exit_code == 0, decided.output
        policy = Policy.load("policy.json")
        assert policy.costs.columns == ("a fee", "amount")
        p = policy.predict_proba(np.column_stack([1 - new["p"], new["p"]]))
        fee, amount = new["a fee"].to_numpy(), new["amount"].to_numpy()
        expected = np.stack([p[:, 0] * fee, p[:, 1] * amount, np.minimum(2, 0.1 * amount)], axis=1)
        names = np.array(["block", "pass", "review"])
        found = pd.read_csv("d.csv")
        assert found["action"].tolist() == names[expected.argmin(axis=1)].tolist()
        assert found["expected_cost"].to_numpy() == pytest.approx(expected.min(axis=1), abs=1e-7)
    new.loc[3, "amount"] = np.nan
    new.to_csv("new.csv", index=False)
    rejected = run("decide", "policy.json", "new.csv", "-o", "d.csv")
    assert rejected.exit_code == 2
    assert "new.csv, column `amount`, row 3: the value is missing." in rejected.stderr
    done = run("decide", "policy.json", "new.csv", "-o", "d.csv", "--bad-rows", "bad.csv")
    assert done.exit_code == 0, done.output
    assert pd.read_csv("bad.csv")["row"].tolist() == [3]
    shown = run("policy", "explain", "policy.json", "old.csv", "--row", "5")
    assert shown.exit_code == 0, shown.output
    assert "Expected costs: " in shown.stdout


@pytest.mark.slow
def test_a_comparison_takes_cells(run: Run) -> None:
    frame = payments(300)
    frame.to_csv("a.csv", index=False)
    frame.assign(p=0.1).to_csv("b.csv", index=False)
    words = ["--positive", "fraud", "--cost", "block,legit=5", "--cost", "pass,fraud=amount"]
    done = run("compare", "a.csv", "b.csv", *words, "--json")
    assert done.exit_code == 0, done.output
    cost = json.loads(done.stdout)["metrics"]["b"]["cost"]["value"]
    is_fraud, amount = (frame["y"] == "fraud").to_numpy(), frame["amount"].to_numpy()
    blocks = 0.1 * amount > 0.9 * 5
    assert cost == pytest.approx(np.where(blocks, 5.0 * ~is_fraud, amount * is_fraud).mean())
