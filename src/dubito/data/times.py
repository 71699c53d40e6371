"""Times of rows: dates or numbers, one kind per column, and durations in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, IntArray
from dubito.errors import BadValueError

MONTH = 365.2425 / 12  # days; as a step it stands for calendar months
COMPACT = re.compile(r"(1[89]|2[0-2])\d{6}(\.0*)?")  # 20250131, also as a float
YEAR_FIRST = re.compile(r"(\d{4})[/-](\d{1,2})(?:[/-](\d{1,2}))?(?=$|[T ])")
MAX_SAVING = timedelta(hours=2)  # by which daylight saving moves clocks
UNITS = ((1.0, "day"), (1 / 24, "hour"), (1 / 1440, "minute"), (1 / 86_400, "second"))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """The times of rows.

    Attributes
    ----------
    values : ndarray
        datetime64 in microseconds, or float64.
    texts : list of str
        Each time as text: dates as 2025-01-31, with the time of day and the zone if there are any.
    notes : tuple of str
        What was assumed, in sentences.
    """

    values: NDArray[Any]
    texts: list[str]
    notes: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of times, dates or numbers."""
        return "dates" if self.values.dtype.kind == "M" else "numbers"

    @property
    def numbers(self) -> FloatArray:
        """The times as numbers, dates as days since 1970."""
        if self.kind == "numbers":
            return self.values
        return np.asarray((self.values - np.datetime64(0, "us")) / np.timedelta64(1, "D"))

    def take(self, rows: IntArray) -> Times:
        """Return the times of some rows."""
        return Times(self.values[rows], [self.texts[row] for row in rows], self.notes)

    @property
    def months(self) -> NDArray[Any]:
        """The month of each date, "all" for numbers."""
        has_months = self.kind == "dates"
        return np.array([text[:7] if has_months else "all" for text in self.texts])


def parse_times(
    cells: Sequence[Any], name: str, where: str, *, form: str | None = None, is_local: bool = True
) -> Times:
    """Return the cells of a column as dates or numbers, or raise at the first that is neither.

    Eight digits in all rows are dates (20250131). Times with a zone are in UTC; if all are at the
    same time of day, by clocks that daylight saving moves, they are calendar days of that zone.

    Parameters
    ----------
    cells : sequence
        Texts, numbers or dates.
    name, where : str
        The column and the file, for errors.
    form : str, optional
        The format of dates, as in `datetime.strptime`.
    is_local : bool, default=True
        Whether days of a zone may be calendar days.

    Examples
    --------
    >>> parse_times(["20250131", "20250228"], "date", "f.csv").texts
    ['2025-01-31', '2025-02-28']
    >>> parse_times(["1", "2.5"], "day", "f.csv").values.tolist()
    [1.0, 2.5]
    """
    blank = [row for row, one in enumerate(cells) if one is None or one == "" or one != one]
    if blank:
        rule, fix = "must hold a time in each row", "Fill in the cell, or leave out the row"
        raise BadValueError(name, where, rule, "a blank cell", fix, blank[0])
    places: dict[Any, int] = {}
    for row, one in enumerate(cells):
        places.setdefault(one, row)
    notes: tuple[str, ...] = ()
    read: Callable[[str], datetime] = _from_iso
    if form is not None:
        read = lambda text: datetime.strptime(text, form)  # noqa: E731
    elif all(_is_number(one) for one in places):
        if not all(_is_compact(one) for one in places):
            numbers = {one: float(one) for one in places}
            values = np.array([numbers[one] for one in cells], dtype=np.float64)
            return Times(values, [_number_text(one) for one in values.tolist()])
        notes = (f"`{name}` holds eight digits in all rows, which are read as dates (20250131).",)
    dates: dict[Any, datetime] = {}
    for one, row in places.items():
        text = str(one).strip().partition(".")[0] if notes else str(one).strip()
        try:
            dates[one] = one if isinstance(one, datetime) else read(text)
        except ValueError as error:
            raise _no_time(str(one), name, where, form, row) from error
    has_zone = {one: found.tzinfo is not None for one, found in dates.items()}
    if len(set(has_zone.values())) > 1:
        odd = next(one for one, has in has_zone.items() if has != next(iter(has_zone.values())))
        rule, fix = "must have a time zone in all rows or in none", "Write all in UTC, e.g. with Z"
        raise BadValueError(name, where, rule, repr(str(odd)), fix, places[odd])
    is_day = any(has_zone.values()) and is_local and _are_local_days(list(dates.values()))
    stamps = {one: np.datetime64(_naive(found, is_day), "us") for one, found in dates.items()}
    texts = {one: _date_text(found) for one, found in dates.items()}
    values = np.array([stamps[one] for one in cells], dtype="datetime64[us]")
    return Times(values, [texts[one] for one in cells], notes)


def _is_number(cell: Any) -> bool:
    """Whether a cell is a number, or the text of one."""
    try:
        return isinstance(cell, int | float | str) and float(cell) == float(cell)
    except ValueError:
        return False


def _is_compact(cell: Any) -> bool:
    """Whether a number is a date of eight digits.

    >>> _is_compact(20250131), _is_compact("20250132"), _is_compact(5)
    (True, False, False)
    """
    text = str(cell).strip()
    if not COMPACT.fullmatch(text):
        return False
    try:
        datetime.strptime(text[:8], "%Y%m%d")
    except ValueError:
        return False
    return True


def _from_iso(text: str) -> datetime:
    """Return a date in ISO format, also with slashes, single digits, or without a day.

    >>> _from_iso("2025/1/31").isoformat(), _from_iso("2025-01").isoformat()
    ('2025-01-31T00:00:00', '2025-01-01T00:00:00')
    """
    start = YEAR_FIRST.match(text)
    if start is not None:
        year, month, day = start.groups("1")
        text = f"{year}-{int(month):02d}-{int(day):02d}{text[start.end() :]}"
    return datetime.fromisoformat(text)


def _no_time(text: str, name: str, where: str, form: str | None, row: int) -> BadValueError:
    """Return the error for a cell that is no time."""
    if form is not None:
        rule = f"must hold dates of the format {form!r}"
        return BadValueError(name, where, rule, repr(text), "Pass another --time-format", row)
    fix = "Fix the cell, or pass --time-format, e.g. '%d.%m.%Y'"
    digits = re.fullmatch(r"(\d{1,2})([./-])(\d{1,2})[./-](\d{4})", text)
    if digits is not None:
        is_month_first = digits[2] == "/" and int(digits[1]) <= 12
        form = digits[2].join(["%m", "%d", "%Y"] if is_month_first else ["%d", "%m", "%Y"])
        fix = f"Pass --time-format '{form}', or another order"
    return BadValueError(
        name, where, "must hold dates such as 2024-11-23, or numbers", repr(text), fix, row
    )


def _are_local_days(dates: list[datetime]) -> bool:
    """Whether times are at the same time of day in one zone, with or without daylight saving."""
    offsets = [one.utcoffset() or timedelta() for one in dates]
    return len({one.time() for one in dates}) == 1 and max(offsets) - min(offsets) < MAX_SAVING


def _naive(date: datetime, is_day: bool) -> datetime:
    """Return a date without its zone: as its clock says, or in UTC."""
    if date.tzinfo is None or is_day:
        return date.replace(tzinfo=None)
    return date.astimezone(UTC).replace(tzinfo=None)


def _date_text(date: datetime) -> str:
    """Return a date, with the time of day and the zone if there are any."""
    is_date = date.tzinfo is None and (date.hour, date.minute, date.second) == (0, 0, 0)
    return str(date.date()) if is_date and not date.microsecond else date.isoformat()


def _number_text(value: float) -> str:
    """Return a number without needless decimals."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def time_text(value: float, kind: str) -> str:
    """Return a time that is held as a number, dates as days since 1970.

    >>> time_text(1.5, "dates"), time_text(7.0, "numbers")
    ('1970-01-02T12:00:00', '7')
    """
    if kind != "dates":
        return _number_text(value)
    return _date_text(datetime(1970, 1, 1) + timedelta(days=value))


def duration(days: float) -> str:
    """Return a duration in the largest unit of which it is at least one.

    >>> duration(7), duration(1 / 24), duration(MONTH), duration(1.5)
    ('7 days', '1 hour', '1 month', '1.5 days')
    """
    if abs(days - MONTH) < 1e-6:
        return "1 month"
    size, unit = next((pair for pair in UNITS if days >= pair[0] * (1 - 1e-9)), UNITS[-1])
    count = f"{days / size:.4g}"
    return f"{count} {unit}{'s' * (count != '1')}"
