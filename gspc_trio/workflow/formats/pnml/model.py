"""A place/transition net as PNML has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field

from gspc_trio.workflow.formats.xml_tree import Element


class PnmlPage(Struct, eq=False):
    """A page: a part of a net.

    Attributes:
        id: unique in the file.
        name: for people, or "".
        parent: id of the page it is in, "" if that is the net itself.
        kept: its toolspecific and graphics elements.
    """

    id: str
    name: str = ""
    parent: str = ""
    kept: list[Element] = field(default_factory=list)


class PnmlNode(Struct, eq=False):
    """A place or a transition.

    Attributes:
        id: unique in the file.
        name: for people, or "".
        page: id of the page it is in, "" if that is the net itself.
        tokens: of a place: how many are there at the beginning.
        line, column: where it is written.
        kept: its toolspecific and graphics elements.
    """

    id: str
    name: str = ""
    page: str = ""
    tokens: int = 0
    line: int = 0
    column: int = 0
    kept: list[Element] = field(default_factory=list)


class PnmlArc(Struct, eq=False):
    """An arc; references are resolved.

    Attributes:
        id: unique in the file.
        source, target: a place and a transition, or a transition and a place.
        weight: how many tokens go along it.
        line, column: where it is written.
        kept: its toolspecific and graphics elements.
    """

    id: str
    source: str
    target: str
    weight: int = 1
    line: int = 0
    column: int = 0
    kept: list[Element] = field(default_factory=list)


class PnmlNet(Struct, eq=False):
    """A net.

    Attributes:
        id: unique in the file.
        name: for people, or "".
        pages, places, transitions: id -> each.
        arcs: all arcs.
        kept: its toolspecific and graphics elements.
    """

    id: str
    name: str = ""
    pages: dict[str, PnmlPage] = field(default_factory=dict)
    places: dict[str, PnmlNode] = field(default_factory=dict)
    transitions: dict[str, PnmlNode] = field(default_factory=dict)
    arcs: list[PnmlArc] = field(default_factory=list)
    kept: list[Element] = field(default_factory=list)

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

    That is the name in the file, or the id where there is none; of several nodes with one name each has its
    id behind it.
    """
    nodes = list(nodes)
    count = Counter(node.name or node.id for node in nodes)
    names: dict[str, str] = {}
    taken: set[str] = set(count)
    for node in nodes:
        name = node.name or node.id
        if count[name] > 1:
            name = f"{name} ({node.id})"
            while name in taken:
                name += "'"
            taken.add(name)
        names[node.id] = name
    return names
