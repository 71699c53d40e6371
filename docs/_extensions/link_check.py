"""After the build: every internal link of every page leads somewhere, and nothing is fetched.

A broken link is a warning, so that -W makes it an error.
"""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)


class _Page(HTMLParser):
    """The ids and the links of a page, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                is_loaded = name == "src" or (tag == "link" and ("rel", "stylesheet") in attrs)
                (self.loads if is_loaded else self.links).add(value)


def check_links(app: Sphinx, error: Exception | None) -> None:
    """Warn about links to missing pages and anchors, and about anything from elsewhere."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    pages = {
        path: _Page(path.read_text())
        for path in folder.rglob("*.html")
        if path.parent.name != "_static"
    }
    n_links = 0
    for path, page in pages.items():
        shown = path.relative_to(folder)
        for link in page.links | page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loads and parts.scheme != "data":
                    LOGGER.warning("%s loads %s, which needs a network.", shown, link)
                continue
            n_links += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                LOGGER.warning("%s links to %s, which does not exist.", shown, link)
            elif target in pages and unquote(parts.fragment) not in {"", *pages[target].ids}:
                LOGGER.warning("%s links to %s, which has no such anchor.", shown, link)
    LOGGER.info("%d internal links of %d pages lead somewhere", n_links, len(pages))


def setup(app: Sphinx) -> dict[str, bool]:
    """Check after everything is written."""
    app.connect("build-finished", check_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
