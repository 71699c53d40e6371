"""The command line: one file a command, which parses, calls and prints."""

import sys

from dubito.cli.app import app

__all__ = ["main"]


def main() -> None:
    """Run a command. What is wrong with the input is told in a line or two, with exit code 2."""
    from dubito.errors import DubitoError

    try:
        app()
    except DubitoError as error:
        print(f"dubito: {error}", file=sys.stderr)
        sys.exit(2)
