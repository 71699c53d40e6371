"""Pages escape their values and are served with security headers."""

import pytest
from jinja2 import UndefinedError

from dubito.serve.http_errors import HTTPError
from dubito.serve.pages.rendering import _TEMPLATES, _read, redirect
from tests.serve.pages.conftest import Person


def test_values_are_escaped_and_must_be_defined() -> None:
    template = _TEMPLATES.from_string("{{ name }}")
    assert template.render(name="<b>") == "&lt;b&gt;"
    with pytest.raises(UndefinedError):
        template.render()


def test_errors_are_pages() -> None:
    words = _TEMPLATES.get_template("error.html.j2")
    error = HTTPError(403, "No <way>", "Try another")
    page = words.render(error=error, csrf="", path="/x", user=None)
    assert "No &lt;way&gt;. Try another." in page


def test_redirects_make_a_reload_harmless() -> None:
    assert redirect("/review").status_code == 303


def test_headers_are_strict_and_nothing_comes_from_elsewhere(anna: Person) -> None:
    for address in ("/sign-in", "/review", "/monitor"):
        answer = anna.ask("GET", address)
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-frame-options"] == "DENY"
        assert "http" not in answer.text.split("<main")[0]
        assert " style=" not in answer.text
        assert " onclick" not in answer.text
    assert "keydown" in _read("dubito.serve.pages", "review.js")


@pytest.mark.slow
def test_style_and_script_are_served(anna: Person) -> None:
    anna.cookie = ""
    style = anna.ask("GET", "/pages/style.css")
    assert style.headers["content-type"].startswith("text/css")
    assert "--paper" in style.text  # of reports
    assert ".choices" in style.text  # of pages
    script = anna.ask("GET", "/pages/review.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "data-key" in script.text
