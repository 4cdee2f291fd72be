"""Layout of pictures: nodes in columns, so that most arcs go to the right, and arcs as curves between them.

First the arcs that close cycles are turned round, then each node comes one column after what leads to it.
Arcs over several columns get a point in each, so that they pass between nodes. The order in the columns
follows the neighbours, and so do the heights (the method of Sugiyama, Tagawa and Toda).
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from msgspec import Struct

GAP_X, GAP_Y = 60.0, 18.0
"""Between nodes, in pixels."""

BEND_Y = 2.0
"""Half the height of a point at which an arc passes a column."""

PORT_Y = 9.0
"""Between arcs that end at the same side of a node, where it is high enough."""

SWEEPS = 12
BENDS_MAX = 5_000
"""With more, arcs over several columns are straight: a picture with so many shows nothing anyway."""

Point = tuple[float, float]


class NetLayout(Struct, frozen=True):
    """Where all is.

    Attributes:
        middles: of the nodes.
        ways: of the arcs: the points through which each goes from its source to its target.
        width, height: of the picture.
    """

    middles: dict[str, Point]
    ways: list[list[Point]]
    width: float
    height: float


def layout_of(
    sizes: Mapping[str, tuple[float, float]], arcs: Sequence[tuple[str, str]], first: Iterable[str]
) -> NetLayout:
    """Return where nodes and arcs are.

    Args:
        sizes: half the width and half the height of each node, in pixels.
        arcs: source and target of each.
        first: nodes that come before all others, where there is a choice.

    Raises:
        ImportError: networkx is not installed.
    """
    turned = _closing_cycles(sizes, arcs, first)
    ahead = [(target, source) if (source, target) in turned else (source, target) for source, target in arcs]
    columns = _columns(sizes, ahead)
    heights = {name: size[1] for name, size in sizes.items()}
    chains = _chains(columns, ahead, heights)
    ordered, links = _ordered(columns, chains)
    y = _heights(ordered, links, heights)
    x, left = {}, 0.0
    for column in ordered:
        wide = max((sizes[name][0] for name in column if name in sizes), default=0.0)
        x.update(dict.fromkeys(column, left + GAP_X / 2 + wide))
        left += GAP_X + 2 * wide
    ports = _ports(chains, y, sizes)
    ways = []
    for number, (arc, chain) in enumerate(zip(arcs, chains, strict=True)):
        way = [(x[name], y[name]) for name in chain]
        if len(chain) > 1:
            (x1, y1), (x2, y2) = way[0], way[-1]
            begin, end = ports[number]
            way[0] = (x1 + sizes[chain[0]][0], y1 + begin)
            way[-1] = (x2 - sizes[chain[-1]][0], y2 + end)
        ways.append(way[::-1] if arc in turned else way)
    middles = {name: (x[name], y[name]) for name in sizes}
    height = max((y[name] + heights[name] for column in ordered for name in column), default=0.0)
    return NetLayout(middles, ways, left, height + GAP_Y)


def _closing_cycles(
    names: Iterable[str], arcs: Sequence[tuple[str, str]], first: Iterable[str]
) -> set[tuple[str, str]]:
    """Return arcs without which no cycle is left, but for nodes that lead to themselves."""
    followers: dict[str, list[str]] = {name: [] for name in names}
    for source, target in arcs:
        if source != target:
            followers[source].append(target)
    is_over: dict[str, bool] = {}
    found = set()
    for root in [*first, *followers]:
        if root in is_over:
            continue
        is_over[root] = False
        path = [(root, iter(followers[root]))]
        while path:
            node, rest = path[-1]
            follower = next(rest, None)
            if follower is None:
                is_over[node] = True
                path.pop()
            elif follower not in is_over:
                is_over[follower] = False
                path.append((follower, iter(followers[follower])))
            elif not is_over[follower]:
                found.add((node, follower))
    return found


def _columns(names: Iterable[str], ahead: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the column of each node: behind what leads to it, or else right before what follows it."""
    import networkx  # an extra, and only for pictures

    graph = networkx.DiGraph()
    graph.add_nodes_from(names)
    graph.add_edges_from((source, target) for source, target in ahead if source != target)
    column = {
        name: number for number, names in enumerate(networkx.topological_generations(graph)) for name in names
    }
    for name in graph:
        if not graph.in_degree(name) and graph.out_degree(name):
            column[name] = min(column[follower] for follower in graph.successors(name)) - 1
    return column


def _chains(
    columns: dict[str, int], ahead: Sequence[tuple[str, str]], heights: dict[str, float]
) -> list[list[str]]:
    """Return the nodes and points through which each arc goes, the points put into columns and heights."""
    chains = []
    for number, (source, target) in enumerate(ahead):
        between = range(columns[source] + 1, columns[target])
        bends = [f"\n{number} {column}" for column in between] if len(columns) < BENDS_MAX else []
        columns.update(zip(bends, between, strict=False))
        heights.update(dict.fromkeys(bends, BEND_Y))
        chains.append([source, *bends, target] if source != target else [source])
    return chains


def _ordered(
    columns: Mapping[str, int], chains: Sequence[Sequence[str]]
) -> tuple[list[list[str]], dict[str, tuple[list[str], list[str]]]]:
    """Return the nodes and points of each column with few crossings, and what is next to each."""
    ordered: list[list[str]] = [[] for _ in range(max(columns.values(), default=-1) + 1)]
    links: dict[str, tuple[list[str], list[str]]] = {name: ([], []) for name in columns}
    for chain in chains:
        for one, other in pairwise(chain):
            links[one][1].append(other)
            links[other][0].append(one)
    for name in columns:
        ordered[columns[name]].append(name)
    best, fewest = [list(column) for column in ordered], _crossings(ordered, links)
    for sweep in range(SWEEPS):
        side = sweep % 2
        row = {name: number for column in ordered for number, name in enumerate(column)}
        for column in reversed(ordered) if side else ordered:
            means = {name: _mean([row[one] for one in links[name][side]], row[name]) for name in column}
            column.sort(key=means.__getitem__)
            row.update({name: number for number, name in enumerate(column)})
        if (count := _crossings(ordered, links)) < fewest:
            best, fewest = [list(column) for column in ordered], count
    return best, links


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(
    ordered: Sequence[Sequence[str]], links: Mapping[str, tuple[Sequence[str], Sequence[str]]]
) -> int:
    """Return how many arcs cross between columns."""
    row = {name: number for column in ordered for number, name in enumerate(column)}
    count = 0
    for column in ordered:
        passed: list[int] = []
        for name in column:
            ends = sorted(row[one] for one in links[name][1])
            count += sum(len(passed) - bisect_right(passed, end) for end in ends)
            for end in ends:
                insort(passed, end)
    return count


def _heights(
    ordered: Sequence[Sequence[str]],
    links: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    heights: Mapping[str, float],
) -> dict[str, float]:
    """Return how far down each node is: near to its neighbours, without touching the next one."""
    y: dict[str, float] = {}
    for sweep in range(SWEEPS):
        for column in ordered if sweep % 2 == 0 else reversed(ordered):
            wanted = [
                _mean([y[one] for side in links[name] for one in side if one in y], y.get(name, 0.0))
                for name in column
            ]
            room = [GAP_Y + heights[one] + heights[other] for one, other in pairwise(column)]
            y.update(zip(column, _apart(wanted, room), strict=True))
    top = min((y[name] - heights[name] for name in y), default=0.0)
    return {name: value - top + GAP_Y for name, value in y.items()}


def _apart(wanted: Sequence[float], room: Sequence[float]) -> list[float]:
    """Return the heights nearest to those that are wanted, with the room between each and the next."""
    offsets = [0.0]
    for one in room:
        offsets.append(offsets[-1] + one)
    blocks: list[tuple[float, int]] = []  # a mean and how many share it; they rise
    for value, offset in zip(wanted, offsets, strict=False):
        mean, count = value - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, count = (mean * count + before * many) / (count + many), count + many
        blocks.append((mean, count))
    shifts = [mean for mean, count in blocks for _ in range(count)]
    return [shift + offset for shift, offset in zip(shifts, offsets, strict=False)]


def _ports(
    chains: Sequence[Sequence[str]], y: Mapping[str, float], sizes: Mapping[str, tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return for each arc how far below the middles of its first and its last node it ends."""
    sides: dict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
    for number, chain in enumerate(chains):
        if len(chain) > 1:
            sides[chain[0], 0].append((y[chain[1]], number))
            sides[chain[-1], 1].append((y[chain[-2]], number))
    ports = [[0.0, 0.0] for _ in chains]
    for (name, end), arcs in sides.items():
        apart = min(PORT_Y, 1.6 * sizes[name][1] / len(arcs))
        for place, (_, number) in enumerate(sorted(arcs)):
            ports[number][end] = apart * (place - (len(arcs) - 1) / 2)
    return [(begin, end) for begin, end in ports]
