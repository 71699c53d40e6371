"""What exported policies compute beside dubito itself, and how fast, in one run.

    python -m benchmarks.export            # every calibrator and policy on 10,000 rows; the speed
    python -m benchmarks.export --quick    # on 500 rows, and a hundredth of the speed's

Each line is the largest difference of calibrated probabilities, and of expected costs relative to
the largest cost, from what Python computes for the same rows: random ones, and extreme ones
(saturated, very negative, constant up to 1e30). "mixed" takes and returns float32 and computes in
float64; "float32" does all in float32. `actions` counts rows of another action or reason, unless
the two expected costs differ by less than 1e-5 of the largest cost, over all targets but float32,
whose count is in the last column.
"""

import argparse
import runpy
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import torch
from numpy.typing import NDArray

from benchmarks.clock import best_times
from dubito import CostMatrix, FBeta, LabelCosts, Logits, MultiLabel, MultiLabelPolicy, Policy
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    ConfidenceCalibrator,
    EnsembleTemperatureScaling,
    ForestCalibration,
    HistogramBinning,
    IdentityCalibrator,
    IsotonicCalibration,
    MatrixScaling,
    MultiLabelCalibrator,
    OneVsRest,
    PlattScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.decide import OODGate, RiskBound, expected_costs
from dubito.decide.policy.decide import OUT_OF_DISTRIBUTION
from dubito.doubt import (
    SCALE,
    ClassConditionalDensity,
    DecisionBoundaryDistance,
    MahalanobisDistance,
    NearestNeighborDistance,
    ReAct,
    VirtualLogitMatching,
)
from dubito.errors import DubitoWarning
from dubito.export import to_module, to_numpy, to_onnx, to_program
from dubito.export.decision_graph import describe
from dubito.export.samples import call_arguments, sample_inputs, true_outputs
from dubito.outputs import Probabilities, Scores

__all__ = ["Case", "compare", "fitted_calibrators", "fitted_policies", "main", "run_onnx"]

Arrays = dict[str, NDArray[Any]]
N_KNOWN = 2_000  # rows that everything is fitted on
N_EXTREME = 14  # rows: saturated, constant, tied
TIE = 1e-5  # of the largest cost: actions that differ by less are as good
TARGETS = ("onnx float64", "onnx mixed", "NumPy file", "torch.export", "onnx float32")


class Case(NamedTuple):
    """Something fitted, and what its model returns."""

    name: str
    exported: Any
    outputs: str = "logits"


def _rows(n_classes: int, n_rows: int = N_KNOWN) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return over-confident logits and labels."""
    rng = np.random.default_rng(n_classes)
    z = 3 * rng.normal(size=(n_rows, n_classes))
    return z, (z / 2 + rng.gumbel(size=z.shape)).argmax(axis=1)


def _features(y: NDArray[Any]) -> NDArray[Any]:
    """Return features around a mean for each class, none negative."""
    rng = np.random.default_rng(0)
    means = 4 + 2 * rng.normal(size=(y.max() + 1, 6))
    return np.asarray(np.abs(means[y] + rng.normal(size=(y.size, 6))))


CALIBRATORS: dict[str, tuple[int, BaseCalibrator]] = {
    "IdentityCalibrator": (4, IdentityCalibrator()),
    "TemperatureScaling": (4, TemperatureScaling()),
    "EnsembleTemperatureScaling": (4, EnsembleTemperatureScaling()),
    "VectorScaling": (4, VectorScaling()),
    "MatrixScaling": (4, MatrixScaling()),
    "MatrixScaling log_proba": (4, MatrixScaling(input="log_proba")),
    "StructuredMatrixScaling": (4, StructuredMatrixScaling()),
    "StructuredMatrixScaling spline": (4, StructuredMatrixScaling(basis="spline")),
    "StructuredMatrixScaling rbf": (4, StructuredMatrixScaling(basis="rbf")),
    "ForestCalibration": (4, ForestCalibration()),
    "OneVsRest Platt": (4, OneVsRest(PlattScaling())),
    "OneVsRest beta": (4, OneVsRest(BetaCalibration())),
    "OneVsRest isotonic": (4, OneVsRest(IsotonicCalibration())),
    "OneVsRest isotonic steps": (
        4, OneVsRest(IsotonicCalibration(interpolation="step", smooth=False)),
    ),
    "OneVsRest histogram": (4, OneVsRest(HistogramBinning())),
    "PlattScaling": (2, PlattScaling()),
    "BetaCalibration": (2, BetaCalibration()),
    "IsotonicCalibration": (2, IsotonicCalibration()),
    "HistogramBinning": (2, HistogramBinning()),
    "HistogramBinning quantile": (2, HistogramBinning(strategy="quantile", closed="left")),
    "AutoCalibrator": (4, AutoCalibrator()),
    "AutoCalibrator of all": (4, AutoCalibrator(max_parts=None)),
}  # fmt: skip


def fitted_calibrators(n_rows: int = N_KNOWN) -> Iterator[Case]:
    """Yield every calibrator, fitted, for logits and for probabilities."""
    for name, (n_classes, calibrator) in CALIBRATORS.items():
        z, y = _rows(n_classes, n_rows)
        fitted = calibrator.fit(Logits(z), y)
        yield Case(name, fitted)
        if getattr(fitted, "input_", "") != "logits":
            yield Case(f"{name}, probabilities", fitted, "probabilities")
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(n_rows, 4))
    labels = (rng.random((n_rows, 4)) < 1 / (1 + np.exp(-odds))).astype(float)
    for name, columns in SCORES.items():
        scores, correct = _score_rows(n_rows)
        yield Case(name, ConfidenceCalibrator().fit(Scores(scores[:, columns]), correct))
    for name, base, other in (("beta", "beta", False), ("with other labels", "auto", True)):
        outputs = MultiLabel.from_logits(3 * odds @ (np.eye(4) + 0.3))
        several = MultiLabelCalibrator(base=base, other_labels=other).fit(outputs, labels)
        yield Case(f"MultiLabelCalibrator {name}", several)
        yield Case(f"MultiLabelCalibrator {name}, probabilities", several, "probabilities")


SCORES = {
    "ConfidenceCalibrator": [0],
    "ConfidenceCalibrator of three scores": [0, 1, 2],
    "ConfidenceCalibrator of log probabilities": [1],
}


def _score_rows(n_rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return a confidence, a log probability with a long tail and a grade, and what is correct."""
    rng = np.random.default_rng(5)
    skill = rng.normal(size=n_rows)
    confidence = np.round(1 / (1 + np.exp(-3 * skill - rng.normal(size=n_rows))), 3)
    tail = -np.exp(2 - skill + rng.normal(size=n_rows))
    grade = 10 * skill + rng.normal(size=n_rows) * 20
    correct = rng.random(n_rows) < 1 / (1 + np.exp(-skill))
    return np.column_stack([confidence, tail, grade]), correct


def _gates(n_classes: int) -> dict[str, OODGate]:
    """Return gates with scores of features, and of outputs."""
    layer = np.random.default_rng(1).normal(size=(n_classes, 6)), np.ones(n_classes)
    return {
        "Mahalanobis": OODGate(MahalanobisDistance()),
        "relative Mahalanobis": OODGate(MahalanobisDistance(normalize=True, relative=True)),
        "shared density": OODGate(ClassConditionalDensity()),
        "density per class": OODGate(ClassConditionalDensity("per_class")),
        "diagonal density": OODGate(ClassConditionalDensity("diagonal")),
        "nearest neighbors": OODGate(NearestNeighborDistance(10)),
        "nearest neighbors, not normalized": OODGate(NearestNeighborDistance(10, normalize=False)),
        "ViM": OODGate(VirtualLogitMatching(*layer, n_dimensions=3)),
        "ReAct": OODGate(ReAct(*layer)),
        "SCALE": OODGate(SCALE(*layer)),
        "fDBD": OODGate(DecisionBoundaryDistance(*layer)),
        "energy and Mahalanobis": OODGate(["energy", MahalanobisDistance()]),
        "entropy": OODGate("entropy", alpha=0.1),
        "least confidence": OODGate("least_confidence", alpha=0.1),
        "margin": OODGate("margin_uncertainty", alpha=0.1),
        "generalized entropy": OODGate("generalized_entropy", alpha=0.1),
    }


def fitted_policies(n_rows: int = N_KNOWN, names: Sequence[str] = ()) -> Iterator[Case]:
    """Yield policies with every part that a policy can have, or those of some names."""
    z, y = _rows(4, n_rows)
    features = _features(y)
    usual = {
        "outputs": Logits(z), "y": y, "calibrator": TemperatureScaling(),
        "costs": CostMatrix.zero_one(4).with_reject(0.3),
    }  # fmt: skip
    uneven = np.abs(np.random.default_rng(2).normal(size=(3, 4))) * 10
    by_class = CostMatrix(uneven, ["go", "wait", "stop"]).with_reject([2, 3, 1, 4])
    shifted = {"deploy_prior": [0.7, 0.1, 0.2, 0.0]}
    binary, second = _rows(2, n_rows)
    two = {"outputs": Logits(binary), "y": second}
    amount = np.exp(np.random.default_rng(3).normal(size=n_rows) + 3)
    columns = {"amount": amount, "fee": np.sqrt(amount)}
    errors = CostMatrix([[0, "max(5, 0.5 * amount)"], ["fee + 1", "-0.01 * amount"]])
    cube = np.abs(np.random.default_rng(4).normal(size=(n_rows, 5, 4)))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    wide, many = _rows(120, n_rows)
    confusion = np.full((4, 4), 0.05) + 0.8 * np.eye(4) + 0.02 * np.tri(4)
    confusion /= confusion.sum(axis=1, keepdims=True)
    reviewed = CostMatrix(uneven).with_review("ann", cost=0.5, error_rate=[0.1, 0.2, 0.05, 0.1])
    scores, correct = _score_rows(n_rows)
    answers = CostMatrix.for_answers()
    correct_or_not = {"outputs": Scores(scores), "y": correct, "calibrator": ConfidenceCalibrator()}
    settings: dict[str, dict[str, Any]] = {
        "zero-one costs, reject": {},
        "zero-one costs, no reject": {
            "calibrator": VectorScaling(), "costs": CostMatrix.zero_one(4),
        },
        "costs per class": {"calibrator": AutoCalibrator(), "costs": by_class},
        "deployment prior": {
            "calibrator": OneVsRest(IsotonicCalibration()), "costs": by_class, **shifted,
        },
        "deployment prior of a mixture": {"calibrator": AutoCalibrator(max_parts=None), **shifted},
        "risk bound": {"calibrator": ForestCalibration(), "risk": RiskBound(0.2)},
        "bound on the mean cost": {
            "calibrator": MatrixScaling(), "costs": by_class, "risk": RiskBound(max_cost=2.5),
        },
        "row costs": {
            **two, "calibrator": PlattScaling(), "costs": errors.with_reject(3),
            "row_costs": columns,
        },
        "row costs, risk bound": {
            **two, "calibrator": BetaCalibration(), "row_costs": columns, "risk": RiskBound(0.2),
            "costs": errors.with_reject("min(8, amount / 10)"),
        },
        "costs by row": {"row_costs": cube},
        "probabilities, gate and bound": {
            "calibrator": OneVsRest(HistogramBinning()), "outputs": Probabilities(p),
            "features": features, "risk": RiskBound(0.25),
        },
        "120 classes": {
            "calibrator": StructuredMatrixScaling(), "outputs": Logits(wide), "y": many,
            "costs": CostMatrix.zero_one(120).with_reject(0.7),
            "ood": OODGate("generalized_entropy", alpha=0.1),
        },
        "reviewer, by Bayes": {"costs": reviewed},
        "reviewers and a larger model, gate": {
            "costs": reviewed.with_review("bob", cost=0.45, confusion=confusion)
            .with_model("large", cost=0.1, error_rate=0.1).with_reject(3.4),
            "ood": OODGate("entropy", alpha=0.1),
        },
        "larger model, bound on the mean cost": {
            "costs": CostMatrix(uneven).with_model("large", cost=0.5, confusion=confusion),
            "risk": RiskBound(max_cost=5.5),
        },
        "reviewers, row costs, risk bound": {
            **two, "row_costs": columns, "risk": RiskBound(0.2),
            "costs": errors.with_review("ann", cost="0.02 * amount", error_rate=0.1)
            .with_model("large", cost=0.5, confusion=[[9, 1], [2, 8]]).with_reject(9),
        },
        "scores, answers, risk bound": {
            **correct_or_not, "costs": answers.with_reject(0.3), "risk": RiskBound(0.25),
        },
        "scores, reviewer": {
            **correct_or_not, "outputs": Scores(scores[:, 0]),
            "costs": CostMatrix([[1, 0], [0.2, 0.7]], ["answer", "withhold"])
            .with_review("ann", cost=0.1, error_rate=0.05),
        },
    }  # fmt: skip
    for name, gate in _gates(4).items():
        more = {} if isinstance(gate.score, str) else {"features": features}
        settings[f"gate: {name}"] = {"ood": gate, **more}
    for name, setting in settings.items():
        if not names or name in names:
            given = {**usual, **setting}
            outputs, labels = given.pop("outputs"), given.pop("y")
            kind = "probabilities" if isinstance(outputs, Probabilities) else "logits"
            yield Case(name, Policy.fit(outputs, labels, **given), kind)
    rng = np.random.default_rng(0)
    odds = rng.normal(size=(n_rows, 4))
    several = (rng.random((n_rows, 4)) < 1 / (1 + np.exp(-odds))).astype(float)
    label_settings: dict[str, dict[str, Any]] = {
        "labels: costs": {"costs": LabelCosts(1, 5)},
        "labels: reviews": {"costs": LabelCosts(1, [5, 2, 1, 9], review=[0.3, None, 0.2, 0.5])},
        "labels: reviews of rows": {"costs": LabelCosts(1, 5, review=0.4, review_row=0.9)},
        "labels: F-beta": {"f_beta": FBeta()},
    }
    for name, setting in label_settings.items():
        if not names or name in names:
            outputs = MultiLabel.from_logits(3 * odds)
            yield Case(name, MultiLabelPolicy.fit(outputs, several, **setting))


def extreme_inputs(case: Case, graph: Any) -> Arrays:
    """Return saturated, very negative, constant and tied rows."""
    inputs = sample_inputs(case.exported, graph, N_EXTREME, seed=7)
    first = next(iter(inputs))
    n_classes = inputs[first].shape[1]
    if first == "scores":
        ends = case.exported.calibrator if isinstance(case.exported, Policy) else case.exported
        inputs[first][:4] = np.where(
            ends.is_probability_, np.array([[0.0], [1.0], [0.5], [1e-9]]), ends.low_ * 9
        )
        return inputs
    rows = np.zeros((N_EXTREME, n_classes))
    rows[0, 0], rows[1, -1], rows[2, 0] = 1e4, 80.0, -1e4
    rows[3], rows[4], rows[5] = -1e4, 1e4, -1e4 + np.arange(n_classes)
    rows[6, :2], rows[7, :2], rows[8] = 50.0, [30.0, 30.0001], np.linspace(-800, 0, n_classes)
    rows[9, 1], rows[10] = 1e-6, np.linspace(0, 1e-3, n_classes)
    rows[11], rows[12], rows[13, 0] = 1e30, -1e30, 1e30
    if first == "probabilities" and "labels" in graph.metadata:
        rows = np.clip(np.abs(rows), 0, 1)
    elif first == "probabilities":
        odds = np.exp(rows - rows.max(axis=1, keepdims=True))
        rows = odds / odds.sum(axis=1, keepdims=True)
    inputs[first] = rows
    if "features" in inputs:
        inputs["features"][:3] = np.array([[0.0], [1.0], [1e6]])
    return inputs


class Comparison(NamedTuple):
    """The largest difference of a target from Python, and rows of another action or reason."""

    difference: float
    n_actions: int


def compare(
    case: Case, n_rows: int, folder: Path, *, save_program: bool = True
) -> dict[str, Comparison]:
    """Return how far each target is from Python, on random and on extreme rows.

    Without `save_program`, PyTorch runs the module itself, which takes a tenth of the time.
    """
    graph = describe(case.exported, case.outputs)
    many = sample_inputs(case.exported, graph, n_rows, seed=1)
    few = extreme_inputs(case, graph)
    inputs = {name: np.concatenate([many[name], few[name]]) for name in many}
    single = {name: one.astype(np.float32) for name, one in inputs.items()}
    if "probabilities" in single and "labels" not in graph.metadata:
        single["probabilities"] /= single["probabilities"].sum(axis=1, keepdims=True)
    found: dict[str, tuple[Arrays, Arrays]] = {}
    for precision in ("float64", "mixed", "float32"):
        path = folder / f"{precision}.onnx"
        to_onnx(case.exported, path, outputs=case.outputs, precision=precision)
        given = inputs if precision == "float64" else single
        found[f"onnx {precision}"] = given, run_onnx(path, given)
    path = folder / "exported.py"
    to_numpy(case.exported, path, outputs=case.outputs)
    names = runpy.run_path(str(path))
    function = names.get("decide") or names["predict_proba"]
    with np.errstate(over="ignore"):
        found["NumPy file"] = inputs, function(*call_arguments(inputs))
    module: torch.nn.Module = to_module(case.exported, outputs=case.outputs)
    if save_program:
        path = folder / "exported.pt2"
        to_program(case.exported, path, outputs=case.outputs)
        module = torch.export.load(path).module()
    found["torch.export"] = single, run_torch(module, single)
    truths = {id(one): true_outputs(case.exported, graph, one) for one in (inputs, single)}
    return {
        name: _difference(case, given, truths[id(given)], found[name][1])
        for name in TARGETS
        for given in [found[name][0]]
    }


def run_onnx(path: Path, inputs: Arrays) -> Arrays:
    """Return what onnxruntime computes, by name."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def run_torch(module: Any, inputs: Arrays) -> Arrays:
    """Return what a module or program of PyTorch computes, by name."""
    tensors: list[Any] = []
    for one in call_arguments(inputs, is_padded=True):
        is_table = isinstance(one, dict)
        columns = {key: torch.from_numpy(value) for key, value in one.items()} if is_table else one
        tensors.append(columns if is_table or one is None else torch.from_numpy(one))
    while tensors[-1] is None:
        tensors.pop()
    results = module(*tensors)
    if not isinstance(results, dict):
        results = {"calibrated_probabilities": results}
    return {name: one.numpy() for name, one in results.items()}


def _difference(case: Case, inputs: Arrays, truth: Arrays, found: Arrays) -> Comparison:
    """Return the largest difference, and how many rows have another action or reason."""
    wanted = truth["calibrated_probabilities"]
    differences = [np.abs(found["calibrated_probabilities"].astype(float) - wanted).max()]
    if "action" not in truth:
        return Comparison(float(differences[0]), 0)
    largest = _largest_cost(case.exported, inputs)
    is_other = found["action"] != truth["action"]
    if "reason" in truth:
        costs = _costs_by_action(case.exported, inputs, wanted)
        rows = np.arange(len(costs))
        gap = np.abs(costs[rows, found["action"]] - costs[rows, truth["action"]])
        is_other &= gap > TIE * largest
        # A tie of the two best actions may give another reason as well, though not that of a gate.
        reasons, best = np.stack([found["reason"], truth["reason"]]), np.sort(costs, axis=1)
        is_near = best[:, 1] - best[:, 0] <= TIE * largest
        is_near &= (reasons != OUT_OF_DISTRIBUTION).all(axis=0)
        is_other |= (reasons[0] != reasons[1]) & ~is_near
    is_same = ~is_other.reshape(len(is_other), -1).any(axis=1)
    gaps = np.abs(found["expected_cost"] - truth["expected_cost"]) / largest
    differences.append(gaps[is_same].max())
    return Comparison(float(max(differences)), int((~is_same).sum()))


def _largest_cost(policy: Any, inputs: Arrays) -> Any:
    """Return the largest cost in size, of each row if they differ."""
    if isinstance(policy, MultiLabelPolicy):
        costs = policy.costs.arrays
        return float(max(costs.false_positive.max(), costs.false_negative.max()))
    n_rows, n_classes = len(next(iter(inputs.values()))), policy.costs.n_classes
    each = [
        np.abs(_costs_by_action(policy, inputs, np.tile(np.eye(n_classes)[k], (n_rows, 1)))).max(1)
        for k in range(n_classes)
    ]
    return np.max(each, axis=0)


def _costs_by_action(policy: Policy, inputs: Arrays, p: NDArray[Any]) -> NDArray[Any]:
    row_costs = call_arguments(inputs, is_padded=True)[2]
    normalized = p.astype(np.float64) / p.sum(axis=1, keepdims=True, dtype=np.float64)
    return expected_costs(Probabilities(normalized), policy.costs, row_costs)


def _print_equality(n_rows: int) -> None:
    print(f"{'':54}" + "".join(f"{name:>14}" for name in TARGETS) + "  actions  float32")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in (*fitted_calibrators(), *fitted_policies()):
            found = compare(case, n_rows, Path(folder))
            cells = "".join(f"{found[name].difference:14.0e}" for name in TARGETS)
            n_others = sum(found[name].n_actions for name in TARGETS[:-1])
            print(f"{case.name:54}{cells}{n_others:9}{found[TARGETS[-1]].n_actions:9}", flush=True)


def _print_speed(n_rows: int) -> None:
    z, y = _rows(10)
    costs = CostMatrix.zero_one(10).with_reject(0.73)
    many = np.tile(_rows(10, 100_000)[0].astype(np.float32), (n_rows // 100_000 + 1, 1))[:n_rows]
    print(f"\nSeconds for {n_rows:,} x 10 float32 logits (wall, and CPU of all threads)")
    calibrators: list[BaseCalibrator] = [TemperatureScaling(), StructuredMatrixScaling()]
    for calibrator in [*calibrators, OneVsRest(IsotonicCalibration())]:
        policy = Policy.fit(Logits(z), y, costs=costs, calibrator=calibrator)
        with tempfile.TemporaryDirectory() as folder:
            calls = _timed_calls(policy, many, folder)
            wall = best_times(calls, 3)
            cpu = best_times(calls, 3, time.process_time)
        print(f"{calibrator}")
        for name in calls:
            print(f"  {name:24}{wall[name]:8.3f}{cpu[name]:8.3f}", flush=True)


def _timed_calls(policy: Policy, rows: NDArray[Any], folder: str) -> dict[str, Any]:
    """Return what decides the rows in each target."""
    calls: dict[str, Any] = {"Policy.decide": lambda: policy.decide(Logits(rows))}
    for precision in ("mixed", "float32"):
        path = f"{folder}/{precision}.onnx"
        to_onnx(policy, path, precision=precision)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        calls[f"onnxruntime, {precision}"] = partial(session.run, None, {"logits": rows})
        module = to_module(policy) if precision == "mixed" else to_module(policy).float()
        calls[f"PyTorch, {precision}"] = partial(module, torch.from_numpy(rows))
    return calls


def main() -> None:
    """Compare every target with Python, and time them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    is_quick = parser.parse_args().quick
    _print_equality(500 if is_quick else 10_000)
    with warnings.catch_warnings(action="ignore", category=DubitoWarning):
        _print_speed(10_000 if is_quick else 1_000_000)


if __name__ == "__main__":
    main()
