"""Pictures of nets as SVG, where Graphviz is not installed: nodes in layers, which networkx finds."""

from __future__ import annotations

from xml.sax.saxutils import escape

from gspc_trio.workflow.formats.drawing import Drawing, DrawnArc, DrawnNode

WIDTH, HEIGHT = 170, 80
"""Room for a node, in pixels."""

SIZE_X, SIZE_Y = 65, 22
"""Half the size of a node, in pixels."""

CHARACTERS_MAX = 18
"""Of a longer line in a node the beginning is shown, and all of it when the pointer is there."""


def svg_of(drawing: Drawing) -> str:
    """Return a picture as SVG.

    Raises:
        ImportError: networkx is not installed.
    """
    layers = _layers(drawing)
    places = {
        name: (WIDTH * (column + 0.5), HEIGHT * (row + 0.5))
        for column, layer in enumerate(layers)
        for row, name in enumerate(layer)
    }
    width = WIDTH * max(1, len(layers))
    height = HEIGHT * max((len(layer) for layer in layers), default=1)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="11" text-anchor="middle">',
        f"<title>{escape(drawing.name)}</title>",
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>',
        *(_arc(arc, places) for arc in drawing.arcs),
        *(_node(node, places[node.id]) for node in drawing.nodes),
        "</svg>\n",
    ]
    return "\n".join(lines)


def _layers(drawing: Drawing) -> list[list[str]]:
    """Return the ids of nodes by their distance from where tokens begin; in a layer, near to their arcs."""
    import networkx  # an extra, and only for pictures

    graph = networkx.DiGraph()
    graph.add_nodes_from(node.id for node in drawing.nodes)
    graph.add_edges_from((arc.source, arc.target) for arc in drawing.arcs)
    marked = {node.id for node in drawing.nodes if node.is_place and "\n" in node.label}
    first = [node for node in graph if node in marked or not graph.in_degree(node)]
    layers = [list(layer) for layer in networkx.bfs_layers(graph, first)] if first else []
    found = {node for layer in layers for node in layer}
    while len(found) < len(graph):  # what no token reaches
        start = next(node for node in graph if node not in found)
        for number, layer in enumerate(networkx.bfs_layers(graph.subgraph(graph.nodes - found), [start])):
            while len(layers) <= number:
                layers.append([])
            layers[number] += layer
        found = {node for layer in layers for node in layer}
    rows: dict[str, float] = {}
    for layer in layers:
        for node in layer:
            before = [rows[other] for other in graph.predecessors(node) if other in rows]
            rows[node] = sum(before) / len(before) if before else len(rows)
        layer.sort(key=lambda node: rows[node])
        rows.update({node: row for row, node in enumerate(layer)})
    return layers


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


def _arc(arc: DrawnArc, places: dict[str, tuple[float, float]]) -> str:
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
