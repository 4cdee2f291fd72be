"""Writer of PNML, as ISO/IEC 15909-2 has it: nodes on pages, and references for arcs between pages."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr

from gspc_trio.workflow.formats.pnml.model import PnmlArc, PnmlNet, PnmlNode
from gspc_trio.workflow.formats.pnml.tasks import NAMESPACE, TOOL
from gspc_trio.workflow.formats.xml_tree import Element, xml_text

NET_TYPE = "http://www.pnml.org/version-2009/grammar/ptnet"

WHOLE = f'    <toolspecific tool="{TOOL}" version="1">\n      <all/>\n    </toolspecific>\n'
"""Says that a page stands for the net itself: the standard wants each node on a page."""


class _Writer:
    def __init__(self, net: PnmlNet) -> None:
        self.net = net
        self.lines: list[str] = []
        self._ids = {net.id, *net.pages, *net.places, *net.transitions, *(arc.id for arc in net.arcs)}
        self._places: dict[str, list[PnmlNode]] = {}
        self._transitions: dict[str, list[PnmlNode]] = {}
        self._arcs: dict[str, list[PnmlArc]] = {}
        self._references: dict[str, dict[str, str]] = {}  # page -> place elsewhere -> id of the reference
        self._pages: dict[str, list[str]] = {}
        for page in net.pages.values():
            self._pages.setdefault(page.parent, []).append(page.id)
        for nodes, by_page in ((net.places, self._places), (net.transitions, self._transitions)):
            for node in nodes.values():
                by_page.setdefault(node.page, []).append(node)
        for arc in net.arcs:
            self._arcs.setdefault(self._page_of(arc), []).append(arc)

    def _page_of(self, arc: PnmlArc) -> str:
        """Return the page of the transition of an arc, where the arc is written."""
        place, transition = self._ends(arc)
        if place.page != transition.page:
            there = self._references.setdefault(transition.page, {})
            if place.id not in there:
                there[place.id] = self._new_id(f"{place.id}-on-{transition.page or 'top'}")
        return transition.page

    def _ends(self, arc: PnmlArc) -> tuple[PnmlNode, PnmlNode]:
        places, transitions = self.net.places, self.net.transitions
        if arc.source in places:
            return places[arc.source], transitions[arc.target]
        return places[arc.target], transitions[arc.source]

    def _new_id(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self._ids:
            number += 1
            name = f"{wanted}-{number}"
        self._ids.add(name)
        return name

    def write(self) -> str:
        net = self.net
        self._add('<?xml version="1.0" encoding="UTF-8"?>\n')
        self._add(f"<pnml xmlns={quoteattr(NAMESPACE)}>\n")
        self._add(f"  <net id={quoteattr(net.id)} type={quoteattr(NET_TYPE)}>\n")
        self._label("name", net.name, "    ")
        self._kept(net.kept, "    ")
        if self._places.get("") or self._transitions.get("") or not self._pages.get(""):
            self._add(f"    <page id={quoteattr(self._new_id('top'))}>\n")
            self._add(WHOLE.replace("    ", "      "))
            self._nodes("", "      ")
            self._add("    </page>\n")
        for page in self._pages.get("", ()):
            self._page(page, "    ")
        self._add("  </net>\n</pnml>\n")
        return "".join(self.lines)

    def _add(self, text: str) -> None:
        self.lines.append(text)

    def _label(self, tag: str, text: str, indent: str) -> None:
        if text:
            self._add(f"{indent}<{tag}><text>{escape(text)}</text></{tag}>\n")

    def _kept(self, elements: Iterable[Element], indent: str) -> None:
        for element in elements:
            self._add(xml_text(element, indent, NAMESPACE))

    def _page(self, name: str, indent: str) -> None:
        page = self.net.pages[name]
        self._add(f"{indent}<page id={quoteattr(name)}>\n")
        self._label("name", page.name, indent + "  ")
        self._kept(page.kept, indent + "  ")
        self._nodes(name, indent + "  ")
        for below in self._pages.get(name, ()):
            self._page(below, indent + "  ")
        self._add(f"{indent}</page>\n")

    def _nodes(self, page: str, indent: str) -> None:
        for place in self._places.get(page, ()):
            self._node("place", place, indent, "initialMarking", str(place.tokens or ""))
        for target, name in self._references.get(page, {}).items():
            self._add(f"{indent}<referencePlace id={quoteattr(name)} ref={quoteattr(target)}/>\n")
        for transition in self._transitions.get(page, ()):
            self._node("transition", transition, indent, "", "")
        for arc in self._arcs.get(page, ()):
            self._arc(arc, page, indent)

    def _node(self, tag: str, node: PnmlNode, indent: str, label: str, value: str) -> None:
        start = f"{indent}<{tag} id={quoteattr(node.id)}"
        if not (node.name or node.kept or value):
            self._add(f"{start}/>\n")
            return
        self._add(f"{start}>\n")
        self._label("name", node.name, indent + "  ")
        self._label(label, value, indent + "  ")
        self._kept(node.kept, indent + "  ")
        self._add(f"{indent}</{tag}>\n")

    def _arc(self, arc: PnmlArc, page: str, indent: str) -> None:
        references = self._references.get(page, {})
        source, target = references.get(arc.source, arc.source), references.get(arc.target, arc.target)
        ends = f"source={quoteattr(source)} target={quoteattr(target)}"
        start = f"{indent}<arc id={quoteattr(arc.id)} {ends}"
        if arc.weight == 1 and not arc.kept:
            self._add(f"{start}/>\n")
            return
        self._add(f"{start}>\n")
        self._label("inscription", "" if arc.weight == 1 else str(arc.weight), indent + "  ")
        self._kept(arc.kept, indent + "  ")
        self._add(f"{indent}</arc>\n")


def write_pnml(net: PnmlNet) -> str:
    """Return a net as the text of a PNML file, which reads back to the same net."""
    return _Writer(net).write()
