"""Sphinx builds the site from the pages as they are: `make docs`.

The README is the first page. Links to files of the repository lead to copies of these files.
"""

import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import dpa  # noqa: E402
from dpa._util.version import VERSION  # noqa: E402

for each in dpa.__all__:  # they are imported when first used, and Sphinx finds what is imported
    getattr(dpa, each)

project = "dpa"
version = release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = ["*.md", "docs/*.md", "docs/site/api.rst", "experiments/results/*.md"]

myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_default_options = {"members": True}
napoleon_use_ivar = True
default_role = "code"

html_theme = "furo"
html_title = "dpa"
html_copy_source = False

CONTENTS = {
    "Write a job": (
        "tutorial",
        "install",
        "flows",
        "job-files",
        "executors",
        "streams",
        "sessions",
        "from-polars-or-spark",
    ),
    "Run it": (
        "command",
        "report",
        "runs",
        "metrics",
        "balancing",
        "groupings",
        "debugging",
        "dead-letters",
        "checkpoints",
        "recovery",
        "memory",
    ),
    "On a cluster": ("cluster", "production", "door", "changing-tasks", "placement", "security"),
    "Look things up": ("site/api", "guarantees", "results", "design"),
}
"""The pages of `docs` by title: a new page needs a place here."""


def as_page(app: Sphinx, page: str, text: list[str]) -> None:
    """Give the first page its contents, and take out what only a listing of the repository can show."""
    if page == root_doc:
        for title, pages in CONTENTS.items():
            text[0] += _contents(title, *(f"/docs/{name}" for name in pages))
        text[0] += _contents("This project", "/CHANGELOG", "/CONTRIBUTING")
    if page == "docs/results":
        text[0] += _contents("Results", "/experiments/results/*")
    here = (ROOT / page).parent
    for link, shown, target in re.findall(r"(\[([^\]]*)\]\(([^)\s:]+)\))", text[0]):
        if (here / target).is_dir():
            text[0] = text[0].replace(link, shown)


def _contents(title: str, *pages: str) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", ":glob:", f":caption: {title}", *pages, "```", ""])


def as_plain(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Leave of a docstring's markup only code between backticks."""
    parts = re.split(r"(`[^`]+`)", "\n".join(lines))
    text = "".join(part if part.startswith("`") else re.sub(r"([*|_\\])", r"\\\1", part) for part in parts)
    lines[:] = text.split("\n")


def with_index(app: Sphinx, error: Exception | None) -> None:
    """Have the directory itself show the first page."""
    Path(app.outdir, "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={root_doc}.html">')


def setup(app: Sphinx) -> None:
    """Connect these to Sphinx."""
    app.add_lexer("csv", TextLexer)
    app.connect("build-finished", with_index)
    app.connect("source-read", as_page)
    app.connect("autodoc-process-docstring", as_plain, priority=100)  # before Napoleon finds sections
