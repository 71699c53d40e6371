"""The `dubito` command and its subcommands."""

import errno
import warnings
from typing import Annotated, Any, final

import typer
from typer.core import TyperGroup

from dubito import __version__
from dubito.cli.audit import audit
from dubito.cli.calibrate import calibrate
from dubito.cli.cascade import cascade
from dubito.cli.compare import compare, drift
from dubito.cli.decide import decide
from dubito.cli.demo import demo
from dubito.cli.doctor import doctor
from dubito.cli.explain import explain
from dubito.cli.export import export
from dubito.cli.fit import fit
from dubito.cli.forecast import forecast
from dubito.cli.policy import policy
from dubito.cli.reading import inputs_kept_open
from dubito.cli.review import review
from dubito.cli.serve import serve, token

KERNELS = {  # that a command compiles when it first runs on a machine
    "demo": 35, "audit": 8, "audit -o": 33, "calibrate": 22, "fit": 27, "decide": 9,
    "compare": 5, "drift": 5, "forecast": 2, "doctor": 9,
}  # fmt: skip


@final
class Commands(TyperGroup):
    """Commands that report errors on two lines and exit with code 2."""

    def invoke(self, ctx: Any) -> Any:
        from dubito.errors import DubitoError
        from dubito.kernels import Workload

        Workload.n_kernels = _kernels_of([*ctx._protected_args, *ctx.args])
        try:
            with inputs_kept_open(), warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except DubitoError as error:
            caught: Exception = error
        except OSError as error:
            if error.errno == errno.EPIPE:  # the other end of the pipe is closed
                raise
            caught = error
        from dubito.cli.printing import say_error

        say_error(caught)
        raise typer.Exit(2)


def _kernels_of(words: list[str]) -> int:
    """Return about how many kernels a command needs, 0 if unknown.

    >>> _kernels_of(["audit", "rows.csv"]), _kernels_of(["audit", "rows.csv", "-o", "page.html"])
    (8, 33)
    """
    has_report = any(word.startswith(("-o", "--output")) for word in words)
    return KERNELS.get(f"{words[0]} -o" if words[0] == "audit" and has_report else words[0], 0)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as a sentence, without its source line."""
    from dubito.cli.printing import say_note

    say_note(f"{message}")


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
PANELS = {  # of the help
    "Start": (demo, doctor, explain),
    "Measure": (audit, compare, drift),
    "Calibrate and decide": (calibrate, fit, decide, forecast, cascade, review, policy),
    "Production": (export, serve, token),
}
for panel, commands in PANELS.items():
    for one in commands:
        if isinstance(one, typer.Typer):
            app.add_typer(one, rich_help_panel=panel)
        else:
            app.command(rich_help_panel=panel)(one)


def _print_version(is_requested: bool) -> None:
    """Print the version and exit."""
    if is_requested:
        typer.echo(f"dubito {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Measure the calibration of a model's confidence, correct it, and make decisions with it.

    Every command has --help with examples. `dubito demo --binary` creates the
    example files in dubito-demo/. `dubito --install-completion` enables tab completion.

    Example: dubito demo
    """
