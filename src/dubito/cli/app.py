"""The `dubito` command and its subcommands."""

from typing import Annotated

import typer

from dubito import __version__
from dubito.cli.audit import audit
from dubito.cli.demo import demo

__all__ = ["app"]

app = typer.Typer(
    help="Measure how far a model's confidence is from truth. Start with: dubito demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command()(audit)


def print_version(is_wanted: bool) -> None:
    """Print the version and leave."""
    if is_wanted:
        typer.echo(f"dubito {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Measure how far a model's confidence is from truth. Start with: dubito demo."""
