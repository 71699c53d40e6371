"""The command line: one file a command, which parses, calls and prints."""

from dubito.cli.app import app

__all__ = ["main"]


def main() -> None:
    """Run a command: 0 if all is fine, 1 for findings, 2 for bad input."""
    app()
