"""The commands, their arguments, options, defaults and examples, as `dubito --help` has them.

The directive `commands` reads the app itself, so the page has no text of its own to keep in step.
"""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from typer.main import get_command

from dubito.cli.commands import app as dubito_app

SOURCES = Path(__file__).parents[2] / "src" / "dubito" / "cli"
EXAMPLE = "Example: "
CODE = re.compile(r"(`[^`]+`|(?<![\w-])--[a-z][a-z-]*|'[^' ]+')")


def _context(command: Any, path: tuple[str, ...]) -> Any:
    """Return the context in which a command prints its usage and its options."""
    return command.context_class(command, info_name=" ".join(path))


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a command and the commands in it, each with the words that call it."""
    if not command.hidden:
        yield path, command
        for name, one in getattr(command, "commands", {}).items():
            yield from _walk(one, (*path, name))


class Commands(SphinxDirective):
    """All commands, in the groups of `dubito --help`."""

    def run(self) -> list[nodes.Node]:
        """Return one section per group, with one section per command."""
        for source in sorted(SOURCES.glob("*.py")):
            self.env.note_dependency(str(source))
        root: Any = get_command(dubito_app)
        sections = [self._section(("dubito",), root)]
        groups: dict[str, nodes.section] = {}
        for name, command in root.commands.items():
            title = command.rich_help_panel
            if title not in groups:
                groups[title] = nodes.section("", ids=[nodes.make_id(f"group {title}")])
                groups[title] += nodes.title("", title)
            for path, one in _walk(command, ("dubito", name)):
                groups[title] += self._section(path, one)
        return [*sections, *groups.values()]

    def _section(self, path: tuple[str, ...], command: Any) -> nodes.section:
        """Return what a command does, examples, its usage and its options."""
        called = " ".join(path)
        section = nodes.section("", ids=[nodes.make_id(called)], classes=["command"])
        section += nodes.title("", "", nodes.literal("", called))
        paragraphs = [
            " ".join(text.split())
            for text in inspect.cleandoc(command.help or "").split("\n\n")
            if text.strip()
        ]
        section += [
            nodes.paragraph("", "", *_inline(text))
            for text in paragraphs
            if not text.startswith(EXAMPLE)
        ]
        examples = [one.removeprefix(EXAMPLE) for one in paragraphs if one.startswith(EXAMPLE)]
        if examples:
            text = "\n".join(f"$ {one}" for one in examples)
            section += nodes.literal_block(text, text, language="console")
        context = _context(command, path)
        panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for one in command.get_params(context):
            is_argument = one.param_type_name == "argument"
            title = "Arguments" if is_argument else one.rich_help_panel or "Options"
            if not one.hidden and one.name != "help":
                panels.setdefault(title, []).append(one)
        for title, parameters in panels.items():
            if parameters:
                section += nodes.rubric("", title)
                section += self._list(called, parameters, context)
        return section

    def _list(self, called: str, parameters: list[Any], context: Any) -> nodes.definition_list:
        """Return parameters with their help; an option can be linked to and searched for."""
        found = nodes.definition_list(classes=["options"])
        for parameter in parameters:
            names, text = parameter.get_help_record(context)
            term = nodes.term("", "", nodes.literal("", _readable_type(names)))
            for name in (*parameter.opts, *parameter.secondary_opts):
                if name.startswith("--"):
                    anchor = f"{nodes.make_id(called)}-{nodes.make_id(name)}"
                    term["ids"].append(anchor)
                    self.env.domains.standard_domain.add_program_option(
                        called, name, self.env.docname, anchor
                    )
            described = nodes.paragraph("", "", *_described(text))
            found += nodes.definition_list_item("", term, nodes.definition("", described))
        return found


def _readable_type(names: str) -> str:
    """Return the names of an option and the type of its value, without Python's brackets.

    >>> _readable_type("--cost <list[str]>"), _readable_type("--bins <int range>")
    ('--cost <str> ...', '--bins <int>')
    """
    names = names.replace("... <", " <")  # of an argument
    return re.sub(r"<list\[(.*)\]>", r"<\1> ...", names).replace(" range>", ">")


def _described(text: str) -> Iterator[nodes.Node]:
    """Yield the help of an option, then what Typer adds in brackets: default, range, required."""
    text, _, extra = text.partition("  [")
    yield from _inline(text)
    for one in filter(None, extra.removesuffix("]").split("; ")):
        kind, _, value = one.rpartition(": ")
        shown = [nodes.Text(f" {kind.capitalize()}: "), nodes.literal("", value), nodes.Text(".")]
        if not kind:
            shown = [nodes.Text(f" {value[0].upper()}{value[1:]}.")]
        yield nodes.inline("", "", *shown, classes=["extra"])


def _inline(text: str) -> Iterator[nodes.Node]:
    """Yield a text, with options and what is in backticks or quotes as code, typed as it is."""
    for part in CODE.split(text):
        if CODE.fullmatch(part):
            yield nodes.literal("", part.strip("`"))
        elif part:
            yield nodes.Text(part)


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
