"""A policy or calibrator as one file of plain NumPy, for places without dubito."""

from __future__ import annotations

import base64
import builtins
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from keyword import iskeyword
from os import PathLike
from string import Template
from textwrap import wrap
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito import __version__
from dubito.data.sink import write_atomic
from dubito.decide import Policy
from dubito.export.decision_graph import describe
from dubito.export.graph import Graph, Value
from dubito.export.samples import sample_inputs, true_outputs

WIDTH = 100
MAX_LIST = 80  # characters of a list of names on one line
MAX_INLINE = 4  # numbers of a constant that stand where they are used
N_TEST_ROWS = 8
MAX_LISTED = 2000  # numbers of a constant that are listed; more are encoded
INFIX = {  # how tightly operators bind, as in Python
    "add": ("+", 3), "sub": ("-", 3), "mul": ("*", 4), "div": ("/", 4), "matmul": ("@", 4),
    "less": ("<", 0), "less_equal": ("<=", 0), "equal": ("==", 0), "and": ("&", 2), "or": ("|", 1),
}  # fmt: skip
ATOM, NEGATIVE = 9, 5
CALLS = {
    "exp": "np.exp({})", "log": "np.log({})", "abs": "np.abs({})", "sqrt": "np.sqrt({})",
    "minimum": "np.minimum({}, {})", "maximum": "np.maximum({}, {})", "sigmoid": "sigmoid({})",
    "softmax": "softmax({})", "log_softmax": "log_softmax({})", "where": "np.where({}, {}, {})",
    "sum": "np.sum({}, axis=1, keepdims=True)", "max": "np.max({}, axis=1, keepdims=True)",
    "min": "np.min({}, axis=1, keepdims=True)", "argmax": "np.argmax({}, axis=1, keepdims=True)",
    "rounded": "np.float64(np.float32({}))", "as_float": "np.float64({})", "as_int": "np.int64({})",
    "take": "np.take({}, {})", "take_sum": "np.take({}, {}, axis=0).sum(axis=1)",
    "pick": "np.take_along_axis({}, {}, axis=1)",
}  # fmt: skip
BY_ROW = "Return what `decide` returns, for costs given as rows x actions x classes."
DISPATCH = (
    "    if not has_columns(row_costs) and np.ndim(row_costs) == 3:",
    "        return decide_by_row({})",
)
_FOLDER = resources.files("dubito.export").joinpath("templates")
FUNCTION_SOURCES = {  # the source of each function by its name, after those that it calls
    text.partition("(")[0].removeprefix("def "): text.rstrip()
    for text in re.split(
        r"\n(?=def )", _FOLDER.joinpath("functions.py.txt").read_text(encoding="utf-8").strip()
    )
}


def to_numpy(
    exported: Any,
    path: str | PathLike[str],
    *,
    outputs: str | None = None,
    source: str | None = None,
) -> None:
    """Write a policy or calibrator as one Python file that needs NumPy and nothing else.

    The file has a function `decide` (`predict_proba` for a calibrator), and holds a few rows with
    what dubito makes of them: running it compares them. It takes `row_costs` as `Policy.decide`
    does, if the costs of the policy differ by row, and raises a ValueError with the row for numbers
    that are not finite, arrays of another shape, and probabilities that do not sum to 1.

    Parameters
    ----------
    exported : Policy, MultiLabelPolicy, BaseCalibrator or MultiLabelCalibrator
        Fitted.
    path : str or path
        The file to write.
    outputs : {"logits", "probabilities"}, optional
        What the model returns. Default: what a policy was fitted on; for a calibrator, logits.
    source : str, optional
        What the file says it was written from, such as "policy.json".

    Examples
    --------
    >>> from dubito.export import to_numpy
    >>> import tempfile, runpy
    >>> from dubito import Logits
    >>> from dubito.calibrate import TemperatureScaling
    >>> scaling = TemperatureScaling().fit(Logits([[3.0, 0.0], [3.0, 0.0], [0.0, 3.0]]), [0, 1, 1])
    >>> path = f"{tempfile.mkdtemp()}/scaling.py"
    >>> to_numpy(scaling, path)
    >>> module = runpy.run_path(path)
    >>> module["predict_proba"]([[3.0, 0.0]])["calibrated_probabilities"].round(4).tolist()
    [[0.6667, 0.3333]]
    """
    # Rows with numbers that are not finite are refused, so that nothing guards against them.
    describe_as = partial(describe, exported, outputs, is_guarded=False)
    if isinstance(exported, Policy) and exported.costs.columns:
        text = _source(exported, describe_as(by_row=False), describe_as(by_row=True), source)
    else:
        text = _source(exported, describe_as(), None, source)
    names: dict[str, Any] = {"__name__": "exported"}
    exec(compile(text, str(path), "exec"), names)
    names["self_test"]()
    write_atomic(path, text)


def _source(exported: Any, graph: Graph, by_row: Graph | None, source: str | None) -> str:
    """Return the text of a file; `by_row` is the policy with costs as rows x actions x classes."""
    name = "decide" if "action" in graph.outputs else "predict_proba"
    first, *others = graph.inputs
    columns = [one for one in others if one != "features"]
    shared = _Shared()
    body = [*_Function(graph, shared).body()]
    body_by_row = [] if by_row is None else [*_Function(by_row, shared).body()]
    test_inputs = sample_inputs(exported, graph, N_TEST_ROWS)
    parameters, arguments, notes = [first], [f'TEST_INPUTS["{first}"]'], ""
    if "features" in others:
        parameters.append("features")
        arguments.append('TEST_INPUTS["features"]')
    if columns:
        parameters.append("row_costs")
        costs = "an array of rows x actions x classes"
        if columns == ["row_costs"]:
            arguments.append('TEST_INPUTS["row_costs"]')
        else:
            arguments.append("TEST_INPUTS")
            single = ", the only column itself" if len(columns) == 1 else ""
            costs = f"a dict of the columns {', '.join(columns)}{single}, or {costs}"
        lines = wrap(_plain(f"`row_costs` is {costs}."), WIDTH - 4)
        notes = "\n\n" + "".join(f"    {line}\n" for line in lines) + "    "
    when = datetime.now(UTC).isoformat(timespec="seconds")
    origin = graph.title if source is None else f"{source}: {graph.title}"
    origin = f"Written by dubito {__version__} on {when} from {origin}."
    call = ", ".join(parameters)
    if body_by_row:
        head = [f"def decide_by_row({call}):", f'    """{BY_ROW}"""']
        body_by_row = [*head, *body_by_row, "\n\n"]
        body = [*(line.format(call) for line in DISPATCH), *body]
    parts = {
        one: f"\n\n\n{text}"
        for one, text in _functions([*body, *body_by_row, *shared.constants]).items()
    }
    # Tables may be encoded, which needs a function before them.
    decoder = parts.pop("decoded", "")
    constants = ["\n\n" if decoder else "\n", *shared.constants] if shared.constants else []
    template = Template(_FOLDER.joinpath("module.py.txt").read_text(encoding="utf-8"))
    return template.substitute(
        what="What a policy decides" if name == "decide" else "Calibrated probabilities",
        origin="\n".join(wrap(_plain(origin), WIDTH)),
        imports="import base64\nimport zlib\n\n" if decoder else "",
        names="\n".join(f"{k.upper()} = {_listed(names)}" for k, names in graph.metadata.items()),
        decoders=decoder,
        constants="\n".join(constants),
        functions="".join(parts.values()),
        by_row="\n".join(body_by_row),
        name=name,
        parameters=call,
        outputs=", ".join(graph.outputs),
        notes=notes,
        body="\n".join(body),
        test_inputs=_tables("TEST_INPUTS", test_inputs),
        test_outputs=_tables("TEST_OUTPUTS", true_outputs(exported, graph, test_inputs)),
        arguments=", ".join(arguments),
        n_test_rows=N_TEST_ROWS,
    )


def _functions(lines: Sequence[str]) -> dict[str, str]:
    """Return the source of the functions that some lines call, also through others, by name."""
    code = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    called = {*re.findall(r"\w+(?=\()", code)}
    for name in reversed(FUNCTION_SOURCES):
        if name in called:
            called |= {*re.findall(r"\w+(?=\()", FUNCTION_SOURCES[name])}
    return {name: text for name, text in FUNCTION_SOURCES.items() if name in called}


@final
class _Shared:
    """The constants that the functions of a file share."""

    def __init__(self) -> None:
        self.constants: list[str] = []
        self.known: dict[tuple[Any, ...], str] = {}

    def rule(self, text: str) -> str:
        """Return the name of the constant that holds the rule of a check."""
        key = "rule", text
        if key not in self.known:
            self.known[key] = f"RULE_{len(self.known) + 1}"
            self.constants.append(f"{self.known[key]} = {_quoted(text)}")
        return self.known[key]

    def constant(self, array: NDArray[Any]) -> tuple[str, int]:
        """Return a constant as text: a number, or the name of a table."""
        if array.ndim == 0:
            text = repr(array.item())
            text = {"inf": "np.inf", "-inf": "-np.inf"}.get(text, text)
            return text, NEGATIVE if text.startswith("-") else ATOM
        key = (array.dtype.str, array.shape, array.tobytes())
        if key in self.known:
            return self.known[key], ATOM
        if array.ndim == 1 and array.size <= MAX_INLINE and np.isfinite(array).all():
            return f"np.array({array.tolist()!r})", ATOM
        name = self.known[key] = f"TABLE_{len(self.known) + 1}"
        if array.size <= MAX_LISTED:
            self.constants += _table(f"{name} = ", array)
        else:
            self.constants.append(f"{name} = {_encoded(array)}")
        return name, ATOM


@final
class _Function:
    """The body of a function that computes a graph, statement by statement."""

    def __init__(self, graph: Graph, shared: _Shared) -> None:
        self.graph, self.shared = graph, shared
        self.needed = graph.needed()
        self.n_uses = Counter(one.number for value in self.needed for one in value.inputs)
        self.taken = {*FUNCTION_SOURCES, "np", "features", "row_costs", "decide_by_row"}
        self.variables: dict[int, str] = {}

    def body(self) -> Iterator[str]:
        """Yield the statements of the function."""
        shared = {value.number for value in self.graph.outputs.values()}
        comments = dict(self.graph.comments)
        for value in self.needed:
            is_input = value.op == "input"
            is_shared = self.n_uses[value.number] > 1 or value.number in shared
            is_named = value.number in self.graph.names  # which gives it a line of its own
            if value.op == "constant" or not (is_input or is_shared or is_named):
                continue
            for number in sorted(one for one in comments if one <= value.number and not is_input):
                yield from _comment(comments.pop(number))
            if is_input:
                yield self._input(value)
                continue
            text = self._expression(value)[0]
            self.variables[value.number] = name = self._name(value)
            yield from _statement(name, text)
        pairs = [
            f'"{name}": {self.variables[one.number]}{"[:, 0]" if name in self.graph.rows else ""}'
            for name, one in self.graph.outputs.items()
        ]
        yield from _statement("return", "{" + ", ".join(pairs) + "}")

    def _name(self, value: Value) -> str:
        """Return a name for a value that no other one has."""
        name = self.graph.names.get(value.number, f"{value.op}")
        name = re.sub(r"\W", "_", name)
        is_used = name in FUNCTION_SOURCES or name in CALLS or hasattr(builtins, name)
        is_constant = name.partition("_")[0] in ("RULE", "TABLE")
        name = f"{name}_" if iskeyword(name) or is_used or is_constant else name
        found, number = name, 1
        while found in self.taken:
            number += 1
            found = f"{name}_{number}"
        self.taken.add(found)
        return found

    def _input(self, value: Value) -> str:
        held = value.attributes
        name, form = held["name"], held["form"]
        variable = name if form == "matrix" else self._name(value.named(name))
        self.variables[value.number] = variable
        self.taken.add(variable)
        first, names = next(iter(self.graph.inputs)), self.graph.inputs
        n_rows = f"len({self.variables[names[first].number]})"
        if form == "column":
            columns = [one for one in names if names[one].attributes["form"] == "column"]
            listed = ", ".join(map(_quoted, columns))
            text = f"as_column(row_costs, {_quoted(name)}, [{listed}], {n_rows})"
            is_cost = value.number in self.graph.limits  # the column itself
            return f"    {variable} = {self._checked(text, value) if is_cost else text}"
        sizes = ", ".join(map(str, held["sizes"]))
        if form == "cube":
            return f"    {variable} = as_costs(row_costs, {n_rows}, {sizes})"
        if name != first:
            return f'    {variable} = as_matrix({name}, "{name}", {sizes}, {n_rows})'
        if name == "probabilities":
            check = "as_fractions" if "labels" in self.graph.metadata else "as_distributions"
            other = ", lambda p: 1 - p" if self.graph.takes_one_column else ""
            return f"    {variable} = {check}({name}, {sizes}{other})"
        other = ", first=np.zeros_like" if self.graph.takes_one_column else ""
        return f'    {variable} = as_matrix({name}, "{name}", {sizes}{other})'

    def _expression(self, value: Value) -> tuple[str, int]:
        """Return a value as text, with its check if it has one, and how tightly it is bound."""
        if value.number in self.variables:
            return self.variables[value.number], ATOM
        if value.number not in self.graph.limits:
            return self._plain_expression(value)
        text = self._plain_expression(value)[0]
        if value.op == "div":
            text = f"quotient({', '.join(self._expression(one)[0] for one in value.inputs)})"
        return self._checked(text, value), ATOM

    def _checked(self, text: str, value: Value) -> str:
        """Return the text of a value with its check."""
        rule, most = self.graph.limits[value.number]
        limit = "" if np.isinf(most) else f", {most:g}"
        return f"checked({text}, {self.shared.rule(rule)}{limit})"

    def _plain_expression(self, value: Value) -> tuple[str, int]:
        """Return a value as text without a check."""
        if value.op == "constant":
            return self.shared.constant(value.attributes["array"])
        parts = [self._expression(one) for one in value.inputs]
        texts = [text for text, _ in parts]
        if value.op == "neg":
            return f"-{_bound(parts[0], NEGATIVE)}", NEGATIVE
        if value.op in INFIX:
            sign, level = INFIX[value.op]
            left, right = _bound(parts[0], level + (level == 0)), _bound(parts[1], level + 1)
            return f"{left} {sign} {right}", level
        if value.op == "columns":
            return f"{_bound(parts[0], ATOM)}[:, {_columns(value.attributes['columns'])}]", ATOM
        if value.op == "concat":
            return f"np.concatenate([{', '.join(texts)}], axis=1)", ATOM
        if value.op == "top_k":
            return f"top_k({texts[0]}, {value.attributes['k']})", ATOM
        if value.op == "count_below":
            side = "right" if value.attributes["or_equal"] else "left"
            return f'count_below({texts[0]}, {texts[1]}, "{side}")', ATOM
        return CALLS[value.op].format(*texts), ATOM


def _plain(text: str) -> str:
    """Return text that can stand in a docstring."""
    return text.replace("\\", "/").replace('"""', "'''")


def _quoted(text: str) -> str:
    """Return text as a literal in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _listed(names: list[str]) -> str:
    """Return names as a list, on one line if it is short."""
    texts = [_quoted(name) for name in names]
    line = f"[{', '.join(texts)}]"
    if len(line) <= MAX_LIST:
        return line
    return "\n".join(["[", *(f"    {text}," for text in texts), "]"])


def _columns(columns: list[int]) -> str:
    """Return the index of some columns: a range where they are one."""
    first, last = columns[0], columns[-1]
    return f"{first}:{last + 1}" if columns == [*range(first, last + 1)] else repr(columns)


def _bound(part: tuple[str, int], level: int) -> str:
    """Return a part of an expression, in parentheses where it is bound less tightly."""
    text, own = part
    return text if own >= level else f"({text})"


def _table(head: str, array: NDArray[Any], end: str = "") -> list[str]:
    """Return a table as text, each of its rows on a line of its own if there are several."""
    text = f"{head}np.array({array.tolist()!r}){end}".replace("inf", "np.inf")
    if len(text) <= WIDTH:
        return [text]
    rows = array.tolist() if array.ndim > 1 else [array.tolist()]
    indent = " " * (len(head) - len(head.lstrip()) + 4)
    lines = [
        line
        for row in rows
        for line in wrap(
            f"{row!r},".replace("inf", "np.inf"),
            WIDTH,
            initial_indent=indent,
            subsequent_indent=f"{indent} ",
            break_on_hyphens=False,
        )
    ]
    if array.ndim == 1:
        lines[-1] = lines[-1].removesuffix(",")
    brackets = ("[", "]") if array.ndim > 1 else ("", "")
    return [f"{head}np.array({brackets[0]}", *lines, f"{indent[4:]}{brackets[1]}){end}"]


def _tables(name: str, arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a dict of tables as text."""
    parts = [_table(f'    "{key}": ', np.asarray(one), ",") for key, one in arrays.items()]
    return "\n".join([f"{name} = {{", *(line for part in parts for line in part), "}"])


def _encoded(array: NDArray[Any]) -> str:
    """Return the text of a large table: compressed, in base64."""
    data = np.ascontiguousarray(array)
    text = base64.b64encode(zlib.compress(data.tobytes(), 9)).decode()
    return f'decoded("{text}", "{data.dtype.str}", {data.shape})'


def _comment(text: str) -> list[str]:
    """Return a comment in lines."""
    lines = wrap(" ".join(text.split()), WIDTH - 6)
    return ["", *(f"    # {line}" for line in lines)]


def _statement(name: str, text: str) -> list[str]:
    """Return an assignment, or what is returned, in lines that are not too long."""
    head = "return" if name == "return" else f"{name} ="
    line = f"    {head} {text}"
    if len(line) <= WIDTH:
        return [line]
    lines = wrap(text, WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    return [f"    {head} (", *(f"        {line}" for line in lines), "    )"]
