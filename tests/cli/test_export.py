"""`dubito export`: what it prints, options of ONNX files, remedies that are flags."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from dubito import Cascade, TopLabel
from tests.cli.conftest import Run


def write_network(path: str = "network.onnx") -> None:
    """Write a network with two outputs, of 3 and of 2 columns."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["pixels", name], [f"{name}_out"]) for name in ("fc", "pool")],
        "network",
        [helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, ["n", size])
            for name, size in (("fc", 3), ("pool", 2))
        ],
        [
            numpy_helper.from_array(np.ones((4, size), np.float32), name)
            for name, size in (("fc", 3), ("pool", 2))
        ],
    )
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)


def test_the_inputs_of_a_network_are_named(run: Run, made: Path) -> None:
    write_network()
    words = ["export", made / "policy.json", "-o", "both.onnx", "--network", "network.onnx"]
    both = ["--network-output", "fc_out", "--network-output", "features=pool_out"]
    done = run(*words, *both)
    assert done.exit_code == 0, done.stderr
    assert " ".join(done.stdout.split()).startswith("Wrote both.onnx: pixels in, calibrated_prob")
    printed = json.loads(run(*words, "--network-output", "logits=fc_out", "--json").stdout)
    assert printed["inputs"] == ["pixels", "features"]
    assert printed["outputs"][0] == "pool_out"
    done = run(*words)
    assert done.exit_code == 2
    said = " ".join(done.stderr.split())
    assert "pass --network-output logits=fc_out --network-output features=pool_out" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-o p.onnx --precision double", "--precision must be mixed, float32 or float64"),
        ("-o p.onnx --outputs scores", "Pass --outputs logits"),
        ("-o p.py --precision float32", "--precision needs an ONNX file, got p.py"),
        ("-o p.pt2 --precision float64", "--precision needs an ONNX file, got p.pt2"),
        ("-o p.py --network n.onnx", "--network needs an ONNX file"),
        ("-o p.onnx --network n.onnx", "n.onnx cannot be read: No such file"),
        ("-o p.onnx --network junk.onnx", "not an ONNX file"),
        ("-o p.onnx --network-output fc", "--network-output needs --network"),
    ],
)
def test_options_that_do_not_fit_exit_with_2(
    run: Run, made: Path, options: str, message: str
) -> None:
    Path("junk.onnx").write_text("no model")
    done = run("export", made / "policy.json", *options.split())
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_cascade_exits_with_2_and_a_remedy(run: Run) -> None:
    rng = np.random.default_rng(0)
    answers = TopLabel(rng.random(200), rng.random(200) < 0.5)
    Cascade.fit({"small": answers, "large": answers}, costs=[0.01, 0.1]).save("cascade.json")
    done = run("export", "cascade.json", "-o", "cascade.onnx")
    assert done.exit_code == 2
    assert "costs.with_model(...)" in " ".join(done.stderr.split())
