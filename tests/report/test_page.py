"""One self-contained file, in which no input can become markup or script."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from dubito.charts import Axis, Chart, Points
from dubito.report import Section, Verdict, render
from dubito.report.content import (
    Card,
    Cards,
    Choice,
    Code,
    Facts,
    Figure,
    Row,
    Table,
    Text,
    _script_json,
    fragment,
)


def page_of(text: str, data: object = None) -> str:
    table = Table(text, (text, text), ((text, text),))
    axes = Axis(0, 1, text), Axis(0, 1, text)
    chart = Chart(text, *axes, (Points([0], [0], "after", text, hints=(text,)),))
    blocks = (
        Text(text),
        Cards((Card(text, text, text),)),
        table,
        Choice(
            text,
            (
                (
                    text,
                    Row((Figure(text, (chart,), text, table),)),
                ),
            ),
        ),
        Facts(((text, text),)),
        Code(text),
    )
    section = Section("part", text, blocks)
    return render(text, Verdict(text, (text,)), [section], kicker=text, data={"given": data})


class Elements(HTMLParser):
    """The elements of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)


@given(
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)
    | st.sampled_from(
        [
            "<script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "</title><b>",
            "' onclick='x",
            "{{ 7 * 7 }}",
        ]
    )
)
def test_no_text_changes_what_elements_there_are(text: str) -> None:
    assert Elements(page_of(text, text)).tags == Elements(page_of("plain", "plain")).tags


@given(st.text(st.characters(codec="utf-8")))
def test_data_round_trip_and_cannot_end_the_script(text: str) -> None:
    written = str(_script_json({"name": text}))
    assert json.loads(written) == {"name": text}
    assert not re.search("[<>&\u2028\u2029]", written)


def test_only_its_own_script_may_run_and_nothing_is_requested() -> None:
    page = page_of("plain")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    script = re.search(r"<script>(.*)</script>\n</body>", page, re.DOTALL)
    assert policy is not None
    assert script is not None
    digest = b64encode(sha256(script[1].encode()).digest()).decode()
    rules = policy[1].split("; ")
    assert rules[0] == "default-src 'none'"
    assert f"script-src 'sha256-{digest}'" in rules
    assert not re.search(r"(src|href)=\"(?!data:|#)", page)


def test_a_page_without_data_has_no_data_element() -> None:
    assert 'id="data"' not in render("title", Verdict("Fine.", ()), [])


def test_fragments_escape_too() -> None:
    settings = {"threshold": "0", "classes": ["<b>"], "actions": [], "costs": [], "reject": 0}
    assert "&lt;b&gt;" in fragment("decisions.html.j2", **settings, n=1, outcomes={})
