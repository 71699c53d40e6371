"""A policy behind a network, as one ONNX file: names, shapes, one column, invalid networks."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.export import run_onnx
from dubito import CostMatrix, Logits, Policy, Probabilities
from dubito.calibrate import PlattScaling, TemperatureScaling
from dubito.errors import BadFileError, BadValueError, DubitoError
from dubito.export import to_numpy, to_onnx
from dubito.export.onnx_export import model_names

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(300, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
X = RNG.normal(size=(300, 4)) + Y[:, np.newaxis]
PIXELS = RNG.normal(size=(20, 4)).astype(np.float32)
ODDS = 3 * RNG.normal(size=300)
IS = (RNG.random(300) < 1 / (1 + np.exp(-ODDS / 2))).astype(int)


def gated(**settings: Any) -> Policy:
    costs = CostMatrix.zero_one(3).with_reject(0.3)
    return Policy.fit(Logits(Z), Y, costs=costs, calibrator=TemperatureScaling(), **settings)


def network(
    path: Path, dims: list[Any], n: int, *, source: str = "x", output: str = "z", opset: str = ""
) -> NDArray[Any]:
    """Write a linear network; return its weights."""
    weights = np.random.default_rng(1).normal(size=(4, n)).astype(np.float32)
    nodes = [helper.make_node("MatMul", [source, "w"], [output if len(dims) > 1 else "whole"])]
    constants = [numpy_helper.from_array(weights, "w")]
    if len(dims) == 1:
        nodes.append(helper.make_node("Squeeze", ["whole", "axes"], [output]))
        constants.append(numpy_helper.from_array(np.array([1]), "axes"))
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, dims)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(opset, 18)], ir_version=9)
    helper.set_model_props(model, {"author": "ann", "actions": "other"})
    onnx.save(model, path)
    return weights


@pytest.mark.parametrize("calibrator", [PlattScaling(), TemperatureScaling()], ids=str)
@pytest.mark.parametrize("dims", [["n", 1], ["n"], ["n", "columns"], ["n", 2]], ids=str)
def test_a_network_may_return_one_logit(tmp_path: Path, calibrator: Any, dims: list[Any]) -> None:
    costs = CostMatrix.zero_one(2).with_reject(0.3)
    policy = Policy.fit(Logits(ODDS), IS, costs=costs, calibrator=calibrator)
    weights = network(tmp_path / "net.onnx", dims, 2 if dims == ["n", 2] else 1)
    to_onnx(policy, tmp_path / "both.onnx", network=tmp_path / "net.onnx")
    found = run_onnx(tmp_path / "both.onnx", {"x": PIXELS})
    wanted = policy.decide(Logits(PIXELS @ weights))
    assert found["action"].tolist() == wanted.action.tolist()
    np.testing.assert_allclose(found["expected_cost"], wanted.expected_cost, atol=1e-6)


@pytest.mark.parametrize("wrap", [Logits, Probabilities])
def test_one_column_is_that_of_the_second_class(tmp_path: Path, wrap: Any) -> None:
    outputs = wrap(ODDS if wrap is Logits else 1 / (1 + np.exp(-ODDS)))
    costs = CostMatrix.zero_one(2).with_reject(0.3)
    policy = Policy.fit(outputs, IS, costs=costs, calibrator=PlattScaling())
    to_onnx(policy, tmp_path / "policy.onnx")
    to_numpy(policy, tmp_path / "policy.py")
    names: dict[str, Any] = {"__name__": "exported"}
    exec((tmp_path / "policy.py").read_text(), names)
    both = outputs.array[:50].astype(np.float32)
    wanted = policy.decide(wrap(both)).action.tolist()
    [name] = model_names(tmp_path / "policy.onnx")["inputs"]
    for given in (both, both[:, 1:]):
        assert run_onnx(tmp_path / "policy.onnx", {name: given})["action"].tolist() == wanted
    for one in (both, both[:, 1:], both[:, 1], both[:, 1].tolist()):
        assert names["decide"](one)["action"].tolist() == wanted


def test_names_of_a_network_do_not_clash(tmp_path: Path) -> None:
    policy = gated(features=X)
    net, both = tmp_path / "net.onnx", tmp_path / "both.onnx"
    weights = network(net, ["n", 3], 3, source="features", output="action", opset="ai.onnx")
    to_onnx(policy, both, network=net)
    assert model_names(both)["inputs"] == ["network_features", "features"]
    features = X[:20].astype(np.float32)
    found = run_onnx(both, {"network_features": PIXELS, "features": features})
    wanted = policy.decide(Logits(PIXELS @ weights), features)
    assert found["action"].tolist() == wanted.action.tolist()
    assert found["reason"].tolist() == wanted.reason.tolist()
    model = onnx.load(both)
    assert [one.domain for one in model.opset_import] == [""]
    held = {entry.key: entry.value for entry in model.metadata_props}
    assert held["author"] == "ann"
    assert "reject" in held["actions"]
    # What was written is a network again.
    to_onnx(gated(), tmp_path / "more.onnx", network=both, network_outputs={
        "logits": "calibrated_probabilities"})  # fmt: skip
    assert "network_reason" in model_names(tmp_path / "more.onnx")["outputs"]


def test_networks_that_do_not_fit_raise(tmp_path: Path) -> None:
    policy, net = gated(features=X), tmp_path / "net.onnx"
    network(net, ["n", 5], 5)
    junk = tmp_path / "junk.onnx"
    junk.write_text("no model")
    cases: list[tuple[type[DubitoError], dict[str, Any], str]] = [
        (BadValueError, {"network": net}, r"logits of shape rows x 3, got rows x 5 of 'z'"),
        (BadFileError, {"network": tmp_path / "nope.onnx"}, "No such file"),
        (BadFileError, {"network": junk}, "not an ONNX file"),
        (
            BadValueError,
            {"network": net, "network_outputs": {"logits": "top"}},
            r"got 'top'.*pass \{'logits': 'z', 'features': '\.\.\.'\}",
        ),
    ]
    for kind, given, message in cases:
        with pytest.raises(kind, match=message):
            to_onnx(policy, tmp_path / "both.onnx", **given)
    assert not (tmp_path / "both.onnx").exists()
