"""Sphinx configuration: `make docs` builds the site into build/docs, offline and with -W."""

import os
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS / "_extensions"), str(DOCS.parent / "src")]
os.environ.setdefault("MPLBACKEND", "agg")

from numba.core import event  # noqa: E402

import dubito  # noqa: E402
from dubito.kernels.compile import NOTICE  # noqa: E402

# The pages of the gallery show what scripts print, on both streams. Which kernels had to be
# compiled depends on the machine, so it is not shown.
event.unregister("numba:compile", NOTICE)

project = "dubito"
author = "the dubito authors"
version = release = dubito.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "api_pages",
    "command_line",
    "glossary_page",
    "benchmark_plots",
    "link_check",
    "navigation",
]
exclude_patterns = ["_extensions", "gallery/**/*.ipynb", "serve/Containerfile"]
# Single backticks in docstrings link to what they name, where it is public.
default_role = "py:obj"
highlight_language = "none"
toc_object_entries_show_parents = "hide"

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings describe the parameters
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "within_subsection_order": "gallery_order.TaskOrder",
    "backreferences_dir": "api/backreferences",
    "doc_module": ("dubito",),
    "reference_url": {"dubito": None},
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "matplotlib_animations": False,
    "write_computation_times": False,
    "show_api_usage": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "dubito"
templates_path = ["_templates"]
html_static_path = ["_static"]
html_css_files = ["dubito.css"]
html_js_files = ["copy.js"]
html_favicon = "_static/favicon.svg"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "dubito"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "navigation_depth": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "search_as_you_type": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {
    "index": [],
    "start": [],
    "glossary": [],
    "command_line": [],
    "architecture": [],
    "literature": [],
    "benchmarks/README": [],
}
copyright = "the dubito authors, MIT license"  # noqa: A001
