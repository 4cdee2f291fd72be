"""Pictures of nets as SVG, where Graphviz is not installed: nodes in layers, which networkx finds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from xml.sax.saxutils import escape

from msgspec import Struct

from gspc_trio.workflow.formats.drawing import Drawing, DrawnArc, DrawnNode, NodeGroup, grouped, shown

WIDTH, HEIGHT = 170, 80
"""Room for a node, in pixels."""

SIZE_X, SIZE_Y = 65, 22
"""Half the size of a node, in pixels."""

BORDER, TITLE = 14, 22
"""Room around what is in the box of a subnet, and above it for the name, in pixels."""

CHARACTERS_MAX = 18
"""Of a longer line in a node the beginning is shown, and all of it when the pointer is there."""


class _Area(Struct, frozen=True):
    """A rectangle with nodes, and with the boxes of subnets.

    Attributes:
        width, height: of it.
        nodes: id -> middle of the node.
        boxes: left, top, width, height and name of each box.
    """

    width: float
    height: float
    nodes: Mapping[str, tuple[float, float]]
    boxes: Sequence[tuple[float, float, float, float, str]] = ()


def svg_of(drawing: Drawing) -> str:
    """Return a picture as SVG.

    Raises:
        ImportError: networkx is not installed.
    """
    marked = {node.id for node in drawing.nodes if node.is_place and "\n" in node.label}
    area = _area(grouped(drawing), [(arc.source, arc.target) for arc in drawing.arcs], marked)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{area.width:g}" height="{area.height:g}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">',
        f"<title>{escape(drawing.name)}</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
        *(_subnet(*box) for box in area.boxes),
        *(_arc(arc, area.nodes) for arc in drawing.arcs),
        *(_node(node, area.nodes[node.id]) for node in drawing.nodes),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _area(group: NodeGroup, arcs: Collection[tuple[str, str]], marked: Collection[str]) -> _Area:
    """Return where the nodes of a net are: a subnet is a rectangle of its own among them.

    Args:
        group: the net.
        arcs: ids of nodes.
        marked: places with tokens.
    """
    parts = {node.id: _Area(WIDTH, HEIGHT, {node.id: (WIDTH / 2, HEIGHT / 2)}) for node in group.nodes}
    for number, (name, below) in enumerate(group.below.items()):
        parts[f"box {number}"] = _boxed(name, _area(below, arcs, marked))
    part_of = {node: part for part, area in parts.items() for node in area.nodes}
    edges = [
        (part_of[source], part_of[target])
        for source, target in arcs
        if source in part_of and target in part_of and part_of[source] != part_of[target]
    ]
    nodes: dict[str, tuple[float, float]] = {}
    boxes: list[tuple[float, float, float, float, str]] = []
    left, height = 0.0, float(HEIGHT)
    for layer in _layers(parts, edges, {part_of[node] for node in marked if node in part_of}):
        width, top = max(parts[part].width for part in layer), 0.0
        for part in layer:
            area = parts[part]
            x = left + (width - area.width) / 2
            nodes.update({node: (x + at_x, top + at_y) for node, (at_x, at_y) in area.nodes.items()})
            boxes += [(x + box[0], top + box[1], *box[2:]) for box in area.boxes]
            top += area.height
        left, height = left + width, max(height, top)
    return _Area(max(left, WIDTH), height, nodes, boxes)


def _boxed(name: str, inner: _Area) -> _Area:
    """Return what is in a subnet with a box around it."""
    above = BORDER + TITLE
    return _Area(
        inner.width + 4 * BORDER,
        inner.height + above + 2 * BORDER,
        {node: (x + 2 * BORDER, y + above) for node, (x, y) in inner.nodes.items()},
        [
            (BORDER, BORDER, inner.width + 2 * BORDER, inner.height + TITLE, name),
            *((box[0] + 2 * BORDER, box[1] + above, *box[2:]) for box in inner.boxes),
        ],
    )


def _layers(
    names: Iterable[str], edges: Iterable[tuple[str, str]], marked: Collection[str]
) -> list[list[str]]:
    """Return names by their distance from where tokens begin; in a layer, near to their arcs."""
    import networkx  # an extra, and only for pictures

    graph = networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from(edges)
    first = [node for node in graph if node in marked or not graph.in_degree(node)]
    layers = [list(layer) for layer in networkx.bfs_layers(graph, first)] if first else []
    found = set(chain.from_iterable(layers))
    while len(found) < len(graph):  # what no token reaches
        start = next(node for node in graph if node not in found)
        for number, layer in enumerate(networkx.bfs_layers(graph.subgraph(graph.nodes - found), [start])):
            while len(layers) <= number:
                layers.append([])
            layers[number] += layer
        found = set(chain.from_iterable(layers))
    rows: dict[str, float] = {}
    for layer in layers:
        for node in layer:
            before = [rows[other] for other in graph.predecessors(node) if other in rows]
            rows[node] = sum(before) / len(before) if before else len(rows)
        layer.sort(key=lambda node: rows[node])
        rows.update({node: row for row, node in enumerate(layer)})
    return layers


def _subnet(x: float, y: float, width: float, height: float, name: str) -> str:
    size = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    box = f'<rect {size} rx="6" fill="none" stroke="gray"/>'
    return f"<g>{box}{_text(x + width / 2, y + 15, shown(name))}</g>"


def _node(node: DrawnNode, at: tuple[float, float]) -> str:
    x, y = at
    shape = _ellipse if node.is_place else _box
    parts = [f"<g><title>{escape(' / '.join((*node.group, node.label)))}</title>", shape(x, y, 0)]
    if node.is_port or node.is_task:
        parts.append(shape(x, y, 3))
    lines = node.label.split("\n")
    for number, line in enumerate(lines):
        short = line if len(line) <= CHARACTERS_MAX else f"{line[:CHARACTERS_MAX]}..."
        parts.append(_text(x, y + 4 + 13 * (number - (len(lines) - 1) / 2), short))
    return "".join([*parts, "</g>"])


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{escape(text)}</text>'


def _ellipse(x: float, y: float, inside: int) -> str:
    sizes = f'rx="{SIZE_X - inside}" ry="{SIZE_Y - inside}"'
    return f'<ellipse cx="{x:g}" cy="{y:g}" {sizes} fill="white" stroke="black"/>'


def _box(x: float, y: float, inside: int) -> str:
    width, height = SIZE_X - inside, SIZE_Y - inside
    sizes = f'width="{2 * width}" height="{2 * height}"'
    return f'<rect x="{x - width:g}" y="{y - height:g}" {sizes} fill="white" stroke="black"/>'


def _arc(arc: DrawnArc, places: Mapping[str, tuple[float, float]]) -> str:
    (x1, y1) = _border(places[arc.source], places[arc.target])
    (x2, y2) = _border(places[arc.target], places[arc.source])
    style = 'stroke="black" fill="none" marker-end="url(#end)"'
    style += ' stroke-dasharray="4 3"' if arc.is_read else ""
    line = f'<path d="M{x1:g} {y1:g}L{x2:g} {y2:g}" {style}/>'
    return line + (_text((x1 + x2) / 2, (y1 + y2) / 2 - 3, arc.label) if arc.label else "")


def _border(at: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Return where a line from the middle of a node to another one leaves its box."""
    dx, dy = towards[0] - at[0], towards[1] - at[1]
    scale = max(abs(dx) / SIZE_X, abs(dy) / SIZE_Y)
    return (at[0] + dx / scale, at[1] + dy / scale) if scale else (at[0], at[1])
