"""A policy or calibrator as an ONNX file, alone or behind the network that it decides for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from os import PathLike, fspath
from typing import Any, final

import numpy as np

from dubito import __version__
from dubito.arrays import require_choice
from dubito.errors import BadFileError, BadValueError, MissingExtraError
from dubito.export.decision_graph import describe
from dubito.export.graph import Graph, Value

try:
    import onnx
    from onnx import ModelProto, TensorProto, helper, numpy_helper
except ImportError as error:  # pragma: no cover
    raise MissingExtraError("Export to ONNX", "onnx") from error

INVALID = (ValueError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
OPSET = 18  # of the standard operators that files use
OPSETS = range(13, 29)  # of networks that a policy can be appended to
IR_VERSION = 10
PRECISIONS = ("mixed", "float32", "float64")
OPERATORS = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "matmul": "MatMul", "neg": "Neg",
    "minimum": "Min", "maximum": "Max", "exp": "Exp", "log": "Log", "abs": "Abs", "sqrt": "Sqrt",
    "sigmoid": "Sigmoid", "less": "Less", "less_equal": "LessOrEqual", "equal": "Equal",
    "and": "And", "or": "Or", "not": "Not", "where": "Where", "softmax": "Softmax",
    "log_softmax": "LogSoftmax", "concat": "Concat", "take": "Gather", "pick": "GatherElements",
}  # fmt: skip
AXES = {"softmax": 1, "log_softmax": 1, "concat": 1, "pick": 1, "take": 0}


def to_onnx(
    exported: Any,
    path: str | PathLike[str],
    *,
    outputs: str | None = None,
    precision: str = "mixed",
    network: str | PathLike[str] | None = None,
    network_outputs: Mapping[str, str] | None = None,
) -> None:
    """Write a policy or calibrator as an ONNX file of standard operators.

    Its inputs are the outputs of the model ("logits" or "probabilities", rows x classes, of two
    classes also one column, that of the second; or the "scores" of a `ConfidenceCalibrator`), if an
    OOD gate needs them "features", and the columns that costs depend on, by name ("row_costs", rows
    x actions x classes, if the costs themselves are given by row). Its outputs are
    "calibrated_probabilities", and for a policy "action", "expected_cost" and "reason"; for several
    labels per row "action" (rows x labels), "row_action" and "expected_cost". The names of actions,
    reasons and classes are in the metadata of the file, as JSON lists.

    Parameters
    ----------
    exported : Policy, MultiLabelPolicy, BaseCalibrator or MultiLabelCalibrator
        Fitted.
    path : str or path
        The file to write.
    outputs : {"logits", "probabilities"}, optional
        What the model returns. Default: what a policy was fitted on; for a calibrator, logits.
    precision : {"mixed", "float32", "float64"}, default="mixed"
        Precision of inputs and outputs; "mixed" takes and returns float32 and computes in float64,
        as dubito does. Pure float32 suits devices without float64: where a curve jumps or a tree
        splits, a few rows then fall on the other side.
    network : str or path, optional
        The ONNX file of a network, to write both as one model: the inputs of the network in,
        decisions out.
    network_outputs : dict, optional
        Which outputs of the network are the inputs of the policy, such as
        ``{"logits": "fc.out", "features": "pool"}``. Not needed for a network with one output.
        Inputs, outputs and values of the network that are called as those of the policy are
        renamed: "features" becomes "network_features".

    Examples
    --------
    >>> import onnx
    >>> from dubito.export import to_onnx
    >>> import tempfile
    >>> from dubito import Logits
    >>> from dubito.calibrate import TemperatureScaling
    >>> logits = Logits([[3.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 3.0, 0.0]])
    >>> scaling = TemperatureScaling().fit(logits, [0, 1, 1])
    >>> path = f"{tempfile.mkdtemp()}/scaling.onnx"
    >>> to_onnx(scaling, path)
    >>> [node.op_type for node in onnx.load(path).graph.node]
    ['Cast', 'LogSoftmax', 'Mul', 'Softmax', 'Max', 'Cast']
    """
    require_choice(precision, PRECISIONS, "precision", "to_onnx")
    graph = describe(exported, outputs)
    if network is None:
        model = _model_of(graph, precision, OPSET, IR_VERSION)
    else:
        model = _composed(graph, precision, network, network_outputs)
    entries = {entry.key: entry.value for entry in model.metadata_props}  # of the network
    for name, names in graph.metadata.items():
        entries[name] = json.dumps(names, ensure_ascii=False)
    helper.set_model_props(model, {**entries, "dubito": __version__})
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    onnx.save(model, fspath(path))


def model_names(path: str | PathLike[str]) -> dict[str, list[str]]:
    """Return the names of the inputs and outputs of an ONNX file."""
    graph = onnx.load(fspath(path), load_external_data=False).graph
    constants = {one.name for one in graph.initializer}
    return {
        "inputs": [one.name for one in graph.input if one.name not in constants],
        "outputs": [one.name for one in graph.output],
    }


def _composed(
    graph: Graph, precision: str, path: str | PathLike[str], mapped: Mapping[str, str] | None
) -> ModelProto:
    """Return a network and what follows it as one model."""
    network = _loaded(path)
    opset = _standard_opset(network, fspath(path))
    have = {one.name: one.type.tensor_type for one in network.graph.output}
    pairs = _connected(graph, [*have], mapped)
    for ours, theirs in pairs.items():
        _require_shape(graph, ours, theirs, have[theirs])
    given = {ours: have[theirs] for ours, theirs in pairs.items()}
    model = _model_of(graph, precision, opset, network.ir_version, given)
    renamed = _rename_clashes(network, model, {*pairs})
    try:
        merged = onnx.compose.merge_models(
            network, model, [(renamed.get(theirs, theirs), ours) for ours, theirs in pairs.items()]
        )
        _standard_opset(merged, fspath(path))  # `merge_models` imports it from both
        onnx.checker.check_model(merged, full_check=True)
    except INVALID as error:
        got = f"an error of onnx ({str(error).strip().splitlines()[0]})"
        rule, fix = "must be a model that a policy can follow", "Check what it returns"
        raise BadValueError("network", "to_onnx", rule, got, fix) from error
    return merged


def _loaded(path: str | PathLike[str]) -> ModelProto:
    """Return the network of a file."""
    fix = "Pass the ONNX file of the network"
    try:
        network = onnx.load(fspath(path))
    except OSError as error:
        raise BadFileError(fspath(path), error.strerror or "it cannot be opened", fix) from error
    except Exception as error:  # of protobuf, whose errors differ by implementation
        raise BadFileError(fspath(path), "it is not an ONNX file", fix) from error
    if not network.graph.output:
        raise BadFileError(fspath(path), "it is not an ONNX file with outputs", fix)
    return network


def _standard_opset(network: ModelProto, path: str) -> int:
    """Return the version of the standard operators, whose import is made the only one of them."""
    versions = [one.version for one in network.opset_import if one.domain in ("", "ai.onnx")]
    opset = max(versions, default=0)
    if opset not in OPSETS:
        rule = f"must have an opset from {OPSETS[0]} to {OPSETS[-1]}"
        fix = "Convert it with onnx.version_converter.convert_version(network, 18)"
        got = f"{opset or 'none'} in {path}"
        raise BadValueError("network", "to_onnx", rule, got, fix)
    others = [one for one in network.opset_import if one.domain not in ("", "ai.onnx")]
    imports = [helper.make_opsetid("", opset), *others]
    del network.opset_import[:]
    network.opset_import.extend(imports)
    return opset


def _connected(graph: Graph, have: list[str], mapped: Mapping[str, str] | None) -> dict[str, str]:
    """Return which output of the network each input is."""
    first = next(iter(graph.inputs))
    pairs = {first: have[0]} if mapped is None and len(have) == 1 else dict(mapped or {})
    wrong = [name for name in pairs.values() if name not in have]
    unknown = [name for name in pairs if name not in graph.inputs]
    if first not in pairs or wrong or unknown:
        rule = f"must name the outputs of the network that are {', '.join(graph.inputs)}"
        got = repr([*wrong, *unknown][0]) if wrong or unknown else f"{dict(mapped or {})}"
        needed = [name for name, one in graph.inputs.items() if one.attributes["form"] == "matrix"]
        names = [*have, *["..."] * len(needed)]
        example = dict(zip(needed, names, strict=False))
        fix = f"The network has {', '.join(have)}: pass {example}"
        raise BadValueError("network_outputs", "to_onnx", rule, got, fix)
    return pairs


def _require_shape(graph: Graph, ours: str, theirs: str, type_: Any) -> None:
    """Raise if an output of the network is known to have other columns than its input needs."""
    if not type_.HasField("shape"):
        return
    sizes = [one.dim_value if one.HasField("dim_value") else None for one in type_.shape.dim]
    wanted = [*graph.inputs[ours].attributes["sizes"]]
    takes_one_column = graph.takes_one_column and ours == next(iter(graph.inputs))
    for accepted in [wanted, [1], []] if takes_one_column else [wanted]:
        columns = zip(accepted, sizes[1:], strict=False)
        if len(accepted) + 1 == len(sizes) and all(known in (None, one) for one, known in columns):
            return
    shape = " x ".join("rows" if k == 0 else f"{one or '?'}" for k, one in enumerate(sizes))
    rule = f"must give {ours} of shape {' x '.join(['rows', *map(str, wanted)])}"
    fix = "Name another output in network_outputs, or export the policy of this network"
    raise BadValueError("network", "to_onnx", rule, f"{shape} of {theirs!r}", fix)


def _rename_clashes(network: ModelProto, model: ModelProto, joined: set[str]) -> dict[str, str]:
    """Rename what a network calls as a policy does; return its old and new names.

    The documented names of the policy stay as they are. `joined` inputs of the policy are no more.
    """
    theirs, ours = _names_in(network.graph), _names_in(model.graph) - joined
    renamed: dict[str, str] = {}
    for name in sorted(theirs & ours):
        renamed[name] = f"network_{name}"
        while renamed[name] in theirs | ours:
            renamed[name] = f"network_{renamed[name]}"
    if renamed:
        _rename(network.graph, renamed)
    return renamed


def _graphs_in(node: Any) -> list[Any]:
    """Return the graphs inside a node, such as the branches of an If."""
    return [
        graph for one in node.attribute for graph in ([one.g] if one.HasField("g") else one.graphs)
    ]


def _names_in(graph: Any) -> set[str]:
    """Return the names of all values and nodes of a graph, and of graphs inside its nodes."""
    found = {one.name for one in (*graph.input, *graph.output, *graph.value_info)}
    found |= {one.name for one in graph.initializer}
    found |= {one.values.name for one in graph.sparse_initializer}
    for node in graph.node:
        found |= {node.name, *node.input, *node.output}
        for inner in _graphs_in(node):
            found |= _names_in(inner)
    return found - {""}


def _rename(graph: Any, names: Mapping[str, str]) -> None:
    """Rename values and nodes of a graph, and of graphs inside its nodes."""
    for one in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
        one.name = names.get(one.name, one.name)
    for one in graph.sparse_initializer:
        one.values.name = names.get(one.values.name, one.values.name)
    for one in graph.quantization_annotation:
        one.tensor_name = names.get(one.tensor_name, one.tensor_name)
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        for inner in _graphs_in(node):
            _rename(inner, names)


def _model_of(
    graph: Graph,
    precision: str,
    opset: int,
    ir_version: int,
    given: Mapping[str, Any] | None = None,
) -> ModelProto:
    """Return a graph as a model; `given` are the types of what a network gives its inputs."""
    w = _Writer(graph, precision, opset, given or {})
    return helper.make_model(
        helper.make_graph(w.nodes, "dubito", w.inputs, w.outputs, w.initializers),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=ir_version,
        producer_name="dubito",
        producer_version=__version__,
        doc_string=graph.title,
    )


@final
class _Writer:
    """Nodes and constants of ONNX for the values of a graph."""

    def __init__(self, graph: Graph, precision: str, opset: int, given: Mapping[str, Any]) -> None:
        self.first = next(iter(graph.inputs))
        self.takes_one_column = graph.takes_one_column
        self.given = given
        self.is_axis_input = opset >= 18  # of ReduceMax and ReduceMin
        self.n_columns = len(graph.metadata.get("classes") or graph.metadata["labels"])
        single, double = TensorProto.FLOAT, TensorProto.DOUBLE
        self.outer = double if precision == "float64" else single
        self.inner = single if precision == "float32" else double
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.known: dict[tuple[Any, ...], str] = {}
        self.names: dict[int, str] = {}
        for value in graph.needed():
            if value.op != "constant":  # which is written where it is used
                self.names[value.number] = self._written(value)
        for name, value in graph.outputs.items():
            self._write_output(name, value, is_row=name in graph.rows)

    def _node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node; return the name of its result."""
        name = f"dubito_{len(self.nodes)}_{op}"
        results = [name, f"{name}_at"] if op == "TopK" else [name]  # which returns places, too
        self.nodes.append(helper.make_node(op, [*inputs], results, name, **attributes))
        return name

    def _constant(self, array: Any) -> str:
        """Return the name of a constant, which equal ones share."""
        values = np.asarray(array)
        if values.dtype.kind == "f":
            values = values.astype(np.float32 if self.inner == TensorProto.FLOAT else np.float64)
        key = (values.dtype.str, values.shape, values.tobytes())
        if key not in self.known:
            self.known[key] = f"dubito_constant_{len(self.initializers)}"
            self.initializers.append(numpy_helper.from_array(values, self.known[key]))
        return self.known[key]

    def _integers(self, *values: int) -> str:
        """Return the name of a constant list of integers."""
        return self._constant(np.array(values))

    def _name(self, value: Value) -> str:
        """Return the name of a value that was written before, or of a constant."""
        if value.op == "constant":
            return self._constant(value.attributes["array"])
        return self.names[value.number]

    def _written(self, value: Value) -> str:
        """Write an operation; return the name of its result."""
        held = value.attributes
        if value.op == "count_below":
            table, scores = value.inputs
            return self._count_below(table.attributes["array"], self._name(scores), **held)
        if value.op == "mul" and _is_nearly_one(value.inputs[1]):
            # onnxruntime drops a factor that is 1 in float32: x * (1 - 1e-12) would be x.
            first, rest = self._name(value.inputs[0]), value.inputs[1].attributes["array"] - 1.0
            return self._node("Add", first, self._node("Mul", first, self._constant(rest)))
        x = [self._name(one) for one in value.inputs]
        match value.op:
            case "input":
                return self._input(**held)
            case "sum" | "max" | "min":
                op = f"Reduce{value.op.capitalize()}"
                if value.op == "sum" or self.is_axis_input:
                    return self._node(op, *x, self._integers(1), keepdims=1)
                return self._node(op, *x, axes=[1], keepdims=1)
            case "argmax":
                return self._node("ArgMax", *x, axis=1, keepdims=1)
            case "as_float":
                return self._node("Cast", *x, to=self.inner)
            case "as_int":
                return self._node("Cast", *x, to=TensorProto.INT64)
            case "rounded":
                single = self._node("Cast", *x, to=TensorProto.FLOAT)
                return self._node("Cast", single, to=self.inner)
            case "columns":
                return self._node("Gather", *x, self._integers(*held["columns"]), axis=1)
            case "take_sum":
                rows = self._node("Gather", *x, axis=0)
                return self._node("ReduceSum", rows, self._integers(1), keepdims=0)
            case "top_k":
                return self._node(
                    "TopK", *x, self._integers(held["k"]), axis=1, largest=1, sorted=1
                )
        along = {"axis": AXES[value.op]} if value.op in AXES else {}
        return self._node(OPERATORS[value.op], *x, **along)

    def _input(self, name: str, form: str, sizes: tuple[int, ...]) -> str:
        shape: list[str | int | None] = ["rows", *sizes]
        is_any = name == self.first and self.takes_one_column  # one column or two
        if is_any:
            shape = ["rows", "columns"]
        kind, known = self.outer, self.given.get(name)
        if known is not None:
            kind = known.elem_type
            if len(known.shape.dim) == 1 and known.HasField("shape"):
                shape, form = ["rows"], "column"
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        value = name
        if form == "column":
            value = self._node("Unsqueeze", value, self._integers(1))
        elif form == "cube":
            value = self._node("Flatten", value, axis=1)
        value = value if self.inner == kind else self._node("Cast", value, to=self.inner)
        return self._both_columns(value, is_logits=name == "logits") if is_any else value

    def _both_columns(self, x: str, *, is_logits: bool) -> str:
        """Return the columns of two classes, of which that of the first may be missing.

        A logit is then 0 and a probability 1 minus the other. Multiplying by two factors makes two
        columns of one, and fails for three.
        """
        sizes = self._node("Shape", x)
        n_columns = self._node("Gather", sizes, self._integers(1), axis=0)
        has_both = self._node("Cast", n_columns, to=self.inner)
        has_both = self._node("Sub", has_both, self._constant(np.array([1.0])))
        one = self._constant(np.array([1.0]))
        if is_logits:
            return self._node("Mul", x, self._node("Concat", has_both, one, axis=0))
        missing = self._node("Sub", one, has_both)
        factors = self._node("Concat", self._node("Sub", has_both, missing), one, axis=0)
        offsets = self._node("Concat", missing, self._constant(np.array([0.0])), axis=0)
        return self._node("Add", self._node("Mul", x, factors), offsets)

    def _count_below(self, table: Any, x: str, or_equal: bool) -> str:
        """Search each column's numbers by halving: a comparison and a gather per step."""
        n_columns, size = table.shape
        n_steps = int(size).bit_length()
        full = np.full((n_columns, (1 << n_steps) - 1), np.inf)
        full[:, :size] = table
        starts = np.arange(n_columns) * full.shape[1]
        found = ""
        for step in (1 << k for k in reversed(range(n_steps))):
            if found:
                at = self._node("Add", found, self._constant(starts + step - 1))
                edge = self._node("Gather", self._constant(full.ravel()), at, axis=0)
            else:
                edge = self._constant(full[:, step - 1])
            is_below = self._node("LessOrEqual" if or_equal else "Less", edge, x)
            whole = self._node("Cast", is_below, to=TensorProto.INT64)
            more = self._node("Mul", whole, self._constant(np.array(step)))
            found = self._node("Add", found, more) if found else more
        return found

    def _write_output(self, name: str, value: Value, *, is_row: bool) -> None:
        kind = self.outer if value.kind == "float" else TensorProto.INT64
        result = self._name(value)
        if is_row:
            result = self._node("Squeeze", result, self._integers(1))
        self.nodes.append(helper.make_node("Cast", [result], [name], f"dubito_{name}", to=kind))
        shape: list[str | int | None] = ["rows"] if is_row else ["rows", self.n_columns]
        self.outputs.append(helper.make_tensor_value_info(name, kind, shape))


def _is_nearly_one(value: Value) -> bool:
    """Whether a value is a constant that is 1 in float32 but not in float64."""
    array = value.attributes.get("array")
    return array is not None and array.size == 1 and np.float32(array) == 1 and array != 1
