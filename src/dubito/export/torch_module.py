"""A policy or calibrator as a PyTorch module."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from os import PathLike, fspath
from typing import Any, final

from dubito.decide import Policy
from dubito.errors import BadTypeError, BadValueError, MissingExtraError
from dubito.export.decision_graph import describe
from dubito.export.graph import Graph, Value
from dubito.export.samples import call_arguments, sample_inputs

try:
    import torch
    from torch import Tensor, nn
except ImportError as error:  # pragma: no cover
    raise MissingExtraError("Export to PyTorch", "torch") from error

N_TRACED = 3  # rows that a program is traced with
MAX_NAMED = 10  # actions that the representation names
HALF = (torch.float16, torch.bfloat16)
OPERATIONS: dict[str, Callable[..., Tensor]] = {
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "neg": torch.neg,
    "matmul": torch.matmul, "minimum": torch.minimum, "maximum": torch.maximum, "exp": torch.exp,
    "log": torch.log, "abs": torch.abs, "sqrt": torch.sqrt, "sigmoid": torch.sigmoid,
    "less": torch.lt, "less_equal": torch.le, "equal": torch.eq, "and": torch.logical_and,
    "or": torch.logical_or, "not": torch.logical_not, "where": torch.where,
    "softmax": lambda x: x.softmax(1),
    "log_softmax": lambda x: x.log_softmax(1),
    "sum": lambda x: x.sum(1, keepdim=True),
    "max": lambda x: x.amax(1, keepdim=True),
    "min": lambda x: x.amin(1, keepdim=True),
    "argmax": lambda x: x.argmax(1, keepdim=True),
    "rounded": lambda x: x.float().to(x.dtype),
    "as_int": lambda x: x.long(),
    "concat": lambda *parts: torch.cat(parts, 1),
    "take": lambda table, index: table[index],
    "take_sum": lambda table, index: table[index].sum(1),
    "pick": lambda x, index: x.gather(1, index),
}  # fmt: skip


def to_module(exported: Any, *, outputs: str | None = None) -> ExportedModule:
    """Return a policy or calibrator as a module, to append to a network.

    `nn.Sequential(network, to_module(calibrator))` returns what `predict_proba` returns, and is
    saved, moved and exported with the network. Gradients pass through the probabilities.

    Parameters
    ----------
    exported : Policy, MultiLabelPolicy, BaseCalibrator or MultiLabelCalibrator
        Fitted.
    outputs : {"logits", "probabilities"}, optional
        What the network returns. Default: what a policy was fitted on; else logits.

    Returns
    -------
    ExportedModule

    Examples
    --------
    >>> import torch
    >>> from dubito.export import to_module
    >>> from dubito import Logits
    >>> from dubito.calibrate import TemperatureScaling
    >>> scaling = TemperatureScaling().fit(Logits([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]), [0, 1, 1])
    >>> to_module(scaling)(torch.tensor([[3.0, 0.0]]))
    tensor([[0.6667, 0.3333]])
    """
    graph, by_row = describe(exported, outputs), None
    if isinstance(exported, Policy) and exported.costs.columns:
        by_row = describe(exported, outputs, by_row=True)
    return ExportedModule(graph, by_row)


@final
class ExportedModule(nn.Module):
    """A policy or calibrator as a module: logits in, probabilities or decisions out.

    Made by `to_module`. It has nothing to train. It computes in float64 and returns the precision
    of its input; on devices without float64, call `.float()` before `.to(device)`. It never
    computes in less than float32, within `torch.autocast` neither. A policy rejects rows with NaN
    or infinite numbers, as out-of-distribution, if it has an action that rejects.

    Parameters
    ----------
    graph : Graph
        What the policy or calibrator computes, as `to_module` builds it.
    by_row : Graph, optional
        The same policy for costs given as rows x actions x classes, if they are columns otherwise.
    """

    def __init__(self, graph: Graph, by_row: Graph | None = None) -> None:
        super().__init__()
        self.graph = graph
        self.by_row = None if by_row is None else ExportedModule(by_row)
        self.needed = graph.needed()
        every = self.needed if graph.log_proba is None else graph.needed(graph.log_proba)
        self.metadata = dict(graph.metadata)
        for value in every:
            if value.op == "constant":
                array = torch.from_numpy(value.attributes["array"].copy())
                self.register_buffer(f"constant_{value.number}", array, persistent=True)
        self.register_buffer("one", torch.ones((), dtype=torch.float64))

    def forward(
        self, outputs: Tensor, features: Tensor | None = None, row_costs: Any = None
    ) -> Any:
        """Return calibrated probabilities, or a dict of what a policy decides.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_classes) or (n_images, n_classes, height, width)
            Logits or probabilities. A policy takes rows.
        features : Tensor of shape (n_rows, n_features), optional
            Needed where the OOD gate looks at features.
        row_costs : dict of Tensor, or Tensor, optional
            The columns that costs depend on, by name; the only column itself; or the costs
            themselves, rows x actions x classes.

        Returns
        -------
        Tensor or dict of Tensor
            For a calibrator the probabilities, in the shape of `outputs`; for a policy
            "calibrated_probabilities", "action", "expected_cost" and "reason".
        """
        if self.by_row is not None and isinstance(row_costs, Tensor) and row_costs.ndim == 3:
            return self.by_row(outputs, features, row_costs)
        rows, shape = self._rows(outputs)
        with _full_precision(rows):
            found = self._computed(self.needed, rows, features, row_costs)
        results = {}
        for name, value in self.graph.outputs.items():
            one = found[value.number]
            one = one.to(outputs.dtype) if value.kind == "float" else one
            results[name] = one.squeeze(1) if name in self.graph.rows else one
        if len(results) > 1:
            return results
        p = results["calibrated_probabilities"]
        return p if shape is None else p.reshape(shape).movedim(-1, 1)

    def log_probabilities(self, outputs: Tensor) -> Tensor:
        """Return the calibrated log probabilities of a calibrator, accurate also where tiny.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_classes) or (n_images, n_classes, height, width)
            Logits or probabilities.

        Returns
        -------
        Tensor
            Log probabilities of the same shape.
        """
        wanted = self.graph.log_proba
        if wanted is None:
            rule, fix = "supports calibrators of classes", "Take the log of the probabilities"
            caller = "ExportedModule.log_probabilities"
            raise BadTypeError("", caller, rule, self.graph.title, fix)
        rows, shape = self._rows(outputs)
        with _full_precision(rows):
            every = self._computed(self.graph.needed(wanted), rows)
        found = every[wanted.number].to(outputs.dtype)
        return found if shape is None else found.reshape(shape).movedim(-1, 1)

    def _rows(self, outputs: Tensor) -> tuple[Tensor, list[int] | None]:
        """Return outputs as rows x classes, and the shape to return results in, if another."""
        name, first = next(iter(self.graph.inputs.items()))
        (n_columns,) = first.attributes["sizes"]
        _require_numbers(outputs, name)
        if not outputs.is_floating_point():
            rule, fix = "must be floating point", "Call .float()"
            raise BadTypeError(name, "ExportedModule", rule, f"{outputs.dtype}", fix)
        columns = outputs[:, None] if outputs.ndim == 1 else outputs
        if columns.ndim > 1 and columns.shape[1] == 1 and self.graph.takes_one_column:
            other = torch.zeros_like(columns) if name == "logits" else 1 - columns
            columns = torch.cat([other, columns], 1)
        if columns.ndim < 2 or columns.shape[1] != n_columns:
            rule = f"must have {n_columns} columns, as during fit"
            got = f"shape {tuple(outputs.shape)}"
            raise BadValueError(name, "ExportedModule", rule, got, "Pass the same columns")
        if columns.ndim == 2:
            return columns, None
        if len(self.graph.outputs) > 1:
            rule, fix = "must be rows x columns for a policy", "Reshape images to rows of pixels"
            got = f"shape {tuple(outputs.shape)}"
            raise BadValueError(name, "ExportedModule", rule, got, fix)
        last = columns.movedim(1, -1)
        return last.reshape(-1, n_columns), [*last.shape]

    def _computed(
        self,
        values: list[Value],
        rows: Tensor,
        features: Tensor | None = None,
        row_costs: Any = None,
    ) -> dict[int, Tensor]:
        """Return values of the graph by number."""
        found: dict[int, Tensor] = {}
        kind = self.get_buffer("one").dtype
        first, n_rows = next(iter(self.graph.inputs)), rows.shape[0]
        for value in values:
            if value.op == "input":
                is_first = value.attributes["name"] == first
                given = rows if is_first else self._given(value, n_rows, features, row_costs)
                found[value.number] = given.to(kind)
            elif value.op == "constant":
                found[value.number] = self.get_buffer(f"constant_{value.number}")
            else:
                inputs = [found[one.number] for one in value.inputs]
                found[value.number] = _applied(value, inputs, kind)
        return found

    def _given(self, value: Value, n_rows: int, features: Tensor | None, row_costs: Any) -> Tensor:
        """Return an input besides the outputs as a matrix, or raise."""
        name, form, sizes = (value.attributes[one] for one in ("name", "form", "sizes"))
        given: Any = features if form == "matrix" else row_costs
        argument = "features" if form == "matrix" else "row_costs"
        if form == "column":
            columns = [one for one in [*self.graph.inputs][1:] if one != "features"]
            if isinstance(row_costs, dict) or (row_costs is not None and len(columns) > 1):
                if not isinstance(row_costs, dict) or name not in row_costs:
                    has = ", ".join(row_costs) if isinstance(row_costs, dict) else "no columns"
                    fix = f"Pass a dict with {', '.join(map(repr, columns))}"
                    rule = f"must have a column {name!r}"
                    raise BadValueError(argument, "ExportedModule", rule, has or "none", fix)
                given, argument = row_costs[name], f"row_costs[{name!r}]"
        if given is None:
            rule, fix = "must be given for this policy", f"Pass {argument}=..."
            raise BadTypeError(argument, "ExportedModule", rule, "None", fix)
        _require_numbers(given, argument)
        if form == "column" and given.ndim == 2 and given.shape[1] == 1:
            given = given[:, 0]
        shape = tuple(given.shape)
        if given.ndim != len(sizes) + 1 or shape[1:] != sizes or shape[0] != n_rows:
            wanted = " x ".join(["rows", *map(str, sizes)])
            rule, fix = f"must be {wanted}, with the rows of the outputs", "Pass one of each row"
            raise BadValueError(argument, "ExportedModule", rule, f"shape {shape}", fix)
        return given if form == "matrix" else given.reshape(n_rows, -1)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Return the inputs, the outputs and the names of the actions, for `repr`.

        Returns
        -------
        str
        """
        inputs = [
            " x ".join([name, *map(str, one.attributes["sizes"])])
            for name, one in self.graph.inputs.items()
        ]
        text = f"{', '.join(inputs)} -> {', '.join(self.graph.outputs)}"
        if names := self.metadata.get("actions"):
            more = ", ..." if len(names) > MAX_NAMED else ""
            text += f"; actions: {', '.join(names[:MAX_NAMED])}{more}"
        return text

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ExportedModule:
        """Move or convert the constants, never below float32: 1e-12 would become 0."""

        def at_least_single(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            is_half = result.dtype in HALF
            return tensor.to(result.device, torch.float32) if is_half else result

        return super()._apply(at_least_single, recurse)  # type: ignore[no-any-return,no-untyped-call]


def _full_precision(rows: Tensor) -> Any:
    """Return the context in which nothing is computed in half precision."""
    kind = rows.device.type
    # Not where it has no effect: it would be a node of exported programs.
    is_needed = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if is_needed else nullcontext()


def _require_numbers(given: Any, argument: str) -> None:
    """Raise unless a value is a tensor."""
    if not isinstance(given, Tensor):
        rule, fix = "must be a tensor", "Pass torch.as_tensor(...)"
        raise BadTypeError(argument, "ExportedModule", rule, type(given).__name__, fix)


def _applied(value: Value, inputs: list[Tensor], kind: torch.dtype) -> Tensor:
    """Return the result of an operation."""
    held = value.attributes
    match value.op:
        case "as_float":
            return inputs[0].to(kind)
        case "columns":
            first, last = held["columns"][0], held["columns"][-1]
            is_range = held["columns"] == [*range(first, last + 1)]
            return inputs[0][:, slice(first, last + 1) if is_range else held["columns"]]
        case "top_k":
            return inputs[0].topk(held["k"], 1).values
        case "count_below":
            x = inputs[1].T.contiguous()
            return torch.searchsorted(inputs[0], x, right=held["or_equal"]).T
    return OPERATIONS[value.op](*inputs)


def to_program(exported: Any, path: str | PathLike[str], *, outputs: str | None = None) -> None:
    """Write a policy or calibrator as a program of `torch.export` with any number of rows.

    ``torch.export.load(path).module()(logits)`` runs it, in float32; features and row costs follow
    in this order, where the policy needs them: ``(logits, None, {"amount": amount})``.

    Parameters
    ----------
    exported : Policy, MultiLabelPolicy, BaseCalibrator or MultiLabelCalibrator
        Fitted.
    path : str or path
        The file to write, which `torch.export.load` reads.
    outputs : {"logits", "probabilities"}, optional
        What the network returns, in float32. Default: what a policy was fitted on; else logits.
    """
    module = to_module(exported, outputs=outputs)
    inputs = sample_inputs(exported, module.graph, N_TRACED, precision="float32")
    given = call_arguments(inputs, is_padded=True)
    while given[-1] is None:
        given.pop()
    arguments = tuple(_mapped(torch.from_numpy, one) for one in given)
    shapes = tuple(_mapped(lambda _: {0: torch.export.Dim("rows")}, one) for one in given)
    program = torch.export.export(module, arguments, dynamic_shapes=shapes)
    torch.export.save(program, fspath(path))


def _mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a function of an array, or of each array in a dict; None as it is."""
    if isinstance(value, dict):
        return {name: function(one) for name, one in value.items()}
    return None if value is None else function(value)
