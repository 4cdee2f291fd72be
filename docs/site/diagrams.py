"""Reads the diagrams of the pages, as `make docs` and `gspc-jobserver draw` write them for Mermaid."""

from __future__ import annotations

import re
from html import unescape

from gspc_trio.workflow.formats.drawing import Drawing, DrawnArc, DrawnNode

STATE = re.compile(r"(\w+) : (.+)")
NODE = re.compile(r'(\w+)(\(\(\(|\(\(|\[\[|\[)"(.*)"[\])]+')
SUBNET = re.compile(r'subgraph \w+ \["(.*)"\]')
ARC = re.compile(r'(\[\*\]|\w+) (-->|-\.->)(?:\|"(.*)"\|)? (\[\*\]|\w+)')


def drawing_of_mermaid(text: str) -> Drawing:
    """Return a state diagram, or a picture of a net, that is written for Mermaid.

    Raises:
        ValueError: a line is none that this project writes.
    """
    drawn: dict[str, DrawnNode] = {}
    arcs: list[DrawnArc] = []

    def end_of(name: str, spare: str) -> str:
        if name != "[*]":
            return name
        return drawn.setdefault(spare, DrawnNode(spare, "", True, is_port=spare == "end")).id

    subnets: tuple[str, ...] = ()
    kind, *lines = text.strip().split("\n")
    for line in map(str.strip, lines):
        if found := STATE.fullmatch(line):
            drawn[found[1]] = DrawnNode(found[1], found[2], False)
        elif found := NODE.fullmatch(line):
            name, shape, label = found.groups()
            kinds = {"is_task": shape == "[[", "is_port": shape == "((("}
            drawn[name] = DrawnNode(name, as_text(label), shape[0] == "(", group=subnets, **kinds)
        elif found := ARC.fullmatch(line):
            source, way, label, target = found.groups()
            ends = end_of(source, "begin"), end_of(target, "end")
            arcs.append(DrawnArc(*ends, as_text(label or ""), is_read=way == "-.->"))
        elif found := SUBNET.fullmatch(line):
            subnets = (*subnets, as_text(found[1]))
        elif line == "end" and subnets:
            subnets = subnets[:-1]
        else:
            raise ValueError(f"{line!r} is nothing that the site can draw, in a {kind}")
    return Drawing(kind, tuple(drawn.values()), tuple(arcs))


def as_text(label: str) -> str:
    """Return a label as people read it."""
    lines = label.replace("<br/>", "\n")
    return re.sub(r"#(\w+);", lambda one: unescape(f"&{'#' * one[1].isdigit()}{one[1]};"), lines)
