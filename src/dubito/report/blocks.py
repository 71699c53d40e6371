"""What a page is made of: sections of blocks. Any text in them is escaped when rendered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from markupsafe import Markup


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """What all of it means: the headline, and a sentence or two a line."""

    headline: str
    sentences: tuple[str, ...]
    mood: str = "neutral"  # "good" or "bad" where it is clear


@final
@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    words: str
    kind: ClassVar[str] = "text"


@final
@dataclass(frozen=True, slots=True)
class Card:
    """One figure that matters: its name, its value, and what to hold it against."""

    name: str
    value: str
    note: str = ""


@final
@dataclass(frozen=True, slots=True)
class Cards:
    """The figures that matter most, side by side."""

    cards: tuple[Card, ...]
    kind: ClassVar[str] = "cards"


@final
@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under named columns; the first column names the row.

    Columns in `texts` are words, set to the left; all others are figures.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = (0,)
    kind: ClassVar[str] = "table"


@final
@dataclass(frozen=True, slots=True)
class Figure:
    """Charts with a caption that says what one sees, a legend, and the numbers behind them.

    `legend` has the kind and the name of each color; `anchor` is where scripts find it.
    """

    title: str
    charts: tuple[Markup, ...]
    caption: str
    legend: tuple[tuple[str, str], ...] = ()
    table: Table | None = None
    anchor: str = ""
    kind: ClassVar[str] = "figure"


@final
@dataclass(frozen=True, slots=True)
class Row:
    """Blocks side by side where there is room."""

    blocks: tuple[Block, ...]
    kind: ClassVar[str] = "row"


@final
@dataclass(frozen=True, slots=True)
class Choice:
    """Blocks of which one is shown, chosen by name; the first without a script."""

    label: str
    options: tuple[tuple[str, Block], ...]
    kind: ClassVar[str] = "choice"


@final
@dataclass(frozen=True, slots=True)
class Facts:
    """Names and what they are."""

    pairs: tuple[tuple[str, str], ...]
    kind: ClassVar[str] = "facts"


@final
@dataclass(frozen=True, slots=True)
class Code:
    """Something to be typed."""

    words: str
    kind: ClassVar[str] = "code"


Block = Text | Cards | Table | Figure | Row | Choice | Facts | Code | Markup


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page with a heading; `anchor` is its name in links."""

    anchor: str
    title: str
    blocks: tuple[Block, ...]
