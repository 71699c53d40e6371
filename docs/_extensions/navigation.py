"""The navigation: which pages belong to which section, and which pictures are plots.

Pages are plain Markdown that also reads well in the repository, so the tables of contents that
Sphinx needs are added here.
"""

import re
from pathlib import Path

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

GUIDE = [
    ("Measure", "guide/measure"),
    ("Calibrate", "guide/calibrate"),
    ("Doubt", "guide/doubt"),
    ("Decide", "guide/decide"),
    ("The policy", "guide/policy"),
    ("Learn (PyTorch)", "pytorch"),
    ("Monitor", "guide/monitor"),
    ("Serve", "serve"),
    ("Scale", "scaling"),
    ("Reports and plots", "guide/report"),
    ("Files", "guide/files"),
    ("Regression on the command line", "guide/regression"),
]
TASKS = [
    ("From a fraud model to decisions", "fraud"),
    ("Many findings per image", "multilabel"),
    ("Sets of a classifier", "sets"),
    ("Intervals of a price model", "intervals"),
    ("Weekly forecasts", "forecasts"),
    ("When to pay for the larger model", "cascade"),
    ("When to trust an answer", "answers"),
    ("A fraud team of five", "team"),
    ("Longer scripts", "scripts"),
]

# Plots beside those of the studies, and figures of the studies that show images.
PLOTS = ("pictures/rays.png", "pictures/patterns.png")
STUDY = "Figures of the study"  # the text of its only picture
IMAGES = ("studies/segmentation.png", "studies/softmax_ood.png")


def _toctree(entries: list[str], caption: str = "") -> str:
    options = ":hidden:\n" + (f":caption: {caption}\n" if caption else "")
    return f"\n\n```{{toctree}}\n{options}\n" + "\n".join(entries) + "\n```\n"


def _file_name(link: re.Match[str]) -> str:
    """Return the text of a link with the file that it led to."""
    text, path = link[1], link[2]
    return f"`{path}`" if path in text else f"{text} (`{path}`)"


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Append the table of contents of a section to its first page; title the tables of studies.

    A link to a file of the repository that is not a page becomes the name of that file.
    """
    docs = Path(app.srcdir)
    up = "../" * (docname.count("/") + 1)
    source[0] = re.sub(rf"\[([^]]+)\]\({re.escape(up)}(?!\.)([^)#]+)[^)]*\)", _file_name, source[0])
    if docname.startswith("studies/") and docname != "studies/README":
        name = docname.removeprefix("studies/")
        picture = f"![{STUDY}]({name}.png)\n\n"
        has_picture = (docs / f"{docname}.png").exists()
        title = f"# {name.replace('_', ' ').capitalize().replace(' ood', ' OOD')}\n\n"
        source[0] = title + (picture if has_picture else "") + source[0]
    if docname == "guide":
        pages, tasks = ([f"{title} </{page}>" for title, page in part] for part in (GUIDE, TASKS))
        placed = {page for _, page in GUIDE + TASKS} | {"index", "start", "guide", "glossary"}
        placed |= {"architecture", "command_line", "literature", "three_roads"}
        # A page that nobody has placed yet is a page of the guide.
        others = sorted(path.stem for path in docs.glob("*.md") if path.stem not in placed)
        others += sorted(f"guide/{path.stem}" for path in docs.glob("guide/*.md"))
        tasks += [f"/{page}" for page in others if page not in placed]
        source[0] += _toctree(pages, "By question") + _toctree(tasks, "Whole tasks")
    elif docname == "benchmarks/README":
        files = sorted(path.name for path in docs.glob("benchmarks/*.txt"))
        others = [name for name in files if f"{{printed}} {name}" not in source[0]]
        blocks = [f"\n\n```{{printed}} {name}\n```" for name in others]
        source[0] += "\n\n## More" + "".join(blocks) + "\n" if others else ""
    elif docname in ("studies/README", "decisions/README"):
        folder = docs / Path(docname).parent
        pages = sorted(path.stem for path in folder.glob("*.md") if path.stem != "README")
        more = ["/three_roads"] if docname.startswith("studies") else []
        source[0] += _toctree(pages + more)


def add_captions(app: Sphinx, doctree: nodes.document) -> None:
    """Make a picture in a paragraph of its own a figure, whose caption is the text of its link."""
    if app.env.docname.startswith("gallery/"):
        return
    for number, image in enumerate(list(doctree.findall(nodes.image)), 1):
        text, parent = image.get("alt", ""), image.parent
        is_alone = isinstance(parent, nodes.paragraph) and len(parent) == 1
        if is_alone and text and text != STUDY:
            caption = nodes.caption(text, text)
            figure = nodes.figure("", image.deepcopy(), caption, ids=[f"figure-{number}"])
            parent.replace_self(figure)


def make_room(app: Sphinx, _doctree: nodes.document) -> None:
    """Leave the table of contents out beside scripts of the gallery, whose code needs the room."""
    if app.env.docname.startswith("gallery/"):
        app.env.metadata[app.env.docname]["html_theme.sidebar_secondary.remove"] = "true"


def mark_plots(_app: Sphinx, doctree: nodes.document) -> None:
    """Give plots a class, by which the dark theme darkens them."""
    for image in doctree.findall(nodes.image):
        path = image["uri"]
        if path in PLOTS or (path.startswith("studies/") and path not in IMAGES):
            image["classes"].append("plot")


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the contents."""
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", add_contents)
    app.connect("doctree-read", add_captions)
    app.connect("doctree-read", mark_plots)
    app.connect("doctree-read", make_room)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
