"""Where results may go: a folder that is there, and never over what is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from dubito.data.sources.locations import is_url
from dubito.errors import BadValueError

__all__ = ["require_places", "resolved"]


def require_places(
    places: Mapping[str, str | Path | None],
    inputs: Sequence[str | Path],
    tables: tuple[str, ...] = (),
) -> None:
    """Raise unless each option's file can be written: told before the work, not after it.

    Those in `tables` are CSV files. What is elsewhere, at a URL, is tried only when it is written.

    >>> require_places({"--output": "report.html"}, ["predictions.csv"])
    """
    read = set(map(resolved, inputs))
    for option, place in places.items():
        if place is None:
            continue
        path = Path(place)
        if resolved(place) in read:
            rule, fix = "another file than those that are read", f"{option} NEW{path.suffix}"
            raise BadValueError(option, "dubito", rule, str(place), fix)
        if not is_url(str(place)):
            require_folder(option, path, [Path(one) for one in read])
        if option in tables and path.suffix.lower() != ".csv":
            rule, fix = "a file in .csv", f"{option} {path.stem}.csv"
            raise BadValueError(option, "dubito", rule, str(place), fix)
        read.add(resolved(place))


def resolved(place: str | Path) -> str:
    """Return a URL as it is, and a path as it is from everywhere."""
    return str(place) if is_url(str(place)) else str(Path(place).resolve())


def require_folder(option: str, place: Path, read: list[Path]) -> None:
    """Raise unless the folder of a file is there, and the file would not be read the next time."""
    if not place.parent.is_dir():
        rule, fix = "in a folder that is there", f"mkdir {place.parent}"
        raise BadValueError(option, "dubito", rule, str(place), fix)
    is_table = place.suffix.lower() not in (".html", ".json")
    if is_table and any(one.is_dir() and place.resolve().is_relative_to(one) for one in read):
        rule, fix = "outside of the folders that are read", f"{option} ../{place.name}"
        raise BadValueError(option, "dubito", rule, str(place), fix)
