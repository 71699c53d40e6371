"""`dubito export POLICY`: a policy for other runtimes: ONNX, PyTorch, plain NumPy."""

from pathlib import Path
from typing import Annotated

import typer

ENDINGS = (".onnx", ".py", ".pt2")


def export(
    file: Annotated[Path, typer.Argument(help="Policy file written by `dubito fit`.")],
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            help="The file to write: policy.onnx for ONNX, policy.py for plain NumPy, policy.pt2 "
            "for PyTorch.",
        ),
    ],
    outputs: Annotated[
        str | None,
        typer.Option(
            help="What the model returns: logits or probabilities. Default: what the policy was "
            "fitted on."
        ),
    ] = None,
    precision: Annotated[
        str,
        typer.Option(
            help="Precision of the ONNX model: mixed (float32 in and out, float64 inside), "
            "float32 or float64."
        ),
    ] = "mixed",
    network: Annotated[
        Path | None,
        typer.Option(help="ONNX file of the network, to write it and the policy as one model."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Write a policy for a runtime without dubito: ONNX, PyTorch or NumPy.

    Example: dubito export policy.json -o policy.onnx
    """
    from dubito.cli.printing import say, say_json
    from dubito.cli.reading import require_output_paths
    from dubito.decide import load_policy
    from dubito.errors import BadValueError
    from dubito.export.decision_graph import describe

    require_output_paths({"--output": output}, [str(file)], {"--output": ENDINGS})
    ending = output.suffix.lower()
    if network is not None and ending != ".onnx":
        rule, fix = "needs an ONNX file", f"Pass -o {output.with_suffix('.onnx')}"
        raise BadValueError("", "--network", rule, str(output), fix)
    policy = load_policy(file)
    if ending == ".onnx":
        from dubito.export import to_onnx

        to_onnx(policy, output, outputs=outputs, precision=precision, network=network)
    elif ending == ".py":
        from dubito.export import to_numpy

        to_numpy(policy, output, outputs=outputs, source=file.name)
    else:
        from dubito.export import to_program

        to_program(policy, output, outputs=outputs)
    graph = describe(policy, outputs)
    names = {"inputs": [*graph.inputs], "outputs": [*graph.outputs]}
    if as_json:
        say_json({"written": str(output), **names})
        return
    say(f"Wrote {output}: {', '.join(names['inputs'])} in, {', '.join(names['outputs'])} out.")
    if ending == ".py":
        say(f"Run `python {output}` where it will work: it compares itself with dubito on 8 rows.")
