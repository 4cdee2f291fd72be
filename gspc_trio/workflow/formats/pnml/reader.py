"""Reader of PNML: from a tree of XML to a net, in the dialects that tools write.

Those of ISO/IEC 15909-2, and of older tools that have no pages or no namespace, write numbers and names into
attributes (TAPAAL), or have ``value`` for ``text`` (PIPE).
"""

from __future__ import annotations

import re

from gspc_trio.core.similar import did_you_mean
from gspc_trio.workflow.formats.format import FormatError, Problem, Problems, Source
from gspc_trio.workflow.formats.pnml.model import PnmlArc, PnmlNet, PnmlNode, PnmlPage
from gspc_trio.workflow.formats.pnml.tasks import is_ours
from gspc_trio.workflow.formats.xml_tree import Element, parse_xml

TOKENS_MAX = 10_000_000
"""How many tokens a place may have at the beginning."""

WEIGHT_MAX = 1_000_000
"""Most tokens that go along an arc at once."""

_COLOURED_TYPES = ("highlevel", "symmetricnet", "hlpn", "hlcore", "pt-hlpng")
_COLOURED = {"hlinitialMarking", "hlinscription", "condition", "structure"}
_ARC_KINDS = {
    "inhibitor": "inhibitor arcs",
    "tapnInhibitor": "inhibitor arcs",
    "reset": "reset arcs",
    "transport": "transport arcs",
    "read": "read arcs",
    "test": "test arcs",
}
_NORMAL_KINDS = {"normal", "timed", ""}
_ALWAYS = {"[0,inf)", "[0,∞)"}
_UNLIMITED = {"< inf", "<inf", ""}
_KEPT = ("toolspecific", "graphics")
_KNOWN = {*_KEPT, "name", "initialMarking", "inscription", "arctype", "type", "hlinscription", "capacity"}
_KNOWN |= {"declaration", "condition", "priority", *_COLOURED}
_NUMBER = re.compile(r"[+-]?[0-9]{1,30}")


class _Reader:
    """Reads one net, and notes all that is wrong with it."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems = Problems()
        self.notes: list[Problem] = []
        self.net = PnmlNet("")
        self._seen: dict[str, Element] = {}
        self._references: dict[str, tuple[str, str, Element]] = {}
        self._raw_arcs: list[Element] = []
        self._priorities: dict[str, Element] = {}
        self._ignored: dict[str, list[Element]] = {}

    def wrong(self, element: Element, message: str) -> None:
        self.problems.append(self.source.problem(message, element.line, element.column))

    def read(self, element: Element) -> PnmlNet:
        self.net = PnmlNet(element.attributes.get("id", "net"), name_of(element))
        kind = element.attributes.get("type", "")
        if any(part in kind.lower() for part in _COLOURED_TYPES):
            self.wrong(
                element,
                f"the net is of the type {shortened(kind)!r}, and coloured tokens are refused: "
                "place/transition nets (ptnet) are read",
            )
            return self.net
        self._contents(element, "")
        for arc in self._raw_arcs:
            self._arc(arc)
        if len(self._priorities) > 1:
            different = next(reversed(self._priorities.values()))
            self.wrong(different, "priorities of transitions are refused, and these differ")
        for tag, found in self._ignored.items():
            times = "" if len(found) == 1 else f", as in {len(found) - 1} other places"
            message = f"{shortened(tag)} counts for nothing here{times}"
            self.notes.append(self.source.problem(message, found[0].line, found[0].column))
        return self.net

    def _contents(self, element: Element, page: str) -> None:
        for child in element.children:
            if child.tag == "place":
                self._place(child, page)
            elif child.tag == "transition":
                self._transition(child, page)
            elif child.tag == "arc":
                self._raw_arcs.append(child)
            elif child.tag in ("referencePlace", "referenceTransition"):
                if name := self._id(child):
                    what = "place" if child.tag == "referencePlace" else "transition"
                    self._references[name] = (what, child.attributes.get("ref", ""), child)
            elif child.tag == "page":
                self._page(child, page)
            elif child.tag in _KEPT:
                (self.net.pages[page].kept if page else self.net.kept).append(child)
            elif child.tag == "net":
                self.wrong(child, "a net inside of a page is refused: put its nodes on the page itself")
            elif child.tag == "declaration" and self._is_coloured(child):
                self.wrong(child, "declarations of colours are refused: tokens are plain here")
            elif child.tag not in _KNOWN:
                self._ignored.setdefault(child.tag, []).append(child)

    def _is_coloured(self, element: Element) -> bool:
        structure = element.child("structure")
        return structure is not None and bool(structure.children)

    def _id(self, element: Element) -> str:
        name = element.attributes.get("id", "")
        if not name:
            self.wrong(element, f"this {element.tag} has no id")
            return ""
        if name in self._seen:
            first = self._seen[name]
            self.wrong(element, f"the id {name!r} is that of the {first.tag} in line {first.line}, too")
            return ""
        self._seen[name] = element
        return name

    def _page(self, element: Element, parent: str) -> None:
        if name := self._id(element):
            marks = [child for child in element.children if is_ours(child) and child.child("all") is not None]
            if marks:  # it was added when the file was written, as the standard wants a page
                element.children = [child for child in element.children if child not in marks]
                self._contents(element, parent)
                return
            self.net.pages[name] = PnmlPage(name, name_of(element), parent)
            self._contents(element, name)

    def _node(self, element: Element, page: str) -> PnmlNode | None:
        name = self._id(element)
        self._note_ignored(element)
        if not name:
            return None
        line, column = element.line, element.column
        return PnmlNode(name, name_of(element), page, line=line, column=column, kept=kept_of(element))

    def _note_ignored(self, element: Element) -> None:
        for child in element.children:
            if child.tag not in _KNOWN:
                self._ignored.setdefault(child.tag, []).append(child)

    def _place(self, element: Element, page: str) -> None:
        node = self._node(element, page)
        for child in element.children:
            if child.tag in _COLOURED or (child.tag == "type" and self._is_coloured(child)):
                self.wrong(child, f"place {element.attributes.get('id')!r}: coloured tokens are refused")
            if child.tag == "capacity" and (limit := value_of(child)) not in ("", "0"):
                self.wrong(
                    child,
                    f"place {element.attributes.get('id')!r}: a capacity ({limit}) is refused: add a place "
                    "with the tokens that are missing to it",
                )
        invariant = element.attributes.get("invariant", "")
        if invariant not in _UNLIMITED:
            self.wrong(element, f"place {element.attributes.get('id')!r}: time ({invariant}) is refused")
        if node is not None:
            self.net.places[node.id] = node
            node.tokens = self._number(element, "initialMarking", f"place {node.id!r}", 0, TOKENS_MAX, 0)

    def _transition(self, element: Element, page: str) -> None:
        node = self._node(element, page)
        if node is None:
            return
        self.net.transitions[node.id] = node
        if element.attributes.get("urgent", "false") == "true":
            self.wrong(element, f"transition {node.id!r}: time (urgent) is refused")
        label = element.child("priority")
        priority = element.attributes.get("priority", "") if label is None else value_of(label)
        self._priorities.setdefault(priority, element)
        for child in element.children:
            if child.tag == "condition":
                self.wrong(child, f"transition {node.id!r}: conditions on coloured tokens are refused")

    def _number(self, element: Element, tag: str, what: str, default: int, most: int, least: int) -> int:
        child = element.child(tag)
        where = element if child is None else child
        text = element.attributes.get(tag, "") if child is None else value_of(child)
        number = text.rpartition(",")[2].strip()  # PIPE writes the colour before it
        if not number:
            return default
        if not _NUMBER.fullmatch(number):
            self.wrong(where, f"{what}: {tag} is {shortened(text)!r}, and a whole number is needed")
            return default
        value = int(number)
        if not least <= value <= most:
            self.wrong(where, f"{what}: {tag} is {value}; {least} to {most:,} is allowed")
            return default
        return value

    def _arc(self, element: Element) -> None:
        name = self._id(element)
        self._note_ignored(element)
        what = f"arc {name!r}" if name else "this arc"
        ends = [self._end(element, what, side) for side in ("source", "target")]
        self._check_kind(element, what)
        weight = 1
        if element.attributes.get("weight"):
            weight = self._number(element, "weight", what, 1, WEIGHT_MAX, 1)
        elif element.attributes.get("inscription", "") not in _ALWAYS:
            weight = self._number(element, "inscription", what, 1, WEIGHT_MAX, 1)
        source, target = ends
        if source is None or target is None:
            return
        if (source in self.net.places) == (target in self.net.places):
            kind = "places" if source in self.net.places else "transitions"
            self.wrong(element, f"{what} goes from {source!r} to {target!r}, and both are {kind}")
            return
        if name:
            line, column = element.line, element.column
            self.net.arcs.append(PnmlArc(name, source, target, weight, line, column, kept_of(element)))

    def _check_kind(self, element: Element, what: str) -> None:
        kinds = [element.attributes.get("type", "")]
        kinds += [value_of(child) for tag in ("arctype", "type") for child in element.all(tag)]
        for kind in kinds:
            if kind in _ARC_KINDS:
                self.wrong(element, f"{what}: {_ARC_KINDS[kind]} are refused: only normal arcs are read")
            elif kind not in _NORMAL_KINDS:
                self.wrong(element, f"{what}: arcs of the type {shortened(kind)!r} are refused")
        if element.child("hlinscription") is not None:
            self.wrong(element, f"{what}: coloured tokens are refused")
        interval = element.attributes.get("inscription", "")
        if interval.startswith(("[", "(")) and interval not in _ALWAYS:
            self.wrong(element, f"{what}: time ({shortened(interval)}) is refused")

    def _end(self, element: Element, what: str, side: str) -> str | None:
        name = element.attributes.get(side, "")
        if not name:
            self.wrong(element, f"{what} has no {side}")
            return None
        seen: set[str] = set()
        first, kind = name, ""
        while name in self._references:
            if name in seen:
                self.wrong(element, f"{what}: the reference {first!r} leads to itself")
                return None
            seen.add(name)
            kind, name, _ = self._references[name]
        if name in self.net.places and kind != "transition":
            return name
        if name in self.net.transitions and kind != "place":
            return name
        known = [*self.net.places, *self.net.transitions]
        if name in known:
            self.wrong(
                element, f"{what}: the reference {first!r} of a {kind} leads to {name!r}, which is none"
            )
        elif name != first:
            self.wrong(element, f"{what}: the reference {first!r} leads to {name!r}, which is not there")
        else:
            meant = did_you_mean(name, known) if len(self.problems) < 20 else ""
            self.wrong(element, f"{what}: there is no place or transition {name!r}{meant}")
        return None


def value_of(element: Element) -> str:
    """Return the text in a label: in its child ``text`` or ``value``, its attribute ``value``, or itself."""
    for tag in ("text", "value"):
        child = element.child(tag)
        if child is not None:
            return child.text.strip()
    return (element.attributes.get("value") or element.text).strip()


def name_of(element: Element) -> str:
    """Return the name that a node has for people, "" if it has none."""
    child = element.child("name")
    text = element.attributes.get("name", "") if child is None else value_of(child)
    return " ".join(text.split())


def kept_of(element: Element) -> list[Element]:
    """Return the elements that go with a node as they are."""
    return [child for child in element.children if child.tag in _KEPT]


def shortened(text: str) -> str:
    """Return the beginning of a text, as messages show it."""
    return text if len(text) <= 60 else f"{text[:60]}..."


def read_pnml(source: Source, wanted: str = "") -> tuple[PnmlNet, list[Problem]]:
    """Return a net of a PNML file, and notes of what counts for nothing.

    Args:
        source: the file.
        wanted: id of the net; "" for the only one.

    Raises:
        FormatError: all that is wrong in it.
    """
    root = parse_xml(source)
    if root.tag != "pnml":
        message = f"this is no PNML: the outermost element is {shortened(root.tag)!r}, not pnml"
        raise FormatError([source.problem(message, root.line, root.column)])
    nets = list(root.all("net"))
    names = [net.attributes.get("id", "") for net in nets]
    for child in root.children:
        if child.tag.startswith("shared-"):
            message = f"{child.tag} is refused: make one net of the components (TAPAAL) before"
            raise FormatError([source.problem(message, child.line, child.column)])
    if not nets:
        raise FormatError([source.problem("there is no net in it", root.line, root.column)])
    if not wanted and len(nets) > 1:
        message = f"there are {len(nets)} nets in it: choose one by --net: {', '.join(names)}"
        raise FormatError([source.problem(message, nets[1].line, nets[1].column)])
    if wanted and wanted not in names:
        meant = did_you_mean(wanted, names)
        message = f"there is no net {wanted!r}{meant}; there are: {', '.join(names)}"
        raise FormatError([source.problem(message, root.line, root.column)])
    reader = _Reader(source)
    net = reader.read(nets[names.index(wanted)] if wanted else nets[0])
    if reader.problems:
        raise FormatError(reader.problems)
    return net, reader.notes
