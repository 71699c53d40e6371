"""The command line: one module per command, which parses, calls the library and prints."""

import gc

from dubito.cli.commands import app

__all__ = ["main"]

# Imports create many objects and hardly any garbage: Python's default of 700 objects between two
# collections costs a tenth of a short command.
GC_THRESHOLD = 10_000


def main() -> None:
    """Run a command. Exit codes: 0 success, 1 a check failed, 2 invalid input."""
    gc.set_threshold(GC_THRESHOLD)
    app()
