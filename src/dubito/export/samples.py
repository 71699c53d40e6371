"""Rows to try an exported policy on, and what dubito itself makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray
from dubito.calibrate import ConfidenceCalibrator
from dubito.decide import MultiLabelPolicy, Policy
from dubito.export.graph import Graph
from dubito.outputs import Logits, MultiLabel, Probabilities, Scores

Arrays = dict[str, NDArray[Any]]
N_DIGITS = 6  # of random inputs, so that files that hold them stay readable


def sample_inputs(
    exported: Any, graph: Graph, n_rows: int, seed: int = 0, precision: str = "float64"
) -> Arrays:
    """Return random inputs of what was exported, about half of them in-distribution."""
    random = np.random.default_rng(seed)
    found: Arrays = {}
    for name, value in graph.inputs.items():
        x: FloatArray = random.normal(size=(n_rows, *value.attributes["sizes"])) * 3
        if name == "features":
            x = _features(exported, x, random)
        elif name == "probabilities":
            odds = np.exp(x)
            total = 1 + odds if "labels" in graph.metadata else odds.sum(axis=1, keepdims=True)
            x = odds / total
        elif name == "scores":
            x = _scores(getattr(exported, "calibrator", exported), x)
        elif name != "logits":  # columns that costs depend on, or the costs
            x = np.exp(x)
        found[name] = np.round(x, N_DIGITS).astype(precision)
        if name == "probabilities" and "labels" not in graph.metadata:
            found[name] /= found[name].sum(axis=1, keepdims=True)
    return found


def _features(exported: Any, noise: FloatArray, random: np.random.Generator) -> FloatArray:
    """Return features near what an OOD gate was fitted on, and further away."""
    score = next(one for one in exported.ood.scores if not isinstance(one, str))
    known = getattr(score, "reference_", np.zeros((1, noise.shape[1])))
    centers = getattr(score, "means_", known)
    sizes = random.choice([0.1, 1.0, 10.0], (len(noise), 1))
    near = centers[random.integers(0, len(centers), len(noise))] + sizes * noise / 3
    # Scores of the last layer may need activations that are not negative.
    return np.asarray(np.abs(near) if hasattr(score, "weight_") else near)


def _scores(calibrator: ConfidenceCalibrator, noise: FloatArray) -> FloatArray:
    """Return scores within and a little beyond the range of the fit, some at its ends."""
    low, high = calibrator.low_, calibrator.high_
    values = (low + high) / 2 + (high - low) * noise / 8
    p = np.round(1 / (1 + np.exp(-values)), 4)
    return np.where(calibrator.is_probability_, p, values)


def true_outputs(exported: Any, graph: Graph, inputs: Arrays) -> Arrays:
    """Return what a policy or calibrator itself makes of inputs, as its graph names outputs."""
    first, array = next(iter(inputs.items()))
    is_logits = first == "logits"
    if first == "scores":
        outputs: Any = Scores(array)
    elif "labels" in graph.metadata:
        outputs = MultiLabel.from_logits(array) if is_logits else MultiLabel(array)
    else:
        outputs = Logits(array) if is_logits else Probabilities(array)
    found: Arrays = {"calibrated_probabilities": exported.predict_proba(outputs)}
    if isinstance(exported, MultiLabelPolicy):
        labels = exported.decide(outputs)
        found["action"], found["row_action"] = labels.action.astype(np.int64), labels.row_action
        found["expected_cost"] = labels.expected_cost
    elif isinstance(exported, Policy):
        decisions = exported.decide(outputs, *call_arguments(inputs, is_padded=True)[1:])
        found["action"], found["reason"] = decisions.action, decisions.reason
        found["expected_cost"] = decisions.expected_cost
    return found


def call_arguments(inputs: Arrays, *, is_padded: bool = False) -> list[Any]:
    """Return inputs as `decide` takes them: outputs, then features and row costs, if any."""
    first, *others = inputs
    columns = {name: inputs[name] for name in others if name != "features"}
    features = inputs.get("features")
    row_costs: Any = columns.get("row_costs", columns) if columns else None
    if is_padded:
        return [inputs[first], features, row_costs]
    return [inputs[first], *(one for one in (features, row_costs) if one is not None)]
