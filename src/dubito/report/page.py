"""From sections to one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from dubito.report.blocks import Section, Verdict

ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render(
    title: str,
    verdict: Verdict,
    sections: Sequence[Section],
    *,
    kicker: str = "Confidence report",
    data: Mapping[str, Any] | None = None,
) -> str:
    """Return a whole page: the verdict, then sections; `data` is what its script computes with.

    Everything is escaped but `Markup`. The page forbids itself any request and any script but its
    own.

    >>> page = render("<b>", Verdict("Fine.", ()), [])
    >>> "<title>&lt;b&gt;</title>" in page
    True
    """
    script = _asset("report.js")
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            title=title,
            kicker=kicker,
            verdict=verdict,
            sections=sections,
            style=Markup(_asset("style.css")),
            script=Markup(script),
            script_hash=hashed,
            data=None if data is None else _in_script(data),
        )
    )


def fragment(template: str, **values: Any) -> Markup:
    """Return a part of a page that has a template of its own."""
    return Markup(_environment().get_template(template).render(values))


def _in_script(data: Mapping[str, Any]) -> Markup:
    """Return data as JSON that nothing in it can end or turn into markup."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return Markup(text)


def _asset(name: str) -> str:
    """Return the text of a file beside the templates."""
    folder = resources.files("dubito.report").joinpath("templates")
    return folder.joinpath(name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    """Return where templates come from; every value is escaped, and none may be missing."""
    return Environment(
        loader=PackageLoader("dubito.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
