"""`dubito export POLICY`: a policy for other runtimes: ONNX, PyTorch, plain NumPy."""

import re
from pathlib import Path
from typing import Any

from dubito.cli.options import command, join_choices
from dubito.cli.printing import say, say_json
from dubito.cli.reading import require_output_paths
from dubito.errors import BadTypeError, BadValueError, BaseRuleError

ENDINGS = (".onnx", ".py", ".pt2")
PRECISIONS = ("mixed", "float32", "float64")


@command()
def export(
    file: Path,
    *,
    output: Path,
    outputs: str | None = None,
    precision: str = "mixed",
    network: Path | None = None,
    network_output: list[str] | None = None,
) -> None:
    """Write a policy for a runtime without dubito: ONNX, PyTorch or NumPy.

    Example: dubito export policy.json -o policy.onnx

    Options
    -------
    file
        Policy file written by `dubito fit`.
    output
        The file to write: policy.onnx for ONNX, policy.py for plain NumPy, policy.pt2 for
        PyTorch.
    outputs
        What the model returns: logits or probabilities. Default: what the policy was fitted on.
    precision
        Precision of the ONNX model: mixed (float32 in and out, float64 inside), float32 or
        float64.
    network
        ONNX file of the network, to write it and the policy as one model.
    network_output
        Output of the network that the policy takes, if it has several: its name, or
        features=NAME for the features. Repeatable.
    """
    from dubito.decide import Cascade
    from dubito.decide.policy.loading import load_policy_or_cascade
    from dubito.export.calibration_graph import unsupported
    from dubito.export.decision_graph import OUTPUTS, describe

    require_output_paths({"--output": output}, [str(file)], {"--output": ENDINGS})
    _require_choice("--outputs", outputs or OUTPUTS[0], OUTPUTS)
    _require_choice("--precision", precision, PRECISIONS)
    ending = output.suffix.lower()
    if ending != ".onnx":
        onnx_only: dict[str, Any] = {"--network": network, "--network-output": network_output}
        onnx_only |= {} if precision == PRECISIONS[0] else {"--precision": precision}
        for option in (name for name, value in onnx_only.items() if value):
            fix = f"Pass -o {output.with_suffix('.onnx')}, or leave out {option}"
            raise BadValueError("", option, "needs an ONNX file", str(output), fix)
    policy = load_policy_or_cascade(file)
    if isinstance(policy, Cascade):
        raise unsupported(policy)
    try:
        graph = describe(policy, outputs)
        names = {"inputs": [*graph.inputs], "outputs": [*graph.outputs]}
        if ending == ".onnx":
            from dubito.export import to_onnx
            from dubito.export.onnx_export import model_names

            mapped = _as_pairs(network_output, names["inputs"][0], network)
            to_onnx(
                policy,
                output,
                outputs=outputs,
                precision=precision,
                network=network,
                network_outputs=mapped,
            )
            names = model_names(output)
        elif ending == ".py":
            from dubito.export import to_numpy

            to_numpy(policy, output, outputs=outputs, source=file.name)
        else:
            from dubito.export import to_program

            to_program(policy, output, outputs=outputs)
    except BaseRuleError as error:
        raise _with_flags(error) from error
    say_json({"written": str(output), **names})
    say(f"Wrote {output}: {', '.join(names['inputs'])} in, {', '.join(names['outputs'])} out.")
    if ending == ".py":
        say(f"Run `python {output}` where it will work: it compares itself with dubito on 8 rows.")


def _require_choice(flag: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise unless an option is one of its choices."""
    if value not in choices:
        rule = f"must be {join_choices(choices)}"
        raise BadValueError("", flag, rule, repr(value), f"Pass {flag} {choices[0]}")


def _as_pairs(texts: list[str] | None, first: str, network: Path | None) -> dict[str, str] | None:
    """Return which output of the network each input is, of texts such as "features=pool"."""
    if not texts:
        return None
    if network is None:
        rule, fix = "needs --network", "Pass --network network.onnx"
        raise BadTypeError("", "--network-output", rule, "none", fix)
    parts = [text.rpartition("=") for text in texts]
    return {ours or first: theirs for ours, _, theirs in parts}


def _with_flags(error: Any) -> Any:
    """Return an error of an export whose remedy is a flag."""
    flags = {"network_outputs": "--network-output", "network": "--network"}
    fix = error.fix.replace("outputs='logits'", "--outputs logits")
    if error.argument == "network_outputs":
        names, _, example = fix.partition(": pass ")
        pairs = re.findall(r"'(.+?)': '(.+?)'", example)
        fix = f"{names}: pass {' '.join(f'--network-output {a}={b}' for a, b in pairs)}"
    fix = fix.replace("in network_outputs", "with --network-output")
    if error.argument in flags:
        return error.moved(argument="", caller=flags[error.argument], fix=fix)
    return error.moved(fix=fix)
