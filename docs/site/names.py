"""Python names of docs/api.md: the search finds them, and other pages lead to them.

A class or function is a heading there, a method or property an item of the list below the words "Methods and
properties:". Code in a text that is such a name, as `Executor` or `open_rts()`, becomes a link.
"""

from __future__ import annotations

import re
from typing import Any, cast

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.domains.python import PythonDomain

PAGE = "api"
HEADING = re.compile(r"(\w+)(?: \(([\w.]+)\))?")
"""A name, and its module if that is another than the package."""

CALLED = re.compile(r"(?:async with |await )?(\w+)(?:\(.*\))?", re.DOTALL)
"""A method or property, as the page writes it."""

MENTIONED = re.compile(r"((?:\w+\.)?\w+)(?:\((?:\.\.\.)?\))?")
"""A name in a text, with or without parentheses."""


def note_names(app: Sphinx, doctree: nodes.document) -> None:
    """Tell the search of the names on the page of the API, and give methods a place to link to."""
    if app.env.docname != PAGE:
        return
    domain = cast(PythonDomain, app.env.get_domain("py"))
    for section in doctree.findall(nodes.section):
        title = section.next_node(nodes.title)
        found = HEADING.fullmatch(title.astext()) if title else None
        if not found or not isinstance(section.parent, nodes.section):
            continue
        if not isinstance(section.parent.parent, nodes.section):  # a heading of several names
            continue
        name = f"{found[2] or 'gspc_trio'}.{found[1]}"
        domain.note_object(
            name, "class" if found[1][0].isupper() else "function", section["ids"][0], location=section
        )
        for item in methods(section):
            called = CALLED.fullmatch(item[0][0].astext())
            if called is not None:
                place = f"{found[1]}.{called[1]}"
                item["ids"].append(place)
                domain.note_object(f"{name}.{called[1]}", "method", place, location=item)


def methods(section: nodes.section) -> list[nodes.list_item]:
    """Return the items of a class that are methods and properties."""
    items: list[nodes.list_item] = []
    for before, after in zip(section.children, section.children[1:], strict=False):
        if before.astext() == "Methods and properties:" and isinstance(after, nodes.bullet_list):
            items += [one for one in after.children if isinstance(one, nodes.list_item)]
    return items


def link_names(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Lead code in texts that is a public name to the page of the API."""
    if page == PAGE:
        return
    domain = cast(PythonDomain, app.env.get_domain("py"))
    for literal in list(doctree.findall(nodes.literal)):
        found = MENTIONED.fullmatch(literal.astext())
        entry = domain.objects.get(f"gspc_trio.{found[1]}") if found else None
        if entry is None or is_within_link(literal):
            continue
        address = f"{app.builder.get_relative_uri(page, PAGE)}#{entry.node_id}"
        link = nodes.reference("", "", literal.deepcopy(), internal=True, refuri=address)
        literal.replace_self(link)


def is_within_link(node: nodes.Node) -> bool:
    """Whether a node is in a link or a heading."""
    above: nodes.Node | None = node.parent
    while above is not None:
        if isinstance(above, nodes.reference | nodes.title):
            return True
        above = above.parent
    return False


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx what to call."""
    app.connect("doctree-read", note_names)
    app.connect("doctree-resolved", link_names)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
