"""The stylesheet and the script come from the service itself, without a token."""

from tests.serve.pages.conftest import Person


def test_style_and_script_are_served(anna: Person) -> None:
    anna.cookie = ""
    style = anna.ask("GET", "/pages/style.css")
    assert style.headers["content-type"].startswith("text/css")
    assert "--paper" in style.text  # of reports
    assert ".choices" in style.text  # of pages
    script = anna.ask("GET", "/pages/review.js")
    assert script.headers["content-type"].startswith("text/javascript")
    assert "data-key" in script.text
