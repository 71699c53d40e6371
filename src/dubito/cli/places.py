"""Where results may go: a folder that is there, and never over what is read."""

from __future__ import annotations

from pathlib import Path

from dubito.errors import BadValueError

__all__ = ["require_places"]


def require_places(
    places: dict[str, Path | None], inputs: list[Path], tables: tuple[str, ...] = ()
) -> None:
    """Raise unless each option's file can be written: told before the work, not after it.

    Those in `tables` are CSV files.

    >>> require_places({"--output": Path("report.html")}, [Path("predictions.csv")])
    """
    read = {file.resolve() for file in inputs}
    for option, place in places.items():
        if place is None:
            continue
        if place.resolve() in read:
            rule, fix = "another file than those that are read", f"{option} NEW{place.suffix}"
            raise BadValueError(option, "dubito", rule, str(place), fix)
        if not place.parent.is_dir():
            rule, fix = "in a folder that is there", f"mkdir {place.parent}"
            raise BadValueError(option, "dubito", rule, str(place), fix)
        if option in tables and place.suffix.lower() != ".csv":
            rule, fix = "a file in .csv", f"{option} {place.stem}.csv"
            raise BadValueError(option, "dubito", rule, str(place), fix)
        read.add(place.resolve())
