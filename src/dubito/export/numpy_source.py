"""A policy or calibrator as one file of plain NumPy, for places without dubito."""

from __future__ import annotations

import base64
import builtins
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from keyword import iskeyword
from os import PathLike
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
_HELPERS = '''
def below_top(x):
    """Return how far numbers are below the largest of their row."""
    with np.errstate(over="ignore"):
        return x - np.max(x, axis=1, keepdims=True)

def log_softmax(x):
    """Return the log of the softmax of each row."""
    x = below_top(x)
    return x - np.log(np.sum(np.exp(x), axis=1, keepdims=True))

def softmax(x):
    """Return the softmax of each row."""
    p = np.exp(below_top(x))
    return p / np.sum(p, axis=1, keepdims=True)

def sigmoid(x):
    """Return 1 / (1 + exp(-x)), without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)

def count_below(table, x, side):
    """Return how many numbers of row k of a table, which rise, are below column k of x."""
    return np.stack([np.searchsorted(row, one, side) for row, one in zip(table, x.T)], axis=1)

def top_k(x, k):
    """Return the k largest entries of each row, the largest first."""
    return -np.sort(-x, axis=1)[:, :k]

def has_columns(table):
    """Whether a table has columns by name: a dict, a data frame or a structured array."""
    names = getattr(getattr(table, "dtype", None), "names", None)
    return names is not None or hasattr(table, "keys") or hasattr(table, "columns")

def checked(x, rule, most=np.inf):
    """Return numbers, or raise for the first row with one that is not finite, or too large."""
    is_fine = np.isfinite(x) & (np.abs(x) <= most)
    if not is_fine.all():
        row, column = np.argwhere(~is_fine)[0]
        limit = "" if most == np.inf else f" of at most {most:g} in size"
        got = f"got {x[row, column]:g} in row {row}. Fix or drop the row."
        raise ValueError(f"{rule}{limit}, {got}")
    return x

def quotient(a, b):
    """Return a / b, without a warning: what is not finite is an error later."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return a / b

def as_floats(x, name, shape, fix, first=None):
    """Return an array of floats of a shape, in which None is any length, or raise.

    One column may be that of the second of two classes; `first` makes the other one of it.
    """
    wanted = " x ".join("rows" if one is None else str(one) for one in shape)
    try:
        found = np.asarray(x)
        if found.dtype.kind not in "fiu":  # booleans, complex numbers, text, objects
            raise TypeError(found.dtype)
        found = found.astype(np.float64)
    except (TypeError, ValueError) as error:
        got = f"got {getattr(x, 'dtype', type(x).__name__)}. {fix}"
        raise ValueError(f"{name} must be numbers, {wanted}, {got}") from error
    if first is not None and found.ndim in (1, 2) and found.size == len(found):
        found = found.reshape(-1, 1)
        found = np.concatenate([first(found), found], axis=1)
    is_fine = [a in (None, b) for a, b in zip(shape, found.shape)]
    if found.ndim != len(shape) or not all(is_fine):
        raise ValueError(f"{name} must be numbers, {wanted}, got the shape {found.shape}. {fix}")
    return found

def as_matrix(x, name, n_columns, n_rows=None, first=None):
    """Return rows of finite numbers, or raise for the first row that has others."""
    fix = "Pass the columns of the fit, in its order."
    x = as_floats(x, f"`{name}`", (n_rows, n_columns), fix, first)
    return checked(x, f"`{name}` must be finite")

def as_fractions(probabilities, n_labels):
    """Return probabilities of labels, or raise for the first row with one beyond 0 to 1."""
    p = as_matrix(probabilities, "probabilities", n_labels)
    is_fine = (p >= 0) & (p <= 1)
    if not is_fine.all():
        row, column = np.argwhere(~is_fine)[0]
        got = f"got {p[row, column]:g} in row {row}. Apply a sigmoid to log odds."
        raise ValueError(f"`probabilities` must be between 0 and 1, {got}")
    return p

def as_distributions(probabilities, n_classes, first=None):
    """Return rows that sum to 1, divided by their sum where it is off by up to 0.001, or raise."""
    rounding = 1e-6 if getattr(probabilities, "dtype", None) == np.float32 else 1e-12
    p = as_matrix(probabilities, "probabilities", n_classes, first=first)
    sums = np.sum(p, axis=1, keepdims=True)
    distance = np.abs(sums - 1)
    is_fine = (p >= 0).all(axis=1) & (distance[:, 0] <= 0.001)
    if not is_fine.all():
        row = int(np.argmin(is_fine))
        got = f"a sum of {sums[row, 0]:.6g}" if (p[row] >= 0).all() else f"{p[row].min():g}"
        rule = "`probabilities` must be non-negative and have rows that sum to 1"
        fix = "Apply a softmax to logits, or divide each row by its sum."
        raise ValueError(f"{rule}, got {got} in row {row}. {fix}")
    return np.where(distance <= rounding, p, p / sums)

def as_column(row_costs, name, names, n_rows):
    """Return a column that costs depend on, of which the only one may be given by itself."""
    column, fix = row_costs, f"Pass a dict with the columns {', '.join(map(repr, names))}."
    if has_columns(row_costs):
        try:
            column = row_costs[name]
        except Exception as error:  # each kind of table has its own
            raise ValueError(f"`row_costs` must have a column {name!r}. {fix}") from error
    elif len(names) > 1:
        raise ValueError(f"`row_costs` must have columns, got {type(row_costs).__name__}. {fix}")
    column = as_floats(column, f"`row_costs[{name!r}]`", (n_rows,), "Pass one number per row.")
    return checked(column.reshape(-1, 1), f"`row_costs[{name!r}]` must be finite")

def as_costs(row_costs, *shape):
    """Return the costs of each row, actions x classes, as one row of a matrix, or raise."""
    fix = "Pass an array of rows x actions x classes."
    costs = as_floats(row_costs, "`row_costs`", shape, fix).reshape(shape[0], -1)
    return checked(costs, "`row_costs` must be finite", 1e100)

def decoded(text, kind, shape):
    """Return the numbers of an encoded table."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind).reshape(shape)
'''
HELPERS = {  # the source of each function by its name, after those that it calls
    text.partition("(")[0].removeprefix("def "): text.rstrip()
    for text in re.split(r"\n(?=def )", _HELPERS.strip())
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
    graph = describe(exported, outputs, is_guarded=False)
    by_row = None
    if isinstance(exported, Policy) and exported.costs.columns:
        by_row = describe(exported, outputs, by_row=True, is_guarded=False)
        graph = describe(exported, outputs, by_row=False, is_guarded=False)
    text = _Source(graph, exported, source, by_row).text()
    names: dict[str, Any] = {"__name__": "exported"}
    exec(compile(text, str(path), "exec"), names)
    names["self_test"]()
    write_atomic(path, text)


@final
class _Source:
    """The text of a file, statement by statement."""

    def __init__(
        self, graph: Graph, exported: Any, source: str | None, by_row: Graph | None
    ) -> None:
        self.graph, self.exported, self.source = graph, exported, source
        self.by_row = by_row  # the same policy with costs given as rows x actions x classes
        self._start(graph)
        self.constants: list[str] = []
        self.known: dict[tuple[Any, ...], str] = {}
        self.helpers: set[str] = set()
        self.function = "decide" if "action" in graph.outputs else "predict_proba"

    def _start(self, graph: Graph) -> None:
        """Begin the function of a graph."""
        self.graph, self.needed = graph, graph.needed()
        self.n_uses = Counter(one.number for value in self.needed for one in value.inputs)
        self.taken = {*HELPERS, "np", "features", "row_costs", "decide_by_row"}
        self.variables: dict[int, str] = {}

    def text(self) -> str:
        """Return the whole file."""
        first = next(iter(self.graph.inputs))
        by_name = [name for name in self.graph.inputs if name not in (first, "features")]
        parameters = [first]
        parameters += ["features"] if "features" in self.graph.inputs else []
        parameters += ["row_costs"] if by_name else []
        call = f"({', '.join(parameters)})"
        body, others = [*self._body()], list[str]()
        if self.by_row is not None:
            graph = self.graph
            self.helpers.add("has_columns")
            self._start(self.by_row)
            others = [f"def decide_by_row{call}:", f'    """{BY_ROW}"""', *self._body(), "", ""]
            self._start(graph)
            body = [
                "    if not has_columns(row_costs) and np.ndim(row_costs) == 3:",
                f"        return decide_by_row{call}",
                *body,
            ]
        for name in reversed(HELPERS):
            if name in self.helpers:
                self.helpers |= {*re.findall(r"\w+(?=\()", HELPERS[name])} & {*HELPERS}
        tests = self._tests()
        names = [
            f"{name.upper()} = {_listed(entries)}" for name, entries in self.graph.metadata.items()
        ]
        helpers = [HELPERS[name] for name in HELPERS if name in self.helpers]
        imports = ["import base64", "import zlib", ""] if "decoded" in self.helpers else []
        outputs = ", ".join(self.graph.outputs)
        is_cube = by_name == ["row_costs"]
        columns = f"a dict of the columns {', '.join(by_name)}"
        columns += ", the only column itself" if len(by_name) == 1 else ""
        costs = "an array of rows x actions x classes"
        costs = costs if is_cube else f"{columns}, or {costs}"
        notes = wrap(_plain(f"`row_costs` is {costs}."), WIDTH - 4)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        origin = self.graph.title if self.source is None else f"{self.source}: {self.graph.title}"
        head = f"Written by dubito {__version__} on {when} from {origin}."
        what = "What a policy decides" if self.function == "decide" else "Calibrated probabilities"
        # Tables may be encoded, which needs a helper before them.
        decoder = [one for one in helpers if "def decoded" in one]
        lines = [
            f'"""{what}, with NumPy and nothing else.',
            "",
            *wrap(_plain(head), WIDTH),
            "Run it to compare its results with those of dubito for a few rows.",
            '"""',
            "",
            *imports,
            "import numpy as np",
            "",
            *names,
            *_spaced(decoder),
            *(["", *[""] * bool(decoder), *self.constants] if self.constants else []),
            *_spaced([one for one in helpers if one not in decoder]),
            "",
            "",
            *others,
            f"def {self.function}{call}:",
            f'    """Return a dict of arrays: {outputs}.' + ("" if by_name else '"""'),
            *(["", *(f"    {line}" for line in notes), '    """'] if by_name else []),
            *body,
            "",
            "",
            *tests,
        ]
        return "\n".join(lines).rstrip() + "\n"

    def _body(self) -> Iterator[str]:
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
            name = self._name(value)
            self.variables[value.number] = name
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
        is_used = name in HELPERS or name in CALLS or hasattr(builtins, name)
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
        self.helpers.add({"matrix": "as_matrix", "column": "as_column", "cube": "as_costs"}[form])
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
            self.helpers.add(check)
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
            self.helpers.add("quotient")
        return self._checked(text, value), ATOM

    def _checked(self, text: str, value: Value) -> str:
        """Return the text of a value with its check, whose rule is a constant."""
        rule, most = self.graph.limits[value.number]
        self.helpers.add("checked")
        if (key := ("rule", rule)) not in self.known:
            self.known[key] = f"RULE_{len(self.known) + 1}"
            self.constants.append(f"{self.known[key]} = {_quoted(rule)}")
        return f"checked({text}, {self.known[key]}{'' if np.isinf(most) else f', {most:g}'})"

    def _plain_expression(self, value: Value) -> tuple[str, int]:
        """Return a value as text without a check."""
        if value.op == "constant":
            return self._constant(value.attributes["array"])
        parts = [self._expression(one) for one in value.inputs]
        texts = [text for text, _ in parts]
        if value.op in HELPERS:
            self.helpers.add(value.op)
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

    def _constant(self, array: NDArray[Any]) -> tuple[str, int]:
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
            self.helpers.add("decoded")
            self.constants.append(f"{name} = {_encoded(array)}")
        return name, ATOM

    def _tests(self) -> list[str]:
        """Return the self-test: a few rows, and what dubito makes of them."""
        rows = sample_inputs(self.exported, self.graph, N_TEST_ROWS)
        truth = true_outputs(self.exported, self.graph, rows)
        first = next(iter(self.graph.inputs))
        arguments = [f'TEST_INPUTS["{first}"]']
        by_name = [name for name in rows if name not in (first, "features")]
        if "features" in rows:
            arguments.append('TEST_INPUTS["features"]')
        if by_name:
            is_cube = by_name == ["row_costs"]
            arguments.append('TEST_INPUTS["row_costs"]' if is_cube else "TEST_INPUTS")
        return [
            *_tables("TEST_INPUTS", rows),
            *_tables("TEST_OUTPUTS", truth),
            "",
            "",
            "def self_test():",
            '    """Raise unless the stored rows give what dubito made of them."""',
            f"    found = {self.function}({', '.join(arguments)})",
            "    for name, wanted in TEST_OUTPUTS.items():",
            "        np.testing.assert_allclose(",
            "            found[name], wanted, rtol=1e-9, atol=1e-9, err_msg=name",
            "        )",
            "",
            "",
            'if __name__ == "__main__":',
            "    self_test()",
            f'    print("{len(next(iter(rows.values())))} rows give what dubito made of them.")',
        ]


def _spaced(functions: list[str]) -> list[str]:
    """Return functions in lines, each after two blank ones."""
    return [line for one in functions for line in ["", "", *one.splitlines()]]


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


def _tables(name: str, arrays: dict[str, NDArray[Any]]) -> list[str]:
    """Return a dict of tables as text."""
    parts = [_table(f'    "{key}": ', np.asarray(one), ",") for key, one in arrays.items()]
    return [f"{name} = {{", *(line for part in parts for line in part), "}"]


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
