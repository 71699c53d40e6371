"""`dubito explain TERM`: the glossary in the terminal."""

from __future__ import annotations

from functools import cache
from typing import Annotated, TypedDict

import typer

from dubito.cli.options import command
from dubito.cli.printing import MAX_WIDTH, put, say, say_json
from dubito.errors import BadValueError

# The pages of the documentation site by their file, which an installation does not have.
PAGES = {
    "docs/cascade.md": "tasks, When to pay for the larger model",
    "docs/forecasts.md": "tasks, Weekly forecasts",
    "docs/fraud.md": "tasks, From a fraud model to decisions",
    "docs/guide/calibrate.md": "user guide, Calibrate",
    "docs/guide/decide.md": "user guide, Decide",
    "docs/guide/doubt.md": "user guide, Doubt",
    "docs/guide/measure.md": "user guide, Measure",
    "docs/guide/monitor.md": "user guide, Monitor",
    "docs/guide/policy.md": "user guide, The policy",
    "docs/intervals.md": "tasks, Intervals of a price model",
    "docs/multilabel.md": "tasks, Many findings per image",
    "docs/pytorch.md": "user guide, Learn (PyTorch)",
    "docs/serve.md": "user guide, Serve",
    "docs/sets.md": "tasks, Sets of a classifier",
    "docs/team.md": "tasks, A fraud team of five",
    "docs/three_roads.md": "studies, Three approaches to a decision",
}


class GlossaryTerm(TypedDict):
    """A term of the glossary, as in `glossary.json`."""

    term: str
    aliases: list[str]
    text: str
    use: str
    page: str


def _known_terms() -> list[str]:
    """Return all terms, for the completion of the shell."""
    return [entry["term"] for entry in _glossary()]


@command()
def explain(
    term: Annotated[list[str] | None, typer.Argument(autocompletion=_known_terms)] = None,
) -> None:
    """Explain a term, such as ECE or conformal prediction, and how to compute it.

    Example: dubito explain ece

    Options
    -------
    term
        Term of the glossary, e.g. ece. Default: list all terms.
    """
    if not term:
        entries = _glossary()
        say_json(entries)
        _show_columns([entry["term"] for entry in entries])
        say("\nExplain one of them: dubito explain ece")
        return
    entry = _find_entry(" ".join(term))
    say_json(entry)
    say(entry["term"] + (f" ({', '.join(entry['aliases'])})" if entry["aliases"] else ""))
    say(f"\n{entry['text']}\n")
    put(f"  {entry['use']}\n")
    say(f"More in the documentation: {PAGES[entry['page']]}")


@cache
def _glossary() -> list[GlossaryTerm]:
    """Return all entries of the glossary, in alphabetical order."""
    import json
    from importlib.resources import files

    text = files("dubito.cli").joinpath("glossary.json").read_text(encoding="utf-8")
    entries: list[GlossaryTerm] = json.loads(text)
    return entries


def _find_entry(term: str) -> GlossaryTerm:
    """Return the entry with a term or alias, whatever its case, hyphens and spaces.

    >>> _find_entry("Expected-Calibration error")["term"]
    'ECE'
    """
    from difflib import get_close_matches

    names = {
        _plain(name): entry for entry in _glossary() for name in (entry["term"], *entry["aliases"])
    }
    wanted = _plain(term)
    if wanted in names:
        return names[wanted]
    near = [name for name in names if len(wanted) > 2 and wanted in name]
    near += get_close_matches(wanted, names, n=5, cutoff=0.7)
    terms = list(dict.fromkeys(names[name]["term"] for name in near))[:3]
    fix = "Run dubito explain to list all terms"
    fix += f". Similar: {', '.join(terms)}" if terms else ""
    rule = "must be a term of the glossary"
    raise BadValueError("term", "dubito explain", rule, repr(term), fix)


def _plain(name: str) -> str:
    """Return a name in lower case, without hyphens, underscores and repeated spaces."""
    return " ".join(name.lower().replace("-", " ").replace("_", " ").split())


def _show_columns(names: list[str]) -> None:
    """Print names in as many columns as fit on the terminal, down first."""
    from shutil import get_terminal_size

    width = max(map(len, names)) + 2
    n_columns = max(min(get_terminal_size().columns, MAX_WIDTH) // width, 1)
    n_lines = -(-len(names) // n_columns)
    for start in range(n_lines):
        put("".join(f"{name:<{width}}" for name in names[start::n_lines]).rstrip())
