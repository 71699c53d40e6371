"""The API reference: one page per package, written from its `__all__`, and links to it.

A name in backticks, in a docstring or on a page, becomes a link to its page if it is public.
"""

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

PACKAGES = {
    "dubito.measure": "Is the confidence calibrated?",
    "dubito.calibrate": "What is the calibrated probability?",
    "dubito.doubt": "What does the model not know?",
    "dubito.decide": "Which action has the lowest expected cost?",
    "dubito.learn": "How is a network trained to quantify its uncertainty? Needs PyTorch.",
    "dubito.monitor": "Which model is better, and did anything drift?",
    "dubito.report": "Reports in one HTML file, and plots.",
    "dubito.export": "Policies and calibrators as ONNX, PyTorch and NumPy.",
    "dubito.outputs": "What a model outputs, declared and validated.",
    "dubito.data": "Where the rows are: arrays, files, Dask.",
}


EXAMPLES = ".. rubric:: Examples"
# What numpydoc starts a section with: a field such as `:Parameters:`, or a directive.
SECTION = re.compile(r":[A-Z][A-Za-z ]+:$|\.\. (rubric|seealso|only|attribute|warning)::")


def _public_names() -> dict[str, str]:
    """Return the full name of every public name, by its short one; the first package wins."""
    found: dict[str, str] = {}
    for package in PACKAGES:
        for name in importlib.import_module(package).__all__:
            found.setdefault(name, f"{package}.{name}")
    return found


def _heading(text: str, underline: str) -> list[str]:
    return [text, underline * len(text), ""]


def _package_page(package: str) -> str:
    """Return the page of a package: its public names by module, with what each module is for."""
    module = importlib.import_module(package)
    by_module: dict[str, list[str]] = {}
    for name in module.__all__:
        home = getattr(getattr(module, name), "__module__", "") or ""
        by_module.setdefault(home if home.startswith(package) else "", []).append(name)
    lines = [*_heading(package, "="), PACKAGES[package], "", f".. currentmodule:: {package}", ""]
    for home, names in sorted(by_module.items(), key=lambda item: (item[0] == "", item[0])):
        text = (inspect.getdoc(importlib.import_module(home)) or "") if home else ""
        title = home.rsplit(".", 1)[-1].replace("_", " ").capitalize() if home else "Other"
        lines += [*_heading(title, "-"), text.splitlines()[0] if text else "", ""]
        lines += [".. autosummary::", "   :toctree: generated", "   :nosignatures:", ""]
        lines += [*(f"   {name}" for name in names), ""]
    return "\n".join(lines)


def _index_page() -> str:
    """Return the first page of the reference: the names of `dubito` itself, and the packages."""
    public = _public_names()
    lines = [*_heading("API reference", "=")]
    lines += ["What a user needs most is in ``dubito`` itself:", "", ".. list-table::", ""]
    for name in importlib.import_module("dubito").__all__:
        value = getattr(importlib.import_module("dubito"), name)
        first = (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")
        lines += [f"   * - :py:obj:`{name} <{public[name]}>`", f"     - {first}"]
    lines += ["", "Everything, by package:", "", ".. list-table::", ""]
    for package, question in PACKAGES.items():
        lines += [f"   * - :doc:`{package}`", f"     - {question}"]
    lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {package}" for package in PACKAGES), ""]
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    """Write a page only if it changed, so that only changed pages are built again."""
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def write_pages(app: Sphinx, _config: Any) -> None:
    """Write the pages of the reference before Sphinx looks for documents."""
    folder = Path(app.srcdir) / "api"
    _write(folder / "index.rst", _index_page())
    for package in PACKAGES:
        _write(folder / f"{package}.rst", _package_page(package))


class LinkNames(SphinxPostTransform):
    """Makes a link of each public name in backticks on the pages in Markdown."""

    default_priority = 5  # before references are resolved

    def run(self, **_kwargs: Any) -> None:
        """Replace the literals, except in titles, links and on the page of the name itself."""
        for node in list(self.document.findall(nodes.literal)):
            name = node.astext().removeprefix("dubito.").split("(")[0].split(".")[-1]
            full = _NAMES.get(name)
            inside = (nodes.reference, nodes.title, addnodes.pending_xref)
            if full is None or any(isinstance(one, inside) for one in _parents(node)):
                continue
            reference = addnodes.pending_xref(
                "", refdomain="py", reftype="obj", reftarget=full, refdoc=self.env.docname
            )
            node.replace_self(reference)
            reference += node


_NAMES: dict[str, str] = {}


def _parents(node: nodes.Node) -> Iterator[nodes.Node]:
    while node.parent is not None:
        node = node.parent
        yield node


def resolve_short_name(
    app: Sphinx, _env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Return a link to a public name that a docstring gives without its package."""
    full = _NAMES.get(node.get("reftarget", "").removeprefix("dubito.").split("(")[0])
    if full is None or node.get("refdomain") != "py" or full == node["reftarget"]:
        return None
    domain = app.env.domains["py"]
    return domain.resolve_xref(app.env, node["refdoc"], app.builder, "obj", full, node, content)


def escape_bars(
    _app: Sphinx, _kind: str, _name: str, _value: Any, _options: Any, lines: list[str]
) -> None:
    """Escape the bars of |z|, which reStructuredText would take for a substitution."""
    is_code = False
    for k, line in enumerate(lines):
        is_code = line.lstrip().startswith(">>>") or (is_code and bool(line.strip()))
        if not is_code and "``" not in line:
            lines[k] = re.sub(r"(?<!\\)\|(?=\S)|(?<=\S)(?<!\\)\|", r"\\|", line)


def move_examples(
    _app: Sphinx, kind: str, _name: str, _value: Any, _options: Any, lines: list[str]
) -> None:
    """Put the examples of a class or function between its description and its parameters.

    Who opens a page first wants to see a call, and some classes have twenty parameters.
    """
    if kind not in ("class", "function") or EXAMPLES not in lines:
        return
    start = lines.index(EXAMPLES)
    ends = (k for k in range(start + 1, len(lines)) if SECTION.match(lines[k]))
    end = next(ends, len(lines))
    target = next(k for k, line in enumerate(lines) if SECTION.match(line))
    examples = lines[start:end]
    del lines[start:end]
    lines[target:target] = [*examples, ""]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the pages and the links."""
    _NAMES.update(_public_names())
    app.connect("config-inited", write_pages, priority=100)
    app.connect("autodoc-process-docstring", escape_bars, priority=900)  # after numpydoc
    app.connect("autodoc-process-docstring", move_examples, priority=910)
    app.connect("missing-reference", resolve_short_name)
    app.add_post_transform(LinkNames)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
