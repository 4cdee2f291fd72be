"""Pictures of nets as SVG, where Graphviz is not installed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import sqrt
from xml.sax.saxutils import escape

from msgspec import Struct

from gspc_trio.workflow.formats.drawing import Drawing, DrawnArc, DrawnNode, NodeGroup, grouped, shown
from gspc_trio.workflow.formats.layout import Point, layout_of

CHARACTERS_MAX = 24
"""Of a longer line in a node the beginning is shown, and all of it when the pointer is there."""

CHARACTER_X, LINE_Y = 6.6, 13
"""Room for a character and for a line, in pixels."""

SIZE_Y = 20
"""Half the height of a node, in pixels."""

TITLE_Y = 22
"""Room for the name of a subnet, in pixels."""

DOT = 8
"""Half the size of a node without a text."""


class _Area(Struct, frozen=True):
    """A rectangle with nodes, and with the boxes of subnets.

    Attributes:
        width, height: of it.
        nodes: id -> middle of the node.
        boxes: left, top, width, height and name of each box.
        ways: number of an arc -> the points through which it goes.
    """

    width: float
    height: float
    nodes: Mapping[str, Point]
    boxes: Sequence[tuple[float, float, float, float, str]]
    ways: Mapping[int, list[Point]]

    def moved(self, x: float, y: float) -> _Area:
        """Return it with all that is in it elsewhere."""
        return _Area(
            self.width,
            self.height,
            {node: (x + at[0], y + at[1]) for node, at in self.nodes.items()},
            [(x + box[0], y + box[1], *box[2:]) for box in self.boxes],
            {arc: [(x + at[0], y + at[1]) for at in way] for arc, way in self.ways.items()},
        )


def svg_of(drawing: Drawing) -> str:
    """Return a picture as SVG.

    Raises:
        ImportError: networkx is not installed.
    """
    nodes = {node.id: node for node in drawing.nodes}
    area = _area(grouped(drawing), drawing.arcs, {name: _size(node) for name, node in nodes.items()})
    size = f'width="{area.width:.0f}" height="{area.height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {area.width:.0f} {area.height:.0f}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">',
        f"<title>{escape(drawing.name)}</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="black"/></marker></defs>',
        *(_subnet(*box) for box in area.boxes),
    ]
    for number, arc in enumerate(drawing.arcs):
        way = area.ways[number]
        for end, name in ((0, arc.source), (-1, arc.target)):
            if nodes[name].is_place and len(way) > 1:
                way[end] = _on_ellipse(way[end], area.nodes[name], _size(nodes[name]))
        lines.append(_arc(arc, way))
    lines += [_node(node, area.nodes[node.id]) for node in drawing.nodes]
    return "\n".join([*lines, "</svg>\n"])


def _area(group: NodeGroup, arcs: Sequence[DrawnArc], node_sizes: Mapping[str, Point]) -> _Area:
    """Return where the nodes of a net are: a subnet is a rectangle of its own among them.

    Args:
        group: the net.
        arcs: of the whole picture.
        node_sizes: half the width and half the height of each node.
    """
    sizes = {node.id: node_sizes[node.id] for node in group.nodes}
    part_of = {node: node for node in sizes}
    below: dict[str, _Area] = {}
    for number, (name, inner) in enumerate(group.below.items()):
        area = _boxed(name, _area(inner, arcs, node_sizes))
        below[f"box {number}"] = area
        sizes[f"box {number}"] = (area.width / 2, area.height / 2)
        part_of.update(dict.fromkeys(area.nodes, f"box {number}"))
    here = [number for number, arc in enumerate(arcs) if _is_between_parts(arc, part_of)]
    edges = [(part_of[arcs[number].source], part_of[arcs[number].target]) for number in here]
    layout = layout_of(sizes, edges, _first(group.nodes, sizes, {target for _, target in edges}))
    nodes = {node.id: layout.middles[node.id] for node in group.nodes}
    ways = dict(zip(here, layout.ways, strict=True))
    boxes: list[tuple[float, float, float, float, str]] = []
    for part, area in below.items():
        x, y = layout.middles[part]
        placed = area.moved(x - area.width / 2, y - area.height / 2)
        nodes.update(placed.nodes)
        ways.update(placed.ways)
        boxes += placed.boxes
    for number in here:
        way = ways[number]
        source, target = arcs[number].source, arcs[number].target
        if source not in sizes:
            way.insert(
                0, _side(nodes[source], node_sizes[source], way[0][0] - layout.middles[part_of[source]][0])
            )
        if target not in sizes:
            way.append(
                _side(nodes[target], node_sizes[target], way[-1][0] - layout.middles[part_of[target]][0])
            )
    return _Area(layout.width, layout.height, nodes, boxes, ways)


def _is_between_parts(arc: DrawnArc, part_of: Mapping[str, str]) -> bool:
    """Whether an arc is drawn in a net, not in one above or below it."""
    if arc.source not in part_of or arc.target not in part_of:
        return False
    is_to_itself = arc.source == arc.target == part_of[arc.source]
    return is_to_itself or part_of[arc.source] != part_of[arc.target]


def _first(nodes: Sequence[DrawnNode], parts: Collection[str], targets: Collection[str]) -> list[str]:
    """Return the parts where tokens begin."""
    marked = [node.id for node in nodes if node.is_place and "\n" in node.label]
    return [*(part for part in parts if part not in targets), *marked]


def _side(middle: Point, size: Point, towards: float) -> Point:
    return middle[0] + (size[0] if towards > 0 else -size[0]), middle[1]


def _boxed(name: str, inner: _Area) -> _Area:
    """Return what is in a subnet with a box around it."""
    moved = inner.moved(0, TITLE_Y)
    height = inner.height + TITLE_Y
    boxes = [(0.0, 0.0, inner.width, height, name), *moved.boxes]
    return _Area(inner.width, height, moved.nodes, boxes, moved.ways)


def _subnet(x: float, y: float, width: float, height: float, name: str) -> str:
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    box = f'<rect {size} rx="6" fill="none" stroke="gray"/>'
    return f"<g>{box}{_text((x + width / 2, y + 15), shown(name))}</g>"


def _size(node: DrawnNode) -> Point:
    """Return half the width and half the height of a node."""
    if not node.label:
        return DOT, DOT
    characters = max(len(_short(line)) for line in node.label.split("\n"))
    return max(24, characters * CHARACTER_X / 2 + (16 if node.is_place else 10)), SIZE_Y


def _short(line: str) -> str:
    return line if len(line) <= CHARACTERS_MAX else f"{line[: CHARACTERS_MAX - 3]}..."


def _node(node: DrawnNode, at: Point) -> str:
    x, y = at
    size = _size(node)
    shape = _ellipse if node.is_place else _box
    fill = "white" if node.label else "black"
    parts = [f"<g><title>{escape(' / '.join((*node.group, node.label)))}</title>"]
    if node.is_port or node.is_task:
        parts += [shape(at, size, 0, "white"), shape(at, size, 3, fill)]
    else:
        parts.append(shape(at, size, 0, fill))
    lines = node.label.split("\n") if node.label else []
    for number, line in enumerate(lines):
        parts.append(_text((x, y + 4 + LINE_Y * (number - (len(lines) - 1) / 2)), _short(line)))
    return "".join([*parts, "</g>"])


def _text(at: Point, text: str) -> str:
    return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}">{escape(text)}</text>'


def _ellipse(at: Point, size: Point, inside: int, fill: str) -> str:
    sizes = f'rx="{size[0] - inside:.1f}" ry="{size[1] - inside:.1f}"'
    return f'<ellipse cx="{at[0]:.1f}" cy="{at[1]:.1f}" {sizes} fill="{fill}" stroke="black"/>'


def _box(at: Point, size: Point, inside: int, fill: str) -> str:
    width, height = size[0] - inside, size[1] - inside
    where = f'x="{at[0] - width:.1f}" y="{at[1] - height:.1f}"'
    return f'<rect {where} width="{2 * width:.1f}" height="{2 * height:.1f}" fill="{fill}" stroke="black"/>'


def _on_ellipse(end: Point, middle: Point, size: Point) -> Point:
    """Return where an arc that comes from the side ends at a round node."""
    share = min(1.0, abs(end[1] - middle[1]) / size[1])
    width = size[0] * sqrt(1 - share**2)
    return middle[0] + (width if end[0] > middle[0] else -width), end[1]


def _arc(arc: DrawnArc, way: Sequence[Point]) -> str:
    style = 'stroke="black" fill="none" marker-end="url(#end)"'
    style += ' stroke-dasharray="4 3"' if arc.is_read else ""
    x, y = way[0]
    if len(way) == 1:  # to where it comes from
        line = f"M{x - 8:.1f} {y - SIZE_Y:.1f}c-12 -22 28 -22 16 0"
        at = (x, y - SIZE_Y - 18)
    else:
        line = f"M{x:.1f} {y:.1f}" + "".join(map(_curve, way, way[1:]))
        middle = len(way) // 2
        (x1, y1), (x2, y2) = way[middle - 1], way[middle]
        at = ((x1 + x2) / 2, (y1 + y2) / 2 - 3)
    return f'<path d="{line}" {style}/>' + (_text(at, arc.label) if arc.label else "")


def _curve(begin: Point, end: Point) -> str:
    bend = (begin[0] + end[0]) / 2
    return f"C{bend:.1f} {begin[1]:.1f} {bend:.1f} {end[1]:.1f} {end[0]:.1f} {end[1]:.1f}"
