"""A place/transition net as PNML has it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from gspc_trio.workflow.formats.xml_tree import Element


class PnmlPage(Struct, eq=False):
    """A page: a part of a net.

    Attributes:
        id: unique in the file.
        name: for people, or "".
        parent: id of the page it is in, "" if that is the net itself.
        tools: its toolspecific elements.
    """

    id: str
    name: str = ""
    parent: str = ""
    tools: list[Element] = field(default_factory=list)


class PnmlNode(Struct, eq=False):
    """A place or a transition.

    Attributes:
        id: unique in the file.
        name: for people, or "".
        page: id of the page it is in, "" if that is the net itself.
        tokens: of a place: how many are there at the beginning.
        line, column: where it is written.
        tools: its toolspecific elements.
    """

    id: str
    name: str = ""
    page: str = ""
    tokens: int = 0
    line: int = 0
    column: int = 0
    tools: list[Element] = field(default_factory=list)


class PnmlArc(Struct, eq=False):
    """An arc; references are resolved.

    Attributes:
        id: unique in the file.
        source, target: a place and a transition, or a transition and a place.
        weight: how many tokens go along it.
        line, column: where it is written.
        tools: its toolspecific elements.
    """

    id: str
    source: str
    target: str
    weight: int = 1
    line: int = 0
    column: int = 0
    tools: list[Element] = field(default_factory=list)


class PnmlNet(Struct, eq=False):
    """A net.

    Attributes:
        id: unique in the file.
        name: for people, or "".
        pages, places, transitions: id -> each.
        arcs: all arcs.
        tools: its toolspecific elements.
    """

    id: str
    name: str = ""
    pages: dict[str, PnmlPage] = field(default_factory=dict)
    places: dict[str, PnmlNode] = field(default_factory=dict)
    transitions: dict[str, PnmlNode] = field(default_factory=dict)
    arcs: list[PnmlArc] = field(default_factory=list)
    tools: list[Element] = field(default_factory=list)

    def group(self, node: PnmlNode) -> tuple[str, ...]:
        """Return the names of the pages around a node, the outermost first."""
        names: list[str] = []
        page = self.pages.get(node.page)
        while page is not None:
            names.append(page.name or page.id)
            page = self.pages.get(page.parent)
        return tuple(reversed(names))


def own_names(nodes: Iterable[PnmlNode]) -> dict[str, str]:
    """Return id -> name for places or transitions, with a name of its own for each.

    That is the name in the file. A node without a name has its id; of several with one name, or with a name
    that is the id of another, each has its id behind the name.
    """
    nodes = list(nodes)
    used: dict[str, int] = {}
    for node in nodes:
        for text in {node.name or node.id, node.id}:
            used[text] = used.get(text, 0) + 1
    names: dict[str, str] = {}
    taken: set[str] = set()
    for node in nodes:
        name = node.name or node.id
        if used[name] > 1 and name != node.id:
            name = f"{name} ({node.id})"
        while name in taken:
            name += "'"
        taken.add(name)
        names[node.id] = name
    return names
