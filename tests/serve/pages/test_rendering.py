"""Pages escape what they show, miss nothing, and are served with strict headers."""

import pytest
from jinja2 import UndefinedError

from dubito.serve.pages.rendering import _environment, see, text_of
from dubito.serve.refusals import RefusedError
from tests.serve.pages.conftest import Person


def test_what_is_shown_is_escaped_and_never_missing() -> None:
    template = _environment().from_string("{{ name }}")
    assert template.render(name="<b>") == "&lt;b&gt;"
    with pytest.raises(UndefinedError):
        template.render()


def test_refusals_are_pages() -> None:
    words = _environment().get_template("refused.html.j2")
    error = RefusedError(403, "No <way>", "another")
    page = words.render(error=error, csrf="", path="/x", reader=None)
    assert "No &lt;way&gt;. Try another." in page


def test_redirects_make_a_reload_harmless() -> None:
    assert see("/review").status_code == 303


def test_headers_are_strict_and_nothing_comes_from_elsewhere(anna: Person) -> None:
    for address in ("/sign-in", "/review", "/monitor"):
        answer = anna.ask("GET", address)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert "http" not in answer.text.split("<main")[0]
        assert " style=" not in answer.text
        assert " onclick" not in answer.text
    assert "keydown" in text_of("dubito.serve.pages", "review.js")
