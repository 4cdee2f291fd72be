"""What the site has that the pages do not: navigation, files of the repository, drawn diagrams.

The pages stay plain Markdown that git hosts show as well. The navigation is the list of pages in
docs/README.md, so a page that is not in it fails the build. Links to files outside
of docs lead to pages that show them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from diagrams import drawing_of_mermaid
from docutils import nodes
from docutils.core import publish_parts
from myst_parser.docutils_ import Parser
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from sphinx.application import Sphinx
from sphinx.util import logging

from gspc_trio.workflow.formats.svg import svg_of

LIST = "README"
"""The page that lists all others."""

LINK = re.compile(r"\]\((?!\w+:|#)([\w./-]+)(?:#[\w-]+)?\)")
"""A link to a file, seen from the page."""

TO_PAGE = re.compile(r"\[([^\[\]]+)\]\(([\w/-]+)\.md\)")

SCHEME = "site"
"""Of addresses that are made here, from the page on, for which the parser is not to look."""

ADDRESSES = {"http": None, "https": None, SCHEME: {"url": "{{path}}"}}
LEAST_SHARE = 0.65
"""Of its size to which a picture is made smaller."""

logger = logging.getLogger(__name__)


def navigation(text: str) -> str:
    """Return the list of pages as tables of contents, one for each of its headings."""
    parts = ["", "```{toctree}", ":hidden:", "", f"All pages <{LIST}>", "```"]
    for section in text.split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        pages = [f"{name} <{page}>" for name, page in TO_PAGE.findall(body)]
        parts += ["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```"]
    return "\n".join(parts)


def complete(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the navigation to the first page, and lead links to files of the repository to pages."""
    if page == app.config.root_doc:
        source[0] += navigation((Path(app.srcdir) / f"{LIST}.md").read_text(encoding="utf-8"))
    source[0] = with_files(app, source[0], Path(app.env.doc2path(page)), "../" * page.count("/"))


def with_files(app: Sphinx, text: str, file: Path, top: str) -> str:
    """Return a text of which links to files of the repository lead to pages that show them.

    Args:
        app: the program that makes the site.
        text: what is written.
        file: where it is written.
        top: the way from its page to the top of the site.
    """
    docs = Path(app.srcdir)

    def lead(link: re.Match[str]) -> str:
        path = Path(os.path.normpath(file.parent / link[1]))
        is_page = path.is_relative_to(docs)
        if is_page and file.is_relative_to(docs):
            return link[0]  # which the parser knows
        if not path.is_file() or not path.is_relative_to(docs.parent):
            line = text.count("\n", 0, link.start()) + 1
            logger.warning("there is no file %s", link[1], location=f"{file}:{line}")
            return link[0]
        if is_page:
            return f"]({SCHEME}:{top}{path.relative_to(docs).with_suffix('.html').as_posix()})"
        shown = path.relative_to(docs.parent).as_posix()
        files_of(app).add(shown)
        return f"]({SCHEME}:{top}files/{shown}.html)"

    return LINK.sub(lead, text)


def files_of(app: Sphinx) -> set[str]:
    """Return the paths of files that pages link to."""
    found: set[str] = app.env.__dict__.setdefault("gspc_files", set())
    return found


def file_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Return a page for each file of the repository that is linked to."""
    root = Path(app.srcdir).parent
    told: set[str] = set()
    while more := sorted(files_of(app) - told):
        for path in more:
            told.add(path)
            yield f"files/{path}", {"title": path, "body": file_body(app, root / path)}, "page.html"


def file_body(app: Sphinx, path: Path) -> str:
    """Return what the page of a file shows."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(Path(app.srcdir).parent)
    if path.suffix == ".md":
        text = with_files(app, text, path, "../" * len(name.parts))
        options = {"myst_url_schemes": ADDRESSES, "doctitle_xform": False, "initial_header_level": 1}
        return str(
            publish_parts(text, parser=Parser(), writer="html5", settings_overrides=options)["html_body"]
        )
    shown = highlight(text, get_lexer_for_filename(path.name), HtmlFormatter(cssclass="highlight"))
    return f"<h1>{escape(name.as_posix())}</h1>\n{shown}"


def narrower(picture: str) -> str:
    """Return a picture that is no wider than the page if it can be read then; else it scrolls."""
    size = re.search(r' width="(\d+)"', picture)
    assert size is not None
    return picture.replace("<svg ", f'<svg style="min-width: {LEAST_SHARE * int(size[1]):.0f}px" ', 1)


def draw(_: Sphinx, doctree: nodes.document) -> None:
    """Replace diagrams that are written for Mermaid by pictures: the browser needs no script for them."""
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") != "mermaid":
            continue
        try:
            picture = narrower(svg_of(drawing_of_mermaid(block.astext())))
        except ValueError as error:
            logger.warning("%s", error, location=block)
            picture = ""
        block.replace_self(nodes.raw("", f'<div class="diagram">{picture}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx what to call."""
    app.config.myst_url_schemes = ADDRESSES
    app.connect("source-read", complete)
    app.connect("doctree-read", draw)
    app.connect("html-collect-pages", file_pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
