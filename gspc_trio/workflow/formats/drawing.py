"""Pictures of nets: as text for Graphviz (dot) and Mermaid, places as circles, transitions as boxes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from msgspec import Struct

from gspc_trio.workflow.net import Net

NAME_CHARACTERS_MAX = 60
"""Of a longer name the beginning is shown."""


class DrawnNode(Struct, frozen=True):
    """A place or a transition in a picture.

    Attributes:
        id: unique in the picture: ``p0``, ``t0`` and so on.
        label: what is written in it.
        is_place: a circle; else a box.
        is_task: a box of double lines: tasks run there.
        is_port: a place that tokens come to or are left at: a double circle.
        group: names of the subnets around it, the outermost first.
    """

    id: str
    label: str
    is_place: bool
    is_task: bool = False
    is_port: bool = False
    group: tuple[str, ...] = ()


class DrawnArc(Struct, frozen=True):
    """An arc in a picture.

    Attributes:
        source, target: ids of nodes.
        label: how many tokens go along it, "" for one.
        is_read: the token stays: a dashed line.
    """

    source: str
    target: str
    label: str = ""
    is_read: bool = False


class Drawing(Struct, frozen=True):
    """A picture of a net.

    Attributes:
        name: of the net.
        nodes, arcs: what is in it.
    """

    name: str
    nodes: tuple[DrawnNode, ...]
    arcs: tuple[DrawnArc, ...]


def drawing_of(
    net: Net,
    groups: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
    hidden: Collection[str] = (),
) -> Drawing:
    """Return a picture of a net.

    Args:
        net: what is to be drawn.
        groups: ("place" or "transition", name) -> names of the subnets around it.
        hidden: places that are not drawn.
    """
    groups = groups or {}
    nodes: list[DrawnNode] = []
    arcs: list[DrawnArc] = []
    ids: dict[str, str] = {}
    transitions = list(net.all_transitions)
    nets = [net, *(one.subnet.net for one in transitions if one.subnet is not None)]
    shown_places = [place for one in nets for place in one.places.values() if place.name not in hidden]
    for number, place in enumerate(shown_places):
        ids[place.name] = f"p{number}"
        count = len(place.initial)
        tokens = "\n" + ("●" * count if count <= 5 else f"{count} ●") if count else ""
        group = groups.get(("place", place.name), ())
        is_port = place.is_input != place.is_output and not place.may_keep
        nodes.append(DrawnNode(f"p{number}", shown(place.name) + tokens, True, is_port=is_port, group=group))
    for number, transition in enumerate(transitions):
        name = f"t{number}"
        group = groups.get(("transition", transition.name), ())
        is_task = not transition.is_inline and transition.subnet is None
        nodes.append(DrawnNode(name, shown(transition.name), False, is_task=is_task, group=group))
        for arc in transition.inputs:
            if arc.place not in ids:
                continue
            label = "" if arc.most == 1 else str(arc.least)
            label += f" to {arc.most}" if arc.most != arc.least else ""
            arcs.append(DrawnArc(ids[arc.place], name, label, is_read=not arc.consumed))
        for made in transition.output_arcs:
            if made.place not in ids:
                continue
            is_each = made.each or (made.output >= 0 and transition.outputs[made.output][1])
            label = "each" if is_each else "" if made.copies == 1 else str(made.copies)
            arcs.append(DrawnArc(name, ids[made.place], label))
        if transition.subnet is not None:
            arcs += [DrawnArc(name, ids[place], "begin") for place in filter(None, transition.subnet.inputs)]
            ends = dict.fromkeys(transition.subnet.outputs)
            arcs += [DrawnArc(ids[place], name, "end") for place in ends]
    return Drawing(net.name, tuple(nodes), tuple(arcs))


def shown(name: str) -> str:
    """Return a name as pictures show it: in one line, and not too long."""
    text = " ".join(name.split())
    return text if len(text) <= NAME_CHARACTERS_MAX else f"{text[:NAME_CHARACTERS_MAX]}..."


class NodeGroup:
    """Nodes of a net or subnet.

    Attributes:
        nodes: those that are directly in it.
        below: name of a subnet in it -> its nodes.
    """

    def __init__(self) -> None:
        self.nodes: list[DrawnNode] = []
        self.below: dict[str, NodeGroup] = {}


def grouped(drawing: Drawing) -> NodeGroup:
    """Return the nodes of a picture by the subnets that they are in."""
    top = NodeGroup()
    for node in drawing.nodes:
        group = top
        for name in node.group:
            group = group.below.setdefault(name, NodeGroup())
        group.nodes.append(node)
    return top


def _lines(
    group: NodeGroup, node: Callable[[DrawnNode], str], begin: Callable[[int, str], str], end: str
) -> Iterator[str]:
    """Return lines for all nodes, those of a subnet between a line that begins it and one that ends it."""
    number = 0

    def inside(one: NodeGroup, indent: str) -> Iterator[str]:
        nonlocal number
        yield from (f"{indent}{node(each)}" for each in one.nodes)
        for name, below in one.below.items():
            number += 1
            yield f"{indent}{begin(number, name)}"
            yield from inside(below, indent + "  ")
            yield f"{indent}{end}"

    yield from inside(group, "  ")


def dot_of(drawing: Drawing) -> str:
    """Return a picture as Graphviz reads it."""

    def node(one: DrawnNode) -> str:
        if one.is_place:
            return f"{one.id} [label={_quoted(one.label)}{', peripheries=2' if one.is_port else ''}];"
        more = ", peripheries=2" if one.is_task else ""
        return f"{one.id} [label={_quoted(one.label)}, shape=box{more}];"

    lines = [
        f"digraph {_quoted(drawing.name)} {{",
        "  rankdir=LR;",
        '  node [shape=ellipse, fontname="sans"];',
    ]
    lines += _lines(
        grouped(drawing),
        node,
        lambda number, name: f"subgraph cluster{number} {{ label={_quoted(shown(name))};",
        "}",
    )
    for arc in drawing.arcs:
        marks = [f"label={_quoted(arc.label)}"] if arc.label else []
        marks += ["style=dashed"] if arc.is_read else []
        written = f" [{', '.join(marks)}]" if marks else ""
        lines.append(f"  {arc.source} -> {arc.target}{written};")
    return "\n".join([*lines, "}\n"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def mermaid_of(drawing: Drawing) -> str:
    """Return a picture as Mermaid reads it, in Markdown pages for instance."""

    def node(one: DrawnNode) -> str:
        text = _mermaid(one.label)
        if one.is_place:
            return f"{one.id}((({text})))" if one.is_port else f"{one.id}(({text}))"
        return f"{one.id}[[{text}]]" if one.is_task else f"{one.id}[{text}]"

    lines = ["flowchart LR"]
    lines += _lines(
        grouped(drawing), node, lambda number, name: f"subgraph g{number} [{_mermaid(shown(name))}]", "end"
    )
    for arc in drawing.arcs:
        line = "-.->" if arc.is_read else "-->"
        label = f"|{_mermaid(arc.label)}|" if arc.label else ""
        lines.append(f"  {arc.source} {line}{label} {arc.target}")
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    escaped = text.replace("#", "#35;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")
    return '"' + escaped.replace("\n", "<br/>") + '"'
