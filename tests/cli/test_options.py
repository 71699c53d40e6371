"""Commands from functions: arguments, options and groups of them, with help from docstrings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from typer.testing import CliRunner

from dubito.cli.options import OptionGroup, command, flag
from dubito.cli.printing import has_json
from dubito.errors import BadValueError


@dataclass(frozen=True, slots=True)
class Sizes(OptionGroup):
    """Sizes.

    Options
    -------
    width
        How wide.
    shown
        Whether it is shown.

    Rarely used
    -----------
    depth
        How
        deep.
    tags
        Tags.
    """

    repeated: ClassVar[Mapping[str, tuple[str, ...]]] = {"tags": ("--tags", "--tag")}
    width: float | None = None
    depth: float | None = None
    tags: str | None = None
    shown: bool = False
    closed: object = None

    def __enter__(self) -> "Sizes":
        return self

    def __exit__(self, *_: object) -> None:
        print("closed")


@command("closed", hidden=("depth",))
def make(file: str, *, sizes: Sizes, output: Path = Path("a.json")) -> None:
    """Make it.

    Example: make a.csv

    Options
    -------
    file
        The file.
    width
        How wide it is.
    output
        Where to write.
    """
    print(file, sizes.given, sizes.shown, output, has_json())


app = typer.Typer()
app.command()(make)


def test_parameters_become_arguments_options_and_groups() -> None:
    words = ["a.csv", "--width", "0", "--tag", "x", "--tags", "y", "--shown", "-o", "b", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.output == "a.csv {'width': 0.0, 'tags': 'x,y'} True b True\nclosed\n"
    assert CliRunner().invoke(app, ["a.csv"]).output == "a.csv {} False a.json False\nclosed\n"


def test_help_is_that_of_the_function_then_of_the_group_then_common() -> None:
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.split())
    assert "Example: make a.csv" in shown
    assert "How wide it is." in shown
    assert "Rarely used" in shown
    assert "Print the results as JSON." in shown
    assert "How deep." not in shown
    assert make.__doc__ == "Make it.\n\nExample: make a.csv"


def test_an_option_without_help_is_an_error() -> None:
    def unexplained(*, depth: float = 1.0) -> None:
        """Do nothing."""

    with pytest.raises(KeyError, match="depth"):
        command()(unexplained)


def test_options_that_need_another_one() -> None:
    with pytest.raises(BadValueError, match=r"--width requires --multilabel, got 2 alone"):
        Sizes(width=2.0).require_none("--multilabel", "--multilabel 'p_*'")
    Sizes().require_none("--multilabel", "--multilabel 'p_*'")
    assert flag("max_width") == "--max-width"
