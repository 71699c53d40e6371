"""The glossary, from the entries that `dubito explain` prints, and its terms in the search.

Each entry leads the search for its term and its other names to the page that explains it.
"""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ENTRIES = Path(__file__).parents[2] / "src" / "dubito" / "cli" / "glossary.json"


def read_entries() -> list[dict[str, Any]]:
    """Return the entries, by term."""
    entries: list[dict[str, Any]] = json.loads(ENTRIES.read_text())
    return sorted(entries, key=lambda entry: entry["term"].lower())


def _document(page: str) -> str:
    """Return the document of a page, as Sphinx calls it."""
    return page.removeprefix("docs/").split("#")[0].removesuffix(".md")


class GlossaryDirective(SphinxDirective):
    """All entries: other names, the explanation, how to compute it, where to read."""

    def run(self) -> list[nodes.Node]:
        """Return one section per entry, so that each has a link of its own."""
        self.env.note_dependency(str(ENTRIES))
        return [self._section(entry) for entry in read_entries()]

    def _section(self, entry: dict[str, Any]) -> nodes.section:
        """Return the section of an entry."""
        section = nodes.section(ids=["term-" + nodes.make_id(entry["term"])], classes=["term"])
        section += nodes.title("", entry["term"])
        if entry["aliases"]:
            section += nodes.paragraph(
                "", "Also: " + ", ".join(entry["aliases"]) + ".", classes=["aliases"]
            )
        section += nodes.paragraph("", entry["text"])
        is_command = entry["use"].startswith("dubito ")
        use = nodes.literal_block(entry["use"], entry["use"])
        use["language"] = "console" if is_command else "python"
        section += use
        link = addnodes.pending_xref(
            "",
            refdomain="std",
            reftype="doc",
            reftarget="/" + _document(entry["page"]),
            refdoc=self.env.docname,
            refexplicit=False,
            refwarn=True,
        )
        link += nodes.inline("", "")
        section += nodes.paragraph("", "In the guide: ", link)
        return section


def add_terms(app: Sphinx, doctree: nodes.document) -> None:
    """Enter the terms of a page into the index, which the search ranks first."""
    docname = app.env.docname
    names = [
        name
        for entry in read_entries()
        if _document(entry["page"]) == docname
        for name in (entry["term"], *entry["aliases"], *_without_hyphens(entry))
    ]
    if names:
        first = next(iter(doctree.findall(nodes.section)))
        entries = [("single", name, "", "main", None) for name in dict.fromkeys(names)]
        first.insert(0, addnodes.index(entries=entries))


def _without_hyphens(entry: dict[str, Any]) -> list[str]:
    """Return the names as they are typed, with spaces for hyphens."""
    return [name.replace("-", " ") for name in (entry["term"], *entry["aliases"]) if "-" in name]


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the directive and the index."""
    app.add_directive("terms", GlossaryDirective)
    app.connect("doctree-read", add_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
