"""ONNX, PyTorch and NumPy compute what Python computes: calibrators and policies of every kind.

`python -m benchmarks.export` compares all of them, on more rows.
"""

import json
import runpy
import subprocess
import sys
from collections import UserDict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.linear_model import LogisticRegression
from torch import nn

from benchmarks.export import Case, compare, fitted_calibrators, fitted_policies, run_onnx
from dubito import (
    Cascade,
    CostMatrix,
    ErrorCosts,
    FBeta,
    Logits,
    MultiLabelPolicy,
    Normal,
    Policy,
    RegressionPolicy,
    Scores,
    TopLabel,
)
from dubito.calibrate import (
    ConfidenceCalibrator,
    ForestCalibration,
    MatrixScaling,
    TemperatureScaling,
    VarianceScaling,
)
from dubito.decide import CostSensitiveClassifier
from dubito.doubt import ConformalClassifier
from dubito.errors import BadTypeError, BadValueError
from dubito.export import to_module, to_numpy, to_onnx
from dubito.export.decision_graph import describe

# Of what the benchmark compares, one of each kind.
POLICIES = [
    "deployment prior",
    "risk bound",
    "row costs, risk bound",
    "costs by row",
    "gate: Mahalanobis",
    "gate: energy and Mahalanobis",
    "labels: reviews of rows",
    "reviewers and a larger model, gate",
    "reviewers, row costs, risk bound",
    "scores, answers, risk bound",
    "scores, reviewer",
]
PROGRAMS = POLICIES[1::2]  # also saved by torch.export, which takes seconds


def assert_equal(case: Case, tmp_path: Path, *, save_program: bool = True) -> None:
    found = compare(case, 200, tmp_path, save_program=save_program)
    for target in ("onnx float64", "NumPy file"):
        assert found[target].difference < 1e-9, (case.name, target)
    for target in ("onnx mixed", "torch.export"):
        assert found[target].difference < 1e-5, (case.name, target)
    assert sum(found[target].n_actions for target in found if target != "onnx float32") == 0


@pytest.mark.slow
@pytest.mark.torch
def test_every_calibrator_is_the_same_in_all_targets(tmp_path: Path) -> None:
    names, saved = [], set[tuple[str, str, int]]()
    for case in fitted_calibrators(500):
        if not case.name.startswith("AutoCalibrator") or case.outputs == "logits":
            # torch.export takes most of the time. It saves each calibrator of logits (probabilities
            # differ in the first node only) that has a kind of operation that none before it has.
            values = describe(case.exported, case.outputs).values
            operations = {(one.op, one.kind, len(one.inputs)) for one in values}
            is_new = case.outputs == "logits" and not operations <= saved
            assert_equal(case, tmp_path, save_program=is_new)
            saved |= operations if is_new else set()
            names.append(case.name)
    assert len(names) > 30


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")  # some actions are never optimal
def test_policies_are_the_same_in_all_targets(tmp_path: Path) -> None:
    cases = [one for one in fitted_policies(500, POLICIES) if one.name in POLICIES]
    assert len(cases) == len(POLICIES)
    for case in cases:
        assert_equal(case, tmp_path, save_program=case.name in PROGRAMS)


def fitted(n_classes: int = 3, **settings: Any) -> Policy:
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(300, n_classes))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    costs = CostMatrix.zero_one(n_classes).with_reject(0.3)
    return Policy.fit(Logits(z), y, costs=costs, calibrator=TemperatureScaling(), **settings)


@pytest.mark.slow
def test_a_policy_is_appended_to_a_network(tmp_path: Path) -> None:
    policy = fitted()
    weights = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    for opset in (13, 21):
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["pixels", "w"], ["scores"])],
            "network",
            [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 5])],
            [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 3])],
            [numpy_helper.from_array(weights, "w")],
        )
        opsets = [helper.make_opsetid("", opset)]
        onnx.save(
            helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "net.onnx"
        )
        to_onnx(policy, tmp_path / "both.onnx", network=tmp_path / "net.onnx")
        pixels = np.random.default_rng(2).normal(size=(50, 5)).astype(np.float32)
        found = run_onnx(tmp_path / "both.onnx", {"pixels": pixels})
        wanted = policy.decide(Logits(pixels @ weights))
        assert found["action"].tolist() == wanted.action.tolist()
        np.testing.assert_allclose(found["expected_cost"], wanted.expected_cost, atol=1e-6)
    with pytest.raises(BadValueError, match=r"network_outputs.*got 'top'.*\{'logits': 'scores'\}"):
        to_onnx(
            policy,
            tmp_path / "both.onnx",
            network=tmp_path / "net.onnx",
            network_outputs={"logits": "top"},
        )


def test_a_file_uses_standard_operators_and_names_its_actions(tmp_path: Path) -> None:
    to_onnx(fitted(), tmp_path / "policy.onnx")
    model = onnx.load(tmp_path / "policy.onnx")
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 18)]
    assert {node.domain for node in model.graph.node} == {""}
    held = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(held["actions"]) == ["0", "1", "2", "reject"]
    assert json.loads(held["reasons"])[3] == "out_of_distribution"


@pytest.mark.slow
def test_a_file_of_numpy_tests_itself(tmp_path: Path) -> None:
    path = tmp_path / "policy.py"
    to_numpy(fitted(), path)
    text = path.read_text()
    assert "dubito" not in {line.split()[1] for line in text.splitlines() if "import" in line}
    assert max(map(len, text.splitlines())) <= 100
    command = [sys.executable, "-I", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "8 rows give what dubito made of them.\n"
    # A file that was changed does not pass.
    at = text.index("softmax(log_proba * ")
    path.write_text(
        f"{text[:at]}softmax(log_proba * 2 * {text[at + len('softmax(log_proba * ') :]}"
    )
    broken = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "calibrated_probabilities" in broken.stderr


@pytest.mark.torch
@pytest.mark.slow
def test_a_module_moves_and_keeps_its_precision() -> None:
    policy = fitted()
    network = nn.Sequential(nn.Linear(4, 3), to_module(policy)).bfloat16()
    found = network(torch.randn(6, 4, dtype=torch.bfloat16))
    assert found["calibrated_probabilities"].dtype == torch.bfloat16
    assert not found["calibrated_probabilities"].isnan().any()
    with pytest.raises(BadTypeError, match="supports calibrators"):
        to_module(policy).log_probabilities(torch.zeros(1, 3))


@pytest.mark.slow
def test_what_cannot_be_exported_says_why() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3))
    y = z.argmax(axis=1)
    matrix = MatrixScaling(input="logits").fit(Logits(z + rng.normal(size=z.shape)), y)
    with pytest.raises(BadTypeError, match=r"fitted on logits needs logits.*input='log_proba'"):
        to_module(matrix, outputs="probabilities")
    with pytest.raises(BadTypeError, match=r"got VarianceScaling\. Fit a Policy"):
        to_module(VarianceScaling())
    with pytest.raises(BadValueError, match=r"must be 'logits' or 'probabilities', got 'scores'"):
        to_module(matrix, outputs="scores")
    y = np.array(y)
    answers = TopLabel(rng.random(200), rng.random(200) < 0.5)
    cascade = Cascade.fit({"small": answers, "large": answers}, costs=[0.01, 0.1])
    numbers = RegressionPolicy.fit(
        Normal(z[:, 0], np.ones(200)), z[:, 0] + z[:, 1], costs=ErrorCosts.absolute()
    )
    others: list[tuple[Any, str]] = [
        (cascade, r"got Cascade\. Fit a Policy with costs\.with_model"),
        (Cascade, r"got the class Cascade\. Fit it"),
        ("policy.json", r"got 'policy\.json'\. Pass load_policy\('policy\.json'\)"),
        (CostSensitiveClassifier(LogisticRegression(), CostMatrix.zero_one(3)), r"Fit a Policy"),
        (numbers, r"got RegressionPolicy\. .*RegressionPolicy\.decide"),
        (ConformalClassifier().fit(Logits(z), y), r"got ConformalClassifier\. Export the calib"),
    ]
    for one, said in others:
        with pytest.raises(BadTypeError, match=said):
            to_module(one)
    grouped = ConfidenceCalibrator().fit(Scores(z, groups=y), y == 1)
    with pytest.raises(BadValueError, match=r"with groups .*got 3 groups\. Fit it without"):
        to_module(grouped)
    p = rng.random((300, 2))
    labels = (rng.random((300, 2)) < p**4).astype(float)
    sets = MultiLabelPolicy.fit(p, labels, f_beta=FBeta(average="samples"))
    with pytest.raises(BadValueError, match=r"best set of labels.*FBeta\(average='macro'\)"):
        to_module(sets)


@pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")  # "large" is never optimal
def test_reviews_of_too_many_answers_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=(200, 3))
    y = (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)
    asked = CostMatrix.zero_one(3).with_review("ann", cost=0.1, error_rate=0.1)
    policy = Policy.fit(Logits(z), y, costs=asked, calibrator=TemperatureScaling())
    assert "expected_cost" in to_module(policy)(torch.zeros(2, 3))
    monkeypatch.setattr("dubito.export.decision_graph.MAX_TABLE", 10)
    with pytest.raises(BadValueError, match=r"'ann' has more answers.*combine='replace'"):
        to_module(policy)


def test_a_forest_that_is_too_large_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    p = rng.random(300)
    forest = ForestCalibration(n_estimators=2).fit(p, rng.random(300) < p)
    monkeypatch.setattr("dubito.export.calibration_graph.MAX_TABLE", 10)
    with pytest.raises(BadValueError, match=r"too large.*parametric_only=True"):
        to_module(forest)


def test_a_policy_remembers_what_it_was_fitted_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), 200)
    y = (p.cumsum(axis=1) < rng.random((200, 1))).sum(axis=1)
    costs = CostMatrix.zero_one(3).with_reject(0.4)
    policy = Policy.fit(p, y, costs=costs, calibrator=TemperatureScaling())
    policy.save(tmp_path / "policy.json")
    to_onnx(Policy.load(tmp_path / "policy.json"), tmp_path / "policy.onnx")
    rows = p[:50].astype(np.float32)
    found = run_onnx(tmp_path / "policy.onnx", {"probabilities": rows})
    assert found["action"].tolist() == policy.decide(rows).action.tolist()


def by_amount(**settings: Any) -> tuple[Policy, Any, dict[str, Any]]:
    """Return a policy whose costs depend on two columns, with outputs and the columns."""
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(2), 200)
    y = (p[:, 1] > rng.random(200)).astype(int)
    columns = {"amount": rng.exponential(50, 200), "days": rng.integers(1, 9, 200)}
    cells = [[0, "min(900, amount / days)"], ["5 + 0.1 * amount", 0]]
    costs = CostMatrix(cells, ["pass", "block"]).with_reject(2.0)
    given: dict[str, Any] = {"costs": costs, "row_costs": columns}
    given["calibrator"] = TemperatureScaling()
    return Policy.fit(p, y, **given | settings), p, columns


def written(policy: Any, folder: Path) -> Any:
    """Return the function of an exported file."""
    to_numpy(policy, folder / "policy.py")
    return runpy.run_path(str(folder / "policy.py"))["decide"]


def test_a_file_of_numpy_takes_the_row_costs_of_a_policy(tmp_path: Path) -> None:
    policy, p, columns = by_amount()
    decide = written(policy, tmp_path)
    cube = np.random.default_rng(1).exponential(size=(200, 3, 2))
    forms: list[Any] = [
        columns,
        UserDict(columns),  # like a dict, and none
        pd.DataFrame(columns),
        {name: list(column) for name, column in columns.items()},
        pd.DataFrame(columns).to_records(index=False),
        cube,
        cube.tolist(),
    ]
    for row_costs in forms:
        wanted, found = policy.decide(p, row_costs=row_costs), decide(p, row_costs)
        assert found["action"].tolist() == wanted.action.tolist()
        np.testing.assert_allclose(found["expected_cost"], wanted.expected_cost, rtol=1e-9)
    # Costs that depend on one column take that column itself.
    costs = CostMatrix([[0, "amount"], [5, 0]], ["pass", "block"])
    single, p, columns = by_amount(costs=costs)
    decide = written(single, tmp_path)
    for row_costs in (columns["amount"], {"amount": columns["amount"]}, cube[:, :2]):
        wanted = single.decide(p, row_costs=row_costs)
        assert decide(p, row_costs)["action"].tolist() == wanted.action.tolist()


@pytest.mark.parametrize("name", ["len", "RULE_1", "TABLE_1", "np", "checked", "decide", "above"])
def test_columns_may_have_the_names_of_functions(tmp_path: Path, name: str) -> None:
    costs = CostMatrix([[0, f"5 + {name} / 2"], [5, 0]], ["pass", "block"])
    policy, p, columns = by_amount(
        costs=costs, row_costs={name: np.linspace(0, 9, 200)}, calibrator=TemperatureScaling()
    )
    amounts = {name: columns["amount"]}
    wanted = policy.decide(p, row_costs=amounts).action.tolist()
    assert written(policy, tmp_path)(p, amounts)["action"].tolist() == wanted
    to_onnx(policy, tmp_path / "policy.onnx", precision="float64")
    found = run_onnx(tmp_path / "policy.onnx", {"probabilities": p, **amounts})
    assert found["action"].tolist() == wanted


@pytest.mark.parametrize("name", ["logits", "features", "action", "calibrated_probabilities"])
def test_cost_columns_named_like_inputs_or_outputs_raise(tmp_path: Path, name: str) -> None:
    costs = CostMatrix([[0, name], [5, 0]], ["pass", "block"])
    policy, _, _ = by_amount(costs=costs, row_costs={name: np.linspace(0, 9, 200)})
    for export in (to_numpy, to_onnx):
        with pytest.raises(BadValueError, match=f"column called '{name}'.*Rename the column"):
            export(policy, tmp_path / "policy")


def test_a_file_of_numpy_is_tidy_and_says_what_it_computes(tmp_path: Path) -> None:
    policy = fitted()
    for one, words in ((policy, "What a policy decides,"), (policy.calibrator, "Calibrated prob")):
        to_numpy(one, tmp_path / "written.py", source="policy.json" if one is policy else None)
        text = (tmp_path / "written.py").read_text()
        assert text.startswith(f'"""{words}')
        assert ("from policy.json: Policy(" in text) == (one is policy)
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E3,W,F,I",
                   "--preview", "-"]  # fmt: skip
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
    # Logits that are far apart overflow without a warning.
    names: dict[str, Any] = {"__name__": "exported"}
    exec(text, names)
    with np.errstate(over="raise", invalid="raise"):
        p = names["predict_proba"]([[1.7e308, -1.7e308, 0.0]])["calibrated_probabilities"]
    assert p.round(6).tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("combine", ["bayes", "replace"])
@pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")  # some actions never optimal
def test_costs_by_row_replace_those_of_reviewers(tmp_path: Path, combine: Any) -> None:
    cells: list[list[Any]] = [[0, "amount"], [5, 0]]
    costs = CostMatrix(cells, ["pass", "block"])
    costs = costs.with_review("ann", cost=1.0, error_rate=0.1, combine=combine)
    policy, p, columns = by_amount(costs=costs)
    decide = written(policy, tmp_path)
    cube = np.random.default_rng(1).exponential(size=(200, 3, 2))
    for row_costs in (columns, cube):
        wanted = policy.decide(p, row_costs=row_costs)
        found = decide(p, row_costs)
        assert found["action"].tolist() == wanted.action.tolist()
        np.testing.assert_allclose(found["expected_cost"], wanted.expected_cost, rtol=1e-9)


@pytest.mark.parametrize("combine", ["bayes", "replace"])
@pytest.mark.parametrize("wrong", [6.0, "amount"])
@pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")
def test_who_is_asked_about_an_answer_gives_one(tmp_path: Path, combine: Any, wrong: Any) -> None:
    costs = CostMatrix([[0.5, wrong]], ["answer"])
    costs = costs.with_review("ann", cost=0.2, error_rate=[0.1, 0.3], combine=combine)
    settings: dict[str, Any] = {} if costs.columns else {"row_costs": None}
    policy, p, columns = by_amount(costs=costs, **settings)
    given = [columns] if costs.columns else []
    wanted, found = policy.decide(p, None, *given), written(policy, tmp_path)(p, *given)
    assert found["action"].tolist() == wanted.action.tolist()
    np.testing.assert_allclose(found["expected_cost"], wanted.expected_cost, rtol=1e-9)
    assert 0 < wanted.action.mean() < 1


def test_an_exported_numpy_file_raises_where_the_policy_raises(tmp_path: Path) -> None:
    policy, p, columns = by_amount()
    decide = written(policy, tmp_path)
    rows: dict[str, Any] = {
        "p": p[:5],
        "costs": {name: column[:5] for name, column in columns.items()},
    }

    def changed(name: str, row: int, value: float) -> dict[str, Any]:
        column = rows["costs"][name].astype(float)
        column[row] = value
        return {**rows["costs"], name: column}

    def altered(row: int, value: float) -> Any:
        found = rows["p"].copy()
        found[row, 0] = value
        return found

    cube = np.ones((5, 3, 2))
    cube[4, 1, 1] = np.nan
    cases: list[tuple[Any, Any, str]] = [
        (altered(3, np.nan), rows["costs"], r"`probabilities` must be finite.*nan in row 3\. Fix"),
        (altered(2, np.inf), rows["costs"], r"`probabilities` must be finite.*inf in row 2"),
        (altered(1, 7.0), rows["costs"], r"rows that sum to 1, got a sum of 7.* in row 1\. .*soft"),
        (altered(1, -0.5), rows["costs"], r"non-negative.*got -0\.5 in row 1"),
        (np.ones((5, 3)), rows["costs"], r"rows x 2, got the shape \(5, 3\)\. Pass the columns"),
        (rows["p"] > 0.5, rows["costs"], r"must be numbers, rows x 2, got bool"),
        (rows["p"].astype(object), rows["costs"], r"must be numbers, rows x 2, got object"),
        (rows["p"] * 1j, rows["costs"], r"must be numbers, rows x 2, got complex128"),
        ([["a", "b"]] * 5, rows["costs"], r"must be numbers.*got list"),
        (rows["p"], changed("amount", 4, np.nan), r"`row_costs\['amount'\]`.*nan in row 4\. Fix"),
        (
            rows["p"],
            changed("days", 2, 0),
            r"cost by `min\(900, amount / days\)`, got inf in row 2",
        ),
        (
            rows["p"],
            changed("amount", 0, 1e200),
            r"5 \+ 0\.1 \* amount.* of at most 1e\+100.* row 0",
        ),
        (rows["p"], {"amount": np.ones(5)}, r"must have a column 'days'\. Pass a dict with"),
        (rows["p"], columns, r"`row_costs\['amount'\]` must be numbers, 5, got the shape \(200,\)"),
        (rows["p"], np.ones(5), r"`row_costs` must have columns, got ndarray\. Pass a dict"),
        (rows["p"], None, r"`row_costs` must have columns, got NoneType"),
        (rows["p"], cube, r"`row_costs` must be finite.*nan in row 4"),
        (rows["p"], np.ones((5, 2, 3)), r"5 x 3 x 2, got the shape \(5, 2, 3\)\. Pass an array"),
    ]
    for outputs, row_costs, message in cases:
        with pytest.raises(ValueError, match=message):
            decide(outputs, row_costs)
        is_single = np.shape(outputs) == (5, 1)  # which is P(positive class) in dubito
        if not is_single:
            with pytest.raises((BadTypeError, BadValueError)):
                policy.decide(outputs, row_costs=row_costs)
    # Rounded probabilities are renormalized, as they are there.
    rounded = np.round(p, 3) * 1.0004
    wanted = policy.decide(rounded, row_costs=columns)
    found = decide(rounded, columns)["expected_cost"]
    np.testing.assert_allclose(found, wanted.expected_cost, rtol=1e-9)


def test_features_and_probabilities_of_labels_are_checked(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    decide = written(fitted(features=rng.normal(size=(300, 2))), tmp_path)
    z = rng.normal(size=(4, 3))
    with pytest.raises(ValueError, match=r"`features` must be numbers, 4 x 2, got .* \(3, 2\)"):
        decide(z, np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"`logits` must be finite, got -inf in row 1"):
        decide(np.where(np.arange(12).reshape(4, 3) == 4, -np.inf, z), np.zeros((4, 2)))
    p = rng.random((300, 2))
    labels = (rng.random((300, 2)) < p).astype(float)
    decide = written(MultiLabelPolicy.fit(p, labels), tmp_path)
    with pytest.raises(ValueError, match=r"between 0 and 1, got 1\.5 in row 0\. Apply a sigmoid"):
        decide([[0.5, 1.5]])
