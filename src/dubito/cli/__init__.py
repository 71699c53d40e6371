"""The command line: one module per command, which parses, calls the library and prints."""

from dubito.cli.app import app

__all__ = ["main"]


def main() -> None:
    """Run a command. Exit codes: 0 success, 1 a check failed, 2 invalid input."""
    app()
