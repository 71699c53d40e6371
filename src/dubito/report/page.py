"""One self-contained HTML file from sections: no network, no other files."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dubito.formatting import cost, keep_percent_signs, percent
from dubito.report.content import Section, Verdict

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
    >>> page = render("<b>", Verdict("Fine.", ()), [])
    >>> "<title>&lt;b&gt;</title>" in page
    True
    """
    script = _asset("report.js")
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    return (
        environment("dubito.report")
        .get_template("page.html.j2")
        .render(
            title=title,
            kicker=kicker,
            verdict=verdict,
            sections=sections,
            style=Markup(_asset("style.css")),
            script=Markup(script),
            script_hash=hashed,
            data=None if data is None else _script_json(data),
        )
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
