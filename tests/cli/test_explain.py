import ast
import importlib
import inspect
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dubito.cli.commands import app
from dubito.cli.explain import PAGES, GlossaryTerm, _glossary
from tests.cli.conftest import Run

ROOT = Path(__file__).parents[2]


def test_a_term_is_found_by_any_of_its_names(run: Run) -> None:
    output = run("explain", "ECE").stdout
    assert output.startswith("ECE (expected calibration error")
    assert "dubito.measure.expected_calibration_error(" in output
    assert output.endswith("More in the documentation: user guide, Measure\n")
    assert run("explain", "expected", "calibration-Error").stdout == output
    assert json.loads(run("explain", "winkler", "--json").stdout)["term"] == "interval score"


def test_all_terms_fit_in_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("explain").stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) < len(_glossary())
    assert all(entry["term"] in "\n".join(lines) for entry in _glossary())
    assert len(json.loads(run("explain", "--json").stdout)) == len(_glossary())


def test_near_matches_are_suggested(run: Run) -> None:
    done = run("explain", "calibrtion")
    assert done.exit_code == 2
    assert "'calibrtion'" in done.stderr
    assert "calibration test" in done.stderr
    assert "Run dubito explain" in run("explain", "xyzzy").stderr


def test_every_name_leads_to_one_entry() -> None:
    names = [name.lower() for entry in _glossary() for name in (entry["term"], *entry["aliases"])]
    assert len(names) == len(set(names))
    terms = [entry["term"] for entry in _glossary()]
    assert terms == sorted(terms, key=str.lower)


ENTRIES = [
    pytest.param(one, id=one["term"], marks=[pytest.mark.torch] * ("dubito.learn" in one["use"]))
    for one in _glossary()
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_an_entry_refers_to_exists(entry: GlossaryTerm) -> None:
    assert entry["text"].endswith(".")
    assert (ROOT / entry["page"]).is_file()
    assert entry["page"] in PAGES
    if entry["use"].startswith("dubito "):
        _, name, *words = shlex.split(entry["use"])
        options: Any = get_command(app).commands[name].params  # type: ignore[attr-defined]
        known = {option for parameter in options for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known
    else:
        check_call(ast.parse(entry["use"], mode="eval").body)


def check_call(call: ast.expr) -> None:
    """Bind the arguments of a call, and of the calls inside it, to the signatures."""
    assert isinstance(call, ast.Call)
    for part in ast.walk(call):
        if isinstance(part, ast.Call):
            words = {word.arg: None for word in part.keywords if word.arg}
            inspect.signature(named(part.func)).bind(*part.args, **words)


def named(place: ast.expr) -> Any:
    """Return what an expression names: a function, or a method of the object that a call makes."""
    if isinstance(place, ast.Name):
        return importlib.import_module(place.id)
    if isinstance(place, ast.Call):
        made = named(place.func)
        return made if inspect.isclass(made) else getattr(made, "__self__", made)
    assert isinstance(place, ast.Attribute)
    found = getattr(named(place.value), place.attr)
    is_method = isinstance(place.value, ast.Call) and inspect.isfunction(found)
    return found.__get__(object()) if is_method else found


def test_pages_are_called_as_in_the_navigation_of_the_site() -> None:
    navigation = (ROOT / "docs" / "_extensions" / "navigation.py").read_text()
    for page, name in PAGES.items():
        section, title = name.split(", ", 1)
        path = page.removeprefix("docs/").removesuffix(".md")
        if section == "studies":
            assert (ROOT / page).read_text().startswith(f"# {title}\n")
        else:
            assert f'("{title}", "{path}")' in navigation


def test_the_shell_completes_terms() -> None:
    env = {"_DUBITO_COMPLETE": "complete_bash", "COMP_WORDS": "dubito explain cal"}
    done = CliRunner().invoke(app, prog_name="dubito", env={**env, "COMP_CWORD": "2"})
    assert done.stdout.splitlines() == ["calibration", "calibration slope", "calibration test"]
