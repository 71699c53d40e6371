"""The content of a page, sections of blocks, and its rendering as one self-contained HTML file.

All text in blocks is escaped when rendered; the file needs no network and no other files.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, TypeVar, final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dubito.charts import Chart
from dubito.formatting import cost, decimal, keep_percent_signs, percent
from dubito.measure import Interval
from dubito.report.svg import draw_svg

Item = TypeVar("Item")
Column = tuple[str, Callable[[Item], str]]  # a name, and the cell of an item


@final
@dataclass(frozen=True, slots=True)
class Verdict:
    """The conclusion of a page.

    Parameters
    ----------
    headline : str
        A few words.
    sentences : tuple of str
        Paragraphs below the headline.
    mood : {"good", "bad", "neutral"}, default "neutral"
        The color of the box.

    Examples
    --------
    >>> from dubito.report import Verdict
    >>> Verdict("Over-confident.", ("Mean confidence 95 %, accuracy 87 %.",), "bad").headline
    'Over-confident.'
    """

    headline: str
    sentences: tuple[str, ...]
    mood: str = "neutral"

    @property
    def text(self) -> str:
        """The headline and the sentences."""
        return " ".join([self.headline, *self.sentences])


class BaseBlock:
    """A part of a section, which a template shows by its kind."""

    __slots__ = ()

    @property
    def kind(self) -> str:
        """The name of the class, in lower case."""
        return type(self).__name__.lower()


@final
@dataclass(frozen=True, slots=True)
class Text(BaseBlock):
    """A paragraph."""

    text: str


@final
@dataclass(frozen=True, slots=True)
class Card:
    """A key metric: its name, its value, and a note to compare it with."""

    name: str
    value: str
    note: str = ""

    @classmethod
    def of(cls, name: str, estimate: Interval, shown: Callable[[float], str] = decimal) -> Card:
        """Return an estimate with its 95 % interval."""
        return cls(name, shown(estimate.value), between(estimate, shown))


@final
@dataclass(frozen=True, slots=True)
class Cards(BaseBlock):
    """Key metrics side by side."""

    cards: tuple[Card, ...]


@final
@dataclass(frozen=True, slots=True)
class Table(BaseBlock):
    """Cells below named columns; the first column names the row.

    Columns in `texts` are left-aligned text; all others are right-aligned numbers. `heat` colors
    the cells of each row, from 0 for good to 5 for bad.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = (0,)
    heat: tuple[tuple[int, ...], ...] = ()

    @classmethod
    def of(
        cls,
        caption: str,
        items: Iterable[Item],
        *columns: Column[Item],
        texts: tuple[int, ...] = (0,),
    ) -> Table:
        """Return a table with a row per item.

        >>> Table.of("Squares", [2, 3], ("number", str), ("square", lambda k: str(k * k))).rows
        (('2', '4'), ('3', '9'))
        """
        rows = tuple(tuple(cell(item) for _, cell in columns) for item in items)
        return cls(caption, tuple(name for name, _ in columns), rows, texts)


@final
@dataclass(frozen=True, slots=True)
class Figure(BaseBlock):
    """Charts with a title, a caption, a legend and the numbers behind them.

    `anchor` is the id by which scripts find the figure.
    """

    title: str
    charts: tuple[Chart, ...]
    caption: str
    table: Table | None = None
    anchor: str = ""

    @property
    def drawings(self) -> tuple[Markup, ...]:
        """The charts as SVG."""
        return tuple(draw_svg(chart) for chart in self.charts)

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        """The style and label of each entry of the legend."""
        return tuple(dict.fromkeys(entry for chart in self.charts for entry in chart.legend))


@final
@dataclass(frozen=True, slots=True)
class Row(BaseBlock):
    """Blocks side by side where there is room, as small multiples if `is_small`."""

    blocks: tuple[Block, ...]
    is_small: bool = False


@final
@dataclass(frozen=True, slots=True)
class Choice(BaseBlock):
    """Blocks of which one is selected on the page; without a script, the first is shown."""

    label: str
    options: tuple[tuple[str, Block], ...]


@final
@dataclass(frozen=True, slots=True)
class Facts(BaseBlock):
    """Pairs of a name and a description."""

    pairs: tuple[tuple[str, str], ...]


@final
@dataclass(frozen=True, slots=True)
class Code(BaseBlock):
    """A command or code."""

    text: str


Block = Text | Cards | Table | Figure | Row | Choice | Facts | Code | Markup


@final
@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page.

    Parameters
    ----------
    anchor : str
        The id of the section in links.
    title : str
        The heading.
    blocks : tuple
        Paragraphs, tables, figures and other blocks of `dubito.report.content`.
    is_detail : bool, default False
        Whether the section is left out in print.
    is_collapsed : bool, default False
        Whether only its heading is shown at first.

    Examples
    --------
    >>> from dubito.report import Section
    >>> from dubito.report.content import Text
    >>> Section("notes", "Notes", (Text("All rows are from May."),)).title
    'Notes'
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]
    is_detail: bool = False
    is_collapsed: bool = False


def between(estimate: Interval | None, shown: Callable[[float], str] = decimal) -> str:
    """Return the ends of a 95 % interval, nothing if there is none.

    >>> between(Interval(0.2, 0.1, 0.3)), between(None)
    ('95 % interval 0.1000 to 0.3000', '')
    """
    return f"95 % interval {shown(estimate.low)} to {shown(estimate.high)}" if estimate else ""


ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(
    title: str,
    verdict: Verdict,
    sections: Sequence[Section],
    *,
    kicker: str = "Confidence report",
    data: Mapping[str, Any] | None = None,
) -> str:
    """Return a whole HTML page: the verdict, then the sections.

    All text is escaped except `Markup`. The content security policy of the page forbids every
    request and every script but its own.

    Parameters
    ----------
    title : str
        The title of the page.
    verdict : Verdict
        The conclusion, shown first.
    sections : sequence of Section
        The parts of the page.
    kicker : str, default "Confidence report"
        A few words beside the logo.
    data : mapping, optional
        JSON data for the page's script.

    Returns
    -------
    str
        The HTML.

    Examples
    --------
    >>> from dubito.report import Verdict, render
    >>> page = render("<b>", Verdict("Fine.", ()), [])
    >>> "<title>&lt;b&gt;</title>" in page
    True
    """
    script = _asset("report.js")
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    template = environment("dubito.report").get_template("page.html.j2")
    return template.render(
        title=title,
        kicker=kicker,
        verdict=verdict,
        sections=sections,
        style=Markup(_asset("style.css")),
        script=Markup(script),
        script_hash=hashed,
        data=None if data is None else _script_json(data),
    )


def fragment(template: str, **values: Any) -> Markup:
    """Return a rendered template as part of a page."""
    return Markup(environment("dubito.report").get_template(template).render(values))


def _script_json(data: Mapping[str, Any]) -> Markup:
    """Return data as JSON that cannot end the script element or become markup."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)


def _asset(name: str) -> str:
    """Return the content of a file in the template directory."""
    folder = resources.files("dubito.report").joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


@cache
def environment(*packages: str) -> Environment:
    """Return the templates of packages: values are escaped, undefined ones raise an error."""
    found = Environment(
        loader=ChoiceLoader([PackageLoader(package, "templates") for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: keep_percent_signs(value) if type(value) is str else value,
    )
    found.filters |= {"percent": percent, "cost": lambda value: cost(value)[0]}
    return found
